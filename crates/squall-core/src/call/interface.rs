//! Interfaces: the traits that clients call, and how a representative shows each of them.
//!
//! The macro [`interface`](https://docs.rs/squall-macros) implements these traits for `dyn Trait`; nothing stops anybody
//! from doing so by hand, so nothing here is trusted beyond what the compiler checks: a view of a representative is a
//! borrow of something that lives as long as it, and `SUPERS` is a constant.
//!
//! - I1. The interfaces of a representative have a fixed order: its own, then for each entry of `SUPERS` that one's, in
//!   the same order. Header `n` of a representative, and id `n` of its object, are those of interface `n`.

use std::any::TypeId;
use std::mem::transmute_copy;

use crate::protocol::class::Source;
use crate::protocol::header::{Fat, Header, NEW};
use crate::protocol::id::Id;

/// A trait that clients call, as `dyn Trait`. Implemented by the attribute `#[squall::interface]`.
///
/// It is shared among threads, so the trait must ask for `Send + Sync`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no Squall interface",
    label = "not marked `#[squall::interface]`",
    note = "an interface is a trait marked `#[squall::interface]`, and is named here as `dyn Trait`"
)]
pub trait Interface: Send + Sync + 'static {
    /// The trait's name, without its path and parameters.
    const NAME: &'static str;
    /// Where the trait is declared.
    const SOURCE: Source;
    /// The interfaces that it extends, in the order of the declaration.
    const SUPERS: &'static [Super<Self>];
    /// The names of its methods, in the order of the declaration.
    const METHODS: &'static [&'static str] = &[];
    /// Which of them are marked `#[blocking]`, in the same order.
    const BLOCKING: &'static [bool] = &[];
    /// Not public: whether representatives may lend something, as their interface (`Lends`). Marked `#[interface(crate = …, lends)]`.
    #[doc(hidden)]
    const LENDS: bool = false;
}

/// An interface that a representative of type `T` has.
#[diagnostic::on_unimplemented(
    message = "`{T}` does not implement the interface `{Self}`",
    note = "implement the trait for `{T}`; it must also be `'static`"
)]
pub trait InterfaceOf<T>: Interface {
    /// The representative, seen as this interface.
    fn view(rep: &T) -> &Self;
}

/// An interface that extends another one directly.
#[diagnostic::on_unimplemented(
    message = "the interface `{Self}` does not extend `{S}`",
    note = "a reference is upcast one declared step at a time"
)]
pub trait Extends<S: ?Sized + Interface>: Interface {}

/// An interface that `I` extends.
pub struct Super<I: ?Sized> {
    type_id: TypeId,
    /// How many interfaces it has, itself among them.
    interfaces: u32,
    /// Whether all its methods, and those of what it extends, may block.
    all_blocking: bool,
    /// Finds the name of a method of it, or of one that it extends.
    find_method: fn(&str) -> Option<&'static str>,
    /// The upcast, without its type.
    cast: fn(),
    /// Adds the headers of this interface and of those below it, for a view of `I`.
    ///
    /// # Safety
    /// `cast` is that of this entry.
    fill: unsafe fn(fn(), &I, &mut Headers),
}

impl<I: ?Sized> std::fmt::Debug for Super<I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Super").field("type_id", &self.type_id).finish_non_exhaustive()
    }
}

impl<I: ?Sized + Interface> Super<I> {
    /// The interface `S`, and the way to it.
    pub const fn new<S: ?Sized + Interface>(cast: fn(&I) -> &S) -> Super<I> {
        unsafe fn fill<I: ?Sized, S: ?Sized + Interface>(cast: fn(), view: &I, headers: &mut Headers) {
            // SAFETY: the inverse of what `new` did with the same types.
            let cast = unsafe { std::mem::transmute::<fn(), fn(&I) -> &S>(cast) };
            headers.add_all(cast(view));
        }
        Super {
            type_id: TypeId::of::<S>(),
            interfaces: <S as Counted>::INTERFACES,
            all_blocking: <S as Counted>::ALL_BLOCKING,
            find_method: find_method::<S>,
            // SAFETY: function pointers are of one size; this one is called as what it is only (`fill`).
            cast: unsafe { std::mem::transmute::<fn(&I) -> &S, fn()>(cast) },
            fill: fill::<I, S>,
        }
    }
}

