//! The value of an entry in the table, with the metadata of the entry.
//!
//! - I1. A thread that takes an entry out of the cache claims it first. One thread wins. It alone gives the
//!   cost of the entry back, and tells the listener.
//! - I2. An entry of an earlier generation is dead: lookups do not see it.
//!
//! Cost: 12 bytes an entry, and 24 more if entries can expire, in the block of its key and value. A hit
//! writes them at most once in an epoch.

use squall_parts::budget::Claim;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::listener::RemovalCause;
use crate::time::Ends;

const USES: u32 = 16;
const HALVINGS: u32 = 24;
const USED: u64 = 1 << 40;
const LATE: u64 = 1 << 41;
const GENERATION: u32 = 42;
/// The generations of entries are counted modulo this number.
const GENERATIONS: u32 = 1 << 15;
/// The bits of a mark.
const MARK: u64 = (1 << GENERATION) - 1;

/// The current time of a cache in epochs and halvings, to compare with the [`Mark`] of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Now {
    /// The number of the epoch, modulo 65,536.
    pub epoch: u16,
    /// The number of times that all counts of uses were halved, modulo 65,536.
    pub halvings: u16,
    /// The number of epochs without a use after which the next use counts as late.
    pub late: u16,
}

impl Now {
    /// Makes a time.
    pub fn new(epoch: u16, halvings: u16, late: u16) -> Now {
        Now { epoch, halvings, late }
    }

    pub(crate) fn bits(self) -> u64 {
        u64::from(self.epoch) | u64::from(self.halvings) << 16 | u64::from(self.late) << 32
    }

    pub(crate) fn from_bits(bits: u64) -> Now {
        Now { epoch: bits as u16, halvings: (bits >> 16) as u16, late: (bits >> 32) as u16 }
    }
}

/// The mark that hits leave in their entry, at most once in an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mark {
    /// The epoch of the last use, or of the insertion.
    pub epoch: u16,
    /// A count of epochs with a use, as of `halvings`: see [`Mark::uses_now`]. It stays at 255.
    pub uses: u8,
    /// The number of halvings that `uses` has gone through.
    pub halvings: u16,
    /// Whether the entry was used since its insertion.
    pub is_used: bool,
    /// Whether the last use was late.
    pub is_late: bool,
}

impl Mark {
    /// Returns the mark of an entry that comes now, with a count of uses from before.
    pub fn new(now: Now, uses: u8) -> Mark {
        Mark { epoch: now.epoch, uses, halvings: now.halvings, is_used: false, is_late: false }
    }

    /// Returns the number of epochs since the last use.
    pub fn age(self, now: Now) -> u16 {
        now.epoch.wrapping_sub(self.epoch)
    }

    /// Returns the count of uses, halved as often as all counts.
    pub fn uses_now(self, now: Now) -> u8 {
        self.uses >> now.halvings.wrapping_sub(self.halvings).min(7)
    }

    /// Returns the mark after a use.
    fn used(self, now: Now) -> Mark {
        Mark {
            epoch: now.epoch,
            uses: self.uses_now(now).saturating_add(1),
            halvings: now.halvings,
            is_used: true,
            is_late: self.age(now) >= now.late,
        }
    }

    fn bits(self) -> u64 {
        let flag = |is_set: bool, flag: u64| if is_set { flag } else { 0 };
        u64::from(self.epoch)
            | u64::from(self.uses) << USES
            | u64::from(self.halvings) << HALVINGS
            | flag(self.is_used, USED)
            | flag(self.is_late, LATE)
    }

    fn from_bits(bits: u64) -> Mark {
        Mark {
            epoch: bits as u16,
            uses: (bits >> USES) as u8,
            halvings: (bits >> HALVINGS) as u16,
            is_used: bits & USED != 0,
            is_late: bits & LATE != 0,
        }
    }
}

/// The times of an entry.
pub(crate) trait Span: Send + Sync + 'static {
    /// Whether entries can expire.
    const ENDS: bool;

    fn new(ends: Ends) -> Self;
    fn ends(&self) -> Ends;
    /// Returns the earliest of all ends.
    fn soft(&self) -> u64;
    /// Moves the ends that hits move.
    fn move_to(&self, ends: Ends);
}

