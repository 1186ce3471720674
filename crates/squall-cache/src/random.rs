//! Random numbers for draws: one generator for each thread.

use std::cell::Cell;
use std::hash::{BuildHasher as _, RandomState};

/// Returns the next number of this thread.
pub(crate) fn next() -> u64 {
    thread_local! {
        static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(0) | 1);
    }
    // A thread that ends draws the same place each time.
    let step = |state: &Cell<u64>| {
        let mut x = state.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        state.set(x);
        x.wrapping_mul(0x2545_F491_4F6C_DD1D)
    };
    STATE.try_with(step).unwrap_or(0x9E37_79B9_7F4A_7C15)
}
