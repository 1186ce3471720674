//! A barrier that releases threads almost simultaneously and causes few shared accesses.
//!
//! A waiting thread spins for a moment, then yields, then sleeps, so the gate also works with many more
//! threads than processors. Some runs are observed by an instrument that counts accesses to shared cache
//! lines, so the gate must cause few of them. A passing thread touches one line that every thread writes
//! once, and polls another that is written once per pass. The mutex and the condition variable of std's
//! barrier move from thread to thread, and this showed in the counts.
//!
//! - I1. `wait` returns from pass n only after all parties have called it for the n-th time. Everything that
//!   a party did before its call is visible to all parties after it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;

/// Spins before the first yield; they take a few microseconds.
const SPINS: u32 = 4_000;
/// Yields before the first sleep.
const YIELDS: u32 = 64;
/// Length of the first sleep; each next sleep is twice as long.
const SLEEP_MIN: Duration = Duration::from_micros(20);
/// Length of the longest sleep.
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
        // Relaxed: this thread saw the previous pass end (or runs in the first pass). The current pass cannot
        // end before this thread has arrived.
        let pass = self.pass.load(Ordering::Relaxed);
        // AcqRel: the last thread to arrive sees all earlier work of the others, and hands it on by the
        // Release below.
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.parties {
            self.arrived.store(0, Ordering::Relaxed);
            // Release: pairs with the Acquire load in the loop below.
            self.pass.store(pass.wrapping_add(1), Ordering::Release);
            return;
        }
        poll(|| self.pass.load(Ordering::Acquire) != pass);
    }
}

/// Waits until `is_so` returns true: spins, then yields, then sleeps.
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

/// Guards a thread that others wait for at a gate. If the thread panics, the process aborts, since the others
/// would wait for ever. The panic itself has been reported by then.
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
    fn threads_pass_only_after_all_have_arrived() {
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
