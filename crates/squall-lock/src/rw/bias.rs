//! The protocol of the read-biased reader-writer lock.
//!
//! Problem: with marks alone (`raw`) each write costs a system call and a scan. With a count alone each read
//! writes a shared line. Data that is mostly read but written in bursts suffers from either.
//! Idea: the lock has both, and a flag tells the one in use. The first writer of a biased lock pays for the
//! marks and turns the bias off. Readers then count themselves, and further writes are cheap. After enough
//! reads in a row, a reader turns the bias on again.
//!
//! - I1. A reader and a writer are never inside together. A reader is inside by a mark or by the count
//!   (`raw/I7`, `raw/I6`). A writer that finds the bias waits for both. A writer that finds none waits for
//!   the count alone, because the marks are gone (`raw/I7`, `raw/I8`).
//! - I2. A reader never sleeps for the marks. If it loses the bias, it clears its mark and queues as a
//!   counted reader. A writer sleeps at one place for the readers of both kinds, and each of them wakes it
//!   (`raw/I3`). So a change of the bias loses no wake-up.
//! - I3. Only readers inside by the count, and the writer inside, write the pace. A reader never undoes a
//!   writer's change of it.
//!
//! Pace. A revocation costs as much as some hundred counted reads. So the bias must be earned: a number of
//! counted reads since the last write. The number begins with [`READS_MIN`] and doubles with each revocation,
//! up to [`READS_MAX`]. Then a revocation costs each of the reads that earned it a few nanoseconds at most,
//! whatever the order of reads and writes. The number need not fall again. After the last write of a burst,
//! it delays the bias once, by [`READS_MAX`] reads. A lock with more than ten times as many reads per write
//! makes nine in ten reads by marks. BRAVO measures the time of a revocation, and forbids the bias for nine
//! times as long; a count needs no clock.
//!
//! Not promised: an exact count. Readers that count at once may lose counts.
//! Cost: a biased read reads the word once more than in `raw`. A counted read makes two read-modify-writes of
//! the word, and stores the pace. A write without the bias makes four and no system call.
//! Source: Dice and Kogan, "BRAVO: Biased Locking for Reader-Writer Locks", USENIX ATC 2019. Ours differs:
//! the marks are on lines of the threads, and the writer makes the fence for its readers.

use super::marks::{Record, Registry};
use super::raw::{Entry, Raw};
use crate::lock::{Lock, LockGuard};
use crate::records::{LockType, revoked};
use crate::steps::Steps;
use squall_sys::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use squall_sys::trace::{Since, Subject};
use std::marker::PhantomData;
use std::time::Instant;

/// The number of counted reads that makes a lock biased, before the first revocation.
const READS_MIN: u16 = if cfg!(loom) {
    1
} else if cfg!(miri) {
    4
} else {
    256
};
/// The number of times it doubles.
const DOUBLINGS_MAX: u16 = if cfg!(loom) { 0 } else { 4 };
/// The number of counted reads that makes a lock biased, after many revocations.
const READS_MAX: u16 = READS_MIN << DOUBLINGS_MAX;
/// The number that replaces all these in a stress.
const READS_HURRIED: u16 = 2;

/// The reads left until the bias. The bits above are the number of doublings.
const LEFT: u16 = (1 << 13) - 1;
const DOUBLING: u16 = LEFT + 1;

const _: () = assert!(READS_MAX <= LEFT && DOUBLINGS_MAX <= u16::MAX / DOUBLING);

/// The way in which a reader is inside.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reader<'a> {
    /// By the mark in this slot.
    Marked(&'a AtomicUsize),
    /// By the count.
    Counted,
}

/// Decides when a lock becomes biased.
struct Pace<S>(AtomicU16, PhantomData<fn() -> S>);

impl<S: Steps> Pace<S> {
    #[cfg(not(loom))]
    const fn new() -> Pace<S> {
        Pace(AtomicU16::new(Pace::<S>::reads(0)), PhantomData)
    }

    #[cfg(loom)]
    fn new() -> Pace<S> {
        Pace(AtomicU16::new(Pace::<S>::reads(0)), PhantomData)
    }

    /// Returns the number of reads that earn the bias.
    const fn reads(doublings: u16) -> u16 {
        if S::HURRIES { READS_HURRIED } else { READS_MIN << doublings }
    }

    /// Counts a read. Returns whether the lock should be biased.
    #[inline(always)]
    fn read(&self) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        if word & LEFT <= 1 {
            return true;
        }
        // Not a read-modify-write: a lost count does no harm.
        self.0.store(word - 1, Ordering::Relaxed);
        false
    }

    /// Begins again after a write, which ended the bias if `revoked`.
    fn write(&self, revoked: bool) {
        let doublings = self.0.load(Ordering::Relaxed) / DOUBLING + u16::from(revoked);
        let doublings = doublings.min(DOUBLINGS_MAX);
        self.0.store(doublings * DOUBLING + Pace::<S>::reads(doublings), Ordering::Relaxed);
    }
}

/// The lock without its value.
pub(crate) struct ReadBias<S: Steps> {
    raw: Raw<S>,
    pace: Pace<S>,
    /// Held by the writer.
    writers: Lock<(), S>,
}

impl<S: Steps> ReadBias<S> {
    /// Makes an unbiased lock: a first write is cheap.
    #[cfg(not(loom))]
    pub(crate) const fn new() -> ReadBias<S> {
        ReadBias { raw: Raw::new_unbiased(), pace: Pace::new(), writers: Lock::with_steps(()) }
    }

