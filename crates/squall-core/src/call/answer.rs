//! Results of calls whose object is gone: the error in the method's own error type, a panic, or the
//! `CallError` itself.

use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::resume_unwind;

use crate::call::error::CallError;

thread_local! {
    // Without a destructor, so a thread can read it at any time.
    pub(crate) static CATCHING: Cell<bool> = const { Cell::new(false) };
}

/// Unwinds from a call that cannot return its error. Inside [`catching`](crate::wrap::catching) the payload
/// is the error itself; elsewhere the thread panics with the error's text.
///
/// Out of line from its callers, which are inlined into the users' code.
#[cold]
#[inline(never)]
#[track_caller]
pub(crate) fn unanswered(error: CallError) -> ! {
    if CATCHING.get() {
        resume_unwind(Box::new(error));
    }
    panic!("{error}")
}

/// Not public: makes a method's result from a [`CallError`].
#[doc(hidden)]
pub trait Answer<R> {
    /// Returns the result, or panics in the caller.
    #[track_caller]
    fn answer(self, error: CallError) -> R;
}

/// Not public: the error is returned in the method's own error type.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Carry;

/// Not public: the caller panics.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Panic;

/// Not public: the `CallError` is returned unchanged.
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

/// Not public: selects, by the method's return type, the [`Answer`] for a method.
#[doc(hidden)]
#[derive(Debug)]
pub struct Gone<R>(PhantomData<fn() -> R>);

impl<R> Gone<R> {
    /// Makes the selector.
    #[inline(always)]
    #[expect(clippy::new_without_default, reason = "only the macro makes one")]
    pub const fn new() -> Gone<R> {
        Gone(PhantomData)
    }
}

/// Not public: implemented for `Gone<Result<T, E>>` if `E: From<CallError>`.
#[doc(hidden)]
pub trait Carries: Sized {
    /// Selects [`Carry`]: the method returns the error in its own error type.
    #[inline(always)]
    fn __squall_pick(self) -> Carry {
        Carry
    }
}
impl<T, E: From<CallError>> Carries for Gone<Result<T, E>> {}

/// Not public: implemented for every `&Gone`, and therefore found only where [`Carries`] is not implemented.
#[doc(hidden)]
pub trait Panics: Sized {
    /// Selects [`Panic`]: the caller panics.
    #[inline(always)]
    fn __squall_pick(self) -> Panic {
        Panic
    }
}
impl<R> Panics for &Gone<R> {}
