//! Stores that keep a store buffer busy: a missing fence between two threads shows only while a store waits there.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::Rng;

/// Lines that are stored to: more than the nearer caches hold.
const LINES: usize = 1 << 19;
/// Stores each time; fewer than a store buffer holds.
const STORES: usize = 24;
/// A line, in words.
const LINE: usize = 8;

pub(crate) struct Ballast(Vec<AtomicUsize>);

impl Ballast {
    pub(crate) fn new() -> Ballast {
        Ballast((0..LINES * LINE).map(|_| AtomicUsize::new(0)).collect())
    }

    /// Plain stores to lines far away. They are no fence; on the contrary, the store that opens an operation after them
    /// waits in the store buffer, and a missing fence has its chance.
    pub(crate) fn fill_store_buffer(&self, rng: &mut Rng) {
        let mut line = rng.next() as usize;
        for index in 0..STORES {
            line = line.wrapping_mul(0x9E37_79B9).wrapping_add(0x7F4A_7C15);
            self.0[(line >> 5) % LINES * LINE].store(index, Ordering::Relaxed);
        }
    }
}
