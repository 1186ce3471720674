//! Limits: so much of something and no more, taken by whoever comes first.
//!
//! - I1. What was taken and not given back is at most what the limit was when the last of it was taken: taking is one step that looks and
//!   adds, and the limit is looked at in each attempt. Who took as the limit was lowered may have taken by the one before.
//! - I2. Who puts something in takes first, and gives back what it turns out not to need; who takes something out gives after. So what is in
//!   is at most what was taken, whoever is where in a change.
//!
//! Not promised: that who is refused would have been over the limit once all changes that run end: they may give back what they took.
//! Cost: a read-modify-write of a word that all share, for each taking and each giving.

use squall_sys::sync::atomic::{AtomicU64, Ordering};
use std::fmt;

/// So much of something, entries or bytes, and no more.
pub struct Budget {
    most: AtomicU64,
    taken: AtomicU64,
}

/// A limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted {
    /// The limit.
    pub most: u64,
    /// What was taken of it.
    pub taken: u64,
    /// What was to be taken besides.
    pub wanted: u64,
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Exhausted { most, taken, wanted } = self;
        write!(f, "{wanted} more than {taken} is over the limit of {most}")
    }
}

impl std::error::Error for Exhausted {}

impl Budget {
    /// With this limit, of which nothing is taken.
    pub fn new(most: u64) -> Budget {
        Budget { most: AtomicU64::new(most), taken: AtomicU64::new(0) }
    }

    /// The limit.
    pub fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }

    /// Changes the limit. What is taken beyond a new one stays taken; who begins to take after this takes nothing before it is below.
    pub fn set_most(&self, most: u64) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// What is taken.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Takes so much, if it is there.
    ///
    /// # Errors
    /// It is not: nothing was taken.
    pub fn take(&self, wanted: u64) -> Result<(), Exhausted> {
        let fits = |taken: u64| taken.checked_add(wanted).filter(|sum| *sum <= self.most());
        // Relaxed: a number, and what it stands for is elsewhere, with an order of its own.
        let taken = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        taken.map(drop).map_err(|taken| Exhausted { most: self.most(), taken, wanted })
    }

    /// Takes so much, whatever the limit is: for what is there before it is limited.
    pub fn take_anyway(&self, taken: u64) {
        self.taken.fetch_add(taken, Ordering::Relaxed);
    }

    /// Gives so much back that was taken. What is given and was not taken is forgotten: less than nothing is never taken.
    pub fn give(&self, back: u64) {
        let less = |taken: u64| Some(taken.saturating_sub(back));
        // Relaxed: as in `take`.
        let _ = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget").field("most", &self.most()).field("taken", &self.taken()).finish()
    }
}

/// What one change takes of a budget, and gives back at its end, by a panic too, unless it is kept.
///
/// For a change whose closure is asked again: each time [`take`](Part::take) replaces what was taken before.
#[derive(Debug)]
pub struct Part<'a> {
    budget: &'a Budget,
    held: u64,
}

impl<'a> Part<'a> {
    /// Nothing of it yet.
    pub fn of(budget: &'a Budget) -> Part<'a> {
        Part { budget, held: 0 }
    }

    /// Takes so much in place of what it has.
    ///
    /// # Errors
    /// As [`Budget::take`]: it has nothing then.
    pub fn take(&mut self, wanted: u64) -> Result<(), Exhausted> {
        self.give_back();
        if wanted > 0 {
            self.budget.take(wanted)?;
        }
        self.held = wanted;
        Ok(())
    }

    /// What it has stays taken.
    pub fn keep(mut self) {
        self.held = 0;
    }

    fn give_back(&mut self) {
        let held = std::mem::take(&mut self.held);
        if held > 0 {
            self.budget.give(held);
        }
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_taken_and_is_given_does_not_make_the_limit_wrap() {
        let budget = Budget::new(2);
        budget.take(1).unwrap();
        budget.give(5);
        assert_eq!((budget.taken(), budget.take(2), budget.take(1).is_err()), (0, Ok(()), true));
    }

    #[test]
    fn what_is_taken_is_at_most_the_limit_and_comes_back() {
        let budget = Budget::new(3);
        assert_eq!(budget.take(2), Ok(()));
        assert_eq!(budget.take(2), Err(Exhausted { most: 3, taken: 2, wanted: 2 }));
        assert!(budget.take(u64::MAX).is_err(), "no sum goes round");
        let mut part = Part::of(&budget);
        assert_eq!(part.take(1), Ok(()));
        assert_eq!((part.take(1), budget.taken()), (Ok(()), 3), "in place of what it had");
        assert!(part.take(2).is_err() && budget.taken() == 2);
        assert_eq!(part.take(1), Ok(()));
        drop(part);
        assert_eq!(budget.taken(), 2);
        let mut part = Part::of(&budget);
        part.take(1).unwrap();
        part.keep();
        budget.set_most(1);
        assert!(budget.taken() == 3 && budget.take(1).is_err());
        budget.give(3);
        assert_eq!((budget.take(1), budget.most()), (Ok(()), 1));
        let text = budget.take(5).unwrap_err().to_string();
        assert_eq!(text, "5 more than 1 is over the limit of 1");
    }
}
