//! Calls of methods marked `#[blocking]`. Such a call holds its representative by a count and runs outside
//! every operation.

use squall_sys::pause;
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
        let (hold, arbitration) = match reach_by_parking(self, method) {
            Ok(reached) => reached,
            Err(error) => return gone.answer(error),
        };
        let mut frame = Frame::new(hold.object(), Again::Never);
        let _in_frame = frame.enter();
        let (mut f, mut result) = (Some(f), None);
        // SAFETY: a header of this id (`handle/I1`), held while the call lasts (`handle/I2`).
        let mut run = || result = f.take().map(|f| f(unsafe { target(&hold.0) }));
        match (arbitrated(arbitration.as_deref(), self.bits_id(), I::NAME, method, &mut run), result) {
            (Ok(()), Some(result)) => result,
            (Err(error), _) => gone.answer(error),
            (Ok(()), None) => unreachable!("a call of {}.{method} was made without its method", I::NAME),
        }
    }

    /// Not public: the body of a method that may block and can be called again with the same arguments. The
    /// call is repeated when a swap made the method return early.
    #[doc(hidden)]
    #[track_caller]
    pub fn __call_blocking_again<R>(
        self,
        method: &'static str,
        mut f: impl FnMut(&I) -> R,
        gone: impl Answer<R>,
    ) -> R {
        loop {
            let (hold, arbitration) = match reach_by_parking(self, method) {
                Ok(reached) => reached,
                Err(error) => return gone.answer(error),
            };
            let mut frame = Frame::new(hold.object(), Again::May);
            let in_frame = frame.enter();
            let mut result = None;
            // SAFETY: a header of this id (`handle/I1`), held while the call lasts (`handle/I2`).
            let mut run = || result = Some(f(unsafe { target(&hold.0) }));
            let made = arbitrated(arbitration.as_deref(), self.bits_id(), I::NAME, method, &mut run);
            drop(in_frame);
            match (made, result) {
                (Ok(()), Some(result)) if !frame.must_repeat() => return result,
                (Ok(()), _) => {}
                (Err(error), _) => return gone.answer(error),
            }
        }
    }
}

/// Finds a representative and takes a hold on it. Waits for swaps.
fn reach_by_parking<I: ?Sized + Interface>(
    handle: Handle<I>,
    method: &'static str,
) -> Result<(Hold, Option<Arc<Arbitration>>), CallError> {
    let mut again = false;
    loop {
        // A shipped call that ran at the end of this operation would find a hold of this thread's, and no
        // frame.
        let reached = squall_rcu::without_callbacks(|| {
            // SAFETY: dropped after `reach`, before this thread enters or leaves another operation.
            let entered = unsafe { squall_rcu::__enter(handle.bits_id().bits()) }
                .map_err(|error| refused(handle.bits_id(), I::NAME, method, error))?;
            let reached = reach(handle, again);
            drop(entered);
            Ok(reached)
        })?;
        match reached {
            Reached::Held(hold, arbitration) => return Ok((hold, arbitration)),
            Reached::Parked(park) => park.wait(),
            Reached::Failed(error) => return Err(error.of(I::NAME, method)),
        }
        again = true;
    }
}

/// Returns the representative behind a header as the header's interface.
///
/// # Safety
/// The header belongs to interface `I` of an object, and stays valid while the result is used.
#[inline(always)]
pub(super) unsafe fn target<I: ?Sized>(header: &NonNull<Header>) -> &I {
    // SAFETY: the header was written for `I` (handle/I1, interface/I1).
    unsafe { &*from_fat::<I>(header.as_ref().target()) }
}

/// The outcome of a lookup for a call that may block.
enum Reached {
    /// A representative with a hold on it, and the arbitration of the call.
    Held(Hold, Option<Arc<Arbitration>>),
    /// The call must wait for a swap and begin again.
    Parked(Park),
    /// The call fails.
    Failed(CallError),
}

