//! Which segment is made usable next.
//!
//! Problem: to make one usable is a question to the system, which may refuse, while others ask for the next one. Idea: one at a time asks,
//! and counts on when it was told yes.
//!
//! - I1. Each number is given out once, in their order: one whose memory the system refused is still the next one.
//!
//! Cost: a lock, held during the system's calls, for each segment of 4 MiB.

use crate::lock::Lock;
use crate::sites;
use squall_sys::sync::atomic::{AtomicUsize, Ordering};

/// See the module.
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

    /// For a fork: holds still. No other lock is taken under it.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn lock(&self) -> &Lock {
        &self.lock
    }

    /// The next number below `end`, if `make` makes it usable.
    pub(crate) fn grow(&self, end: usize, make: impl FnOnce(usize) -> bool) -> Option<usize> {
        if sites::GROWS_ALONE.is_weak() {
            // Back where it failed, unless others came behind us.
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let is_made = number < end && make(number);
            if !is_made {
                let _ = self.next.compare_exchange(number + 1, number, Ordering::Relaxed, Ordering::Relaxed);
            }
            return is_made.then_some(number);
        }
        self.lock.with(|| {
            // Relaxed, both: by one thread at a time.
            let number = self.next.load(Ordering::Relaxed);
            if number >= end || !make(number) {
                return None;
            }
            self.next.store(number + 1, Ordering::Relaxed);
            Some(number)
        })
    }
}
