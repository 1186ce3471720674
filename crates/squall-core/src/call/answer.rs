//! What a method answers when the object it is called on is gone: an error in its own type, a panic, or the error itself.

use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::resume_unwind;

use crate::call::error::CallError;

thread_local! {
    // No destructor, so it can be read at any time.
    pub(crate) static CATCHING: Cell<bool> = const { Cell::new(false) };
}

/// Unwinds from a call that cannot return its error: with the error itself if somebody wants it. Apart from its callers, which
/// are in the users' code, once for each result.
#[cold]
#[inline(never)]
#[track_caller]
pub(crate) fn unanswered(error: CallError) -> ! {
    if CATCHING.get() {
        resume_unwind(Box::new(error));
    }
    panic!("{error}")
}

/// Not public: what a method answers when there is no object.
#[doc(hidden)]
pub trait Answer<R> {
    /// The answer, or a panic in the caller.
    #[track_caller]
    fn answer(self, error: CallError) -> R;
}

/// Not public: the error is returned in the method's own type.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Carry;

/// Not public: the caller panics.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Panic;

/// Not public: the error is returned as it is.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Checked;

impl<T, E: From<CallError>> Answer<Result<T, E>> for Carry {
    fn answer(self, error: CallError) -> Result<T, E> {
        Err(error.into())
    }
}

impl<R> Answer<R> for Panic {
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn answer(self, error: CallError) -> R {
        unanswered(error)
    }
}

impl<T> Answer<Result<T, CallError>> for Checked {
    fn answer(self, error: CallError) -> Result<T, CallError> {
        Err(error)
    }
}

/// Not public: picks how a method with this result answers.
#[doc(hidden)]
#[derive(Debug)]
pub struct Gone<R>(PhantomData<fn() -> R>);

impl<R> Gone<R> {
    /// See the type.
    #[inline(always)]
    #[expect(clippy::new_without_default, reason = "only the macro makes one")]
    pub const fn new() -> Gone<R> {
        Gone(PhantomData)
    }
}

/// Not public: see [`Gone`].
#[doc(hidden)]
pub trait Carries: Sized {
    /// The error is carried.
    #[inline(always)]
    fn __squall_pick(self) -> Carry {
        Carry
    }
}
impl<T, E: From<CallError>> Carries for Gone<Result<T, E>> {}

/// Not public: see [`Gone`].
#[doc(hidden)]
pub trait Panics: Sized {
    /// The caller panics.
    #[inline(always)]
    fn __squall_pick(self) -> Panic {
        Panic
    }
}
impl<R> Panics for &Gone<R> {}