/// The times of an entry that never expires.
pub(crate) struct Endless;

impl Span for Endless {
    const ENDS: bool = false;

    fn new(_: Ends) -> Endless {
        Endless
    }

    fn ends(&self) -> Ends {
        Ends::NEVER
    }

    fn soft(&self) -> u64 {
        Ends::NEVER.soft
    }

    fn move_to(&self, _: Ends) {}
}

/// The times of an entry that can expire.
pub(crate) struct Ending {
    soft: AtomicU64,
    hard: u64,
    own: AtomicU64,
}

impl Span for Ending {
    const ENDS: bool = true;

    fn new(ends: Ends) -> Ending {
        Ending { soft: AtomicU64::new(ends.soft), hard: ends.hard, own: AtomicU64::new(ends.own) }
    }

    fn ends(&self) -> Ends {
        // Relaxed, here and below: the value does not depend on it. Of hits at one moment, each may win.
        Ends {
            soft: self.soft.load(Ordering::Relaxed),
            hard: self.hard,
            own: self.own.load(Ordering::Relaxed),
        }
    }

    fn soft(&self) -> u64 {
        self.soft.load(Ordering::Relaxed)
    }

    fn move_to(&self, ends: Ends) {
        if self.own.load(Ordering::Relaxed) != ends.own {
            self.own.store(ends.own, Ordering::Relaxed);
        }
        self.soft.store(ends.soft, Ordering::Relaxed);
    }
}

/// A value and its metadata.
pub(crate) struct Stored<V, T> {
    pub(crate) value: V,
    pub(crate) span: T,
    /// The mark, the generation and the claim.
    pub(crate) word: Claim,
    pub(crate) cost: u32,
}

impl<V, T: Span> Stored<V, T> {
    pub(crate) fn new(value: V, cost: u32, ends: Ends, generation: u32, mark: Mark) -> Stored<V, T> {
        let word = mark.bits() | u64::from(generation % GENERATIONS) << GENERATION;
        Stored { value, span: T::new(ends), word: Claim::new(word), cost }
    }

    // Relaxed, in all methods: a mark is a hint, a lookup may run before or after a concurrent claim, and a
    // claim decides alone which thread accounts for the entry. The table orders the memory.
    fn word(&self) -> u64 {
        self.word.word()
    }

    /// Returns whether the entry has not expired.
    #[inline]
    pub(crate) fn is_in_time(&self, now: u64) -> bool {
        !T::ENDS || now < self.span.soft()
    }

    /// Returns whether lookups see the entry, as far as its time does not matter. They see a claimed entry
    /// until it has left the table. Otherwise they would miss a key with a value that is being replaced.
    #[inline]
    pub(crate) fn is_live(&self, generation: u32) -> bool {
        (self.word() >> GENERATION) as u32 % GENERATIONS == generation % GENERATIONS
    }

    /// Returns the reason why no lookup sees the entry, if it has not been claimed for another one.
    pub(crate) fn cause(&self, generation: u32, now: u64) -> Option<RemovalCause> {
        if !self.is_in_time(now) {
            Some(RemovalCause::Expired)
        } else if (self.word() >> GENERATION) as u32 % GENERATIONS != generation % GENERATIONS {
            Some(RemovalCause::Explicit)
        } else {
            None
        }
    }

    /// Marks the entry as used in this epoch, unless it is marked already.
    #[inline]
    pub(crate) fn touch(&self, now: u64) {
        let word = self.word();
        if word as u16 != now as u16 {
            self.mark(word, now);
        }
    }

    #[cold]
    fn mark(&self, word: u64, now: u64) {
        let mark = Mark::from_bits(word).used(Now::from_bits(now));
        let marked = word & !MARK | mark.bits();
        // One attempt: otherwise another thread marks the entry too, or takes it out.
        self.word.change(word, marked);
    }

    pub(crate) fn mark_now(&self) -> Mark {
        Mark::from_bits(self.word())
    }

    pub(crate) fn is_claimed(&self) -> bool {
        self.word.is_claimed()
    }
}
