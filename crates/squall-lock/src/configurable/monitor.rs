//! The closely coupled monitor: facts about the lock, kept beside it by waiters and holders.
//!
//! Problem: a decision is only as good as its data, and data gathered elsewhere is old. Idea: the counters
//! lie in the lock. The holder writes most of them, so they need no atomic operation. Without
//! waiters they are not written at all.
//!
//! - I1. Only the thread that holds the lock writes the fields marked "holder".
//!
//! Source: KT-17 (Gheith, Mukherjee, Silva and Schwan, "KTK", 1994, §5.1).

use std::time::Duration;

use squall_sys::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The facts about one lock.
#[derive(Debug)]
pub(super) struct Monitor {
    /// Threads that wait now.
    pub(super) waiters: AtomicU32,
    /// The part of `waiters` that may be asleep.
    pub(super) asleep: AtomicU32,
    /// Pauses of waiters that slept in the end.
    pub(super) spins_wasted: AtomicU64,
    /// Pauses of waiters that got the lock without sleeping.
    pub(super) spins_used: AtomicU64,
    /// The number of times a waiter went to sleep.
    pub(super) sleeps: AtomicU64,
    /// Holder: acquisitions that had to wait.
    pub(super) contended: AtomicU64,
    /// Holder: the most other waiters seen by a thread that got the lock. Any thread may read and reset it.
    pub(super) peak: AtomicU32,
    /// Holder: the acquisitions among `contended` to which the previous holder gave the lock directly. The
    /// previous holder counts them.
    pub(super) handed: AtomicU64,
    /// Holder: times a thread took a lock that was reserved for waiters, because the waiters did not come.
    pub(super) missed: AtomicU64,
    /// Holder: a moving average over eight of the time the lock is held. Sampled from one in [`SAMPLED`]
    /// acquisitions that waited. A far longer sample (of a preempted thread) counts little.
    pub(super) hold_ns: AtomicU64,
    /// Holder: the longest sample.
    pub(super) hold_ns_max: AtomicU64,
    /// Holder: the number of samples.
    pub(super) holds: AtomicU64,
    /// Holder: the time of the acquisition, if its hold time is sampled.
    pub(super) since_ns: AtomicU64,
}

/// One in this many acquisitions that waited has its hold time sampled.
pub(super) const SAMPLED: u64 = 4;

/// An empty monitor. A macro, because a loom atomic has no constant constructor.
macro_rules! nothing {
    () => {
        Monitor {
            waiters: AtomicU32::new(0),
            peak: AtomicU32::new(0),
            asleep: AtomicU32::new(0),
            spins_wasted: AtomicU64::new(0),
            spins_used: AtomicU64::new(0),
            sleeps: AtomicU64::new(0),
            contended: AtomicU64::new(0),
            handed: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            hold_ns: AtomicU64::new(0),
            hold_ns_max: AtomicU64::new(0),
            holds: AtomicU64::new(0),
            since_ns: AtomicU64::new(0),
        }
    };
}

impl Monitor {
    #[cfg(not(loom))]
    pub(super) const fn new() -> Monitor {
        nothing!()
    }

    #[cfg(loom)]
    pub(super) fn new() -> Monitor {
        nothing!()
    }

    /// Adds one to a holder's fact, and returns the new value.
    pub(super) fn count(fact: &AtomicU64) -> u64 {
        // Relaxed: one writer at a time (I1), and the lock orders the writers.
        let count = fact.load(Ordering::Relaxed) + 1;
        fact.store(count, Ordering::Relaxed);
        count
    }

    /// Runs `sleep`, counts it, and adds the preceding pauses to `spins_wasted`.
    pub(super) fn slept<R>(&self, spins: &mut u32, sleep: impl FnOnce() -> R) -> R {
        self.spins_wasted.fetch_add(u64::from(std::mem::take(spins)), Ordering::Relaxed);
        self.sleeps.fetch_add(1, Ordering::Relaxed);
        self.asleep.fetch_add(1, Ordering::Relaxed);
        let result = sleep();
        self.asleep.fetch_sub(1, Ordering::Relaxed);
        result
    }

    /// Records the time the caller held the lock.
    pub(super) fn held_for(&self, ns: u64) {
        let before = self.hold_ns.load(Ordering::Relaxed);
        let first = Monitor::count(&self.holds) == 1;
        let average = if first { ns } else { before - before / 8 + ns.min(4 * before + 8) / 8 };
        self.hold_ns.store(average, Ordering::Relaxed);
        if ns > self.hold_ns_max.load(Ordering::Relaxed) {
            self.hold_ns_max.store(ns, Ordering::Relaxed);
        }
    }

    pub(super) fn read(&self) -> MonitorReading {
        let get = |fact: &AtomicU64| fact.load(Ordering::Relaxed);
        MonitorReading {
            waiters: self.waiters.load(Ordering::Relaxed),
            asleep: self.asleep.load(Ordering::Relaxed),
            contended: get(&self.contended),
            handed: get(&self.handed),
            missed: get(&self.missed),
            sleeps: get(&self.sleeps),
            spins_used: get(&self.spins_used),
            spins_wasted: get(&self.spins_wasted),
            hold: Duration::from_nanos(get(&self.hold_ns)),
            hold_max: Duration::from_nanos(get(&self.hold_ns_max)),
            holds: get(&self.holds),
        }
    }
}

/// A snapshot of a lock's monitor. Counts start at the lock's creation. The fields are read one after the
/// other, so for a lock in use they may belong to different moments.
///
/// # Example
/// ```
/// use squall::lock::MonitorReading;
///
/// /// Suggests longer sections or fewer threads.
/// fn is_overloaded(reading: MonitorReading) -> bool {
///     reading.contended > 1000 && reading.spins_wasted > reading.spins_used
/// }
/// assert!(!is_overloaded(squall::lock::ConfigurableLock::new(()).monitor()));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MonitorReading {
    /// Threads that wait now.
    pub waiters: u32,
    /// The part of `waiters` that sleeps or is about to.
    pub asleep: u32,
    /// Acquisitions that had to wait. Acquisitions of a free lock are not counted, because counting would
    /// slow them down.
    pub contended: u64,
    /// The part of `contended` that received the lock directly from the previous holder.
    pub handed: u64,
    /// Times the lock was reserved for waiters that did not run, so that another thread took it.
    pub missed: u64,
    /// Times a waiter went to sleep.
    pub sleeps: u64,
    /// Pauses of waiters that got the lock without sleeping.
    pub spins_used: u64,
    /// Pauses of waiters that slept in the end.
    pub spins_wasted: u64,
    /// The time the lock is held: a moving average over eight. Sampled from one in four acquisitions that
    /// waited. A far longer sample counts little.
    pub hold: Duration,
    /// The longest sample of the hold time.
    pub hold_max: Duration,
    /// The number of samples of the hold time.
    pub holds: u64,
}
