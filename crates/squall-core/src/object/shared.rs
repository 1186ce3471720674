//! Objects with one representative for everybody: no root, no bookkeeping, one block.
//!
//! Source: CO-11 (`CObjRootSingleRep`), PR-14.

use std::any::TypeId;
use std::marker::PhantomData;
use std::panic::Location;
use std::ptr::NonNull;

use squall_machine::Vp;

use crate::call::handle::Handle;
use crate::call::interface::{Counted, InterfaceOf};
use crate::call::layout::Block;
use crate::object::create::{self, Place};
use crate::object::owned::Owned;
use crate::object::state::{State, StateFormats};
use crate::protocol::class::{Class, Found, More, ObjectKind, Refusal, bytes};
use crate::protocol::clock;
use crate::protocol::create_error::CreateError;
use crate::protocol::destroy::{quiet_call, run_drop};
use crate::protocol::formats::List;
use crate::protocol::object::Object;
use crate::protocol::reps::Owner;

/// What precedes the headers.
#[repr(C)]
struct Prefix {
    object: Object,
    owner: Owner,
}

// As `shared_owner` finds it.
const _: () = assert!(std::mem::offset_of!(Prefix, owner) == size_of::<Object>());

/// The class of shared objects of `T` under the interface `I`, whose state is listed by `S`.
pub(crate) struct Shared<T, I: ?Sized, S = Opaque>(PhantomData<(T, *const I, S)>);

/// Where the value of a class's objects lies, or a part of it.
pub(crate) trait Locate<T>: 'static {
    /// # Safety
    /// An object of that class; the pointer is good for its block.
    unsafe fn value(object: NonNull<Object>) -> NonNull<T>;
}

/// What a class of shared objects says of their state, and of who sleeps in them.
pub(crate) trait Describe<T: 'static>: 'static {
    /// The author's type.
    const AUTHOR: TypeId = TypeId::of::<T>();
    /// Whether `wake` does anything.
    const WAKES: bool = false;
    /// The name of the author's type.
    fn author() -> &'static str {
        std::any::type_name::<T>()
    }
    /// Lists its formats.
    fn formats<L: Locate<T>>(list: &mut List);
    /// It has moved.
    fn moved(value: &T);
    /// Who sleeps in its methods shall look around.
    fn wake(value: &T) {
        let _ = value;
    }
}

/// Nothing.
#[derive(Debug)]
pub(crate) struct Opaque;

impl<T: 'static> Describe<T> for Opaque {
    fn formats<L: Locate<T>>(_: &mut List) {}
    fn moved(_: &T) {}
}

/// What `T` itself says.
#[derive(Debug)]
pub(crate) struct Stated;

impl<T: State> Describe<T> for Stated {
    fn formats<L: Locate<T>>(list: &mut List) {
        // SAFETY: it gives the value of the objects of the class whose list this is.
        T::formats(&mut unsafe { StateFormats::new(list, L::value) });
    }
    fn moved(value: &T) {
        value.moved();
    }
}

impl<T, I, S> Shared<T, I, S>
where
    T: Send + Sync + 'static,
    I: ?Sized + InterfaceOf<T>,
    S: Describe<T>,
{
    const CLASS: &'static Class = &Class {
        name: S::author,
        kind: ObjectKind::Shared,
        sleeps: S::WAKES,
        interface: I::NAME,
        source: I::SOURCE,
        interfaces: I::INTERFACES,
        object_bytes: bytes(Block::<Prefix, I, T>::BYTES),
        rep_bytes: 0,
        value_bytes: (size_of::<T>(), 0),
        for_each_rep: |object, f| {
            // SAFETY: an object of this class.
            f(unsafe { Block::<Prefix, I, T>::owner(object.cast()) });
        },
        more: More {
            type_id: S::AUTHOR,
            interface_id: TypeId::of::<I>(),
            formats: S::formats::<Self>,
            // SAFETY: as above; valid.
            moved: |object| S::moved(unsafe { Self::value(object).as_ref() }),
            prepare: |_| Ok(()),
            resolve: Self::resolve,
            // SAFETY: as above; it may be called, so its value is there.
            wake: |object| S::wake(unsafe { Self::value(object).as_ref() }),
            // SAFETY: passed on, with what belongs to this class.
            quiet: |object| unsafe { quiet_call(object, Self::CLASS, Self::finish) },
            finish: Self::finish,
            drop_rep: |_| {},
            drop_root: |_| {},
        },
    };

    unsafe fn resolve(object: NonNull<Object>, _: Vp) -> Result<Found, Refusal> {
        // SAFETY: an object of this class.
        Ok(Found { owner: unsafe { Block::<Prefix, I, T>::owner(object.cast()) }, cache: true })
    }

    #[inline(always)]
    unsafe fn finish(object: NonNull<Object>) {
        let block = object.cast::<Prefix>();
        // SAFETY: an object of this class, and memory is quiet: nobody else has it.
        unsafe {
            if std::mem::needs_drop::<T>() {
                object.as_ref().close();
                let value = Block::<Prefix, I, T>::value(block);
                run_drop(|| value.drop_in_place());
            }
            create::end(object, Block::<Prefix, I, T>::LAYOUT);
        }
    }

    /// An object to take another one's place.
    pub(crate) fn to_come(value: T, made_at: &'static Location<'static>) -> NonNull<Object> {
        let layout = Block::<Prefix, I, T>::LAYOUT;
        let room = create::Room::new(layout);
        let block = room.block.cast::<Prefix>();
        let object = Object::replacement(Self::CLASS, made_at, clock::ticks());
        // SAFETY: as in `make`.
        unsafe {
            block.write(Prefix { object, owner: Owner { object: block.cast() } });
            Block::<Prefix, I, T>::fill(block, None, value);
        }
        std::mem::forget(room);
        block.cast()
    }

    #[inline(always)]
    fn make(place: Place, value: T, made_at: &'static Location<'static>) -> Result<Owned<I>, CreateError> {
        Self::make_with(place, |_| value, made_at)
    }

    #[inline(always)]
    pub(crate) fn make_with(
        place: Place,
        value: impl FnOnce(Handle<I>) -> T,
        made_at: &'static Location<'static>,
    ) -> Result<Owned<I>, CreateError> {
        // If the value's making or its view panics, this gives back what was taken.
        let created = create::begin(place, Self::CLASS, Block::<Prefix, I, T>::LAYOUT)?;
        // The id is that of this interface, of an object that will be (handle/I1).
        let value = value(Handle::new(created.id));
        let block = created.block.cast::<Prefix>();
        let object = Object::new(Self::CLASS, created.id, made_at, clock::ticks());
        // SAFETY: our own block; the prefix is written before what follows it.
        unsafe {
            block.write(Prefix { object, owner: Owner { object: block.cast() } });
            Block::<Prefix, I, T>::fill(block, Some(created.id), value);
        }
        Ok(created.publish())
    }
}

