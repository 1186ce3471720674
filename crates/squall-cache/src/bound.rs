//! The bound of a cache, which can change.

use std::sync::atomic::{AtomicU64, Ordering};

/// The bound. Insertions read its words, and few calls write them.
pub(crate) struct Bound {
    max: AtomicU64,
    reserved: AtomicU64,
}

impl Bound {
    pub(crate) fn new(max: u64) -> Bound {
        Bound { max: AtomicU64::new(max), reserved: AtomicU64::new(0) }
    }

    // Relaxed, here and below: only numbers. The entries have an order of their own.
    pub(crate) fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }

    pub(crate) fn set_max(&self, max: u64) {
        self.max.store(max, Ordering::Relaxed);
    }

    pub(crate) fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Returns the part for entries.
    pub(crate) fn for_entries(&self) -> u64 {
        self.max().saturating_sub(self.reserved())
    }

    /// Reserves a part. Returns false if it does not fit beside the others.
    pub(crate) fn reserve(&self, weight: u64) -> bool {
        let fits = |now: u64| now.checked_add(weight).filter(|sum| *sum <= self.max());
        self.reserved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    pub(crate) fn give_back(&self, weight: u64) {
        self.reserved.fetch_sub(weight, Ordering::Relaxed);
    }
}
