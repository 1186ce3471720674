//! Handles: the `Copy` references through which callers reach objects. `fast.rs` makes their calls.
//!
//! Problem: a call must find the representative of the caller's cluster, and must fail safely if the object
//! is gone. It must write no memory that other VPs read.
//! Idea: the handle is an id with a generation. The call loads one entry of the VP's local table and compares
//! the id in the header with its own.
//!
//! - I1. The bits of a `Handle<I>` are the id under which interface `I` of some object was, is or will be
//!   known. Safe code cannot make one with other bits. So a header with an equal id has a target of type `I`.
//! - I2. A header found by [`hit`](crate::protocol::object::hit) is used within the operation that found it,
//!   or under a hold taken in that operation.
//!
//! Cost: see [`Handle`].
//! Source: CO-04, CO-07; TO-06. The comparison of ids is new; K42 rewrites its tables instead.

use std::cmp;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};

use crate::call::interface::{Extends, Interface, offset_of};
use crate::protocol::id::Id;

/// A reference to a clustered object. It implements the interface `I`, so callers use it like the object
/// itself.
///
/// It is `Copy` and 8 bytes long. It may be sent, stored and used at any time: before, during and after the
/// life of the object. A call reaches the representative of the caller's cluster. If the object is gone, the
/// method does not run:
/// - a plain method panics in its caller, with the [`CallError`](crate::CallError) as its message;
/// - a method that returns a `Result<_, E>` with `E: From<CallError>` returns the error;
/// - the checked form of a method, named `try_` and the method's name, returns the `CallError`.
///
/// Operations on the handle itself are associated functions, so that interfaces may have methods of any name.
///
/// # Cost
/// Up to about a nanosecond more than the same method through `Arc<dyn Trait>`. The call touches no cache
/// line that another VP writes. The first call on a VP is a miss: it asks the root, and makes the
/// representative if its cluster has none. A method marked `#[blocking]` also makes two atomic changes to its
/// representative. Progress: wait-free up to the method.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// let counter = squall::shared::<dyn Counter, _>(Central::default());
/// let handle = counter.handle();
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(move || handle.add(1));
///     }
/// });
/// assert_eq!(handle.get(), 4);
/// drop(counter);
/// assert!(handle.try_get().is_err());
/// ```
pub struct Handle<I: ?Sized> {
    id: Id,
    // Neither owns nor borrows an `I`: sendable, shareable and unwind-safe for every interface. Invariant: a
    // coercion between interfaces with different lifetimes would change the meaning of the id.
    interface: PhantomData<fn(PhantomData<I>) -> PhantomData<I>>,
}

impl<I: ?Sized> UnwindSafe for Handle<I> {}
impl<I: ?Sized> RefUnwindSafe for Handle<I> {}

impl<I: ?Sized> Clone for Handle<I> {
    #[inline(always)]
    fn clone(&self) -> Handle<I> {
        *self
    }
}
impl<I: ?Sized> Copy for Handle<I> {}

impl<I: ?Sized> PartialEq for Handle<I> {
    fn eq(&self, other: &Handle<I>) -> bool {
        self.id == other.id
    }
}
impl<I: ?Sized> Eq for Handle<I> {}

impl<I: ?Sized> PartialOrd for Handle<I> {
    fn partial_cmp(&self, other: &Handle<I>) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<I: ?Sized> Ord for Handle<I> {
    fn cmp(&self, other: &Handle<I>) -> cmp::Ordering {
        self.id.cmp(&other.id)
    }
}

impl<I: ?Sized> Hash for Handle<I> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl<I: ?Sized + Interface> fmt::Display for Handle<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", I::NAME, self.id)
    }
}

impl<I: ?Sized + Interface> fmt::Debug for Handle<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<I: ?Sized> Handle<I> {
    /// Makes a handle. The caller upholds I1.
    pub(crate) fn new(id: Id) -> Handle<I> {
        Handle { id, interface: PhantomData }
    }

    pub(crate) fn bits_id(self) -> Id {
        self.id
    }

    /// Returns the object's id under this interface.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::Handle;
    ///
    /// let counter = squall::shared::<dyn Counter, _>(Central::default());
    /// let id = Handle::id(counter.handle());
    /// assert_eq!(Handle::<dyn Counter>::find(id), Some(counter.handle()));
    /// ```
    pub fn id(this: Handle<I>) -> Id {
        this.id
    }
}

impl<I: ?Sized + Interface> Handle<I> {
    /// Returns a handle to the same object under an interface that `I` extends directly.
    ///
    /// If two paths lead to one interface, the two handles reach the same object and compare unequal.
    ///
    /// ```
    /// use squall::Handle;
    ///
    /// #[squall::interface]
    /// trait Read: Send + Sync {
    ///     fn get(&self) -> u64;
    /// }
    /// #[squall::interface]
    /// trait Cell: Read {
    ///     fn set(&self, value: u64);
    /// }
    ///
    /// #[derive(Default)]
    /// struct Plain(std::sync::atomic::AtomicU64);
    /// impl Read for Plain {
    ///     fn get(&self) -> u64 {
    ///         self.0.load(std::sync::atomic::Ordering::Relaxed)
    ///     }
    /// }
    /// impl Cell for Plain {
    ///     fn set(&self, value: u64) {
    ///         self.0.store(value, std::sync::atomic::Ordering::Relaxed);
    ///     }
    /// }
    ///
    /// let cell = squall::shared::<dyn Cell, _>(Plain::default());
    /// cell.set(7);
    /// let read: Handle<dyn Read> = Handle::upcast(cell.handle());
    /// assert_eq!(read.get(), 7);
    /// ```
    pub fn upcast<S: ?Sized + Interface>(this: Handle<I>) -> Handle<S>
    where
        I: Extends<S>,
    {
        Handle::new(this.id.offset(offset_of::<I, S>()))
    }
}
