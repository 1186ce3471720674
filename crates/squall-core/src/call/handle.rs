//! References, and the call.
//!
//! - I1. The bits of a `Handle<I>` are the id under which interface `I` of some object was, is or will be known; no safe
//!   code makes one of other bits. So a header whose id equals them has a target of type `I`.
//! - I2. A header found by [`hit`](crate::protocol::object::hit) is used within the operation in which it was found, or under
//!   a hold taken in it.
//!
//! Cost: see [`Handle`]. Source: CO-04, CO-07; TO-06; the compare is ours, where K42 rewrites tables.

use std::cmp;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};

use squall_rcu::Guard;

use crate::call::answer::Answer;
use crate::call::hit::{Act, Hit};
use crate::call::interface::{Extends, Interface, offset_of};
use crate::call::slow::{act_at_length, miss, refused};
use crate::protocol::id::Id;
use crate::protocol::object::cached;
use crate::protocol::tables::entry_here;

/// A reference to a clustered object: call it as the interface it is.
///
/// It may be copied, sent, kept and used at any time, before, while and after the object is destroyed. A call reaches the
/// representative of the caller's cluster. When there is no object any more the call does not happen:
/// - a plain method panics in its caller, with the [`CallError`] as its message,
/// - unless it returns a `Result` whose error is `From<CallError>`: then it returns that,
/// - and its checked form, `try_` and the method's name, returns the `CallError`.
///
/// # Cost
/// About a nanosecond more than the same method through `Arc<dyn Trait>`; no access to a line that another VP writes. The
/// first call on a VP is a miss: it asks the root, and makes the representative if its cluster has none. A method marked
/// `#[blocking]` also makes two atomic changes to its representative. Progress: wait-free, then the method's own.
///
/// To let the methods of the interface have all names, what a reference can do by itself are associated functions.
pub struct Handle<I: ?Sized> {
    id: Id,
    // Neither owns nor borrows: sendable, shareable, and unwind safe, whatever the interface is. Invariant: a coercion
    // between interfaces that differ in lifetimes would change what the id means.
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
    /// The caller upholds I1.
    pub(crate) fn new(id: Id) -> Handle<I> {
        Handle { id, interface: PhantomData }
    }

    pub(crate) fn bits_id(self) -> Id {
        self.id
    }

    /// The object's id, as this interface.
    pub fn id(this: Handle<I>) -> Id {
        this.id
    }
}

impl<I: ?Sized + Interface> Handle<I> {
    /// The same object, as an interface that `I` extends directly.
    ///
    /// Where two paths lead to one interface, the two references reach the same object and compare different.
    pub fn upcast<S: ?Sized + Interface>(this: Handle<I>) -> Handle<S>
    where
        I: Extends<S>,
    {
        Handle::new(this.id.offset(offset_of::<I, S>()))
    }

    /// Not public: the body of every method of a reference.
    #[doc(hidden)]
    #[inline(always)]
    #[track_caller]
    pub fn __call<R>(self, method: &'static str, f: impl FnOnce(&I) -> R, gone: impl Answer<R>) -> R {
        self.__call_in(method, move |_, target| f(target), gone)
    }

    /// Not public: the same, where what is called lends something for the operation that the call is: `f` may use it.
    #[doc(hidden)]
    #[inline(always)]
    #[track_caller]
    pub fn __call_in<R>(
        self,
        method: &'static str,
        f: impl for<'o> FnOnce(&'o Guard, &'o I) -> R,
        gone: impl Answer<R>,
    ) -> R {
        self.__call_act(method, f, gone)
    }

    /// Not public: the same, of what is compiled into the caller, whatever its size.
    #[doc(hidden)]
    #[inline(always)]
    #[track_caller]
    pub fn __call_act<R>(self, method: &'static str, act: impl Act<I, R>, gone: impl Answer<R>) -> R {
        // SAFETY: dropped before this returns or unwinds, here or in `miss`.
        let entered = match unsafe { squall_rcu::__enter(self.id.bits()) } {
            Ok(entered) => entered,
            Err(error) => return gone.answer(refused::<I>(self.id, method, error)),
        };
        macro_rules! done {
            ($found:path, $header:ident) => {
                // SAFETY: a header of this id (I1), found in the operation; if the interface's representatives lend things, one with this
                // sign (header/I1).
                match act.act_briefly(entered.guard(), unsafe { $found(entered.guard(), $header, entered.turn()) }) {
                    Ok(result) => {
                        drop(entered);
                        result
                    }
                    Err(act) => act_at_length(entered, self.id, method, act, gone),
                }
            };
        }
        // SAFETY: there is an object or was one (I1), so there are tables; the operation is open, and the header is used
        // in it (I2).
        if let Some(header) = unsafe { cached(entry_here(self.id.slot())) } {
            // SAFETY: as above.
            let it = unsafe { header.as_ref() };
            if it.is(self.id.bits()) {
                return if I::LENDS { done!(Hit::of_first, header) } else { done!(Hit::new, header) };
            }
            if I::LENDS && it.lacks_first_view(self.id.bits()) {
                return done!(Hit::of_other, header);
            }
        }
        // Apart from the hit up to the end, so that a hit does not ask again how it went.
        miss(entered, self.id, method, act, gone)
    }
}