/// Finds a representative and takes a hold on it. Runs within an operation.
#[inline]
fn reach<I: ?Sized>(handle: Handle<I>, again: bool) -> Reached {
    let id = handle.bits_id();
    // SAFETY: the object's tables exist (`handle/I1`), and the header is used within the operation.
    let found = match unsafe { hit(entry_here(id.slot()), id) } {
        Some(header) => Resolved::Header(header),
        None => resolve(id).open(),
    };
    match found {
        Resolved::Header(header) => Reached::Held(Hold::new(header), None),
        Resolved::Error(error) => Reached::Failed(error),
        // SAFETY: found in this operation.
        Resolved::Mediated(mediator) => match unsafe { mediated::meet(id, mediator, again) } {
            Met::Pass(pass) => {
                // The call stays counted until it has its hold. So a thread that finds the count zero sees
                // every hold.
                let hold = Hold::new(pass.header);
                // SAFETY: valid in this operation.
                let arbitration = unsafe { pass.arbitration() }.map(Arc::clone);
                Reached::Held(hold, arbitration)
            }
            Met::Park(park) => Reached::Parked(park),
            Met::Error(error) => Reached::Failed(error),
        },
    }
}

/// A hold on a representative, for a call that may block.
struct Hold(NonNull<Header>);

impl Hold {
    /// Takes a hold, within the operation in which the header was found.
    fn new(header: NonNull<Header>) -> Hold {
        if cfg!(test) {
            pause::point("hold");
        }
        // SAFETY: valid in that operation.
        unsafe { header.as_ref() }.hold();
        Hold(header)
    }

    /// Returns the object that the hold keeps.
    fn object(&self) -> NonNull<Object> {
        // SAFETY: held by us, and found in a table or by a miss.
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

/// Not public: calls a method that may block.
#[doc(hidden)]
pub trait Blocking<I: ?Sized, R, F> {
    /// Makes the call.
    #[track_caller]
    fn __squall_call(self, handle: Handle<I>, method: &'static str, f: F, gone: impl Answer<R>) -> R;
}

/// Not public: a call consumes its arguments.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Once;

/// Not public: a call can be repeated with the same arguments.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Many;

impl<I: ?Sized + Interface, R, F: FnOnce(&I) -> R> Blocking<I, R, F> for Once {
    #[inline(always)]
    #[track_caller]
    fn __squall_call(self, handle: Handle<I>, method: &'static str, f: F, gone: impl Answer<R>) -> R {
        handle.__call_blocking(method, f, gone)
    }
}

impl<I: ?Sized + Interface, R, F: FnMut(&I) -> R> Blocking<I, R, F> for Many {
    #[inline(always)]
    #[track_caller]
    fn __squall_call(self, handle: Handle<I>, method: &'static str, f: F, gone: impl Answer<R>) -> R {
        handle.__call_blocking_again(method, f, gone)
    }
}

/// Not public: selects, by the types of the arguments, whether a call can be repeated.
#[doc(hidden)]
#[derive(Debug)]
pub struct Arguments<A>(PhantomData<fn() -> A>);

impl<A> Arguments<A> {
    /// Makes the selector.
    #[inline(always)]
    #[expect(clippy::new_without_default, reason = "only the macro makes one")]
    pub const fn new() -> Arguments<A> {
        Arguments(PhantomData)
    }
}

/// Not public: implemented if all arguments are `Copy`.
#[doc(hidden)]
pub trait CopiedArguments: Sized {
    /// Selects [`Many`].
    #[inline(always)]
    fn __squall_issue(self) -> Many {
        Many
    }
}
impl<A: Copy> CopiedArguments for Arguments<A> {}

/// Not public: implemented for every `&Arguments`, and therefore found only where [`CopiedArguments`] is not
/// implemented.
#[doc(hidden)]
pub trait MovedArguments: Sized {
    /// Selects [`Once`].
    #[inline(always)]
    fn __squall_issue(self) -> Once {
        Once
    }
}
impl<A> MovedArguments for &Arguments<A> {}
