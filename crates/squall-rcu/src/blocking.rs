//! Reports of operations that block, in builds with debug assertions.
//!
//! Problem: code inside an operation must not sleep, since the operation delays all reclamation. A sleep that
//! delays no grace period passes unnoticed until the load is higher. Idea: the kernel counts how often a
//! thread gave up its processor by itself. If the count has grown when a long operation ends, the operation
//! blocked.
//!
//! A read of the count costs up to 1 µs, which is too much for each operation. So each thread measures the
//! first [`FIRST`] operations of each place in the code, and then one in [`EVERY`].
//!
//! Not exact: a major page fault and a contended lock of another library count, too. An operation that waited
//! for a lock of Squall's is not reported, since its author cannot avoid that. So a report is no error,
//! and each place is reported once.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::panic::Location;
use std::time::{Duration, Instant};

use squall_sys::sync::Mutex;
use squall_sys::waits::sleeps;

/// The operations of a place that a thread measures at first.
const FIRST: u32 = 8;
/// After these, the thread measures one operation of this many.
const EVERY: u32 = 64;
/// A shorter operation is not reported, and costs no second read of the count.
const LONG: Duration = Duration::from_millis(1);
/// Slots for the counts of a thread. Two places in one slot are measured more often.
const SLOTS: usize = 32;

thread_local! {
    /// Per slot, the address of a place and the number of operations that began there. Has no destructor, so
    /// it can be used at any time.
    static BEGUN: [Cell<(usize, u32)>; SLOTS] = const { [const { Cell::new((0, 0)) }; SLOTS] };
}

/// The places that were reported.
static REPORTED: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// An open outermost operation that is measured.
#[derive(Debug)]
pub(crate) struct Watch {
    began: &'static Location<'static>,
    tag: u64,
    since: Instant,
    switches: u64,
    /// The thread's sleeps for locks of Squall's, at the beginning.
    lock_sleeps: u64,
}

/// Begins to measure an outermost operation, if it is its turn.
#[inline]
pub(crate) fn begin(began: &'static Location<'static>, tag: u64) -> Option<Watch> {
    let place = std::ptr::from_ref(began).addr();
    let is_due = BEGUN.with(|begun| {
        let slot = &begun[place / align_of::<Location<'_>>() % SLOTS];
        let (of, before) = slot.get();
        let count = if of == place { before.wrapping_add(1) } else { 1 };
        slot.set((place, count));
        count <= FIRST || count.is_multiple_of(EVERY)
    });
    is_due.then(|| measure(began, tag)).flatten()
}

#[cold]
fn measure(began: &'static Location<'static>, tag: u64) -> Option<Watch> {
    let switches = squall_sys::affinity::voluntary_switches()?;
    Some(Watch { began, tag, since: Instant::now(), switches, lock_sleeps: sleeps() })
}

/// An operation that blocked.
#[derive(Debug)]
pub(crate) struct Blocked {
    began: &'static Location<'static>,
    tag: u64,
    lasted: Duration,
}

impl Watch {
    /// Ends the measurement, before Squall's own work at the end of the operation: that may wait for the
    /// bound on pending memory. Returns the operation if it blocked.
    pub(crate) fn end(self) -> Option<Blocked> {
        // In the child of a fork, the locks of a report may be held for ever.
        if squall_sys::fork::forked() {
            return None;
        }
        let lasted = self.since.elapsed();
        if lasted < LONG
            || sleeps() != self.lock_sleeps
            || squall_sys::affinity::voluntary_switches() == Some(self.switches)
        {
            return None;
        }
        Some(Blocked { began: self.began, tag: self.tag, lasted })
    }
}

impl Blocked {
    /// Reports the operation, which has ended, unless its place was reported before.
    pub(crate) fn report(self) {
        // A signal handler may have interrupted the holder of the lock. Then the next operation reports.
        let Ok(mut reported) = REPORTED.try_lock() else { return };
        let is_new = reported.insert(std::ptr::from_ref(self.began).addr());
        drop(reported);
        if is_new && !std::thread::panicking() {
            crate::stall::report_blocked(self.began, self.tag, self.lasted);
        }
    }
}
