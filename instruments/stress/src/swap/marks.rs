//! The state of the objects: the marks that each thread has left.
//!
//! - I1. A lane belongs to one thread at a time, and only that thread leaves marks in it. Its marks are
//!   numbered without gaps, per object.
//! - I2. In one representative the numbers of a lane grow; with a single representative, by one. Over all
//!   representatives they are 1 to n, each once. The count, the last number and the sum prove that.

use std::sync::atomic::{AtomicU64, Ordering};

const ALIVE: u64 = 0xA11F_E000_A11F_E000;
const DEAD: u64 = 0xDEAD_DEAD_DEAD_DEAD;

/// The marks of a lane, in one representative or in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) last: u64,
    pub(super) count: u64,
    pub(super) sum: u64,
}

impl Sums {
    /// Returns the sums after the marks 1 to `n`.
    pub(super) fn after(n: u64) -> Sums {
        Sums { last: n, count: n, sum: (u128::from(n) * (u128::from(n) + 1) / 2) as u64 }
    }

    pub(super) fn and(self, other: Sums) -> Sums {
        Sums {
            last: self.last.max(other.last),
            count: self.count + other.count,
            sum: self.sum.wrapping_add(other.sum),
        }
    }
}

/// A lane on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Lane {
    last: AtomicU64,
    count: AtomicU64,
    sum: AtomicU64,
}

/// The state of one representative.
pub(super) struct Marks {
    alive: AtomicU64,
    lanes: Box<[Lane]>,
}

impl Marks {
    pub(super) fn new(lanes: usize) -> Marks {
        Marks { alive: AtomicU64::new(ALIVE), lanes: (0..lanes).map(|_| Lane::default()).collect() }
    }

    /// Checks that this is live memory.
    pub(super) fn check(&self) -> Result<(), String> {
        match self.alive.load(Ordering::Relaxed) {
            ALIVE => Ok(()),
            DEAD => Err("was dropped".to_owned()),
            other => Err(format!("was overwritten ({other:#x})")),
        }
    }

    /// Leaves mark `number`. `exact` means that all marks come to this representative (I2).
    pub(super) fn leave(&self, lane: usize, number: u64, exact: bool) -> Result<(), String> {
        let Lane { last, count, sum } = &self.lanes[lane];
        // Relaxed, without a read-modify-write: the lane belongs to the caller (I1). The library must make
        // the stores visible to the thread that moves the state.
        let before = last.load(Ordering::Relaxed);
        if number <= before {
            return Err(format!("its mark {number} came after {before}: a call ran twice, or out of order"));
        }
        if exact && number != before + 1 {
            return Err(format!(
                "its mark {number} came after {before}: a call or a part of the state was lost"
            ));
        }
        last.store(number, Ordering::Relaxed);
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        sum.store(sum.load(Ordering::Relaxed).wrapping_add(number), Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn of(&self, lane: usize) -> Sums {
        let Lane { last, count, sum } = &self.lanes[lane];
        Sums {
            last: last.load(Ordering::Relaxed),
            count: count.load(Ordering::Relaxed),
            sum: sum.load(Ordering::Relaxed),
        }
    }

    pub(super) fn all(&self) -> Vec<Sums> {
        (0..self.lanes.len()).map(|lane| self.of(lane)).collect()
    }

    /// Adds marks from another implementation. Several threads may add at once; marks are not left meanwhile.
    pub(super) fn add(&self, more: &[Sums]) {
        for (lane, more) in self.lanes.iter().zip(more) {
            lane.last.fetch_max(more.last, Ordering::Relaxed);
            lane.count.fetch_add(more.count, Ordering::Relaxed);
            lane.sum.fetch_add(more.sum, Ordering::Relaxed);
        }
    }

    /// Marks the state as dropped.
    pub(super) fn die(&mut self) -> Result<(), String> {
        self.check()?;
        *self.alive.get_mut() = DEAD;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_left_in_order_and_once() {
        let marks = Marks::new(2);
        for number in 1..=4 {
            marks.leave(1, number, true).unwrap();
        }
        assert_eq!((marks.of(0), marks.of(1)), (Sums::default(), Sums::after(4)));
        assert!(marks.leave(1, 4, false).is_err_and(|what| what.contains("twice")));
        assert!(marks.leave(1, 6, true).is_err_and(|what| what.contains("lost")));
        marks.leave(1, 6, false).unwrap();
        assert_ne!(marks.of(1), Sums::after(5));
        let other = Marks::new(2);
        other.leave(1, 5, false).unwrap();
        marks.add(&other.all());
        assert_eq!(marks.of(1), Sums::after(6));
    }

    #[test]
    fn what_was_dropped_is_known() {
        let mut marks = Marks::new(0);
        marks.check().unwrap();
        marks.die().unwrap();
        assert!(marks.die().is_err_and(|what| what.contains("was dropped")));
    }
}
