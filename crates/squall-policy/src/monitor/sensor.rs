//! Sensors of in-object monitors: small types to embed next to what they are to tune.
//!
//! | type | bytes | what a fact costs | may it lose some? |
//! |---|---|---|---|
//! | [`Tally`] | 8 | a load and a store | yes, where threads meet |
//! | [`Count`] | 8 | an atomic addition | no |
//! | [`Peak`] | 8 | a load; an atomic maximum where it is a new one | no |
//! | [`Threshold`] | 4 | a load; an atomic subtraction until it has posted | no |
//! | [`Blocked`] | 40 | two looks at the clock, four atomic changes and two loads | no |
//!
//! All are `Sync`, `const` to make, never allocate, and every operation is wait-free. None orders anything: whoever reads
//! one sees what was noted, and nothing else by it. Keep them off the path that is not contended: a compare-exchange that
//! failed, a wait, a slow path taken are facts that cost nothing to note. To reckon with time, look through a
//! [`Window`](super::Window).
//!
//! Beside the setting that they tune they share its line: who notes a fact on a slow path had that line anyway.
//!
//! Source: the customized lock monitor of KTK (§5.1, §5.2): it records what its policy needs, and the thread that calls the
//! lock looks at it and configures the lock.
//!
//! # Example: a lock that tunes its own spinning
//! After sixteen waits, one thread, the last of them, decides; no other thread is needed, and no other lock.
//!
//! ```
//! use squall_policy::monitor::sensor::{Blocked, Noted, Threshold};
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

/// A count that may lose some: for facts that are so frequent that an atomic addition would be felt.
///
/// Threads that note at the same moment may count as one, and one that was stopped between its load and its store takes
/// back what others noted meanwhile: exact for one thread, a lower bound for several, and it can fall.
#[derive(Debug, Default)]
pub struct Tally(AtomicU64);

impl Tally {
    /// Nothing was noted.
    pub const fn new() -> Tally {
        Tally(AtomicU64::new(0))
    }

    /// Notes `n` facts, or fewer.
    #[inline]
    pub fn note(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// How many were noted.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A count that loses none: for slow paths, and for compare-exchanges that failed.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Nothing was noted.
    pub const fn new() -> Count {
        Count(AtomicU64::new(0))
    }

    /// Notes `n` facts.
    #[inline]
    pub fn note(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Notes a failure, and passes the result on: to be put around a compare-exchange. A success writes nothing.
    ///
    /// ```
    /// use squall_policy::monitor::sensor::Count;
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

    /// How many were noted.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The largest value noted.
#[derive(Debug, Default)]
pub struct Peak(AtomicU64);

impl Peak {
    /// Nothing was noted.
    pub const fn new() -> Peak {
        Peak(AtomicU64::new(0))
    }

    /// Notes a value; one that is not larger than the largest writes nothing.
    #[inline]
    pub fn note(&self, value: u64) {
        if value > self.0.load(Ordering::Relaxed) {
            self.0.fetch_max(value, Ordering::Relaxed);
        }
    }

    /// The largest since it was last taken; 0 if none.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// As [`get`](Peak::get), and begins anew.
    pub fn take(&self) -> u64 {
        self.0.swap(0, Ordering::Relaxed)
    }
}

/// Counts facts, and posts once when there were enough; then rests until it is armed again.
///
/// - I1. Between two calls of [`rearm`](Threshold::rearm) exactly one [`note`](Threshold::note) returns
///   [`Noted::Post`] if there are as many as the threshold, and none if there are fewer.
///
/// Argument: the word holds how many are missing. Between two stores of `rearm` it only falls, by ones, so one subtraction
/// takes it from one to zero. Subtractions of threads that saw it positive before may take it below zero, where it stays;
/// at most one for each thread, so it cannot wrap.
///
/// Whoever gets the post acts on it: looks at other sensors, changes a setting, arms it anew. A thread that read the word
/// before a `rearm` may subtract after it, and then counts for the new arming.
#[derive(Debug)]
pub struct Threshold(AtomicI32);

/// What noting a fact came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the post comes once, to whoever noted the last fact"]
pub enum Noted {
    /// Nothing is to be done.
    Quiet,
    /// The threshold is reached: act.
    Post,
}

impl Threshold {
    /// Posts at the fact of this number; never if it is 0.
    ///
    /// # Panics
    /// If it is more than 2³¹ - 1.
    pub const fn new(threshold: u32) -> Threshold {
        Threshold(AtomicI32::new(missing(threshold)))
    }

    /// Notes a fact. Writes nothing once it has posted.
    #[inline]
    pub fn note(&self) -> Noted {
        if self.0.load(Ordering::Relaxed) <= 0 {
            return Noted::Quiet;
        }
        if self.0.fetch_sub(1, Ordering::Relaxed) == 1 { Noted::Post } else { Noted::Quiet }
    }

    /// Begins anew: posts once after so many facts more; never if it is 0. What was counted before is forgotten.
    ///
    /// # Panics
    /// If it is more than 2³¹ - 1.
    pub fn rearm(&self, threshold: u32) {
        self.0.store(missing(threshold), Ordering::Relaxed);
    }

    /// How many facts are missing; 0 if it has posted, or posts never.
    pub fn missing(&self) -> u32 {
        self.0.load(Ordering::Relaxed).max(0).cast_unsigned()
    }
}

const fn missing(threshold: u32) -> i32 {
    assert!(threshold <= i32::MAX as u32, "a threshold is at most 2^31 - 1");
    threshold as i32
}

/// How long callers were blocked, and how many are.
#[derive(Debug, Default)]
pub struct Blocked {
    waits: AtomicU64,
    ns: AtomicU64,
    ns_max: Peak,
    waiting_max: Peak,
    waiting: AtomicU32,
}

/// What a [`Blocked`] has seen. The figures are read one after the other, so they may be of slightly different moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockedReading {
    /// Waits that have ended.
    pub waits: u64,
    /// Nanoseconds of all of them.
    pub ns: u64,
    /// Nanoseconds of the longest.
    pub ns_max: u64,
    /// Threads that wait now.
    pub waiting: u32,
    /// The most that waited at once.
    pub waiting_max: u64,
}

impl Blocked {
    /// Nobody has waited.
    pub const fn new() -> Blocked {
        Blocked {
            waits: AtomicU64::new(0),
            ns: AtomicU64::new(0),
            ns_max: Peak::new(),
            waiting_max: Peak::new(),
            waiting: AtomicU32::new(0),
        }
    }

    /// Runs `wait`, which blocks, and notes how long it took. A wait that panics is noted too.
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

    /// Notes a wait that somebody else has clocked.
    pub fn note(&self, blocked: Duration) {
        let ns = u64::try_from(blocked.as_nanos()).unwrap_or(u64::MAX);
        self.ns.fetch_add(ns, Ordering::Relaxed);
        self.ns_max.note(ns);
        self.waits.fetch_add(1, Ordering::Relaxed);
    }

    /// What was seen so far.
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
    fn sizes_are_as_told() {
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
    fn a_threshold_of_nothing_never_posts_and_one_that_posted_is_quiet() {
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
        // Longer than the others took, on whatever machine.
        blocked.note(Duration::from_secs(86_400));
        let seen = blocked.reading();
        assert_eq!((seen.waits, seen.waiting, seen.waiting_max), (3, 0, 1));
        assert!(seen.ns_max == 86_400_000_000_000 && seen.ns >= seen.ns_max);
    }
}
