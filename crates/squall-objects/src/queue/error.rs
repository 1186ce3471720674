//! Errors of puts and waits.

use squall_core::CallError;
use squall_parts::queue as parts;
use std::error::Error;
use std::fmt;

use super::Rejected;

/// The reason why an element was not put, with the element.
#[derive(Clone, PartialEq, Eq)]
pub enum PutError<T> {
    /// The queue is closed.
    Closed(Rejected<T>),
    /// The call failed: the object was destroyed, for instance.
    Call {
        /// The reason.
        error: CallError,
        /// Priority of the element.
        priority: u64,
        /// The element.
        value: T,
    },
}

impl<T> PutError<T> {
    /// Returns the priority and the element.
    pub fn into_element(self) -> (u64, T) {
        match self {
            PutError::Closed(Rejected { priority, value }) | PutError::Call { priority, value, .. } => {
                (priority, value)
            }
        }
    }
}

impl<T> fmt::Debug for PutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PutError::Closed(rejected) => f.debug_tuple("Closed").field(rejected).finish(),
            PutError::Call { error, priority, .. } => f
                .debug_struct("Call")
                .field("error", error)
                .field("priority", priority)
                .finish_non_exhaustive(),
        }
    }
}

impl<T> fmt::Display for PutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PutError::Closed(rejected) => rejected.fmt(f),
            PutError::Call { error, .. } => error.fmt(f),
        }
    }
}

impl<T> Error for PutError<T> {}

/// The reason why a wait ended without an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitError {
    /// The queue was closed and is empty.
    Closed,
    /// The call failed: the object was destroyed, for instance.
    Call(CallError),
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitError::Closed => parts::Closed.fmt(f),
            WaitError::Call(error) => error.fmt(f),
        }
    }
}

impl Error for WaitError {}

impl From<CallError> for WaitError {
    fn from(error: CallError) -> WaitError {
        WaitError::Call(error)
    }
}

/// The reason why no more elements come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The queue is empty, and each element that was taken is finished.
    Done,
    /// The queue was closed and is empty.
    Closed,
    /// The call failed: the object was destroyed, for instance.
    Call(CallError),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Done => parts::End::Done.fmt(f),
            End::Closed => parts::End::Closed.fmt(f),
            End::Call(error) => error.fmt(f),
        }
    }
}

impl Error for End {}

impl From<CallError> for End {
    fn from(error: CallError) -> End {
        End::Call(error)
    }
}
