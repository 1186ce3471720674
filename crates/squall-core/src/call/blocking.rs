//! Calls of methods marked `#[blocking]`: they hold their representative by a count and run outside every operation.

use squall_sys::sync::Arc;
use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::call::answer::Answer;
use crate::call::arbitration::Arbitration;
use crate::call::error::CallError;
use crate::call::frames::{Again, Frame};
use crate::call::handle::Handle;
use crate::call::interface::{Interface, from_fat};
use crate::call::mediated::{self, Met, Park};
use crate::call::resolve::{Resolved, resolve};
use crate::call::slow::{arbitrated, refused};
use crate::protocol::header::Header;
use crate::protocol::id::Id;
use crate::protocol::miss::release;
use crate::protocol::object::{Object, hit, object_of};
use crate::protocol::tables::{entry_here, existing};

impl<I: ?Sized + Interface> Handle<I> {
    /// Not public: the body of a method that may block.
    #[doc(hidden)]
    #[track_caller]
    pub fn __call_blocking<R>(
        self,
        method: &'static str,
        f: impl FnOnce(&I) -> R,
        gone: impl Answer<R>,
    ) -> R {
        let (hold, arbitration) = match reach_by_parking::<I>(self.bits_id(), method) {
            Ok(reached) => reached,
            Err(error) => return gone.answer(error),
        };
        let mut frame = Frame::new(hold.object(), Again::Never);
        let _in_frame = frame.enter();
        // SAFETY: a header of this id (`handle/I1`), held while the call lasts (`handle/I2`).
        let f = || f(unsafe { target(&hold.0) });
        match arbitrated::<I, _>(arbitration.as_deref(), self.bits_id(), method, f) {
            Ok(result) => result,
            Err(error) => gone.answer(error),
        }
    }

    /// Not public: the same, of a method that can be called again with the same arguments. It is, where it had to leave because
    /// of a swap.
    #[doc(hidden)]
    #[track_caller]
    pub fn __call_blocking_again<R>(
        self,
        method: &'static str,
        mut f: impl FnMut(&I) -> R,
        gone: impl Answer<R>,
    ) -> R {
        loop {
            let (hold, arbitration) = match reach_by_parking::<I>(self.bits_id(), method) {
                Ok(reached) => reached,
                Err(error) => return gone.answer(error),
            };
            let mut frame = Frame::new(hold.object(), Again::May);
            let in_frame = frame.enter();
            // SAFETY: a header of this id (`handle/I1`), held while the call lasts (`handle/I2`).
            let f = || f(unsafe { target(&hold.0) });
            let result = arbitrated::<I, _>(arbitration.as_deref(), self.bits_id(), method, f);
            drop(in_frame);
            match result {
                Ok(result) if !frame.is_to_be_again() => return result,
                Ok(_) => {}
                Err(error) => return gone.answer(error),
            }
        }
    }
}

/// Reaches a representative, and holds it; waits for swaps.
fn reach_by_parking<I: ?Sized + Interface>(
    id: Id,
    method: &'static str,
) -> Result<(Hold, Option<Arc<Arbitration>>), CallError> {
    let mut again = false;
    loop {
        let reached =
            squall_rcu::try_pin(|_| reach(id, again)).map_err(|error| refused::<I>(id, method, error))?;
        match reached {
            Reached::Held(hold, arbitration) => return Ok((hold, arbitration)),
            Reached::Parked(park) => park.wait(),
            Reached::Nothing(error) => return Err(error.of(I::NAME, method)),
        }
        again = true;
    }
}

/// The representative behind a header, as the interface that it is of.
///
/// # Safety
/// The header is of an object's interface `I`, and is kept while the result is used.
#[inline(always)]
pub(super) unsafe fn target<I: ?Sized>(header: &NonNull<Header>) -> &I {
    // SAFETY: `I` was used when the header was written (handle/I1, interface/I1).
    unsafe { &*from_fat::<I>(header.as_ref().target()) }
}

