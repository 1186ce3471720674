//! Budgets: a bound on the sum of the costs of entries, which threads add, replace and remove at once.
//!
//! Problem: a thread needs room for an entry before it adds it, and several threads remove one entry at once.
//! If two give its cost back, the entries outgrow the bound. If no thread does, the room is lost.
//!
//! Idea: one word has the sum of all costs. A thread takes room into its *share*. The thread that *claims* an
//! entry gets the cost of the entry into its share. Dropping a share gives the rest back.
//!
//! - I1. The sum is the cost of all unclaimed entries, and of all shares. No taking lets it exceed the bound.
//! - I2. An entry is claimed once. The thread that claims it accounts for it: it has the cost, and notifies.
//! - I3. The claim is a bit of a word. The other bits of the word change only by a compare-exchange of the
//!   whole word, so no change loses a claim.
//!
//! The caller keeps two rules. So the entries in their places never exceed a bound that stays:
//!
//! - I4. A thread takes room before it adds an entry, and drops its share after the claimed entry has left.
//! - I5. A thread that replaces an entry claims it first, and takes the difference of the costs. The old
//!   entry stays in its place until the new one is there, so lookups find one of them. If the new one is
//!   refused, or its thread panics, the thread removes the old one: an entry that stayed would have no cost.
//!
//! Not promised: fairness. Of threads that want the last room, any may get it.
//! Cost: one compare-exchange of a shared word for each taking, one addition for each share with a rest. An
//! unbounded budget writes no word. The caller places the word: threads that insert write it.
//! Source: Squall's own.
//!
//! ```
//! use squall::parts::budget::{Budget, Claim};
//!
//! let budget = Budget::new();
//! let (mut share, claim) = (budget.share(), Claim::new(0));
//! assert!(share.take(7, 10) && !share.take(4, 10));
//! share.spend(7); // an entry of cost 7 was added
//! assert_eq!(budget.taken(), 7);
//! assert!(share.claim(&claim, 7) && !share.claim(&claim, 7));
//! drop(share); // the entry has left
//! assert_eq!(budget.taken(), 0);
//! ```

#[cfg(all(test, any(loom, squall_model)))]
mod model;
mod sites;
#[cfg(all(test, not(any(loom, squall_model))))]
mod tests;

use squall_sys::sync::atomic::{AtomicU64, Ordering};

/// The bit of a claim.
const CLAIMED: u64 = 1 << 63;

/// The sum of costs, below a bound that each taking names.
#[derive(Debug, Default)]
pub struct Budget {
    is_unbounded: bool,
    taken: AtomicU64,
}

// Relaxed, in all methods of this file: each is a number alone, and the place of the entries orders their
// memory.
impl Budget {
    /// Returns a budget of which no part is taken.
    pub fn new() -> Budget {
        Budget { is_unbounded: false, taken: AtomicU64::new(0) }
    }

    /// Returns a budget that counts no cost, and of which each part may be taken.
    pub fn unbounded() -> Budget {
        Budget { is_unbounded: true, ..Budget::new() }
    }

    /// Returns the sum of the costs of all entries and shares.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Returns an empty share.
    pub fn share(&self) -> Share<'_> {
        Share { budget: self, held: 0 }
    }
}

/// A part of a budget that a thread has for entries that are about to come or to leave. Dropping it gives the
/// part back.
#[derive(Debug)]
pub struct Share<'a> {
    budget: &'a Budget,
    held: u64,
}

impl Share<'_> {
    /// Takes this much more, if the sum then stays within the bound.
    pub fn take(&mut self, more: u64, bound: u64) -> bool {
        if more == 0 || self.budget.is_unbounded {
            return true;
        }
        let fits = |taken: u64| taken.checked_add(more).filter(|sum| *sum <= bound || sites::FITS.is_weak());
        let taken = &self.budget.taken;
        if sites::TAKE_WHOLE.is_weak() {
            let Some(sum) = fits(taken.load(Ordering::Relaxed)) else { return false };
            taken.store(sum, Ordering::Relaxed);
        } else if taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_err() {
            return false;
        }
        self.held += more;
        true
    }

    /// Claims an entry, with its cost. Returns false if another thread has claimed it.
    pub fn claim(&mut self, claim: &Claim, cost: u64) -> bool {
        let is_mine = claim.set();
        if is_mine && !self.budget.is_unbounded {
            self.held += cost;
        }
        is_mine
    }

    /// Returns the part of the budget that the share has.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Passes this much to an entry that was added.
    ///
    /// # Panics
    /// If the share has less.
    pub fn spend(&mut self, cost: u64) {
        if !self.budget.is_unbounded {
            self.held = self.held.checked_sub(cost).expect("a thread takes room before it adds an entry");
        }
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        if self.held > 0 && !sites::GIVE_BACK.is_weak() {
            self.budget.taken.fetch_sub(self.held, Ordering::Relaxed);
        }
    }
}

/// The claim of an entry, in a word with 63 bits for other purposes.
#[derive(Debug)]
pub struct Claim(AtomicU64);

impl Claim {
    /// Returns an unclaimed word with these bits.
    ///
    /// # Panics
    /// If the uppermost bit is set.
    pub fn new(bits: u64) -> Claim {
        assert!(bits & CLAIMED == 0, "the uppermost bit is that of the claim");
        Claim(AtomicU64::new(bits))
    }

    /// Returns whether a thread has claimed the entry.
    pub fn is_claimed(&self) -> bool {
        self.word() & CLAIMED != 0
    }

    /// Returns the word: the bits, and the claim as the uppermost one.
    #[inline]
    pub fn word(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Replaces the bits of the word `old`, which [`word`](Claim::word) returned, and keeps its claim.
    ///
    /// Returns false if the word has changed since.
    pub fn change(&self, old: u64, bits: u64) -> bool {
        let new = bits & !CLAIMED | old & CLAIMED;
        if sites::KEEP_CLAIM.is_weak() {
            self.0.store(new, Ordering::Relaxed);
            return true;
        }
        self.0.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    fn set(&self) -> bool {
        if sites::CLAIM_ONCE.is_weak() {
            let word = self.word();
            self.0.store(word | CLAIMED, Ordering::Relaxed);
            return word & CLAIMED == 0;
        }
        self.0.fetch_or(CLAIMED, Ordering::Relaxed) & CLAIMED == 0
    }
}
