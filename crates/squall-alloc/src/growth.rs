//! Growth: the next segment that becomes usable.
//!
//! Problem: to make a segment usable, the allocator asks the system, which may refuse while other threads ask
//! for the next one. Idea: one thread at a time asks, and advances the counter after it succeeds.
//!
//! - I1. Each number is given out once, in order. If the system refuses the memory of a number, that number
//!   remains the next one.
//!
//! Cost: for each segment of 4 MiB, a lock that is held during the system calls.

use crate::lock::Lock;
use crate::sites;
use squall_sys::sync::atomic::{AtomicUsize, Ordering};

/// The counter of usable segments.
pub(crate) struct Growth {
    lock: Lock,
    /// Written under the lock.
    next: AtomicUsize,
}

impl Growth {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Growth {
        Growth { lock: Lock::new(), next: AtomicUsize::new(0) }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Growth {
        Growth { lock: Lock::new(), next: AtomicUsize::new(0) }
    }

    /// The lock, which a fork holds. No other lock is taken under it.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn lock(&self) -> &Lock {
        &self.lock
    }

    /// Number of usable segments.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn made(&self) -> usize {
        // Relaxed: a figure for people.
        self.next.load(Ordering::Relaxed)
    }

    /// Returns the next number below `end`, if `make` makes its segment usable.
    pub(crate) fn grow(&self, end: usize, make: impl FnOnce(usize) -> bool) -> Option<usize> {
        if sites::GROWS_ALONE.is_weak() {
            // After a failure the counter goes back, unless other threads advanced it.
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let is_made = number < end && make(number);
            if !is_made {
                let _ = self.next.compare_exchange(number + 1, number, Ordering::Relaxed, Ordering::Relaxed);
            }
            return is_made.then_some(number);
        }
        self.lock.with(|| {
            // Relaxed, both: one thread at a time, under the lock.
            let number = self.next.load(Ordering::Relaxed);
            if number >= end || !make(number) {
                return None;
            }
            self.next.store(number + 1, Ordering::Relaxed);
            Some(number)
        })
    }
}
