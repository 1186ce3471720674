//! The actions of calls: through the view if they may use it, and by a virtual call otherwise.

use squall_core::__macro::{Action, Hit};
use squall_core::{CallError, Handle};
use squall_machine::Vp;
use squall_parts::queue::Client;
use squall_policy::attribute::receive;
use squall_rcu::Guard;

use super::{INSERTION, Queue, Rejected, SAMPLE_LOG2};

/// Returns the client if this call may use it (`forms/I3`).
#[inline(always)]
fn client<'o, T: Send + 'static>(hit: &Hit<'o, dyn Queue<T>>) -> Option<Client<'o, T>> {
    let view = hit.view();
    match view.only {
        _ if const { is_large::<T>() } => None,
        Some(vp) if Vp::current() != vp || hit.is_chosen(SAMPLE_LOG2) => None,
        _ => view.client,
    }
}

/// Whether elements have so many bytes that they skip the fast paths. In unoptimised builds each function of
/// a fast path would copy them.
pub(super) const fn is_large<T>() -> bool {
    size_of::<T>() > 256
}

/// Puts an element. In the local form the call may have an insertion of its own.
#[inline(always)]
pub(super) fn put<T: Send + 'static>(
    client: Client<'_, T>,
    callee: Option<Handle<dyn Queue<T>>>,
    priority: u64,
    value: T,
) -> Result<(), Rejected<T>> {
    match callee {
        Some(callee) => receive(callee, |call| match call.get(&INSERTION) {
            Some(insertion) => client.put_with(insertion.into(), priority, value),
            None => client.put(priority, value),
        }),
        None => client.put(priority, value),
    }
}

/// Puts an element.
pub(super) struct Put<T: Send + 'static> {
    pub(super) callee: Handle<dyn Queue<T>>,
    pub(super) priority: u64,
    pub(super) value: T,
}

impl<T: Send + 'static> Action<dyn Queue<T>, Result<(), Rejected<T>>> for Put<T> {
    #[inline(always)]
    fn try_fast<'o>(self, _: &'o Guard, hit: Hit<'o, dyn Queue<T>>) -> Result<Result<(), Rejected<T>>, Self> {
        match client(&hit) {
            Some(client) => {
                let callee = hit.view().is_local.then_some(self.callee);
                Ok(put(client, callee, self.priority, self.value))
            }
            None => Err(self),
        }
    }

    fn run_slow<'o>(self, _: &'o Guard, hit: Hit<'o, dyn Queue<T>>) -> Result<(), Rejected<T>> {
        hit.target().put_one(self.priority, self.value)
    }
}

/// Puts the element of a slot, which keeps it if the call fails.
pub(super) struct PutFrom<'s, T: Send + 'static> {
    pub(super) callee: Handle<dyn Queue<T>>,
    pub(super) priority: u64,
    pub(super) slot: &'s mut Option<T>,
}

impl<T: Send + 'static> Action<dyn Queue<T>, Result<(), Rejected<T>>> for PutFrom<'_, T> {
    #[inline(always)]
    fn try_fast<'o>(self, _: &'o Guard, hit: Hit<'o, dyn Queue<T>>) -> Result<Result<(), Rejected<T>>, Self> {
        match client(&hit) {
            Some(client) => {
                let callee = hit.view().is_local.then_some(self.callee);
                Ok(self.slot.take().map_or(Ok(()), |value| put(client, callee, self.priority, value)))
            }
            None => Err(self),
        }
    }

    fn run_slow<'o>(self, _: &'o Guard, hit: Hit<'o, dyn Queue<T>>) -> Result<(), Rejected<T>> {
        self.slot.take().map_or(Ok(()), |value| hit.target().put_one(self.priority, value))
    }
}

/// Removes an element.
pub(super) struct Get;

impl<T: Send + 'static> Action<dyn Queue<T>, Option<(u64, T)>> for Get {
    #[inline(always)]
    fn try_fast<'o>(self, _: &'o Guard, hit: Hit<'o, dyn Queue<T>>) -> Result<Option<(u64, T)>, Self> {
        client(&hit).map(|client| client.get()).ok_or(self)
    }

    fn run_slow<'o>(self, _: &'o Guard, hit: Hit<'o, dyn Queue<T>>) -> Option<(u64, T)> {
        hit.target().get_one()
    }
}

/// Removes an element that counts as unfinished.
pub(super) struct Take;

impl<T: Send + 'static> Action<dyn Queue<T>, Option<(u64, T, u64)>> for Take {
    #[inline(always)]
    fn try_fast<'o>(self, _: &'o Guard, hit: Hit<'o, dyn Queue<T>>) -> Result<Option<(u64, T, u64)>, Self> {
        let Some(client) = client(&hit) else { return Err(self) };
        Ok(client.take_raw().map(|(priority, value)| (priority, value, hit.view().number)))
    }

    fn run_slow<'o>(self, _: &'o Guard, hit: Hit<'o, dyn Queue<T>>) -> Option<(u64, T, u64)> {
        hit.target().take_one()
    }
}

/// Finishes an element that was taken from the contents of this number.
pub(super) struct FinishOne(pub(super) u64);

impl<T: Send + 'static> Action<dyn Queue<T>, ()> for FinishOne {
    #[inline(always)]
    fn try_fast<'o>(self, _: &'o Guard, hit: Hit<'o, dyn Queue<T>>) -> Result<(), Self> {
        let view = hit.view();
        match view.client {
            // `forms/I4`. Any caller may use the client, since the policy counts the gets.
            Some(client) if view.number == self.0 => {
                client.finish(1);
                Ok(())
            }
            _ => Err(self),
        }
    }

    fn run_slow<'o>(self, _: &'o Guard, hit: Hit<'o, dyn Queue<T>>) {
        hit.target().finish_one_unarbitrated(self.0);
    }
}

/// The action of a checked method.
pub(super) struct Checked<A>(pub(super) A);

impl<T, R, A> Action<dyn Queue<T>, Result<R, CallError>> for Checked<A>
where
    T: Send + 'static,
    A: Action<dyn Queue<T>, R>,
{
    #[inline(always)]
    fn try_fast<'o>(
        self,
        guard: &'o Guard,
        hit: Hit<'o, dyn Queue<T>>,
    ) -> Result<Result<R, CallError>, Self> {
        match self.0.try_fast(guard, hit) {
            Ok(result) => Ok(Ok(result)),
            Err(action) => Err(Checked(action)),
        }
    }

    fn run_slow<'o>(self, guard: &'o Guard, hit: Hit<'o, dyn Queue<T>>) -> Result<R, CallError> {
        Ok(self.0.run_slow(guard, hit))
    }
}
