//! A barrier that lets threads go at nearly the same instant and leaves few traces.
//!
//! It spins for a moment, then yields, then sleeps, so that it also works with many more threads than processors. It is
//! used where an instrument counts from outside which cache lines are shared: a thread that passes touches one line
//! that every thread writes once, and polls another that is written once a pass. std's barrier passes a mutex and a
//! condition variable from thread to thread, which showed up in the counts.
//!
//! - I1. Nobody returns from pass n before all parties have called `wait` for the n-th time, and everything that a
//!   party did before is visible to all after.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;

/// Spins before the first yield; a few microseconds.
const SPINS: u32 = 4_000;
/// Yields before the first sleep.
const YIELDS: u32 = 64;
/// Length of the first sleep; each next one is twice as long.
const SLEEP_MIN: Duration = Duration::from_micros(20);
/// Length of the longest.
const SLEEP_MAX: Duration = Duration::from_millis(2);

pub(crate) struct Gate {
    parties: usize,
    arrived: CachePadded<AtomicUsize>,
    pass: CachePadded<AtomicUsize>,
}

impl Gate {
    pub(crate) fn new(parties: usize) -> Gate {
        let zero = || CachePadded::new(AtomicUsize::new(0));
        Gate { parties, arrived: zero(), pass: zero() }
    }

    pub(crate) fn wait(&self) {
        // Relaxed: this thread saw the pass before this one end (or none did), and it cannot end again before this
        // thread has arrived.
        let pass = self.pass.load(Ordering::Relaxed);
        // AcqRel: the last to arrive sees what all did before, and hands it on by the Release below.
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.parties {
            self.arrived.store(0, Ordering::Relaxed);
            // Release: pairs with the Acquire load in the loop below.
            self.pass.store(pass.wrapping_add(1), Ordering::Release);
            return;
        }
        poll(|| self.pass.load(Ordering::Acquire) != pass);
    }
}

/// Waits until `is_so`: spins, then yields, then sleeps.
pub(crate) fn poll(mut is_so: impl FnMut() -> bool) {
    let mut tries = 0u32;
    let mut sleep = SLEEP_MIN;
    while !is_so() {
        tries = tries.saturating_add(1);
        if tries < SPINS {
            std::hint::spin_loop();
        } else if tries < SPINS + YIELDS {
            std::thread::yield_now();
        } else {
            std::thread::sleep(sleep);
            sleep = SLEEP_MAX.min(2 * sleep);
        }
    }
}

/// Held by a thread that others will wait for at a gate: if it panics, the process ends, since else they would wait for
/// ever. The panic itself has been reported by then.
pub(crate) struct NoUnwind;

impl Drop for NoUnwind {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
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
