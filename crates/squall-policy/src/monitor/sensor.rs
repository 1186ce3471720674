//! Sensors of in-object monitors: small types to embed next to the setting that they tune.
//!
//! | type | bytes | cost of one event | may lose events? |
//! |---|---|---|---|
//! | [`Tally`] | 8 | a load and a store | yes, if threads collide |
//! | [`Count`] | 8 | an atomic addition | no |
//! | [`Peak`] | 8 | a load; an atomic maximum for a new peak | no |
//! | [`Threshold`] | 4 | a load; an atomic subtraction until it has posted | no |
//! | [`Blocked`] | 40 | two reads of the clock, four atomic changes and two loads | no |
//!
//! All are `Sync` and `const` to create, and never allocate. Every operation is wait-free and orders no other
//! memory. Keep them off the uncontended path. A failed compare-exchange, a wait, and a slow path are events
//! that cost almost no extra time to count. For rates over time use a [`Window`](super::Window).
//!
//! Place sensors on the cache line of the setting that they tune: a thread on the slow path has that line
//! anyway.
//!
//! Source: the customized lock monitor of KTK (§5.1, §5.2). It records the facts that its policy needs, and
//! the thread that calls the lock reads them and configures the lock.
//!
//! # Example: a lock that tunes its own spinning
//! After sixteen waits, the last waiting thread decides. No other thread and no other lock is involved.
//!
//! ```
//! use squall::policy::monitor::sensor::{Blocked, Noted, Threshold};
//! use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
//!
//! struct Gate {
//!     held: AtomicBool,
//!     spins_max: AtomicU32, // the setting
//!     blocked: Blocked,     // the sensors
//!     many: Threshold,
//! }
//!
//! impl Gate {
//!     fn enter(&self) {
//!         if self.held.swap(true, Ordering::Acquire) {
//!             self.enter_slow();
//!         }
//!     }
//!
//!     #[cold]
//!     fn enter_slow(&self) {
//!         self.blocked.during(|| {
//!             let mut spins = 0;
//!             while self.held.swap(true, Ordering::Acquire) {
//!                 spins += 1;
//!                 if spins > self.spins_max.load(Ordering::Relaxed) { std::thread::yield_now() }
//!             }
//!         });
//!         if self.many.note() == Noted::Post {
//!             let seen = self.blocked.reading();
//!             let is_short = seen.ns / seen.waits < 2_000;
//!             self.spins_max.store(if is_short { 200 } else { 0 }, Ordering::Relaxed);
//!             self.many.rearm(16);
//!         }
//!     }
//! }
//!
//! let gate = Gate {
//!     held: AtomicBool::new(false),
//!     spins_max: AtomicU32::new(50),
//!     blocked: Blocked::new(),
//!     many: Threshold::new(16),
//! };
//! gate.enter();
//! assert_eq!(gate.blocked.reading().waits, 0, "nobody waited, so nothing was noted");
//! ```

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::clock::now_ns;

/// Approximate count, for events so frequent that an atomic addition would be noticeable.
///
/// Threads that count at the same moment may count as one. A thread that is stopped between its load and its
/// store takes back the counts of other threads. So the count is exact for one thread, approximate and low
/// for several, and can fall.
///
/// ```
/// use squall::policy::monitor::sensor::Tally;
///
/// let calls = Tally::new();
/// calls.note(2);
/// assert_eq!(calls.get(), 2);
/// ```
#[derive(Debug, Default)]
pub struct Tally(AtomicU64);

impl Tally {
    /// Creates a count of zero.
    pub const fn new() -> Tally {
        Tally(AtomicU64::new(0))
    }

