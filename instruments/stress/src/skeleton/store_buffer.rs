//! Stores that fill a store buffer. A missing fence between two threads shows only while a store waits there.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::run::Rng;

/// Number of cache lines to store to: more than the nearer caches hold.
const LINES: usize = 1 << 19;
/// Stores per call: fewer than a store buffer holds.
const STORES: usize = 24;
/// Words per cache line.
const LINE: usize = 8;

pub(crate) struct StoreBuffer(Vec<AtomicUsize>);

impl StoreBuffer {
    pub(crate) fn new() -> StoreBuffer {
        StoreBuffer((0..LINES * LINE).map(|_| AtomicUsize::new(0)).collect())
    }

    /// Stores to uncached lines with plain stores, which are no fence. The store that opens the next
    /// operation waits behind them in the store buffer, so a missing fence can show.
    pub(crate) fn fill(&self, rng: &mut Rng) {
        let mut line = rng.next() as usize;
        for index in 0..STORES {
            line = line.wrapping_mul(0x9E37_79B9).wrapping_add(0x7F4A_7C15);
            self.0[(line >> 5) % LINES * LINE].store(index, Ordering::Relaxed);
        }
    }
}
