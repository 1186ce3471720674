//! `BagExt`: the methods of a bag that put, get and wait, on its handle.

use squall_core::__macro::{Action, Hit};
use squall_core::{CallError, Handle};
use squall_machine::Vp;
use squall_parts::bag::{self as parts, Attributes, Client, Wait, WaitError};
use squall_rcu::Guard;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Bag, SAMPLE_LOG2};
use crate::answers::{panics_in, returns_in};

/// The methods of a bag that put, get and wait. Import it to call them on a handle or an owner.
///
/// Each method panics if the object was destroyed and its result holds no [`CallError`].
///
/// # Cost
/// [`put`](BagExt::put), and [`get`](BagExt::get) if the caller's shard has an element: an operation, the
/// search for the representative, and the lock of the shard.
///
/// ```
/// use squall::objects::bag::{self, BagExt};
///
/// let ids = bag::shared();
/// ids.put(1);
/// assert_eq!(ids.get(), Some(1));
/// ```
pub trait BagExt<T: Send + 'static>: Copy {
    /// Puts an element. If threads or tasks wait, the one that has waited longest gets it.
    ///
    /// Other threads' calls of [`get`](BagExt::get) find the element if they can know of this call. A thread
    /// that infers the end of this call only from a store that it did not see must order that itself, for
    /// instance by `SeqCst` fences.
    ///
    /// # Panics
    /// If the object was destroyed.
    fn put(self, value: T);

    /// Like [`put`](BagExt::put), but returns an error if the object was destroyed.
    ///
    /// # Errors
    /// [`CallError`]. The value is dropped.
    fn try_put(self, value: T) -> Result<(), CallError>;

    /// Takes an element, in no particular order. Returns `None` only if at one moment of the call the bag was
    /// empty.
    ///
    /// ```
    /// use squall::objects::bag::{self, BagExt};
    ///
    /// let ids = bag::distributed();
    /// assert_eq!(ids.get(), None);
    /// ids.put(1);
    /// assert_eq!(ids.get(), Some(1));
    /// ```
    ///
    /// # Panics
    /// If the object was destroyed.
    /// # Cost
    /// If the caller's shard is empty, a look at the line of each shard until one has elements, and a
    /// transfer. To find the bag empty takes two looks at each.
    fn get(self) -> Option<T>;

    /// Like [`get`](BagExt::get), but returns an error if the object was destroyed.
    ///
    /// ```
    /// use squall::objects::bag::{self, BagExt};
    ///
    /// let ids = bag::shared::<u32>();
    /// let handle = ids.handle();
    /// assert_eq!(handle.try_get(), Ok(None));
    /// drop(ids);
    /// assert!(handle.try_get().is_err());
    /// ```
    ///
    /// # Errors
    /// [`CallError`] if the object was destroyed.
    fn try_get(self) -> Result<Option<T>, CallError>;

    /// Takes an element; blocks the thread while the bag is empty. Threads and tasks that wait get elements
    /// in the order in which they began to wait. A task uses [`get_async`](BagExt::get_async).
    ///
    /// Until a waiter runs, a [`get`](BagExt::get) that finds the bag empty may take the element that the
    /// waiter was given. The waiter then waits on.
    ///
    /// ```
    /// use squall::objects::bag::{self, BagExt};
    ///
    /// let jobs = bag::shared();
    /// std::thread::scope(|scope| {
    ///     let worker = scope.spawn(|| jobs.get_wait());
    ///     jobs.put("a job");
    ///     assert_eq!(worker.join().unwrap(), Ok("a job"));
    /// });
    /// ```
    ///
    /// # Errors
    /// [`CallError`] if the object was destroyed, also while the call waits.
    /// # Panics
    /// Within an operation, since an operation must not sleep.
    fn get_wait(self) -> Result<T, CallError>;

    /// Like [`get_wait`](BagExt::get_wait), but returns `None` after `limit`.
    ///
    /// ```
    /// use squall::objects::bag::{self, BagExt};
    /// use std::time::Duration;
    ///
    /// let jobs = bag::shared::<u32>();
    /// assert_eq!(jobs.get_for(Duration::from_millis(1)), Ok(None));
    /// ```
    ///
    /// # Errors
    /// The errors of [`get_wait`](BagExt::get_wait).
    /// # Panics
    /// Within an operation, like [`get_wait`](BagExt::get_wait).
    fn get_for(self, limit: Duration) -> Result<Option<T>, CallError>;

    /// Like [`get_wait`](BagExt::get_wait), for a task. The future needs no particular runtime. If it is
    /// dropped, an element that it was given goes back into the bag.
    ///
    /// ```
    /// use squall::objects::bag::{self, BagExt};
    /// use std::pin::pin;
    /// use std::task::{Context, Poll, Waker};
    ///
    /// let jobs = bag::shared();
    /// let mut job = pin!(jobs.get_async());
    /// let mut context = Context::from_waker(Waker::noop());
    /// assert!(job.as_mut().poll(&mut context).is_pending());
    /// jobs.put(1);
    /// assert_eq!(job.poll(&mut context), Poll::Ready(Ok(1)));
    /// ```
    ///
    /// # Errors
    /// [`CallError`] if the object was destroyed, also while the task waits.
    fn get_async(self) -> impl Future<Output = Result<T, CallError>> + Send + 'static;

    /// Calls `f` with the attributes of the bag: its strategy and the strategy's constants. They may be
    /// changed at any time, and swaps keep them.
    ///
    /// ```
    /// use squall::objects::bag::{self, BagExt};
    ///
    /// let ids = bag::distributed::<u32>();
    /// ids.attributes(|attributes| attributes.set_bulk(10));
    /// assert_eq!(ids.attributes(|attributes| attributes.bulk()), 10);
    /// ```
    ///
    /// # Panics
    /// If the object was destroyed.
    fn attributes<R>(self, f: impl FnOnce(&Attributes) -> R) -> R;
}

