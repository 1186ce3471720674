//! Interfaces: the traits that callers use, and how a representative provides each of them.
//!
//! The macro [`interface`](https://docs.rs/squall-macros) implements these traits for `dyn Trait`. Users may
//! also implement them by hand, so the code here trusts only compiler-checked facts. A representative seen as
//! an interface is a borrow with the representative's lifetime, and `SUPERS` is a constant.
//!
//! - I1. The interfaces of a representative have a fixed order: its own, then for each entry of `SUPERS` the
//!   interfaces of that entry, in the same order. Header `n` of a representative and id `n` of its object
//!   belong to interface `n`.

use std::any::TypeId;
use std::mem::transmute_copy;

use crate::call::view::view_bytes;
use crate::protocol::class::Source;
use crate::protocol::header::{Fat, Header, NEW};
use crate::protocol::id::Id;

/// A trait that callers use as `dyn Trait`. The attribute `#[squall::interface]` implements it.
///
/// Its objects are shared among threads, so the trait must require `Send + Sync`.
///
/// ```
/// use squall::Interface;
///
/// #[squall::interface]
/// trait Door: Send + Sync {
///     fn is_open(&self) -> bool;
///     #[blocking]
///     fn wait(&self);
/// }
/// assert_eq!(<dyn Door>::NAME, "Door");
/// assert_eq!(<dyn Door>::METHODS, ["is_open", "wait"]);
/// assert_eq!(<dyn Door>::BLOCKING, [false, true]);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a Squall interface",
    label = "not marked `#[squall::interface]`",
    note = "an interface is a trait marked `#[squall::interface]`, and is named here as `dyn Trait`"
)]
pub trait Interface: Send + Sync + 'static {
    /// The trait's name, without path and parameters.
    const NAME: &'static str;
    /// The place of the trait's declaration.
    const SOURCE: Source;
    /// The interfaces that it extends, in the order of the declaration.
    const SUPERS: &'static [Super<Self>];
    /// The names of its methods, in the order of the declaration.
    const METHODS: &'static [&'static str] = &[];
    /// For each method, in the same order, whether it is marked `#[blocking]`.
    const BLOCKING: &'static [bool] = &[];
    /// Not public: the view that a representative may publish (`call/view.rs`). `()` unless the interface is
    /// marked `#[interface(crate = …, view = …)]`.
    #[doc(hidden)]
    type View<'rep>: Copy + Default + Send + Sync;

    /// Not public: returns the view. An implementation proves that views are covariant in their lifetime.
    #[doc(hidden)]
    fn __shorten<'short, 'long: 'short>(view: Self::View<'long>) -> Self::View<'short>;
}

/// An interface that representatives of type `T` provide.
#[diagnostic::on_unimplemented(
    message = "`{T}` does not implement the interface `{Self}`",
    note = "implement the trait for `{T}`; it must also be `'static`"
)]
pub trait InterfaceOf<T>: Interface {
    /// Returns the representative as this interface.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::InterfaceOf;
    ///
    /// let central = Central::default();
    /// let counter: &dyn Counter = <dyn Counter as InterfaceOf<Central>>::view(&central);
    /// counter.add(1);
    /// assert_eq!(central.get(), 1);
    /// ```
    fn view(rep: &T) -> &Self;
}

/// An interface that extends another one directly. See [`Handle::upcast`](crate::Handle::upcast).
#[diagnostic::on_unimplemented(
    message = "the interface `{Self}` does not extend `{S}`",
    note = "a handle is upcast one declared step at a time"
)]
pub trait Extends<S: ?Sized + Interface>: Interface {}

/// An interface that `I` extends.
pub struct Super<I: ?Sized> {
    type_id: TypeId,
    /// Number of interfaces that the extended interface has, itself included.
    interfaces: u32,
    /// Whether all methods of the extended interface may block, inherited ones included.
    all_blocking: bool,
    /// Adds the names of the methods of the extended interface, inherited ones included.
    add_methods: fn(&mut Vec<&'static str>),
    /// The upcast, with its type erased.
    cast: fn(),
    /// Adds the headers of this interface and of those it extends, for a representative seen as `I`.
    ///
    /// # Safety
    /// `cast` belongs to this entry.
    fill: unsafe fn(fn(), &I, &mut Headers),
}

impl<I: ?Sized> std::fmt::Debug for Super<I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Super").field("type_id", &self.type_id).finish_non_exhaustive()
    }
}

impl<I: ?Sized + Interface> Super<I> {
    /// Makes the entry for the interface `S`, from the upcast to it.
    pub const fn new<S: ?Sized + Interface>(cast: fn(&I) -> &S) -> Super<I> {
        const { assert!(view_bytes::<S>() == 0, "an interface with views cannot be extended") };
        unsafe fn fill<I: ?Sized, S: ?Sized + Interface>(cast: fn(), view: &I, headers: &mut Headers) {
            // SAFETY: the inverse of the transmutation in `new`, with the same types.
            let cast = unsafe { std::mem::transmute::<fn(), fn(&I) -> &S>(cast) };
            headers.add_all(cast(view));
        }
        Super {
            type_id: TypeId::of::<S>(),
            interfaces: <S as Counted>::INTERFACES,
            all_blocking: <S as Counted>::ALL_BLOCKING,
            add_methods: add_methods::<S>,
            // SAFETY: function pointers have one size; `fill` restores the type before the call.
            cast: unsafe { std::mem::transmute::<fn(&I) -> &S, fn()>(cast) },
            fill: fill::<I, S>,
        }
    }
}

