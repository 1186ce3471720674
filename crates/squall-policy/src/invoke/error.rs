//! What comes of an invocation that has no result.

use squall_core::wrap::Caught;
use squall_core::{CallError, CallErrorKind};
use std::any::Any;
use std::fmt;
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};

use crate::policy::LATE;

/// Why an invocation has no result.
#[derive(Debug)]
#[non_exhaustive]
pub enum InvokeError {
    /// The object could not be called, or its policy refused. A method whose own error is `From<CallError>` returns it as that,
    /// in its result.
    Call(CallError),
    /// The method, or what was invoked with it, panicked.
    Panicked(Payload),
    /// It had not begun when its deadline passed, and will not.
    TooLate,
    /// The event that it depended on was cancelled; it did not run.
    Cancelled,
    /// The executor dropped it; it did not run.
    Dropped,
    /// As many invocations as may wait, wait; it did not run.
    Full,
    /// A result was waited for inside an operation, where nothing may wait. The invocation goes on.
    InOperation,
}

impl From<Caught> for InvokeError {
    fn from(caught: Caught) -> InvokeError {
        match caught {
            Caught::Call(error) if error.reason() == CallErrorKind::Refused(LATE) => InvokeError::TooLate,
            Caught::Call(error) => InvokeError::Call(error),
            Caught::Panicked(payload) => InvokeError::Panicked(Payload(Mutex::new(payload))),
        }
    }
}

impl fmt::Display for InvokeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvokeError::Call(error) => error.fmt(f),
            InvokeError::Panicked(payload) => write!(f, "it panicked: {}", payload.message()),
            InvokeError::TooLate => f.write_str(LATE),
            InvokeError::Cancelled => f.write_str("the event that it waited for was cancelled"),
            InvokeError::Dropped => f.write_str("its executor dropped it"),
            InvokeError::Full => f.write_str("too many invocations wait already"),
            InvokeError::InOperation => {
                f.write_str("its result was waited for inside an operation, where nothing may wait")
            }
        }
    }
}

impl std::error::Error for InvokeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            InvokeError::Call(error) => Some(error),
            _ => None,
        }
    }
}

/// What a panic carried.
pub struct Payload(Mutex<Box<dyn Any + Send>>);

impl Payload {
    /// The panic's message, if it has one.
    pub fn message(&self) -> String {
        let payload = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
    }

    /// The payload itself.
    pub fn into_inner(self) -> Box<dyn Any + Send> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the panic go on in this thread.
    pub fn resume(self) -> ! {
        resume_unwind(self.into_inner())
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({:?})", self.message())
    }
}
