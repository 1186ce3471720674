//! Objects that are about to replace another one.
//!
//! - I1. The object of a [`Replacement`] belongs to it alone: it has no id, and no caller has ever seen it.
//!   Without memory for it, the replacement has no object.

use squall_machine::ClusterSize;
use std::any::TypeId;
use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::ptr::NonNull;

use crate::call::handle::Handle;
use crate::call::interface::{Interface, InterfaceOf};
use crate::object::create::{self, ToCome};
use crate::object::distributed::Multi;
use crate::object::owned::Owned;
use crate::object::root::Root;
use crate::object::shared::{Opaque, Shared, Stated};
use crate::object::state::State;
use crate::protocol::class::Class;
use crate::protocol::create_error::CreateError;
use crate::protocol::object::Object;

/// An implementation of the interface `I` that is built and does not serve yet. A swap puts it in an object's
/// place; a [`Factory`](crate::swap::Factory) makes objects from it.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// use squall::swap::{Replacement, swap};
///
/// let counter = squall::swappable::<dyn Counter, _>(Central::default());
/// counter.add(5);
/// let report = swap(counter.handle(), Replacement::root(Spread, squall::ClusterSize::Cpu))?;
/// assert_eq!(counter.get(), 5); // the state moved along
/// assert!(report.to.ends_with("Spread"));
/// # Ok::<(), squall::swap::SwapError>(())
/// ```
pub struct Replacement<I: ?Sized + Interface> {
    class: &'static Class,
    object: Option<NonNull<Object>>,
    interface: PhantomData<fn(PhantomData<I>) -> PhantomData<I>>,
}

// SAFETY: objects are shared among threads, values and roots are `Send`; this is the owner.
unsafe impl<I: ?Sized + Interface> Send for Replacement<I> {}
// SAFETY: a borrow of it offers no operation.
unsafe impl<I: ?Sized + Interface> Sync for Replacement<I> {}

impl<I: ?Sized + Interface> Replacement<I> {
    /// Takes over the object, which has this interface.
    pub(crate) fn of((class, object): ToCome) -> Replacement<I> {
        Replacement { class, object, interface: PhantomData }
    }

    /// Makes a replacement with one representative, like [`shared`](crate::shared()). Its state cannot move.
    ///
    /// If there is no memory, `value` is dropped, and the use of the replacement fails.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::swap::{Replacement, Swap};
    ///
    /// let counter = squall::shared::<dyn Counter, _>(Central::default());
    /// counter.add(5);
    /// Swap::new(counter.handle()).without_state().run(Replacement::shared(Central::default()))?;
    /// assert_eq!(counter.get(), 0);
    /// # Ok::<(), squall::swap::SwapError>(())
    /// ```
    #[track_caller]
    pub fn shared<T>(value: T) -> Replacement<I>
    where
        I: InterfaceOf<T>,
        T: Send + Sync + 'static,
    {
        Replacement::of(Shared::<T, I, Opaque>::to_come(value, Location::caller()))
    }

    /// Makes a replacement with one representative whose state can move, like
    /// [`swappable`](crate::swappable).
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::swap::{Replacement, swap};
    ///
    /// let counter = squall::swappable::<dyn Counter, _>(Central::default());
    /// counter.add(5);
    /// swap(counter.handle(), Replacement::swappable(Central::default()))?;
    /// assert_eq!(counter.get(), 5);
    /// # Ok::<(), squall::swap::SwapError>(())
    /// ```
    #[track_caller]
    pub fn swappable<T: State>(value: T) -> Replacement<I>
    where
        I: InterfaceOf<T>,
    {
        Replacement::of(Shared::<T, I, Stated>::to_come(value, Location::caller()))
    }

    /// Makes a replacement with a representative for each cluster of this size, like [`Root::create`].
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::swap::Replacement;
    ///
    /// let new: Replacement<dyn Counter> = Replacement::root(Spread, squall::ClusterSize::Cpu);
    /// let counter = new.create()?;
    /// counter.add(1);
    /// # Ok::<(), squall::CreateError>(())
    /// ```
    #[track_caller]
    pub fn root<R: Root<Interface = I>>(root: R, size: ClusterSize) -> Replacement<I> {
        Replacement::of(Multi::<R>::to_come(root, size, Location::caller()))
    }

    /// Returns the author's type.
    pub(crate) fn type_id(&self) -> TypeId {
        self.class.more.type_id
    }

    /// Gives the object to the caller, if there is one.
    pub(crate) fn into_object(self) -> Option<NonNull<Object>> {
        let object = self.object;
        std::mem::forget(self);
        object
    }

    /// Makes it an object of its own, without a swap.
    ///
    /// # Errors
    /// [`CreateError`] for the reasons stated at [`try_shared`](crate::try_shared).
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::swap::Replacement;
    ///
    /// let counter = Replacement::<dyn Counter>::swappable(Central::default()).create()?;
    /// counter.add(1);
    /// assert_eq!(counter.get(), 1);
    /// # Ok::<(), squall::CreateError>(())
    /// ```
    pub fn create(self) -> Result<Owned<I>, CreateError> {
        let class = self.class;
        let object = self.object.ok_or_else(CreateError::no_memory)?;
        // SAFETY: ours (I1).
        let id = unsafe { create::adopt(object, class) }?;
        let _ = self.into_object();
        let owned = Owned::new(Handle::new(id));
        // SAFETY: we own it, and it has its id.
        unsafe { (class.more.prepare)(object) }?;
        Ok(owned)
    }
}

impl<I: ?Sized + Interface> Drop for Replacement<I> {
    fn drop(&mut self) {
        if let Some(object) = self.object {
            // SAFETY: ours alone (I1).
            unsafe { discard(object) };
        }
    }
}

/// Drops an object that no thread has ever called.
///
/// # Safety
/// The object belongs to the caller alone.
pub(crate) unsafe fn discard(object: NonNull<Object>) {
    // SAFETY: the caller's promise: memory is quiet, and there are no misses.
    unsafe {
        let _ = object.as_ref().gate.move_away();
        (object.as_ref().class.more.finish)(object);
    }
}

impl<I: ?Sized + Interface> fmt::Debug for Replacement<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Replacement({} of class {})", I::NAME, (self.class.name)())
    }
}
