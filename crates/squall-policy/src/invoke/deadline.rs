//! The deadline of a call, on its way to the policy of the object that is called.
//!
//! - I1. A deadline is for one object: a policy sees it in calls of that object alone, and only before the method has begun.

use squall_core::Id;
use std::cell::Cell;
use std::time::Instant;

thread_local! {
    static DEADLINE: Cell<Option<(Id, Instant)>> = const { Cell::new(None) };
}

/// Puts back what was there.
#[must_use]
pub(crate) struct Restore(Option<(Id, Instant)>);

impl Drop for Restore {
    fn drop(&mut self) {
        DEADLINE.set(self.0);
    }
}

/// Until the result is dropped, calls of this object by this thread have a deadline.
pub(super) fn set(id: Id, by: Instant) -> Restore {
    Restore(DEADLINE.replace(Some((id, by))))
}

/// Until the result is dropped, no call has one: the method has begun.
pub(crate) fn begun() -> Restore {
    Restore(DEADLINE.take())
}

/// The deadline of a call of the object that has this many ids, from the first on.
#[inline]
pub(crate) fn of(first: Id, ids: u32) -> Option<Instant> {
    let (id, by) = DEADLINE.get()?;
    let same = id.generation() == first.generation() && id.slot().wrapping_sub(first.slot()) < ids;
    same.then_some(by)
}
