//! Objects with one representative for all callers: no root, no bookkeeping, one block.
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

/// The part of the block in front of the headers.
#[repr(C)]
struct Prefix {
    object: Object,
    owner: Owner,
}

// The place where `shared_owner` expects the owner.
const _: () = assert!(std::mem::offset_of!(Prefix, owner) == size_of::<Object>());

/// The class of shared objects of `T` under the interface `I`, with the state described by `S`.
pub(crate) struct Shared<T, I: ?Sized, S = Opaque>(PhantomData<(T, *const I, S)>);

/// Finds the value of a class's objects, or a part of it.
pub(crate) trait Locate<T>: 'static {
    /// Returns the address of the value.
    ///
    /// # Safety
    /// An object of that class; the pointer may be used for its whole block.
    unsafe fn value(object: NonNull<Object>) -> NonNull<T>;
}

/// Describes the state of a class of shared objects, and the threads that sleep in their methods.
pub(crate) trait Describe<T: 'static>: 'static {
    /// The author's type.
    const AUTHOR: TypeId = TypeId::of::<T>();
    /// Whether `wake` has an effect.
    const WAKES: bool = false;
    /// Returns the name of the author's type.
    fn author() -> &'static str {
        std::any::type_name::<T>()
    }
    /// Lists the formats of the state.
    fn formats<L: Locate<T>>(list: &mut List);
    /// Tells the value that its state has moved.
    fn moved(value: &T);
    /// Wakes the threads that sleep in the value's methods.
    fn wake(value: &T) {
        let _ = value;
    }
}

/// State that cannot move.
#[derive(Debug)]
pub(crate) struct Opaque;

impl<T: 'static> Describe<T> for Opaque {
    fn formats<L: Locate<T>>(_: &mut List) {}
    fn moved(_: &T) {}
}

/// State described by `T` itself.
#[derive(Debug)]
pub(crate) struct Stated;

impl<T: State> Describe<T> for Stated {
    fn formats<L: Locate<T>>(list: &mut List) {
        // SAFETY: `L::value` finds the value in objects of the class that owns this list.
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
            // SAFETY: a valid object of this class.
            moved: |object| S::moved(unsafe { Self::value(object).as_ref() }),
            prepare: |_| Ok(()),
            resolve: Self::resolve,
            // SAFETY: an object of this class; it may be called, so its value exists.
            wake: |object| S::wake(unsafe { Self::value(object).as_ref() }),
            // SAFETY: passed on, with values of this class.
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
        // SAFETY: an object of this class, and memory is quiet: ours alone.
        unsafe {
            if std::mem::needs_drop::<T>() {
                object.as_ref().close();
                let value = Block::<Prefix, I, T>::value(block);
                run_drop(|| value.drop_in_place());
            }
            create::end(object, Block::<Prefix, I, T>::LAYOUT);
        }
    }

    fn build(value: T, made_at: &'static Location<'static>) -> Option<NonNull<Object>> {
        let layout = Block::<Prefix, I, T>::LAYOUT;
        let room = create::Room::try_new(layout)?;
        let block = room.block.cast::<Prefix>();
        let object = Object::replacement(Self::CLASS, made_at, clock::ticks(), create::place_here());
        // SAFETY: our own block; the prefix is written before the parts that follow it.
        unsafe {
            block.write(Prefix { object, owner: Owner { object: block.cast() } });
            Block::<Prefix, I, T>::fill(block, None, value, |_| Default::default());
        }
        std::mem::forget(room);
        Some(block.cast())
    }