    /// Adds `n` to the count. Of additions made by several threads at once, some may be lost.
    #[inline]
    pub fn note(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Returns the count.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Exact count, for slow paths and failed compare-exchanges.
///
/// ```
/// use squall::policy::monitor::sensor::Count;
///
/// let waits = Count::new();
/// waits.note(3);
/// assert_eq!(waits.get(), 3);
/// ```
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Creates a count of zero.
    pub const fn new() -> Count {
        Count(AtomicU64::new(0))
    }

    /// Counts `n` events.
    #[inline]
    pub fn note(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Counts a failure and returns the result unchanged. Wrap it around a compare-exchange. A success writes
    /// no memory.
    ///
    /// ```
    /// use squall::policy::monitor::sensor::Count;
    /// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    ///
    /// let (word, failed) = (AtomicU32::new(1), Count::new());
    /// assert!(failed.watch(word.compare_exchange(1, 2, Relaxed, Relaxed)).is_ok());
    /// assert!(failed.watch(word.compare_exchange(1, 2, Relaxed, Relaxed)).is_err());
    /// assert_eq!(failed.get(), 1);
    /// ```
    #[inline]
    pub fn watch<T, E>(&self, result: Result<T, E>) -> Result<T, E> {
        if result.is_err() {
            self.note(1);
        }
        result
    }

    /// Returns the count.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Largest value seen.
///
/// ```
/// use squall::policy::monitor::sensor::Peak;
///
/// let longest = Peak::new();
/// longest.note(9);
/// longest.note(4);
/// assert_eq!((longest.take(), longest.get()), (9, 0));
/// ```
#[derive(Debug, Default)]
pub struct Peak(AtomicU64);

impl Peak {
    /// Creates an empty peak.
    pub const fn new() -> Peak {
        Peak(AtomicU64::new(0))
    }

    /// Notes a value. A value that is not a new peak writes no memory.
    #[inline]
    pub fn note(&self, value: u64) {
        if value > self.0.load(Ordering::Relaxed) {
            self.0.fetch_max(value, Ordering::Relaxed);
        }
    }

    /// Returns the largest value since the last [`take`](Peak::take), or 0.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns the largest value since the last `take`, or 0, and starts again at 0.
    pub fn take(&self) -> u64 {
        self.0.swap(0, Ordering::Relaxed)
    }
}

/// Counts events and posts once when there were enough; then stays quiet until it is armed again.
///
/// - I1. Between two calls of [`rearm`](Threshold::rearm), exactly one [`note`](Threshold::note) returns
///   [`Noted::Post`] if there are at least as many events as the threshold. Otherwise all return
///   [`Noted::Quiet`].
///
/// Argument: the word holds the number of missing events. Between two stores of `rearm` it only falls, by
/// ones, so exactly one subtraction takes it from one to zero. Threads that read a positive word before may
/// subtract later, below zero, where the word stays. There is at most one such subtraction per thread, so it
/// cannot wrap.
///
/// The thread that gets the post acts on it: it reads other sensors, changes a setting, arms the threshold
/// again. A thread that read the word before a `rearm` may subtract after it, and then counts for the new
/// arming.
///
/// ```
/// use squall::policy::monitor::sensor::{Noted, Threshold};
///
/// let waits = Threshold::new(2);
/// assert_eq!((waits.note(), waits.note(), waits.note()), (Noted::Quiet, Noted::Post, Noted::Quiet));
/// waits.rearm(100);
/// assert_eq!(waits.missing(), 100);
/// ```
#[derive(Debug)]
pub struct Threshold(AtomicI32);

/// Result of counting an event on a [`Threshold`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the post comes only once, to the thread that counted the last event"]
pub enum Noted {
    /// Continue.
    Quiet,
    /// The threshold is reached: act.
    Post,
}

impl Threshold {
    /// Creates a threshold that posts at the event with this number. With 0 it never posts.
    ///
    /// # Panics
    /// If `threshold` is above 2³¹ - 1.
    pub const fn new(threshold: u32) -> Threshold {
        Threshold(AtomicI32::new(missing(threshold)))
    }

    /// Counts an event. Writes no memory once it has posted.
    #[inline]
    pub fn note(&self) -> Noted {
        if self.0.load(Ordering::Relaxed) <= 0 {
            return Noted::Quiet;
        }
        if self.0.fetch_sub(1, Ordering::Relaxed) == 1 { Noted::Post } else { Noted::Quiet }
    }

    /// Starts again: posts once after this many more events, or never with 0. Earlier counts are discarded.
    ///
    /// # Panics
    /// If `threshold` is above 2³¹ - 1.
    pub fn rearm(&self, threshold: u32) {
        self.0.store(missing(threshold), Ordering::Relaxed);
    }

    /// Returns the number of missing events; 0 if it has posted or never posts.
    pub fn missing(&self) -> u32 {
        self.0.load(Ordering::Relaxed).max(0).cast_unsigned()
    }
}

const fn missing(threshold: u32) -> i32 {
    assert!(
        threshold <= i32::MAX as u32,
        "a `Threshold` counts at most 2^31 - 1 events; more were requested"
    );
    threshold as i32
}

/// Durations for which threads were blocked, and the number of threads blocked now.
///
/// ```
/// use squall::policy::monitor::sensor::Blocked;
/// use std::time::Duration;
///
/// let waits = Blocked::new();
/// waits.during(|| std::thread::sleep(Duration::from_millis(1)));
/// let seen = waits.reading();
/// assert_eq!((seen.waits, seen.waiting), (1, 0));
/// assert!(seen.ns_max >= 1_000_000);
/// ```
#[derive(Debug, Default)]
pub struct Blocked {
    waits: AtomicU64,
    ns: AtomicU64,
    ns_max: Peak,
    waiting_max: Peak,
    waiting: AtomicU32,
}

/// Reading of a [`Blocked`]. The fields are read one after the other, so they may stem from slightly
/// different moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockedReading {
    /// Waits that have ended.
    pub waits: u64,
    /// Total duration of these waits, in nanoseconds.
    pub ns: u64,
    /// Duration of the longest wait, in nanoseconds.
    pub ns_max: u64,
    /// Threads that wait now.
    pub waiting: u32,
    /// Largest number of threads that waited at once.
    pub waiting_max: u64,
}

impl Blocked {
    /// Creates a sensor without waits.
    pub const fn new() -> Blocked {
        Blocked {
            waits: AtomicU64::new(0),
            ns: AtomicU64::new(0),
            ns_max: Peak::new(),
            waiting_max: Peak::new(),
            waiting: AtomicU32::new(0),
        }
    }

    /// Runs `wait`, which blocks, and records its duration. A wait that panics is recorded too.
    pub fn during<R>(&self, wait: impl FnOnce() -> R) -> R {
        struct End<'a>(&'a Blocked, u64);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.waiting.fetch_sub(1, Ordering::Relaxed);
                self.0.note(Duration::from_nanos(now_ns().saturating_sub(self.1)));
            }
        }
        let waiting = self.waiting.fetch_add(1, Ordering::Relaxed) + 1;
        self.waiting_max.note(u64::from(waiting));
        let _end = End(self, now_ns());
        wait()
    }

    /// Records a wait that the caller measured.
    pub fn note(&self, blocked: Duration) {
        let ns = u64::try_from(blocked.as_nanos()).unwrap_or(u64::MAX);
        self.ns.fetch_add(ns, Ordering::Relaxed);
        self.ns_max.note(ns);
        self.waits.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the current reading.
    pub fn reading(&self) -> BlockedReading {
        BlockedReading {
            waits: self.waits.load(Ordering::Relaxed),
            ns: self.ns.load(Ordering::Relaxed),
            ns_max: self.ns_max.get(),
            waiting: self.waiting.load(Ordering::Relaxed),
            waiting_max: self.waiting_max.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_match_the_documentation() {
        assert_eq!([size_of::<Tally>(), size_of::<Count>(), size_of::<Peak>()], [8; 3]);
        assert_eq!((size_of::<Threshold>(), size_of::<Blocked>()), (4, 40));
        assert_eq!((size_of::<super::super::Window>(), size_of::<super::super::Every>()), (24, 8));
    }

    #[test]
    fn a_peak_keeps_the_largest_until_it_is_taken() {
        let peak = Peak::new();
        [3, 9, 4].into_iter().for_each(|value| peak.note(value));
        assert_eq!((peak.get(), peak.take(), peak.get()), (9, 9, 0));
    }

    #[test]
    fn a_tally_is_exact_for_one_thread_and_a_count_for_all() {
        let (tally, count) = (Tally::new(), Count::new());
        (0..100).for_each(|_| tally.note(2));
        std::thread::scope(|scope| {
            (0..4).for_each(|_| drop(scope.spawn(|| (0..1_000).for_each(|_| count.note(1)))));
        });
        assert_eq!((tally.get(), count.get()), (200, 4_000));
    }

    #[test]
    fn a_threshold_of_zero_never_posts_and_a_posted_one_is_quiet() {
        let never = Threshold::new(0);
        assert!((0..10).all(|_| never.note() == Noted::Quiet));
        let threshold = Threshold::new(3);
        let posts: Vec<bool> = (0..6).map(|_| threshold.note() == Noted::Post).collect();
        assert_eq!(posts, [false, false, true, false, false, false]);
        threshold.rearm(2);
        assert_eq!(threshold.missing(), 2);
        assert_eq!((threshold.note(), threshold.note()), (Noted::Quiet, Noted::Post));
        assert_eq!(threshold.missing(), 0);
    }

    #[test]
    #[should_panic(expected = "at most 2^31 - 1")]
    fn a_threshold_that_is_too_large_is_refused() {
        let _ = Threshold::new(1 << 31);
    }

    #[test]
    fn a_wait_is_noted_even_if_it_panics() {
        let blocked = Blocked::new();
        assert_eq!(blocked.during(|| blocked.reading().waiting), 1);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            blocked.during(|| std::panic::panic_any(0));
        }));
        assert!(panicked.is_err());
        // Longer than the other waits on any machine.
        blocked.note(Duration::from_secs(86_400));
        let seen = blocked.reading();
        assert_eq!((seen.waits, seen.waiting, seen.waiting_max), (3, 0, 1));
        assert!(seen.ns_max == 86_400_000_000_000 && seen.ns >= seen.ns_max);
    }
}
