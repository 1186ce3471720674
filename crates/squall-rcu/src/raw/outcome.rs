//! The outcome of work that another thread does: a thread or a task waits for it.
//!
//! - I1. One lock guards the outcome and the waker. A task leaves its waker only while there is no outcome,
//!   so the thread that stores the outcome finds the waker.
//! - I2. No code of a waker runs under the lock.
//!
//! Progress: blocking, for the few instructions under the lock.

use squall_sys::sync::{Condvar, Mutex, MutexGuard};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use super::sites;

/// Not public outside this workspace.
#[doc(hidden)]
#[derive(Debug)]
pub struct Outcome<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug)]
pub(crate) struct State<T> {
    pub(crate) outcome: Option<T>,
    waker: Option<Waker>,
}

impl<T: Copy> Outcome<T> {
    /// Creates the outcome of work that is not done.
    #[expect(clippy::new_without_default, reason = "an outcome that is not there is no default")]
    pub fn new() -> Outcome<T> {
        Outcome { state: Mutex::new(State { outcome: None, waker: None }), changed: Condvar::new() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    /// Waits once for a change.
    pub(crate) fn wait<'a>(&self, state: MutexGuard<'a, State<T>>) -> MutexGuard<'a, State<T>> {
        self.changed.wait(state).unwrap_or_else(|poison| poison.into_inner())
    }

    /// Returns the outcome. Before the work is done, leaves the waker in place of an earlier one.
    pub fn poll(&self, waker: &Waker) -> Option<T> {
        // Users' code, before the lock (I2).
        let mut waker = Some(waker.clone());
        let mut state = self.lock();
        let outcome = state.outcome;
        if sites::LEAVE_WAKER_LOCKED.is_weak() {
            drop(state);
            state = self.lock();
        }
        if outcome.is_none() {
            mem::swap(&mut state.waker, &mut waker);
        }
        drop(state);
        drop(waker);
        outcome
    }

    /// Drops the waker.
    pub fn forget_waker(&self) {
        let waker = self.lock().waker.take();
        drop(waker);
    }

    /// Stores the outcome, and wakes the waiter.
    pub fn fill(&self, outcome: T) {
        self.lock().outcome = Some(outcome);
        self.wake();
    }

    /// Wakes the waiter, so that it looks again.
    pub(crate) fn wake(&self) {
        let waker = self.lock().waker.take();
        self.changed.notify_all();
        if let Some(waker) = waker {
            // The panic belongs to the waker, not to this thread. The payload is leaked: its drop could panic
            // here.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake())).map_err(mem::forget);
        }
    }
}
