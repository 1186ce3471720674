//! Monitors: how a policy, or a person, learns what an object lives through.
//!
//! There are two styles, and both are needed.
//!
//! * The **in-object monitor** is a few [sensors](sensor) that an author embeds next to the thing that they are to tune.
//!   They record no more than the policy needs, on slow paths that would be slow without them; and the thread that was
//!   slow looks at them itself and changes the setting. The decision is as fresh as the fact.
//! * The **general monitor** is for looking at a whole program: each thread writes [records](Record) of 40 bytes into a
//!   buffer of its own ([`emit`]), a collector gathers and adds them up, and [subscriptions](subscribe) hand them to
//!   whoever reads, as text or as JSON lines. It says more, later: by the time that a reader has a record, it is old. Do
//!   not steer a lock by it.
//!
//! `squall bench monitor` compares the two, with a mutex for scale.
//!
//! # What the general monitor costs
//! Off, which it is while nobody subscribes: a load and a branch for an [`emit`], no memory, no thread. On: the thread's
//! first record makes its buffer ([`buffer_bytes`], kept until the thread ends); each record is a look at the clock and
//! six stores to memory of its own; one in half a buffer, and one after a time of rest, also wakes the collector, which is
//! a system call. A buffer that is full drops what comes, and counts it: a writer never waits.
//!
//! # Progress
//! [`emit`] is wait-free but for a thread's first record, which takes a lock, and waking the collector. No code of users
//! runs under a lock of ours, so nobody is held up by a reader that stalls: its queue is bounded, and what does not fit is
//! counted as missed. Not for signal handlers, nor for a global allocator. In a forked child records are lost.
//!
//! # Order
//! The records of a thread come in its order. Those of several threads are sorted by time within a [`Batch`] only.
//!
//! Source: KTK (Gheith, Mukherjee, Silva, Schwan 1994, §5.2), which measured, on a KSR1, 118, 58 and 51 µs to create, insert
//! and retrieve a sensor of its general monitor, against 5.5 µs for a lock that monitors and configures itself.
//! Differently here: the collector exists only while somebody subscribed, a writer neither waits nor allocates, and losses
//! are counted. The hand-over is argued in `ring.rs` and `centre.rs`.
//!
//! # Example
//! ```
//! use squall_policy::monitor::{self, Kind, Object};
//!
//! static REFILL: Kind = Kind::new("pool.refill", ["items", "waited_ns"]);
//!
//! monitor::emit(&REFILL, Object::number(7), [1, 0]); // nobody looks: as good as nothing
//! let reader = monitor::subscribe(16)?;
//! monitor::emit(&REFILL, Object::number(7), [32, 900]);
//! let batch = reader.recv().expect("it is open");
//! assert_eq!(batch.records()[0].values(), [32, 900]);
//! let mut text = Vec::new();
//! batch.write_text(&mut text)?;
//! assert!(String::from_utf8(text)?.contains("pool.refill #7 items=32 waited_ns=900"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod batch;
mod buffer;
mod centre;
mod clock;
mod kind;
mod record;
mod ring;
pub mod sensor;
mod subscription;
mod window;

pub use batch::{Aggregate, BATCH_RECORDS_MAX, Batch};
pub use centre::{
    CollectorState, MonitorError, MonitorStats, collect, stats, subscribe, subscribe_without_collector,
};
pub use clock::now_ns;
pub use kind::{KINDS_MAX, Kind};
pub use record::{Object, Record};
pub use subscription::Subscription;
pub use window::{Every, Rate, Window};

use std::sync::atomic::{AtomicBool, Ordering};

/// Records that a thread's buffer has room for.
pub const BUFFER_RECORDS: usize = if cfg!(any(miri, squall_tsan)) { 16 } else { 512 };

/// The name of the collector's thread.
pub const COLLECTOR_NAME: &str = "squall-monitor";

/// Bytes of a thread's buffer.
pub const fn buffer_bytes() -> usize {
    BUFFER_RECORDS * size_of::<Record>() + size_of::<buffer::Buffer>()
}

/// Whether somebody subscribed.
static ON: AtomicBool = AtomicBool::new(false);

/// Whether anybody wants records.
#[inline]
pub fn is_on() -> bool {
    // Relaxed: a thread that does not know yet loses records that nobody was promised.
    ON.load(Ordering::Relaxed)
}

/// Writes a record, if somebody subscribed: `kind` happened to `object` here and now, with these values.
///
/// A record is received by every subscription that was there before, or counted: as dropped if the thread's buffer was
/// full, as missed if a subscription's queue was. One that is written while a subscription begins or ends may be left out.
///
/// # Cost
/// See the [module](self). Wait-free but for the first record of a thread.
#[inline]
pub fn emit(kind: &'static Kind, object: impl Into<Object>, values: [u64; 2]) {
    if is_on() {
        buffer::emit(kind, object.into(), values);
    }
}

/// Writes a record that was made before, if somebody subscribed. As [`emit`], without the look at the clock.
#[inline]
pub fn insert(record: Record) {
    if is_on() {
        buffer::insert(&record);
    }
}
