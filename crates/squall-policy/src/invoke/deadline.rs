//! Deadline of a call, on its way to the policy of the called object.
//!
//! - I1. A deadline belongs to one object. A policy sees it only in calls of that object, and only before the
//!   method has begun.
//! - I2. A shipped closure that the thread serves does not see the deadline.

use squall_core::Id;
use std::cell::Cell;
use std::time::Instant;

thread_local! {
    static DEADLINE: Cell<Option<(Id, Instant)>> = const { Cell::new(None) };
}

/// Guard that restores the previous deadline when it is dropped.
#[must_use]
pub(crate) struct Restore(Option<(Id, Instant)>);

impl Drop for Restore {
    fn drop(&mut self) {
        DEADLINE.set(self.0);
    }
}

/// Sets the deadline of this thread's calls of the object, until the result is dropped.
pub(super) fn set(id: Id, by: Instant) -> Restore {
    squall_rcu::__hide_from_served(squall_rcu::__State::Deadline, |f| {
        let _hidden = begun();
        f();
    });
    Restore(DEADLINE.replace(Some((id, by))))
}

/// Clears the deadline until the result is dropped: the method has begun, or other code runs.
pub(crate) fn begun() -> Restore {
    Restore(DEADLINE.take())
}

/// Returns the deadline for a call of the object with `ids` consecutive ids from `first` on.
#[inline]
pub(crate) fn of(first: Id, ids: u32) -> Option<Instant> {
    let (id, by) = DEADLINE.get()?;
    let same = id.generation() == first.generation() && id.slot().wrapping_sub(first.slot()) < ids;
    same.then_some(by)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn served_code_has_no_deadline_of_the_code_around_it() {
        let (id, by) = (Id::from_parts(1, 1).unwrap(), Instant::now());
        let _deadline = set(id, by);
        squall_rcu::__run_served(|| assert_eq!(of(id, 1), None));
        assert_eq!(of(id, 1), Some(by));
    }
}
