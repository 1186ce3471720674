//! The number of changed pages of a cache.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the pages that were changed since they were written to their file.
#[derive(Debug, Default)]
pub(crate) struct Ledger(AtomicUsize);

impl Ledger {
    // Relaxed, in all three: a count that guards no data.
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn remove(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}