impl<T: Send + 'static> BagExt<T> for Handle<dyn Bag<T>> {
    #[inline]
    #[track_caller]
    fn put(self, value: T) {
        self.__call_action("put_one", Put(value), panics_in!("put"))
    }

    #[inline]
    fn try_put(self, value: T) -> Result<(), CallError> {
        self.__call_action("put_one", Checked(Put(value)), returns_in!("put"))
    }

    #[inline]
    #[track_caller]
    fn get(self) -> Option<T> {
        self.__call_action("get_one", Get, panics_in!("get"))
    }

    #[inline]
    fn try_get(self) -> Result<Option<T>, CallError> {
        self.__call_action("get_one", Checked(Get), returns_in!("get"))
    }

    fn get_wait(self) -> Result<T, CallError> {
        check_place();
        loop {
            let contents = match find(self, "get_wait")? {
                Ok(value) => return Ok(value),
                Err(contents) => contents,
            };
            // After a swap without state, the object has another bag. The loop waits there.
            if let Ok(value) = wait(contents).block() {
                return Ok(value);
            }
        }
    }

    fn get_for(self, limit: Duration) -> Result<Option<T>, CallError> {
        check_place();
        let Some(deadline) = Instant::now().checked_add(limit) else { return self.get_wait().map(Some) };
        loop {
            let contents = match find(self, "get_for")? {
                Ok(value) => return Ok(Some(value)),
                Err(contents) => contents,
            };
            match wait(contents).block_for(deadline.saturating_duration_since(Instant::now())) {
                Ok(value) => return Ok(Some(value)),
                Err(WaitError::TimedOut) => return Ok(None),
                // As in `get_wait`.
                Err(WaitError::Closed) => {}
            }
        }
    }

    fn get_async(self) -> impl Future<Output = Result<T, CallError>> + Send + 'static {
        wait_async(self)
    }

    #[track_caller]
    fn attributes<R>(self, f: impl FnOnce(&Attributes) -> R) -> R {
        f(self.contents_unarbitrated().0.attributes())
    }
}

/// The elements of a bag, and the place of its one shard in the shared form.
type Contents<T> = (Arc<parts::Bag<T>>, Option<usize>);

/// Returns an element for a call that may wait, or the bag at which it must wait.
fn find<T: Send + 'static>(
    handle: Handle<dyn Bag<T>>,
    method: &'static str,
) -> Result<Result<T, Contents<T>>, CallError> {
    let find = || match handle.__call_action("get_one", Checked(GetInTurn(|| false)), returns_in!("get"))? {
        Some(value) => Ok(Ok(value)),
        None => handle.try_contents_unarbitrated().map(Err),
    };
    find().map_err(|error: CallError| error.__in_method(method))
}

/// Waits at the one shard of a shared bag, so that its elements stay there.
fn wait<T>((bag, place): Contents<T>) -> Wait<T, Arc<parts::Bag<T>>> {
    match place {
        Some(place) => Wait::at(bag, place),
        None => Wait::new(bag),
    }
}

/// Takes an element for a pool, but leaves it to those that wait, if any. If the caller's shard is empty and
/// `spare` says so, it leaves at least one element in each other shard.
#[inline(always)]
#[track_caller]
pub(crate) fn get_in_turn<T: Send + 'static>(
    handle: Handle<dyn Bag<T>>,
    spare: impl Fn() -> bool,
) -> Option<T> {
    handle.__call_action("get_one", GetInTurn(spare), panics_in!("get"))
}

/// Puts an element that must not be lost: past the object if a call fails. Returns it with the error if
/// that fails too: the bag was destroyed, for instance.
#[inline(always)]
pub(crate) fn put_back<T: Send + 'static>(
    handle: Handle<dyn Bag<T>>,
    value: T,
) -> Result<(), (T, CallError)> {
    let mut slot = Some(value);
    match handle.__call_action("put_one", Checked(PutFrom(&mut slot)), returns_in!("put")) {
        Ok(()) => Ok(()),
        Err(error) => put_past(handle, slot, error),
    }
}

#[cold]
#[inline(never)]
fn put_past<T: Send + 'static>(
    handle: Handle<dyn Bag<T>>,
    slot: Option<T>,
    error: CallError,
) -> Result<(), (T, CallError)> {
    // The action did not run, since the call failed.
    let Some(value) = slot else { return Ok(()) };
    match handle.try_contents_unarbitrated() {
        Ok((bag, place)) => {
            match place {
                Some(place) => bag.client(place).put(value),
                None => bag.here().put(value),
            }
            Ok(())
        }
        Err(_) => Err((value, error)),
    }
}