impl<T, I, S> Locate<T> for Shared<T, I, S>
where
    T: Send + Sync + 'static,
    I: ?Sized + InterfaceOf<T>,
    S: Describe<T>,
{
    unsafe fn value(object: NonNull<Object>) -> NonNull<T> {
        // SAFETY: the caller's promise.
        unsafe { Block::<Prefix, I, T>::value(object.cast()) }
    }
}

/// Makes an object with one representative, `value`, for everybody.
///
/// It costs about a hundred bytes beyond the value, and a call about a nanosecond more than through an `Arc<dyn Trait>`.
/// The type of the interface is often clear from where the result goes.
///
/// # Panics
/// As [`try_shared`] errs.
/// # Cost
/// About a hundred instructions where an object of this size ended on this VP before, and its block and id are used
/// again. Else an allocation, and the VP's list of free ids, which has a lock: blocking for a few instructions. No other
/// VP's memory is touched.
/// # Source
/// Appavoo 2005, §5.3.1 (`CObjRootSingleRep`).
#[track_caller]
pub fn shared<I, T>(value: T) -> Owned<I>
where
    I: ?Sized + InterfaceOf<T>,
    T: Send + Sync + 'static,
{
    let made_at = Location::caller();
    Shared::<T, I, Opaque>::make(Place::Here, value, made_at)
        .unwrap_or_else(|error| create::refuse(I::NAME, &error))
}

/// As [`shared`], with an error in place of the panic.
///
/// # Errors
/// [`CreateError`]; `value` is dropped.
#[track_caller]
pub fn try_shared<I, T>(value: T) -> Result<Owned<I>, CreateError>
where
    I: ?Sized + InterfaceOf<T>,
    T: Send + Sync + 'static,
{
    Shared::<T, I, Opaque>::make(Place::Here, value, Location::caller())
}

/// As [`shared`], of a value whose state can move to another implementation by a hot-swap, and from one.
///
/// # Panics
/// As [`shared`].
#[track_caller]
pub fn swappable<I, T>(value: T) -> Owned<I>
where
    I: ?Sized + InterfaceOf<T>,
    T: State,
{
    let made_at = Location::caller();
    Shared::<T, I, Stated>::make(Place::Here, value, made_at)
        .unwrap_or_else(|error| create::refuse(I::NAME, &error))
}

/// As [`shared`], of a value that knows its object: `make` gets a reference to what it is about to be. A call through it
/// errs until the object is there, which is when this returns.
///
/// # Errors
/// [`CreateError`]; `make` was not called.
/// # Panics
/// If `make` does: there is no object then.
#[track_caller]
pub fn shared_with<I, T>(make: impl FnOnce(Handle<I>) -> T) -> Result<Owned<I>, CreateError>
where
    I: ?Sized + InterfaceOf<T>,
    T: Send + Sync + 'static,
{
    Shared::<T, I, Opaque>::make_with(Place::Here, make, Location::caller())
}

/// As [`shared_with`], of a value whose state can move, as [`swappable`].
///
/// # Errors
/// As [`shared_with`].
/// # Panics
/// As [`shared_with`].
#[track_caller]
pub fn swappable_with<I, T>(make: impl FnOnce(Handle<I>) -> T) -> Result<Owned<I>, CreateError>
where
    I: ?Sized + InterfaceOf<T>,
    T: State,
{
    Shared::<T, I, Stated>::make_with(Place::Here, make, Location::caller())
}

/// As [`try_shared`], in a place of the caller's choice.
#[track_caller]
pub(crate) fn shared_at<I, T>(place: Place, value: T) -> Result<Owned<I>, CreateError>
where
    I: ?Sized + InterfaceOf<T>,
    T: Send + Sync + 'static,
{
    Shared::<T, I, Opaque>::make(place, value, Location::caller())
}
