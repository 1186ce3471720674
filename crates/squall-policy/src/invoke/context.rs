//! Context of a call, on its way to the policy of the called object: its deadline and its mode.
//!
//! - I1. A deadline and a mode belong to one object. A policy sees them only in calls of that object, and
//!   only before the method has begun.
//! - I2. A shipped closure that the thread serves sees neither.

use squall_core::Id;
use std::cell::Cell;
use std::time::Instant;

use super::mode::Mode;

/// Reason for refusing a call that begins after its deadline.
pub(crate) const LATE: &str = "its deadline passed before it began";

/// Reason for refusing a call with an attribute that is fixed.
pub(crate) const FIXED: &str = "it was given an attribute that was fixed when its object was created";

/// A value for the calls of one object.
type Addressed<T> = Option<(Id, T)>;

struct Context {
    deadline: Cell<Addressed<Instant>>,
    mode: Cell<Addressed<&'static Mode>>,
}

thread_local! {
    static CONTEXT: Context = const { Context { deadline: Cell::new(None), mode: Cell::new(None) } };
}

/// Guard that restores the previous context when it is dropped.
#[must_use]
pub(crate) struct Restore(Addressed<Instant>, Addressed<&'static Mode>);

impl Drop for Restore {
    fn drop(&mut self) {
        CONTEXT.with(|context| {
            context.deadline.set(self.0);
            context.mode.set(self.1);
        });
    }
}

fn replace(deadline: Addressed<Instant>, mode: Addressed<&'static Mode>) -> Restore {
    CONTEXT.with(|context| Restore(context.deadline.replace(deadline), context.mode.replace(mode)))
}

fn hide_from_served() {
    squall_rcu::__hide_from_served(squall_rcu::__State::Deadline, |f| {
        let _hidden = begun();
        f();
    });
}

/// Sets the deadline of this thread's calls of the object, until the result is dropped. The mode stays.
pub(super) fn set_deadline(id: Id, by: Instant) -> Restore {
    hide_from_served();
    replace(Some((id, by)), CONTEXT.with(|context| context.mode.get()))
}

/// Sets the deadline and the mode of this thread's calls of the object, until the result is dropped.
pub(super) fn set(id: Id, deadline: Option<Instant>, mode: Option<&'static Mode>) -> Restore {
    hide_from_served();
    replace(deadline.map(|by| (id, by)), mode.map(|mode| (id, mode)))
}

/// Clears the context until the result is dropped: the method has begun, or other code runs.
pub(crate) fn begun() -> Restore {
    replace(None, None)
}

/// Returns the deadline and the mode for a call of the object with `ids` consecutive ids from `first` on.
#[inline]
pub(crate) fn of(first: Id, ids: u32) -> (Option<Instant>, Option<&'static Mode>) {
    let (deadline, mode) = CONTEXT.with(|context| (context.deadline.get(), context.mode.get()));
    let is_same =
        |id: Id| id.generation() == first.generation() && id.slot().wrapping_sub(first.slot()) < ids;
    let deadline = deadline.filter(|(id, _)| is_same(*id)).map(|(_, by)| by);
    (deadline, mode.filter(|(id, _)| is_same(*id)).map(|(_, mode)| mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    static TRY: Mode = Mode::new("try");

    #[test]
    fn served_code_has_no_context_of_the_code_around_it() {
        let (id, by) = (Id::from_parts(1, 1).unwrap(), Instant::now());
        let _mode = set(id, None, Some(&TRY));
        let _deadline = set_deadline(id, by);
        squall_rcu::__run_served(|| assert_eq!(of(id, 1), (None, None)));
        assert_eq!(of(id, 1), (Some(by), Some(&TRY)));
    }
}
