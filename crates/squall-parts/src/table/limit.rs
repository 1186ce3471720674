//! Budgets: a limit on entries or bytes, taken first come first served.
//!
//! - I1. The amount taken is at most the limit at the time of the latest take. A take is one atomic step that
//!   compares and adds; each attempt loads the limit. A take that runs while the limit is lowered may use the
//!   old limit.
//! - I2. An insertion takes before it inserts, and gives back the surplus afterwards. A removal gives back
//!   after it has removed. So the stored amount is at most the taken amount, at every step of concurrent
//!   changes.
//!
//! Not promised: the least number of rejections. A rejected take might have fitted after the running changes
//! have given back their surplus.
//! Cost: each take and each give-back is a read-modify-write of one shared word.

use squall_sys::sync::atomic::{AtomicU64, Ordering};
use std::fmt;

/// A limited amount of something, such as entries or bytes.
///
/// ```
/// use squall::parts::table::Budget;
/// let bytes = Budget::new(100);
/// assert!(bytes.take(60).is_ok() && bytes.take(60).is_err());
/// bytes.give(60);
/// assert_eq!(bytes.taken(), 0);
/// ```
pub struct Budget {
    limit: AtomicU64,
    taken: AtomicU64,
}

/// The error of a take that would exceed the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted {
    /// The limit.
    pub limit: u64,
    /// The amount taken at that moment.
    pub taken: u64,
    /// The requested amount.
    pub wanted: u64,
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Exhausted { limit, taken, wanted } = self;
        write!(f, "{wanted} more requested, {taken} of {limit} in use")
    }
}

impl std::error::Error for Exhausted {}

impl Budget {
    /// Returns a budget with this limit and no amount taken.
    pub fn new(limit: u64) -> Budget {
        Budget { limit: AtomicU64::new(limit), taken: AtomicU64::new(0) }
    }

    /// Returns the limit.
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Changes the limit. An amount taken beyond the new limit stays taken; later takes fail until it is
    /// below the limit.
    ///
    /// ```
    /// use squall::parts::table::Budget;
    /// let budget = Budget::new(2);
    /// budget.take(2).unwrap();
    /// budget.set_limit(1);
    /// assert!(budget.taken() == 2 && budget.take(1).is_err());
    /// ```
    pub fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Returns the amount taken.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Takes this amount.
    ///
    /// # Errors
    /// The limit would be exceeded: the budget is unchanged.
    pub fn take(&self, wanted: u64) -> Result<(), Exhausted> {
        let fits = |taken: u64| taken.checked_add(wanted).filter(|sum| *sum <= self.limit());
        // Relaxed: only a number. The stored data has an ordering of its own.
        let taken = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        taken.map(drop).map_err(|taken| Exhausted { limit: self.limit(), taken, wanted })
    }

    /// Takes this amount without checking the limit: for data that was there before the limit.
    pub fn take_unchecked(&self, taken: u64) {
        self.taken.fetch_add(taken, Ordering::Relaxed);
    }

    /// Gives back this amount. The amount taken never drops below zero.
    pub fn give(&self, back: u64) {
        let less = |taken: u64| Some(taken.saturating_sub(back));
        // Relaxed: as in `take`.
        let _ = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget").field("limit", &self.limit()).field("taken", &self.taken()).finish()
    }
}

/// The amount that one change has taken from a budget. The drop gives it back, after a panic too, unless
/// [`keep`](Reservation::keep) was called.
///
/// For changes with a closure that may run several times: each [`take`](Reservation::take) replaces the
/// amount taken before.
///
/// ```
/// use squall::parts::table::{Budget, Reservation};
/// let budget = Budget::new(3);
/// let mut reservation = Reservation::new(&budget);
/// reservation.take(1).unwrap();
/// reservation.take(2).unwrap();
/// assert_eq!(budget.taken(), 2);
/// drop(reservation);
/// assert_eq!(budget.taken(), 0);
/// ```
#[derive(Debug)]
pub struct Reservation<'a> {
    budget: &'a Budget,
    held: u64,
}

impl<'a> Reservation<'a> {
    /// Returns an empty reservation.
    pub fn new(budget: &'a Budget) -> Reservation<'a> {
        Reservation { budget, held: 0 }
    }

    /// Takes this amount in place of the earlier one.
    ///
    /// # Errors
    /// The limit would be exceeded: the reservation is empty then.
    pub fn take(&mut self, wanted: u64) -> Result<(), Exhausted> {
        self.give_back();
        if wanted > 0 {
            self.budget.take(wanted)?;
        }
        self.held = wanted;
        Ok(())
    }

    /// Leaves the amount taken.
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

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn giving_back_too_much_does_not_wrap() {
        let budget = Budget::new(2);
        budget.take(1).unwrap();
        budget.give(5);
        assert_eq!((budget.taken(), budget.take(2), budget.take(1).is_err()), (0, Ok(()), true));
    }

    #[test]
    fn at_most_the_limit_is_taken_and_all_comes_back() {
        let budget = Budget::new(3);
        assert_eq!(budget.take(2), Ok(()));
        assert_eq!(budget.take(2), Err(Exhausted { limit: 3, taken: 2, wanted: 2 }));
        assert!(budget.take(u64::MAX).is_err(), "the sum does not overflow");
        let mut reservation = Reservation::new(&budget);
        assert_eq!(reservation.take(1), Ok(()));
        assert_eq!((reservation.take(1), budget.taken()), (Ok(()), 3), "in place of the earlier amount");
        assert!(reservation.take(2).is_err() && budget.taken() == 2);
        assert_eq!(reservation.take(1), Ok(()));
        drop(reservation);
        assert_eq!(budget.taken(), 2);
        let mut reservation = Reservation::new(&budget);
        reservation.take(1).unwrap();
        reservation.keep();
        budget.set_limit(1);
        assert!(budget.taken() == 3 && budget.take(1).is_err());
        budget.give(3);
        assert_eq!((budget.take(1), budget.limit()), (Ok(()), 1));
        let text = budget.take(5).unwrap_err().to_string();
        assert_eq!(text, "5 more requested, 1 of 1 in use");
    }
}
