//! `BagExt`: the methods of a bag that put and get, on its handle.

use squall_core::__macro::{Action, Hit};
use squall_core::{CallError, Handle};
use squall_machine::Vp;
use squall_parts::bag::{Attributes, Client};
use squall_rcu::Guard;

use super::{Bag, SAMPLE_LOG2};
use crate::answers::{panics_in, returns_in};

/// The methods of a bag that put and get. Import it to call them on a handle or an owner.
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
    /// Puts an element.
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

    #[track_caller]
    fn attributes<R>(self, f: impl FnOnce(&Attributes) -> R) -> R {
        f(self.contents().attributes())
    }
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
const fn is_large<T>() -> bool {
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

/// Takes an element.
struct Get;

impl<T: Send + 'static> Action<dyn Bag<T>, Option<T>> for Get {
    #[inline(always)]
    fn try_fast<'o>(self, _: &'o Guard, hit: Hit<'o, dyn Bag<T>>) -> Result<Option<T>, Self> {
        match client(&hit) {
            Some(client) if const { !is_large::<T>() } => Ok(client.get()),
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
