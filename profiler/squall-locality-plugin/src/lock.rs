//! A lock that can be held across a fork.
//!
//! - I1. What it holds is reached by one thread at a time; in a forked child by the one there is, since whoever forks holds
//!   the lock meanwhile, and both sides release it.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

/// A value behind a lock that spins and yields. For what is short and seldom.
#[derive(Debug)]
pub(crate) struct Lock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached under the lock alone (I1), so that what is needed is that it may be handed on.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Lock<T> {
        Lock { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Runs `f` with the value. Must not be called within `f`.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        self.hold();
        // SAFETY: this thread holds the lock, so that no other has a reference (I1).
        let result = f(unsafe { &mut *self.value.get() });
        self.release();
        result
    }

    /// Takes it, for a fork.
    pub(crate) fn hold(&self) {
        // Acquire: pairs with the Release in `release`.
        while self.held.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    /// Gives it back, after a fork.
    pub(crate) fn release(&self) {
        // Release: pairs with the Acquire in `hold`.
        self.held.store(false, Ordering::Release);
    }
}
