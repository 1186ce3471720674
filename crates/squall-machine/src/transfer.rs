//! Cost of moving a cache line from one processor to another, as contended locks measure it.
//!
//! Problem: the cost shows only where two threads on two processors use one line. To measure it, Squall would
//! have to start a second thread, or to move the calling thread to another processor. Idea: a thread that
//! spins for a lock reads a line that the holder has just written. Some of these threads time that one read.
//!
//! - I1. A sample is kept only if the read found the lock free, after the thread had found it held. So
//!   another thread wrote the line in between. The spinning thread did not yield meanwhile. So the writer
//!   ran on another processor, unless the system interrupted the spinning thread.
//! - I2. Samples are hints. Two threads that keep a sample at once may overwrite each other's.
//!
//! Cost: one contended acquisition in `RATE` reads the clock up to twelve times. Others pay one addition.

use squall_sys::sync::atomic::{AtomicU32, Ordering};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// One of this many contended acquisitions of a thread is timed.
const RATE: u32 = 16;
/// Number of samples that are kept, and the number that makes a cost.
const KEPT: usize = 32;
const ENOUGH: usize = 8;

static SAMPLES: Samples = Samples::new();

/// The latest samples.
struct Samples {
    /// Nanoseconds plus one; zero where no sample is kept yet.
    ns: [AtomicU32; KEPT],
    /// Number of samples so far.
    count: AtomicU32,
}

impl Samples {
    const fn new() -> Samples {
        Samples { ns: [const { AtomicU32::new(0) }; KEPT], count: AtomicU32::new(0) }
    }

    fn keep(&self, time: Duration) {
        // Relaxed, both: a sample is a number that guards no data (I2).
        let at = self.count.fetch_add(1, Ordering::Relaxed) as usize % KEPT;
        let ns = u32::try_from(time.as_nanos()).unwrap_or(u32::MAX);
        self.ns[at].store(ns.saturating_add(1), Ordering::Relaxed);
    }

    /// Returns the mean of the middle half of the samples, in nanoseconds. An interrupted read and a coarse
    /// clock then have little effect. The result is empty while there are too few samples.
    fn cost(&self) -> Option<f64> {
        let kept = self.ns.iter().filter_map(|ns| ns.load(Ordering::Relaxed).checked_sub(1));
        let mut kept: Vec<u32> = kept.collect();
        if kept.len() < ENOUGH {
            return None;
        }
        kept.sort_unstable();
        let middle = &kept[kept.len() / 4..kept.len() - kept.len() / 4];
        Some(middle.iter().map(|ns| f64::from(*ns)).sum::<f64>() / middle.len() as f64)
    }
}

/// Returns the cost of moving a cache line to another processor, in nanoseconds. Returns `None` until locks
/// of this process were contended often enough.
///
/// # Cost
/// Reads 32 words, and allocates.
///
/// ```
/// assert!(squall_machine::transfer::cost().is_none_or(|ns| ns >= 0.0));
/// ```
pub fn cost() -> Option<f64> {
    SAMPLES.cost()
}

/// Internal: times reads of a thread that spins for a lock.
#[doc(hidden)]
#[derive(Debug)]
pub struct TransferTimer {
    /// Whether reads are timed. One sample ends that.
    is_sampled: bool,
}

impl TransferTimer {
    /// Begins a contended acquisition. The calling thread has just found the lock held.
    #[expect(clippy::new_without_default, reason = "each one counts as an acquisition")]
    pub fn new() -> TransferTimer {
        std::thread_local! {
            /// Has no destructor, so it can be used at any time.
            static ACQUISITIONS: Cell<u32> = const { Cell::new(0) };
        }
        let count = ACQUISITIONS.get().wrapping_add(1);
        ACQUISITIONS.set(count);
        TransferTimer { is_sampled: count.is_multiple_of(RATE) }
    }

    /// Reads by `is_held` whether a thread holds the lock, and times that read. Most acquisitions skip
    /// it.
    #[inline]
    pub fn read(&mut self, is_held: impl FnOnce() -> bool) {
        if self.is_sampled {
            self.read_timed(is_held);
        }
    }

    #[cold]
    fn read_timed(&mut self, is_held: impl FnOnce() -> bool) {
        // The first two times give the cost of reading the clock.
        let [before, began] = [Instant::now(), Instant::now()];
        let is_held = is_held();
        let ended = Instant::now();
        if !is_held {
            SAMPLES.keep((ended - began).saturating_sub(began - before));
            self.is_sampled = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost_of(samples: impl IntoIterator<Item = u64>) -> Option<f64> {
        let kept = Samples::new();
        samples.into_iter().for_each(|ns| kept.keep(Duration::from_nanos(ns)));
        kept.cost()
    }

    #[test]
    fn one_acquisition_in_some_keeps_the_time_of_the_read_that_found_the_lock_free() {
        let count = || SAMPLES.count.load(Ordering::Relaxed);
        let (before, mut reads) = (count(), 0);
        for _ in 0..2 * RATE {
            let mut timer = TransferTimer::new();
            for is_held in [true, true, false, false] {
                timer.read(|| {
                    reads += 1;
                    is_held
                });
            }
        }
        assert_eq!((count() - before, reads), (2, 6));
    }

    #[test]
    fn a_cost_needs_several_samples() {
        assert_eq!(cost_of([30; ENOUGH - 1]), None);
        assert_eq!(cost_of([30; ENOUGH]), Some(30.0));
        assert_eq!(cost_of([0; ENOUGH]), Some(0.0));
    }

    #[test]
    fn a_few_interrupted_reads_change_no_cost() {
        let reads = (0..KEPT as u64).map(|read| if read % 8 == 0 { 1_000_000_000_000 } else { 30 });
        assert_eq!(cost_of(reads), Some(30.0));
    }

    #[test]
    fn old_samples_are_replaced() {
        let samples = [500; KEPT].into_iter().chain([20; KEPT]);
        assert_eq!(cost_of(samples), Some(20.0));
    }

    #[test]
    fn a_coarse_clock_gives_the_mean() {
        let reads = (0..KEPT as u64).map(|read| if read % 2 == 0 { 0 } else { 40 });
        assert_eq!(cost_of(reads), Some(20.0));
    }
}
