//! A barrier that lets threads go at nearly the same instant.
//!
//! Spins for a moment and then yields, so that it also works with more threads than processors. Reusable: each pass
//! raises the generation.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Spins before the first yield; a few microseconds.
const SPINS: u32 = 4_000;

pub(super) struct Gate {
    parties: usize,
    arrived: AtomicUsize,
    generation: AtomicUsize,
}

impl Gate {
    pub(super) fn new(parties: usize) -> Gate {
        Gate { parties, arrived: AtomicUsize::new(0), generation: AtomicUsize::new(0) }
    }

    pub(super) fn wait(&self) {
        let generation = self.generation.load(Ordering::Acquire);
        // AcqRel: the last to arrive sees what all did before, and hands it on by the Release below.
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.parties {
            self.arrived.store(0, Ordering::Relaxed);
            // Release: pairs with the Acquire load in the loop below.
            self.generation.store(generation.wrapping_add(1), Ordering::Release);
            return;
        }
        let mut spins = 0;
        while self.generation.load(Ordering::Acquire) == generation {
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_passes_before_all_have_arrived() {
        const THREADS: usize = 5;
        let gate = Gate::new(THREADS);
        let count = AtomicUsize::new(0);
        std::thread::scope(|s| {
            for _ in 0..THREADS {
                s.spawn(|| {
                    for round in 1..=100 {
                        count.fetch_add(1, Ordering::Relaxed);
                        gate.wait();
                        assert_eq!(count.load(Ordering::Relaxed), round * THREADS);
                        gate.wait();
                    }
                });
            }
        });
    }
}