async fn wait_async<T: Send + 'static>(handle: Handle<dyn Bag<T>>) -> Result<T, CallError> {
    loop {
        let contents = match find(handle, "get_async")? {
            Ok(value) => return Ok(value),
            Err(contents) => contents,
        };
        // As in `get_wait`.
        if let Ok(value) = wait(contents).await {
            return Ok(value);
        }
    }
}

fn check_place() {
    assert!(
        !squall_rcu::in_operation(),
        "cannot wait for an element inside an operation: wait after the operation has ended"
    );
}

/// Returns the client if this call may use it: see the invariants of `forms.rs`.
#[inline(always)]
fn client<'o, T: Send + 'static>(hit: &Hit<'o, dyn Bag<T>>) -> Option<Client<'o, T>> {
    let view = hit.view();
    match view.only {
        Some(vp) if Vp::current() != vp || hit.is_chosen(SAMPLE_LOG2) => None,
        _ => view.client,
    }
}

/// Whether elements have so many bytes that they skip the fast paths. In unoptimised builds each function of
/// a fast path would copy them.
pub(super) const fn is_large<T>() -> bool {
    size_of::<T>() > 256
}

/// Puts an element.
struct Put<T>(T);

impl<T: Send + 'static> Action<dyn Bag<T>, ()> for Put<T> {
    #[inline(always)]
    fn try_fast<'o>(self, _: &'o Guard, hit: Hit<'o, dyn Bag<T>>) -> Result<(), Self> {
        match client(&hit) {
            Some(client) if const { !is_large::<T>() } => {
                client.put(self.0);
                Ok(())
            }
            _ => Err(self),
        }
    }

    fn run_slow<'o>(self, _: &'o Guard, hit: Hit<'o, dyn Bag<T>>) {
        hit.target().put_one(self.0);
    }
}

/// Puts the element of a slot, which keeps it if the call fails.
struct PutFrom<'s, T>(&'s mut Option<T>);

impl<T: Send + 'static> Action<dyn Bag<T>, ()> for PutFrom<'_, T> {
    #[inline(always)]
    fn try_fast<'o>(self, _: &'o Guard, hit: Hit<'o, dyn Bag<T>>) -> Result<(), Self> {
        match client(&hit) {
            Some(client) if const { !is_large::<T>() } => {
                if let Some(value) = self.0.take() {
                    client.put(value);
                }
                Ok(())
            }
            _ => Err(self),
        }
    }

    fn run_slow<'o>(self, _: &'o Guard, hit: Hit<'o, dyn Bag<T>>) {
        if let Some(value) = self.0.take() {
            hit.target().put_one(value);
        }
    }
}

/// Takes an element, but overtakes no wait. The function says whether to leave one in each other shard.
struct GetInTurn<F>(F);

impl<T: Send + 'static, F: Fn() -> bool> Action<dyn Bag<T>, Option<T>> for GetInTurn<F> {
    #[inline(always)]
    fn try_fast<'o>(self, _: &'o Guard, hit: Hit<'o, dyn Bag<T>>) -> Result<Option<T>, Self> {
        match client(&hit) {
            Some(client) if const { !is_large::<T>() } && !client.is_empty() => Ok(client.get_in_turn()),
            _ => Err(self),
        }
    }

    fn run_slow<'o>(self, _: &'o Guard, hit: Hit<'o, dyn Bag<T>>) -> Option<T> {
        hit.target().get_in_turn((self.0)())
    }
}

/// Takes an element.
struct Get;

impl<T: Send + 'static> Action<dyn Bag<T>, Option<T>> for Get {
    #[inline(always)]
    fn try_fast<'o>(self, _: &'o Guard, hit: Hit<'o, dyn Bag<T>>) -> Result<Option<T>, Self> {
        match client(&hit) {
            Some(client) if const { !is_large::<T>() } && !client.is_empty() => Ok(client.get()),
            _ => Err(self),
        }
    }

    fn run_slow<'o>(self, _: &'o Guard, hit: Hit<'o, dyn Bag<T>>) -> Option<T> {
        hit.target().get_one()
    }
}

/// The action of a checked method.
struct Checked<A>(A);

impl<T: Send + 'static, R, A: Action<dyn Bag<T>, R>> Action<dyn Bag<T>, Result<R, CallError>> for Checked<A> {
    #[inline(always)]
    fn try_fast<'o>(self, guard: &'o Guard, hit: Hit<'o, dyn Bag<T>>) -> Result<Result<R, CallError>, Self> {
        match self.0.try_fast(guard, hit) {
            Ok(result) => Ok(Ok(result)),
            Err(action) => Err(Checked(action)),
        }
    }

    fn run_slow<'o>(self, guard: &'o Guard, hit: Hit<'o, dyn Bag<T>>) -> Result<R, CallError> {
        Ok(self.0.run_slow(guard, hit))
    }
}
