//! Events of the slow paths, for the trace of the process.
//!
//! Problem: a program's monitor shows which locks threads wait for, and an acquisition of a free lock must
//! not pay for that. Idea: a [`Wait`] begins on a slow path, and reads the clock only while the trace is on.
//!
//! - I1. `lock.wait` comes after the thread got past the wait. `lock.give_up` comes after it stopped waiting
//!   without the lock. A wait that began before the trace was switched on has no event.
//! - I2. `lock.sleep` comes after the wake-up, outside the table of sleepers: the sink may allocate.
//! - I3. `lock.revoke` comes after the ownership or the read bias was cleared, also if the thread then fails
//!   to take the lock.
//!
//! An acquisition may wait twice: for other threads, then for a former owner or for readers. Each wait has an
//! event. The lock types tell them apart.
//! Cost: off, one load and a branch for each wait and each sleep.
//! Source: KT-18 (Gheith, Mukherjee, Silva and Schwan, "KTK", 1994, §5.2).

use crate::parking::ParkResult;
use squall_sys::trace::{Kind, Since, Subject, emit};

/// Types of locks and waits, in the order of [`LockType`].
const TYPES: &[&str] = &[
    "plain",
    "two-bit",
    "biased",
    "biased-owner",
    "vp",
    "vp-mark",
    "configurable",
    "rw-read",
    "rw-turn",
    "rw-write",
];

static WAIT: Kind = Kind::new("lock.wait", ["lock", "waited_ns"]).with_codes(0, TYPES);
static GIVE_UP: Kind = Kind::new("lock.give_up", ["lock", "waited_ns"]).with_codes(0, TYPES);
static SLEEP: Kind = Kind::new("lock.sleep", ["lock", "slept_ns"]).with_codes(0, TYPES);
static REVOKE: Kind = Kind::new("lock.revoke", ["lock", "took_ns"]).with_codes(0, TYPES);

/// Type of a lock, or of a wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockType {
    Plain,
    TwoBit,
    Biased,
    /// The wait for the former owner of a biased lock.
    BiasedOwner,
    Vp,
    /// The wait for the thread inside by the mark of a VP's lock.
    VpMark,
    #[cfg_attr(not(feature = "adaptive-lock"), allow(dead_code))]
    Configurable,
    /// The wait of a reader for a writer.
    RwRead,
    /// The wait of a writer for other writers.
    #[cfg_attr(loom, allow(dead_code))]
    RwTurn,
    /// The wait of a writer for readers.
    RwWrite,
}

const _: () = assert!(LockType::RwWrite as usize + 1 == TYPES.len());

/// A wait for a lock.
#[derive(Debug)]
pub(crate) struct Wait {
    lock: LockType,
    subject: Subject,
    since: Since,
}

impl Wait {
    /// Begins a wait for this lock.
    #[inline]
    pub(crate) fn begin(lock: LockType, subject: Subject) -> Wait {
        Wait { lock, subject, since: Since::now() }
    }

    /// Makes a wait that [`slept`](Wait::slept) begins.
    #[inline]
    pub(crate) const fn later(lock: LockType, subject: Subject) -> Wait {
        Wait { lock, subject, since: Since::UNKNOWN }
    }

    /// Runs `sleep`, and emits the sleep (I2). Begins the wait, if it has not begun.
    pub(crate) fn slept(&mut self, sleep: impl FnOnce()) {
        let since = Since::now();
        if !self.since.is_known() {
            self.since = since;
        }
        sleep();
        self.wake_up(since);
    }

    /// Runs `park`, and emits the sleep if the thread was in the table.
    pub(crate) fn parked(&self, park: impl FnOnce() -> ParkResult) -> ParkResult {
        let since = Since::now();
        let result = park();
        if !matches!(result, ParkResult::Invalid) {
            self.wake_up(since);
        }
        result
    }

    fn wake_up(&self, since: Since) {
        if let Some(ns) = since.ns() {
            emit(&SLEEP, self.subject, [self.lock as u64, ns]);
        }
    }

    /// Ends the wait: the thread `got` past it, or stopped waiting (I1).
    #[inline]
    pub(crate) fn end(self, got: bool) {
        if let Some(ns) = self.since.ns() {
            emit(if got { &WAIT } else { &GIVE_UP }, self.subject, [self.lock as u64, ns]);
        }
    }
}

/// Emits that an owner, or the readers of a biased lock, lost it (I3). The thread began that at `since`.
#[cold]
pub(crate) fn revoked(lock: LockType, subject: Subject, since: Since) {
    if let Some(ns) = since.ns() {
        emit(&REVOKE, subject, [lock as u64, ns]);
    }
}

#[cfg(all(test, not(any(loom, squall_model))))]
mod tests;
