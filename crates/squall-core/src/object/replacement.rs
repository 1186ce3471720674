//! Objects that are to take another one's place.
//!
//! - I1. The object of a [`Replacement`] is nobody else's: it has no id, and no caller has ever seen it.

use squall_machine::ClusterSize;
use std::any::TypeId;
use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::ptr::NonNull;

use crate::call::handle::Handle;
use crate::call::interface::{Interface, InterfaceOf};
use crate::object::create;
use crate::object::distributed::Multi;
use crate::object::owned::Owned;
use crate::object::root::Root;
use crate::object::shared::{Opaque, Shared, Stated};
use crate::protocol::class::Class;
use crate::protocol::object::Object;
use crate::swap::State;

/// An implementation of the interface `I`, built and not yet serving: what a swap puts in an object's place, and what a
/// [`Factory`](crate::swap::Factory) makes.
pub struct Replacement<I: ?Sized + Interface> {
    object: NonNull<Object>,
    interface: PhantomData<fn(PhantomData<I>) -> PhantomData<I>>,
}

// SAFETY: objects are shared among threads, values and roots are `Send`; this is its owner.
unsafe impl<I: ?Sized + Interface> Send for Replacement<I> {}
// SAFETY: nothing can be done with a borrow of it.
unsafe impl<I: ?Sized + Interface> Sync for Replacement<I> {}

impl<I: ?Sized + Interface> Replacement<I> {
    /// The caller gives the object, of this interface, up.
    pub(crate) fn of(object: NonNull<Object>) -> Replacement<I> {
        Replacement { object, interface: PhantomData }
    }

    /// One representative for everybody, as [`shared`](crate::shared()) makes it. Its state cannot be transferred.
    #[track_caller]
    pub fn shared<T>(value: T) -> Replacement<I>
    where
        I: InterfaceOf<T>,
        T: Send + Sync + 'static,
    {
        Replacement::of(Shared::<T, I, Opaque>::to_come(value, Location::caller()))
    }

    /// The same, with formats for its state, as [`swappable`](crate::swappable).
    #[track_caller]
    pub fn stateful<T: State>(value: T) -> Replacement<I>
    where
        I: InterfaceOf<T>,
    {
        Replacement::of(Shared::<T, I, Stated>::to_come(value, Location::caller()))
    }

    /// A representative for each cluster of this size, as [`Root::create`] makes it.
    #[track_caller]
    pub fn root<R: Root<Interface = I>>(root: R, size: ClusterSize) -> Replacement<I> {
        Replacement::of(Multi::<R>::to_come(root, size, Location::caller()))
    }

    pub(crate) fn class(&self) -> &'static Class {
        // SAFETY: ours (I1).
        unsafe { self.object.as_ref() }.class
    }

    /// The author's type.
    pub(crate) fn type_id(&self) -> TypeId {
        self.class().more.type_id
    }

    /// Gives the object to the caller.
    pub(crate) fn into_object(self) -> NonNull<Object> {
        let object = self.object;
        std::mem::forget(self);
        object
    }

    /// Makes it an object of its own, as it would be without a swap.
    ///
    /// # Errors
    /// As [`try_shared`](crate::try_shared).
    pub fn create(self) -> Result<Owned<I>, crate::CreateError> {
        let class = self.class();
        // SAFETY: ours (I1).
        let id = unsafe { create::adopt(self.object, class) }?;
        let object = self.into_object();
        let owned = Owned::new(Handle::new(id));
        // SAFETY: we own it, and it has its id.
        unsafe { (class.more.prepare)(object) }?;
        Ok(owned)
    }
}

impl<I: ?Sized + Interface> Drop for Replacement<I> {
    fn drop(&mut self) {
        // SAFETY: nobody else has it (I1).
        unsafe { discard(self.object) };
    }
}

/// Drops an object that nobody has ever called.
///
/// # Safety
/// It is the caller's alone.
pub(crate) unsafe fn discard(object: NonNull<Object>) {
    // SAFETY: the caller's promise: memory is quiet, and there are no misses.
    unsafe {
        let _ = object.as_ref().gate.move_away();
        (object.as_ref().class.more.finish)(object);
    }
}

impl<I: ?Sized + Interface> fmt::Debug for Replacement<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "New({} of class {})", I::NAME, (self.class().name)())
    }
}
