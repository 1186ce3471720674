//! Rates of a reading between two samples, and when to sample.
//!
//! - I1. `at_ns` is [`LOOKING`] from the moment a thread claims a sample until it ends it. Only that thread
//!   touches `reading`.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::clock::now_ns;

/// Turns a reading that only grows into its growth between two samples.
///
/// Many threads may sample at once: one of them gets the rate, the others get `None`. All samples of a window
/// must use the same sensor. A reading that has fallen (possible for a [`Tally`](super::sensor::Tally))
/// counts as unchanged.
///
/// # Cost
/// 24 bytes. A sample: one read of the clock, one compare-exchange, three stores. Within the shortest span:
/// only the clock. Wait-free. A thread that stalls within a sample only prevents samples by other threads.
///
/// ```
/// use squall::policy::monitor::Window;
/// use std::time::Duration;
///
/// static WINDOW: Window = Window::new(Duration::from_millis(1));
/// assert!(WINDOW.look_at(100, 5_000_000).is_none(), "the first look has nothing to compare with");
/// assert!(WINDOW.look_at(150, 5_500_000).is_none(), "too early");
/// let rate = WINDOW.look_at(300, 7_000_000).unwrap();
/// assert_eq!((rate.growth, rate.span_ns), (200, 2_000_000));
/// assert_eq!(rate.per_second(), 100_000.0);
/// ```
#[derive(Debug)]
pub struct Window {
    span_min_ns: u64,
    /// Time of the last sample; or [`NEVER`], or [`LOOKING`].
    at_ns: AtomicU64,
    /// Reading of the last sample (I1).
    reading: AtomicU64,
}

const NEVER: u64 = 0;
const LOOKING: u64 = u64::MAX;

/// Growth of a reading between two samples. For an example see [`Window`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Growth of the reading.
    pub growth: u64,
    /// Time since the previous sample, in nanoseconds; at least one.
    pub span_ns: u64,
}

impl Rate {
    /// Returns the growth per second.
    ///
    /// ```
    /// use squall::policy::monitor::Rate;
    ///
    /// assert_eq!(Rate { growth: 200, span_ns: 2_000_000 }.per_second(), 100_000.0);
    /// ```
    pub fn per_second(self) -> f64 {
        self.growth as f64 * 1e9 / self.span_ns as f64
    }
}

impl Window {
    /// Creates a window without samples. A sample earlier than `span_min` after the previous one is ignored.
    pub const fn new(span_min: Duration) -> Window {
        let (ns, most) = (span_min.as_nanos(), u64::MAX as u128);
        let span_min_ns = if ns > most { u64::MAX } else { ns as u64 };
        Window { span_min_ns, at_ns: AtomicU64::new(NEVER), reading: AtomicU64::new(0) }
    }

    /// Returns the growth of `reading` since the last sample. Returns `None` if this is the first sample, if
    /// it comes too early, or if another thread is sampling.
    ///
    /// ```
    /// use squall::policy::monitor::Window;
    /// use std::time::Duration;
    ///
    /// let window = Window::new(Duration::ZERO);
    /// assert!(window.look(100).is_none(), "the first sample has no predecessor");
    /// ```
    pub fn look(&self, reading: u64) -> Option<Rate> {
        self.look_at(reading, now_ns())
    }

    /// Like [`look`](Window::look), with a time on the clock of [`now_ns`](super::now_ns) that the caller has
    /// already read.
    pub fn look_at(&self, reading: u64, now_ns: u64) -> Option<Rate> {
        // The two ends of the clock's range are [`NEVER`] and [`LOOKING`].
        let now_ns = now_ns.clamp(NEVER + 1, LOOKING - 1);
        let last_ns = self.at_ns.load(Ordering::Relaxed);
        let span_ns = now_ns.saturating_sub(last_ns);
        if last_ns == LOOKING || (last_ns != NEVER && (span_ns == 0 || span_ns < self.span_min_ns)) {
            return None;
        }
        // Acquire: pairs with the Release below, of the previous sample (I1).
        self.at_ns.compare_exchange(last_ns, LOOKING, Ordering::Acquire, Ordering::Relaxed).ok()?;
        let before = self.reading.load(Ordering::Relaxed);
        self.reading.store(reading, Ordering::Relaxed);
        // Release: pairs with the Acquire above, of the next sample (I1).
        self.at_ns.store(now_ns, Ordering::Release);
        (last_ns != NEVER).then_some(Rate { growth: reading.saturating_sub(before), span_ns })
    }
}

/// Selects one in `period` callers, for example to read the sensors.
///
/// # Cost
/// 8 bytes. A load and a store; wait-free. Callers that ask at the same moment may count as one, or be
/// selected together.
///
/// ```
/// use squall::policy::monitor::Every;
///
/// let third = Every::new(3);
/// let due: Vec<bool> = (0..6).map(|_| third.is_due()).collect();
/// assert_eq!(due, [false, false, true, false, false, true]);
/// ```
#[derive(Debug)]
pub struct Every {
    period: u32,
    left: AtomicU32,
}

impl Every {
    /// Selects every `period`-th caller. If `period` is 0 or 1, selects every caller.
    pub const fn new(period: u32) -> Every {
        Every { period, left: AtomicU32::new(period) }
    }

    /// Returns `true` if it is this caller's turn.
    #[inline]
    pub fn is_due(&self) -> bool {
        let left = self.left.load(Ordering::Relaxed);
        let due = left <= 1;
        self.left.store(if due { self.period } else { left - 1 }, Ordering::Relaxed);
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_per_period_is_due() {
        let due = |period| {
            let every = Every::new(period);
            (0..12).filter(|_| every.is_due()).count()
        };
        assert_eq!([due(0), due(1), due(3), due(5), due(13)], [12, 12, 4, 2, 0]);
    }

    #[test]
    fn a_window_accepts_falling_readings_and_extreme_times() {
        let window = Window::new(Duration::ZERO);
        assert_eq!(window.look_at(9, 0), None);
        assert_eq!(window.look_at(5, 11), Some(Rate { growth: 0, span_ns: 10 }));
        assert_eq!(window.look_at(6, 11), None, "no time has passed");
        assert_eq!(window.look_at(6, 10), None, "time does not go back");
        let growth = window.look_at(7, u64::MAX).map(|rate| rate.growth);
        assert_eq!(growth, Some(2));
        assert_eq!(Window::new(Duration::MAX).look_at(1, 1), None);
    }

    #[test]
    fn concurrent_samples_report_the_growth_once() {
        const READING: u64 = 1_000;
        const THREADS: u64 = 4;
        let window = Window::new(Duration::ZERO);
        assert!(window.look_at(0, 1).is_none());
        // All readings are equal, so the growth adds up to the reading whichever thread came first.
        let told: u64 = std::thread::scope(|scope| {
            let look = |thread| {
                let window = &window;
                scope.spawn(move || {
                    let looks = (1..200).filter_map(|n| window.look_at(READING, 1 + n * THREADS + thread));
                    looks.map(|rate| rate.growth).sum::<u64>()
                })
            };
            let all: Vec<_> = (0..THREADS).map(look).collect();
            all.into_iter().map(|one| one.join().expect("it does not panic")).sum()
        });
        assert_eq!(told, READING);
    }
}
