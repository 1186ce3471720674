//! A lock that can be held across a fork.
//!
//! - I1. One thread at a time accesses the value. The forking thread holds the lock during a fork, and parent
//!   and child both release it. The child has a single thread, so the rule holds there as well.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

/// A value behind a lock that spins and yields, for short and rare critical sections.
#[derive(Debug)]
pub(crate) struct Lock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is accessed only under the lock (I1), so it only needs to be movable between threads.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Lock<T> {
        Lock { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Runs `f` with the value. `f` must not use the lock again.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        self.hold();
        // SAFETY: this thread holds the lock, so no other reference exists (I1).
        let result = f(unsafe { &mut *self.value.get() });
        self.release();
        result
    }

    /// Acquires the lock before a fork.
    pub(crate) fn hold(&self) {
        // Acquire: pairs with the Release in `release`.
        while self.held.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    /// Releases the lock after a fork.
    pub(crate) fn release(&self) {
        // Release: pairs with the Acquire in `hold`.
        self.held.store(false, Ordering::Release);
    }
}
