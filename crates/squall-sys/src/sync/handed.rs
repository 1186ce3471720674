//! Words that threads hand to each other by another word.

use super::atomic::{AtomicU64, Ordering};
#[cfg(loom)]
use super::cell::UnsafeCell;

/// A word without an ordering of its own: another word orders its accesses, as it would order those of plain
/// memory. Loom reports two accesses without an order, as it does for plain memory.
#[derive(Debug, Default)]
pub struct Handed {
    word: AtomicU64,
    #[cfg(loom)]
    accesses: UnsafeCell<()>,
}

// SAFETY: the cell has no content. Loom alone looks at it, in one thread at a time.
#[cfg(loom)]
unsafe impl Sync for Handed {}

impl Handed {
    /// Makes a word of this value.
    pub fn new(value: u64) -> Handed {
        Handed {
            word: AtomicU64::new(value),
            #[cfg(loom)]
            accesses: UnsafeCell::new(()),
        }
    }

    /// Reads the word.
    #[inline(always)]
    pub fn get(&self) -> u64 {
        #[cfg(loom)]
        self.accesses.with(|_| ());
        // Relaxed: another word orders the accesses.
        self.word.load(Ordering::Relaxed)
    }

    /// Writes the word.
    #[inline(always)]
    pub fn set(&self, value: u64) {
        #[cfg(loom)]
        self.accesses.with_mut(|_| ());
        // Relaxed: another word orders the accesses.
        self.word.store(value, Ordering::Relaxed);
    }

    /// Writes the word in an order of its own: it may be one that orders other words.
    #[inline(always)]
    pub fn publish(&self, value: u64, order: Ordering) {
        #[cfg(loom)]
        self.accesses.with_mut(|_| ());
        self.word.store(value, order);
    }

    /// Reads a word that another thread may [publish](Handed::publish) at the same time.
    #[inline(always)]
    pub fn poll(&self, order: Ordering) -> u64 {
        self.word.load(order)
    }
}