fn add_methods<I: ?Sized + Interface>(names: &mut Vec<&'static str>) {
    names.extend(I::METHODS);
    I::SUPERS.iter().for_each(|base| (base.add_methods)(names));
}

/// Returns the names of the methods of an interface, followed by those of the interfaces that it extends.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// assert_eq!(squall_core::methods_of::<dyn Counter>(), ["add", "get"]);
/// ```
pub fn methods_of<I: ?Sized + Interface>() -> Vec<&'static str> {
    let mut names = Vec::new();
    add_methods::<I>(&mut names);
    names
}

/// Sums over an interface and the interfaces that it extends.
pub(crate) trait Counted: Interface {
    /// The number of interfaces of a representative.
    const INTERFACES: u32;
    /// Whether every method is marked `#[blocking]`.
    const ALL_BLOCKING: bool;
}

/// Returns the number of interfaces of an object made for `I`, and thus of its consecutive ids. It counts `I`
/// itself, and each interface that `I` extends once for each path.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// assert_eq!(squall_core::interfaces_count::<dyn Counter>(), 1);
/// ```
pub const fn interfaces_count<I: ?Sized + Interface>() -> u32 {
    <I as Counted>::INTERFACES
}

/// The greatest number of interfaces of one object.
const INTERFACES_MAX: u32 = 16;

impl<I: ?Sized + Interface> Counted for I {
    const INTERFACES: u32 = {
        let mut count = 1;
        let mut index = 0;
        while index < I::SUPERS.len() {
            count += I::SUPERS[index].interfaces;
            index += 1;
        }
        assert!(count <= INTERFACES_MAX, "the interface extends more than 15 others, counting each path");
        count
    };
    const ALL_BLOCKING: bool = {
        // An implementation by hand may omit `BLOCKING`.
        let mut all = I::BLOCKING.len() == I::METHODS.len();
        let mut index = 0;
        while all && index < I::BLOCKING.len() {
            all = I::BLOCKING[index];
            index += 1;
        }
        index = 0;
        while index < I::SUPERS.len() {
            all = all && I::SUPERS[index].all_blocking;
            index += 1;
        }
        all
    };
}

/// Returns the distance from the id of `I` to the id of its direct super `S`.
pub(crate) fn offset_of<I: ?Sized + Extends<S>, S: ?Sized + Interface>() -> u32 {
    let mut offset = 1;
    for entry in I::SUPERS {
        if entry.type_id == TypeId::of::<S>() {
            return offset;
        }
        offset += entry.interfaces;
    }
    panic!("`{}` extends `{}`, but its SUPERS do not list it", I::NAME, S::NAME)
}

/// The headers of a representative that is being built.
#[derive(Debug)]
pub(crate) struct Headers {
    /// The id of the first header, if the headers are active from the start.
    id: Option<Id>,
    place: *mut Header,
    count: u32,
    limit: u32,
}

impl Headers {
    /// Writes the headers of `view`. They are active under `id` and the ids that follow it, or not yet active
    /// if `id` is empty.
    ///
    /// # Safety
    /// The caller owns room for `I::INTERFACES` headers at `place`. `view` is at its final address.
    pub(crate) unsafe fn write<I: ?Sized + Interface>(id: Option<Id>, place: *mut Header, view: &I) {
        let mut headers = Headers { id, place, count: 0, limit: I::INTERFACES };
        headers.add_all(view);
        assert_eq!(
            headers.count,
            headers.limit,
            "`{}` does not have the interfaces that its SUPERS list",
            I::NAME
        );
    }

    fn add_all<S: ?Sized + Interface>(&mut self, view: &S) {
        assert!(self.count < self.limit);
        let id = self.id.map_or(NEW, |id| id.offset(self.count).bits());
        // SAFETY: within the room (checked above), which is ours to write.
        unsafe { self.place.add(self.count as usize).write(Header::new(id, to_fat(view), self.count)) };
        self.count += 1;
        for entry in S::SUPERS {
            // SAFETY: `cast` belongs to the same entry as `fill`.
            unsafe { (entry.fill)(entry.cast, view, self) };
        }
    }
}

/// Splits the pointer to a `dyn` interface into its two words.
fn to_fat<I: ?Sized>(view: *const I) -> Fat {
    const { assert!(size_of::<*const I>() == size_of::<Fat>(), "the interface is not a `dyn Trait`") };
    // SAFETY: of equal size (checked above); the bits of any two words are valid pointers.
    unsafe { transmute_copy::<*const I, Fat>(&view) }
}

/// Restores the pointer that `to_fat` split.
///
/// # Safety
/// `fat` came from `to_fat` with the same `I`.
#[inline(always)]
pub(crate) unsafe fn from_fat<I: ?Sized>(fat: &Fat) -> *const I {
    const { assert!(size_of::<*const I>() == size_of::<Fat>(), "the interface is not a `dyn Trait`") };
    // SAFETY: the inverse of `to_fat`, by the caller's promise.
    unsafe { transmute_copy::<Fat, *const I>(fat) }
}
