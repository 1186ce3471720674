//! Deadline of a call, on its way to the policy of the called object.
//!
//! - I1. A deadline belongs to one object. A policy sees it only in calls of that object, and only before the
//!   method has begun.

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
    Restore(DEADLINE.replace(Some((id, by))))
}

/// Clears the deadline until the result is dropped: the method has begun.
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
