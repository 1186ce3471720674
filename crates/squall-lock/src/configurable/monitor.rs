//! The closely coupled monitor (KT-17, PR-19): facts about the lock, beside it, kept by those who wait for it and hold it.
//!
//! Problem: a decision is no better than what it is taken from, and what is gathered far away is old. Idea: the counters lie in
//! the lock; the holder writes most of them, so that they cost no atomic operation, and nothing at all while nobody waits.
//!
//! - I1. What is marked "holder" is written only by the thread that holds the lock.

use std::time::Duration;

use squall_sys::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The facts.
#[derive(Debug)]
pub(super) struct Monitor {
    /// Threads that wait now.
    pub(super) waiters: AtomicU32,
    /// Of these, those that may be asleep.
    pub(super) asleep: AtomicU32,
    /// Pauses in vain: of waiters that slept after all.
    pub(super) spins_wasted: AtomicU64,
    /// Pauses of those who got the lock by them.
    pub(super) spins_used: AtomicU64,
    /// Times a waiter went to sleep.
    pub(super) sleeps: AtomicU64,
    /// Holder: acquisitions that had to wait.
    pub(super) contended: AtomicU64,
    /// Holder: the most that were seen waiting by one that got the lock. Whoever looks may set it back.
    pub(super) peak: AtomicU32,
    /// Holder: those of them that the holder before gave away itself; it counts them.
    pub(super) handed: AtomicU64,
    /// Holder: times it took what was kept for waiters that did not come.
    pub(super) missed: AtomicU64,
    /// Holder: how long the lock was held, of one acquisition in [`SAMPLED`] of those that waited: a moving average over eight, in
    /// which one that is far longer (its thread did not run) counts little.
    pub(super) hold_ns: AtomicU64,
    /// Holder: the longest of these.
    pub(super) hold_ns_max: AtomicU64,
    /// Holder: how many these were.
    pub(super) holds: AtomicU64,
    /// Holder: when it got the lock, if its time is taken.
    pub(super) since_ns: AtomicU64,
}

/// The time of one acquisition in so many is taken, of those that waited.
pub(super) const SAMPLED: u64 = 4;

/// Nothing has happened. A macro, since a model's atomics are made by no constant function.
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

    /// The holder adds one.
    pub(super) fn count(fact: &AtomicU64) -> u64 {
        // Relaxed: one writer at a time (I1), and the lock orders them.
        let count = fact.load(Ordering::Relaxed) + 1;
        fact.store(count, Ordering::Relaxed);
        count
    }

    /// Notes a sleep, and that the pauses before it were in vain.
    pub(super) fn slept<R>(&self, spins: &mut u32, sleep: impl FnOnce() -> R) -> R {
        self.spins_wasted.fetch_add(u64::from(std::mem::take(spins)), Ordering::Relaxed);
        self.sleeps.fetch_add(1, Ordering::Relaxed);
        self.asleep.fetch_add(1, Ordering::Relaxed);
        let result = sleep();
        self.asleep.fetch_sub(1, Ordering::Relaxed);
        result
    }

    /// The holder notes how long it had the lock.
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

/// What a lock's monitor says. Counts are since the lock was made; they are read one after the other, so that those of a lock in
/// use need not be of the same moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MonitorReading {
    /// Threads that wait now.
    pub waiters: u32,
    /// Those of them that sleep or are about to.
    pub asleep: u32,
    /// Acquisitions that had to wait. Those that found the lock free are not counted: that would cost them.
    pub contended: u64,
    /// Those of them that were given the lock by the thread that had it.
    pub handed: u64,
    /// Times the lock was kept for waiters that did not run, and another took it.
    pub missed: u64,
    /// Times a waiter went to sleep.
    pub sleeps: u64,
    /// Pauses of waiters that got the lock without sleeping.
    pub spins_used: u64,
    /// Pauses of waiters that slept after all.
    pub spins_wasted: u64,
    /// How long the lock is held, by those whose time was taken: one in four that waited; a moving average over eight, in which one that is
    /// far longer counts little.
    pub hold: Duration,
    /// The longest of these.
    pub hold_max: Duration,
    /// How many they were.
    pub holds: u64,
}
