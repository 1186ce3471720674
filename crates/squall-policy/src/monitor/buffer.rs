//! Record buffer of a thread, and its removal when the thread ends.
//!
//! - I1. The centre (`centre`) lists a buffer from before its first record until its thread has ended.
//! - I2. An ending thread delivers its last records to the subscriptions itself. After that the buffer has no
//!   owner.
//! - I3. A thread that is inside the monitor writes no record; the record is counted as dropped. Allocation
//!   there may take a lock with a slow path that emits. So the monitor never waits for itself.

use std::cell::{Cell, OnceCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use squall_machine::asym;
use squall_sys::fork::forked;
use squall_sys::trace::{Kind, Subject};

use super::BUFFER_RECORDS;
use super::centre;
use super::record::{Object, Record};
use super::ring::{Pushed, Ring};

#[derive(Debug)]
pub(super) struct Buffer {
    pub(super) ring: Ring,
    /// `true` if the writer must execute a full fence (`asym/I2`).
    fenced: bool,
}

/// Reference of the calling thread to its buffer.
struct Own(Arc<Buffer>);

impl Drop for Own {
    fn drop(&mut self) {
        if !forked() {
            centre::leave(&self.0);
        }
    }
}

thread_local! {
    static OWN: OnceCell<Own> = const { OnceCell::new() };
    /// `true` while the thread is inside the monitor (I3). Has no destructor, so it can be used at any time.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Stay of the calling thread inside the monitor (I3).
pub(super) struct Inside(bool);

impl Inside {
    #[inline]
    pub(super) fn enter() -> Inside {
        Inside(INSIDE.replace(true))
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        INSIDE.set(self.0);
    }
}

/// Number of records that found no buffer: on threads at their very end or inside the monitor, and in forked
/// children.
static UNBUFFERED: AtomicU64 = AtomicU64::new(0);

/// Returns the number of records without a buffer since the last call.
pub(super) fn take_unbuffered() -> u64 {
    // Relaxed: a count that does not announce other memory.
    if UNBUFFERED.load(Ordering::Relaxed) == 0 { 0 } else { UNBUFFERED.swap(0, Ordering::Relaxed) }
}

/// Not inlined into other crates: there, access to the thread-local buffer would be a call.
#[inline(never)]
pub(super) fn emit(kind: &'static Kind, object: Object, values: [u64; 2]) {
    put(&Record::now(kind, object, values));
}

/// Sink of the trace: events of the lower floors.
pub(super) fn sink(kind: &'static Kind, subject: Subject, values: [u64; 2]) {
    emit(kind, subject.into(), values);
}

/// Writes a given record. Not inlined, like `emit`.
#[inline(never)]
pub(super) fn insert(record: &Record) {
    put(record);
}

#[inline(always)]
fn put(record: &Record) {
    if INSIDE.get() {
        UNBUFFERED.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let _inside = Inside::enter();
    let found = OWN.try_with(|own| match own.get() {
        Some(own) => {
            own.push(record);
            true
        }
        None => first(own, record),
    });
    if found != Ok(true) {
        UNBUFFERED.fetch_add(1, Ordering::Relaxed);
    }
}

#[cold]
fn first(own: &OnceCell<Own>, record: &Record) -> bool {
    if forked() {
        return false;
    }
    own.get_or_init(|| {
        let fenced = matches!(asym::mode(), asym::Mode::Fence(_));
        let buffer = Arc::new(Buffer { ring: Ring::new(BUFFER_RECORDS), fenced });
        centre::join(&buffer);
        Own(buffer)
    })
    .push(record);
    true
}

impl Own {
    #[inline]
    fn push(&self, record: &Record) {
        let pushed = self.0.ring.push(record);
        // Pairs with the heavy fence of a collector that goes to rest (`centre/I3`).
        asym::light_or_full(self.0.fenced);
        centre::call_from_rest();
        if pushed == Pushed::KeptHalf {
            centre::call();
        }
    }
}