    /// Builds the new object of a swap.
    pub(crate) fn to_come(value: T, made_at: &'static Location<'static>) -> create::ToCome {
        (Self::CLASS, Self::build(value, made_at))
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
        // Returns the id and the room if `value` or the conversion to the interface panics.
        let created = create::begin(place, Self::CLASS, Block::<Prefix, I, T>::LAYOUT)?;
        // The id belongs to this interface of a future object (handle/I1).
        let value = value(Handle::new(created.id));
        let block = created.block.cast::<Prefix>();
        let object = Object::new(Self::CLASS, created.id, made_at, clock::ticks());
        // SAFETY: our own block; the prefix is written before the parts that follow it.
        unsafe {
            block.write(Prefix { object, owner: Owner { object: block.cast() } });
            Block::<Prefix, I, T>::fill(block, Some(created.id), value, |_| Default::default());
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

/// Makes an object with one representative, `value`, for all callers.
///
/// The object needs about a hundred bytes beyond the value. A call costs about a nanosecond more than through
/// an `Arc<dyn Trait>`.
///
/// # Panics
/// If [`try_shared`] returns an error.
/// # Cost
/// About a hundred instructions if an object of this size ended on this VP before; its block and id are used
/// again. Otherwise an allocation and the lock of the VP's list of free ids, which may block for a few
/// instructions. It touches no other VP's memory.
/// # Source
/// Appavoo 2005, §5.3.1 (`CObjRootSingleRep`).
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// let counter = squall::shared::<dyn Counter, _>(Central::default());
/// counter.add(1);
/// assert_eq!(counter.get(), 1);
/// ```
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

/// Like [`shared`], but returns an error instead of panicking.
///
/// # Errors
/// [`CreateError`]; `value` is dropped.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// let counter = squall::try_shared::<dyn Counter, _>(Central::default())?;
/// counter.add(1);
/// # Ok::<(), squall::CreateError>(())
/// ```
#[track_caller]
pub fn try_shared<I, T>(value: T) -> Result<Owned<I>, CreateError>
where
    I: ?Sized + InterfaceOf<T>,
    T: Send + Sync + 'static,
{
    Shared::<T, I, Opaque>::make(Place::Here, value, Location::caller())
}

/// Makes an object with one representative whose state can move to and from another implementation in a
/// hot-swap.
///
/// # Panics
/// If [`try_shared`] would return an error.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// use squall::swap::{Replacement, swap};
///
/// let counter = squall::swappable::<dyn Counter, _>(Central::default());
/// counter.add(7);
/// swap(counter.handle(), Replacement::root(Spread, squall::ClusterSize::Cpu))?;
/// assert_eq!(counter.get(), 7);
/// # Ok::<(), squall::swap::SwapError>(())
/// ```
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

/// Makes an object with one representative that knows its own handle: `make` gets the handle of the future
/// object. A call through it fails until this function has returned.
///
/// # Errors
/// [`CreateError`]; `make` was not called.
/// # Panics
/// If `make` panics; then no object is made.
///
/// ```
/// use squall::Handle;
///
/// #[squall::interface]
/// trait Node: Send + Sync {
///     fn me(&self) -> Handle<dyn Node>;
/// }
/// struct Plain(Handle<dyn Node>);
/// impl Node for Plain {
///     fn me(&self) -> Handle<dyn Node> {
///         self.0
///     }
/// }
/// let node = squall::shared_with(Plain)?;
/// assert_eq!(node.me(), node.handle());
/// # Ok::<(), squall::CreateError>(())
/// ```
#[track_caller]
pub fn shared_with<I, T>(make: impl FnOnce(Handle<I>) -> T) -> Result<Owned<I>, CreateError>
where
    I: ?Sized + InterfaceOf<T>,
    T: Send + Sync + 'static,
{
    Shared::<T, I, Opaque>::make_with(Place::Here, make, Location::caller())
}

/// Like [`shared_with`], for a value whose state can move as with [`swappable`].
///
/// # Errors
/// [`CreateError`]; `make` was not called.
/// # Panics
/// If `make` panics; then no object is made.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// let counter = squall::swappable_with::<dyn Counter, _>(|_| Central::default())?;
/// counter.add(1);
/// # Ok::<(), squall::CreateError>(())
/// ```
#[track_caller]
pub fn swappable_with<I, T>(make: impl FnOnce(Handle<I>) -> T) -> Result<Owned<I>, CreateError>
where
    I: ?Sized + InterfaceOf<T>,
    T: State,
{
    Shared::<T, I, Stated>::make_with(Place::Here, make, Location::caller())
}

/// Makes a shared object with an id of the caller's choice.
#[track_caller]
pub(crate) fn shared_at<I, T>(place: Place, value: T) -> Result<Owned<I>, CreateError>
where
    I: ?Sized + InterfaceOf<T>,
    T: Send + Sync + 'static,
{
    Shared::<T, I, Opaque>::make(place, value, Location::caller())
}