impl<I: ?Sized> Super<I> {
    fn find_method(&self, name: &str) -> Option<&'static str> {
        (self.find_method)(name)
    }
}

/// The name of this method of an interface, or of one that it extends.
pub(crate) fn find_method<I: ?Sized + Interface>(name: &str) -> Option<&'static str> {
    let own = I::METHODS.iter().find(|method| **method == name).copied();
    own.or_else(|| I::SUPERS.iter().find_map(|base| base.find_method(name)))
}

/// What is counted over an interface and those that it extends.
pub(crate) trait Counted: Interface {
    /// How many interfaces a representative of this one has.
    const INTERFACES: u32;
    /// Whether every method is marked `#[blocking]`.
    const ALL_BLOCKING: bool;
}

/// How many interfaces an object made for `I` has, and thus how many consecutive ids: its own, and one for each that it
/// extends, counting each path.
pub const fn interfaces_count<I: ?Sized + Interface>() -> u32 {
    <I as Counted>::INTERFACES
}

/// The most interfaces that one object can have.
const INTERFACES_MAX: u32 = 16;

impl<I: ?Sized + Interface> Counted for I {
    const INTERFACES: u32 = {
        let mut count = 1;
        let mut index = 0;
        while index < I::SUPERS.len() {
            count += I::SUPERS[index].interfaces;
            index += 1;
        }
        assert!(count <= INTERFACES_MAX, "an interface may extend at most 15 others, counting each path");
        count
    };
    const ALL_BLOCKING: bool = {
        // An implementation by hand may not say.
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

/// How far the id of the direct super `S` lies behind that of `I`.
pub(crate) fn offset_of<I: ?Sized + Extends<S>, S: ?Sized + Interface>() -> u32 {
    let mut offset = 1;
    for entry in I::SUPERS {
        if entry.type_id == TypeId::of::<S>() {
            return offset;
        }
        offset += entry.interfaces;
    }
    panic!("`{}` says that it extends `{}`, which its SUPERS do not list", I::NAME, S::NAME)
}

/// The headers of a representative that is being built.
#[derive(Debug)]
pub(crate) struct Headers {
    /// The id of the first, if they are active from the start.
    id: Option<Id>,
    place: *mut Header,
    count: u32,
    limit: u32,
}

impl Headers {
    /// Writes the headers of `view`, whose interface has as many as there is room for; active under `id` and those that
    /// follow it, or not yet.
    ///
    /// # Safety
    /// There is room for `I::INTERFACES` headers at `place`, which the caller owns. `view` lies where it will be used.
    pub(crate) unsafe fn write<I: ?Sized + Interface>(id: Option<Id>, place: *mut Header, view: &I) {
        let mut headers = Headers { id, place, count: 0, limit: I::INTERFACES };
        headers.add_all(view);
        assert_eq!(headers.count, headers.limit, "`{}` has not the interfaces that it lists", I::NAME);
    }

    fn add_all<S: ?Sized + Interface>(&mut self, view: &S) {
        assert!(self.count < self.limit);
        let id = self.id.map_or(NEW, |id| id.offset(self.count).bits());
        // SAFETY: within the room (just checked), which is ours to write.
        unsafe {
            self.place.add(self.count as usize).write(Header::new(id, to_fat(view), self.count, S::LENDS))
        };
        self.count += 1;
        for entry in S::SUPERS {
            // SAFETY: the entry's own cast.
            unsafe { (entry.fill)(entry.cast, view, self) };
        }
    }
}

/// Both words of the pointer to a view.
fn to_fat<I: ?Sized>(view: *const I) -> Fat {
    const { assert!(size_of::<*const I>() == size_of::<Fat>(), "an interface is a `dyn Trait`") };
    // SAFETY: of equal size (just checked); two words of any kind are good as pointers' bits.
    unsafe { transmute_copy::<*const I, Fat>(&view) }
}

/// The pointer to a view that `to_fat` took apart.
///
/// # Safety
/// `fat` came from `to_fat` with the same `I`.
#[inline(always)]
pub(crate) unsafe fn from_fat<I: ?Sized>(fat: &Fat) -> *const I {
    const { assert!(size_of::<*const I>() == size_of::<Fat>(), "an interface is a `dyn Trait`") };
    // SAFETY: the inverse of `to_fat`, by the caller's promise.
    unsafe { transmute_copy::<Fat, *const I>(fat) }
}
