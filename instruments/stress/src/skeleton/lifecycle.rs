//! The knowledge of an object's callers about its destruction, and a lock that drains its callers.
//!
//! - I1. An error caused by a destruction comes after `begin_destroy`. A call made after `mark_destroyed`
//!   must fail.
//! - I2. While a `DrainLock` is closed, no thread is inside: a thread announces itself first and then checks
//!   for closing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::expected_panic::{ExpectedPanic, catch_silently, panic_message};
use super::run_state::RunState;

/// The outcome of a call of an object that may be destroyed meanwhile.
pub(crate) enum CallOutcome<R> {
    Returned(R),
    /// A closure panicked as planned.
    ExpectedPanic,
    /// The call failed, as it may while the object is being destroyed.
    Failed,
}

/// The progress of an object's destruction.
#[derive(Default)]
pub(crate) struct Lifecycle {
    begun: AtomicBool,
    destroyed: AtomicBool,
}

impl Lifecycle {
    pub(crate) fn is_ending(&self) -> bool {
        // Acquire: pairs with the release in `begin_destroy`.
        self.begun.load(Ordering::Acquire)
    }

    /// Announces that the object is about to be destroyed.
    pub(crate) fn begin_destroy(&self) {
        // Release: pairs with the acquire in `is_ending`: an error that the destruction caused comes after
        // it.
        self.begun.store(true, Ordering::Release);
    }

    pub(crate) fn is_destroyed(&self) -> bool {
        // Acquire: pairs with the release in `mark_destroyed`.
        self.destroyed.load(Ordering::Acquire)
    }

    /// Announces that `destroy` has returned.
    pub(crate) fn mark_destroyed(&self) {
        // Release: pairs with the acquire in `is_destroyed`.
        self.destroyed.store(true, Ordering::Release);
    }

    /// Calls the object by `f`, which panics if the call fails.
    ///
    /// # Errors
    /// A violation of I1.
    pub(crate) fn call<R>(&self, f: impl FnOnce() -> R) -> Result<CallOutcome<R>, String> {
        let is_gone = self.is_destroyed();
        match catch_silently(f) {
            Ok(_) if is_gone => Err("a call succeeded after destroy had returned".to_owned()),
            Ok(answer) => Ok(CallOutcome::Returned(answer)),
            Err(panic) if panic.is::<ExpectedPanic>() => Ok(CallOutcome::ExpectedPanic),
            Err(_) if self.is_ending() => Ok(CallOutcome::Failed),
            Err(panic) => Err(format!(
                "a call panicked although no thread is destroying the object: {}",
                panic_message(&*panic)
            )),
        }
    }
}

/// Whether the thread of a lane is inside; on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Inside(AtomicBool);

/// A lock that many threads pass at once, each in its lane, and that one thread can close after it has
/// drained.
pub(crate) struct DrainLock {
    lanes: Box<[Inside]>,
    closed: AtomicBool,
}

impl DrainLock {
    pub(crate) fn new(lanes: usize) -> DrainLock {
        DrainLock { lanes: (0..lanes).map(|_| Inside::default()).collect(), closed: AtomicBool::new(false) }
    }

    /// Runs `f` inside, unless the lock is closed (I2).
    pub(crate) fn pass(&self, lane: usize, f: impl FnOnce()) {
        let Inside(inside) = &self.lanes[lane];
        // SeqCst: pairs with `close`, which stores and loads the two words in the opposite order. One of the
        // two sees the other's store.
        inside.store(true, Ordering::SeqCst);
        if !self.closed.load(Ordering::SeqCst) {
            f();
        }
        // Release: pairs with the acquire in `close`.
        inside.store(false, Ordering::Release);
    }

    /// Closes the lock and waits until it is empty. Returns false if the run ends first.
    pub(crate) fn close(&self, run_state: &RunState) -> bool {
        // SeqCst: pairs with `pass`.
        self.closed.store(true, Ordering::SeqCst);
        // SeqCst includes Acquire, which pairs with the release at the end of `pass`.
        while self.lanes.iter().any(|Inside(inside)| inside.load(Ordering::SeqCst)) {
            if run_state.is_stopped() {
                return false;
            }
            thread::yield_now();
        }
        true
    }

    pub(crate) fn open(&self) {
        // SeqCst: as in `close`. Later calls of `pass` succeed.
        self.closed.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_lock_admits_no_thread() {
        let (drain_lock, run_state) = (DrainLock::new(2), RunState::default());
        let passes = |lane| {
            let mut passed = false;
            drain_lock.pass(lane, || passed = true);
            passed
        };
        assert!(passes(0) && drain_lock.close(&run_state) && !passes(0) && !passes(1));
        drain_lock.open();
        assert!(passes(1));
        // Closing waits for a thread inside until the run ends.
        drain_lock.pass(0, || {
            run_state.stop();
            assert!(!drain_lock.close(&run_state));
        });
    }
}
