//! The general monitor: records of a whole program, for people. Feature: `monitors`.
//!
//! Each thread writes [records](Record) of 40 bytes into its own buffer ([`emit`]). A collector gathers and
//! aggregates them. [Subscriptions](subscribe) deliver them to readers.
//!
//! A record is old when its reader gets it, so do not steer a lock by it. A configurable lock has a monitor
//! of its own beside its attributes, and `squall::objects::lock` decides by it.
//!
//! Squall's own slow paths emit records, too: locks (`lock.wait`, `lock.give_up`, `lock.sleep`,
//! `lock.revoke`), gates (`gate.close`, `gate.drained`, `gate.open`), queues (`queue.wait`, `queue.close`),
//! swaps (`swap.begin`, `swap.phase`, `swap.end`), and the engine (`engine.decision`, `engine.mode`). Free
//! locks, open gates, and queues with elements emit no record.
//! A thread may hold locks when it emits, and its first record allocates. So a global allocator must not
//! take Squall's locks.
//!
//! A [`Digest`] keeps sums in place of records, for a reader that polls, such as `squall top PID --records`.
//!
//! `squall bench monitor` compares records with the monitor of a configurable lock, with a mutex for scale.
//!
//! # Cost of the general monitor
//! While there is no subscription, it is off: an [`emit`] is a load and a branch, without memory or a thread.
//! While it is on, the first record of a thread allocates a buffer ([`buffer_bytes`], kept until the thread
//! ends). Each record reads the clock and makes six stores to the thread's own memory. One record in half a
//! buffer, and the first one after a rest, also wakes the collector by a system call. A full buffer drops
//! records and counts them: a writer never waits.
//!
//! # Progress
//! [`emit`] is wait-free except for the first record of a thread, which takes a lock, and waking the
//! collector. User code does not run under these locks, so a reader that stalls delays no other thread. Its
//! queue is bounded, and records that do not fit are counted as missed. Do not use it in signal handlers or
//! in a global allocator. In a forked child records are lost.
//!
//! # Order
//! Records of one thread arrive in order. Records of several threads are sorted by time only within a
//! [`Batch`].
//!
//! # Source
//! KTK (Gheith, Mukherjee, Silva, Schwan 1994, §5.2). On a KSR1, creating, inserting and retrieving a sensor
//! of its general monitor took 118, 58 and 51 µs; a lock that monitors and configures itself took 5.5 µs.
//! Three things differ here: the collector exists only with a subscription, a writer neither waits nor
//! allocates, and losses are counted. For the hand-over see `ring.rs` and `centre.rs`.
//!
//! # Example
//! ```
//! use squall::policy::monitor::{self, Kind, Object};
//!
//! static REFILL: Kind = Kind::new("pool.refill", ["items", "waited_ns"]);
//!
//! monitor::emit(&REFILL, Object::number(7), [1, 0]); // nobody looks: as good as nothing
//! let reader = monitor::subscribe(16)?;
//! monitor::emit(&REFILL, Object::number(7), [32, 900]);
//! let batch = reader.recv().expect("it is open");
//! assert_eq!(batch.records()[0].values(), [32, 900]);
//! assert!(batch.records()[0].to_string().ends_with("pool.refill #7 items=32 waited_ns=900"));
//! # Ok::<(), monitor::MonitorError>(())
//! ```

mod batch;
mod buffer;
mod centre;
mod clock;
mod digest;
mod record;
mod ring;
mod subscription;

pub use batch::{Aggregate, BATCH_RECORDS_MAX, Batch};
pub use centre::{
    CollectorState, MonitorError, MonitorStats, collect, stats, subscribe, subscribe_digest,
    subscribe_without_collector,
};
pub use clock::now_ns;
pub use digest::{Digest, Sums};
pub use record::{Object, Record};
pub use squall_sys::trace::{KINDS_MAX, Kind, Role};
pub use subscription::Subscription;

/// Number of records that a thread's buffer can hold.
pub const BUFFER_RECORDS: usize = if cfg!(any(miri, squall_tsan)) { 16 } else { 512 };

/// Name of the collector's thread.
pub const COLLECTOR_NAME: &str = "squall-monitor";

/// Returns the size of a thread's buffer in bytes.
///
/// ```
/// use squall::policy::monitor::{BUFFER_RECORDS, Record, buffer_bytes};
///
/// assert!(buffer_bytes() >= BUFFER_RECORDS * size_of::<Record>());
/// ```
pub const fn buffer_bytes() -> usize {
    BUFFER_RECORDS * size_of::<Record>() + size_of::<buffer::Buffer>()
}

/// Returns `true` while there is a subscription.
///
/// ```
/// use squall::policy::monitor;
///
/// assert!(!monitor::is_on());
/// let reader = monitor::subscribe_without_collector(16)?;
/// assert!(monitor::is_on());
/// # Ok::<(), monitor::MonitorError>(())
/// ```
#[inline]
pub fn is_on() -> bool {
    squall_sys::trace::is_on()
}

/// Writes a record if there is a subscription: `kind` happened to `object` here and now, with these values.
///
/// Each subscription that existed before receives the record or counts it: as dropped if the thread's buffer
/// was full, as missed if the queue of the subscription was full. A record written while a subscription
/// begins or ends may be left out.
///
/// # Cost
/// Wait-free except for the first record of a thread. See the [module](self).
///
/// ```
/// use squall::policy::monitor::{self, Kind, Object};
///
/// static REFILL: Kind = Kind::new("pool.refill", ["items", "waited_ns"]);
/// monitor::emit(&REFILL, Object::number(7), [32, 900]);
/// ```
#[inline]
pub fn emit(kind: &'static Kind, object: impl Into<Object>, values: [u64; 2]) {
    if is_on() {
        buffer::emit(kind, object.into(), values);
    }
}

/// Writes a record made earlier, if there is a subscription. Unlike [`emit`], does not read the clock.
///
/// ```
/// use squall::policy::monitor::{self, Kind, Object, Record};
///
/// static REFILL: Kind = Kind::new("pool.refill", ["items", ""]);
/// let record = Record::now(&REFILL, Object::number(7), [32, 0]);
/// monitor::insert(record);
/// ```
#[inline]
pub fn insert(record: Record) {
    if is_on() {
        buffer::insert(&record);
    }
}