    /// Makes a lock, with readers that make full fences (`fenced`) or light ones.
    #[cfg(loom)]
    pub(crate) fn new(fenced: bool, biased: bool) -> ReadBias<S> {
        let raw = Raw::new(fenced);
        if !biased {
            raw.unbias();
        }
        ReadBias { raw, pace: Pace::new(), writers: Lock::with_steps(()) }
    }

    /// Returns the value of a mark of this lock.
    pub(crate) fn key(&self) -> usize {
        self.raw.key()
    }

    /// Returns the address that identifies the counted readers in deadlock reports.
    #[inline(always)]
    pub(crate) fn counted_key(&self) -> usize {
        std::ptr::from_ref(&self.pace).addr()
    }

    pub(crate) fn is_biased(&self) -> bool {
        self.raw.is_biased()
    }

    pub(crate) fn has_writer(&self) -> bool {
        self.raw.has_writer()
    }

    // --- readers ---

    /// Marks the thread's first slot, if it is free and the lock is biased. Returns `Ok` if the reader is
    /// inside, otherwise whether the slot is marked.
    #[inline(always)]
    pub(crate) fn mark_first<'a>(&self, record: &'a Record) -> Result<Reader<'a>, bool> {
        let slot = record.first();
        // Relaxed: only this thread writes the slot. The word is read again after the mark.
        if !self.raw.is_biased() || slot.load(Ordering::Relaxed) != 0 {
            return Err(false);
        }
        S::step();
        if self.raw.mark(slot) { Ok(Reader::Marked(slot)) } else { Err(true) }
    }

    /// Enters an unbiased lock without a writer by the count. Otherwise returns false.
    #[inline]
    pub(crate) fn count_first(&self) -> bool {
        if self.raw.is_biased() || !self.raw.count_in() {
            return false;
        }
        self.count();
        true
    }

    /// Continues after the other two failed. `record` must be the thread's own, and not that of `mark_first`
    /// if that one had no free slot.
    pub(crate) fn enter<'a>(
        &self,
        marked: bool,
        record: &'a Record,
        registry: &'a Registry,
        deadline: Option<Instant>,
        subject: Subject,
    ) -> Option<Reader<'a>> {
        if marked || self.raw.is_biased() {
            let slot = if marked { record.first() } else { record.claim(registry) };
            if (!marked && self.raw.mark(slot)) || self.raw.is_open() {
                return Some(Reader::Marked(slot));
            }
            self.raw.leave(slot);
        }
        let entry = self.raw.enter_counted(deadline, subject);
        (entry == Entry::Inside).then(|| {
            self.count();
            Reader::Counted
        })
    }

    /// Counts a read of this counted reader, which is inside (I3).
    #[inline(always)]
    fn count(&self) {
        if self.pace.read() {
            self.raw.bias();
        }
    }

    /// Frees the slot of a reader that is not inside.
    pub(crate) fn unmark(&self, slot: &AtomicUsize) {
        self.raw.leave(slot);
    }

    #[inline(always)]
    pub(crate) fn leave(&self, reader: Reader<'_>) {
        match reader {
            Reader::Marked(slot) => self.raw.leave(slot),
            Reader::Counted => self.raw.leave_counted(),
        }
    }

    // --- writers ---

    /// Returns the lock that admits one writer at a time.
    pub(crate) fn writers(&self) -> &Lock<(), S> {
        &self.writers
    }

    /// Returns whether a reader is inside, or checks whether it may go in. The caller has the turn.
    pub(crate) fn has_readers(&self, registry: &Registry) -> bool {
        self.raw.has_counted() || (self.raw.is_biased() && self.raw.has_marks(registry))
    }

    /// Takes the lock for the writer that has this turn, and ends the bias. If the deadline passes, the lock
    /// is unchanged.
    pub(crate) fn lock<'a>(
        &'a self,
        turn: LockGuard<'a, (), S>,
        registry: &Registry,
        deadline: Option<Instant>,
        subject: Subject,
    ) -> Option<LockGuard<'a, (), S>> {
        let since = if self.raw.is_biased() { Since::now() } else { Since::UNKNOWN };
        if self.raw.lock(registry, deadline, subject) == Entry::TimedOut {
            return None;
        }
        let is_biased = self.raw.is_biased();
        if is_biased {
            S::step();
            self.raw.unbias();
            revoked(LockType::RwWrite, subject, since);
        }
        self.pace.write(is_biased);
        Some(turn)
    }

    /// Releases the writer's lock. The caller still has the turn.
    pub(crate) fn unlock(&self) {
        self.raw.unlock();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::steps::NoSteps;

    fn reads_until_bias(pace: &Pace<NoSteps>) -> u16 {
        (1..=READS_MAX + 1).find(|_| pace.read()).expect("the lock never becomes biased")
    }

    #[test]
    fn each_revocation_doubles_the_reads_that_earn_the_bias() {
        let pace = Pace::<NoSteps>::new();
        for doublings in 0..DOUBLINGS_MAX {
            assert_eq!(reads_until_bias(&pace), READS_MIN << doublings);
            assert!(pace.read(), "a read that did not set the bias lets the next one try");
            pace.write(true);
        }
        assert_eq!(reads_until_bias(&pace), READS_MAX);
        pace.write(true);
        assert_eq!(reads_until_bias(&pace), READS_MAX, "the number is bounded");
    }

    #[test]
    fn a_write_begins_the_count_again_and_keeps_the_number() {
        let pace = Pace::<NoSteps>::new();
        pace.write(true);
        assert_eq!((1..2 * READS_MIN).find(|_| pace.read()), None);
        pace.write(false);
        assert_eq!(reads_until_bias(&pace), 2 * READS_MIN);
    }
}