/// What a call that may block reaches.
enum Reached {
    /// A representative, held; and what arbitrates the call.
    Held(Hold, Option<Arc<Arbitration>>),
    /// It waits for a swap, and begins again.
    Parked(Park),
    /// Nothing.
    Nothing(CallError),
}

/// Finds a representative, and takes a hold on it. Within an operation.
#[inline]
fn reach(id: Id, again: bool) -> Reached {
    // SAFETY: as in `__call`.
    let found = match unsafe { hit(entry_here(id.slot()), id) } {
        Some(header) => Resolved::Header(header),
        None => resolve(id).open(),
    };
    match found {
        Resolved::Header(header) => Reached::Held(Hold::new(header), None),
        Resolved::Error(error) => Reached::Nothing(error),
        // SAFETY: found in this operation.
        Resolved::Mediated(mediator) => match unsafe { mediated::meet(id, mediator, again) } {
            Met::Pass(pass) => {
                // Counted until it is held: so who finds no call counted finds every hold.
                let hold = Hold::new(pass.header);
                // SAFETY: valid in this operation.
                let arbitration = unsafe { pass.arbitration() }.map(Arc::clone);
                Reached::Held(hold, arbitration)
            }
            Met::Park(park) => Reached::Parked(park),
            Met::Error(error) => Reached::Nothing(error),
        },
    }
}

/// A hold on a representative, for a call that may block.
struct Hold(NonNull<Header>);

impl Hold {
    /// Within the operation in which the header was found.
    fn new(header: NonNull<Header>) -> Hold {
        // SAFETY: valid in that operation.
        unsafe { header.as_ref() }.hold();
        Hold(header)
    }

    /// What it keeps.
    fn object(&self) -> NonNull<Object> {
        // SAFETY: held by us, and from a table or a miss.
        unsafe { object_of(self.0) }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(tables) = existing() {
            // SAFETY: held by us.
            unsafe { release(tables, self.0) };
        }
    }
}

/// Not public: how a method that may block is called.
#[doc(hidden)]
pub trait Blocking<I: ?Sized, R, F> {
    /// The call.
    #[track_caller]
    fn __squall_call(self, co: Handle<I>, method: &'static str, f: F, gone: impl Answer<R>) -> R;
}

/// Not public: its arguments are used up by a call.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Once;

/// Not public: it can be called again with the same arguments.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Many;

impl<I: ?Sized + Interface, R, F: FnOnce(&I) -> R> Blocking<I, R, F> for Once {
    #[inline(always)]
    #[track_caller]
    fn __squall_call(self, co: Handle<I>, method: &'static str, f: F, gone: impl Answer<R>) -> R {
        co.__call_blocking(method, f, gone)
    }
}

impl<I: ?Sized + Interface, R, F: FnMut(&I) -> R> Blocking<I, R, F> for Many {
    #[inline(always)]
    #[track_caller]
    fn __squall_call(self, co: Handle<I>, method: &'static str, f: F, gone: impl Answer<R>) -> R {
        co.__call_blocking_again(method, f, gone)
    }
}

/// Not public: picks how a method with these arguments is called.
#[doc(hidden)]
#[derive(Debug)]
pub struct Arguments<A>(PhantomData<fn() -> A>);

impl<A> Arguments<A> {
    /// See the type.
    #[inline(always)]
    #[expect(clippy::new_without_default, reason = "only the macro makes one")]
    pub const fn new() -> Arguments<A> {
        Arguments(PhantomData)
    }
}

/// Not public: see [`Arguments`].
#[doc(hidden)]
pub trait CopiedArguments: Sized {
    /// They can be used again.
    #[inline(always)]
    fn __squall_issue(self) -> Many {
        Many
    }
}
impl<A: Copy> CopiedArguments for Arguments<A> {}

/// Not public: see [`Arguments`].
#[doc(hidden)]
pub trait MovedArguments: Sized {
    /// They cannot.
    #[inline(always)]
    fn __squall_issue(self) -> Once {
        Once
    }
}
impl<A> MovedArguments for &Arguments<A> {}
