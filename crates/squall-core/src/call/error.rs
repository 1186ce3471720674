//! What a caller is told when there is no object to call.

use std::fmt;
use std::ptr::NonNull;

use crate::protocol::id::Id;
use crate::protocol::slot::Absent;

/// Why a call did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallErrorKind {
    /// The object was destroyed.
    Destroyed,
    /// A well-known object that is not installed yet.
    NotThere,
    /// Its root refused, or an arbiter did; why.
    Refused(&'static str),
    /// This process is the child of a fork, which may only exec.
    Forked,
    /// From a signal handler that interrupted a cold path of Squall on this thread.
    Reentrant,
    /// From a thread that moves the state of an object for a swap, where it would have had to wait for a swap.
    InTransfer,
}

impl fmt::Display for CallErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallErrorKind::Destroyed => f.write_str("the object was destroyed"),
            CallErrorKind::NotThere => f.write_str("the object is not installed"),
            CallErrorKind::Refused(why) => write!(f, "it was refused: {why}"),
            CallErrorKind::Forked => f.write_str("this is the child of a fork, which may only exec"),
            CallErrorKind::Reentrant => {
                f.write_str("a signal handler interrupted a cold path on this thread")
            }
            CallErrorKind::InTransfer => {
                f.write_str("the call would wait for a swap, and this thread moves state for one")
            }
        }
    }
}

/// A call that did not happen: the method was not entered.
///
/// One word; the rest is on the heap, so that no hot path carries it.
#[derive(Clone, PartialEq, Eq)]
pub struct CallError(Box<Details>);

#[derive(Clone, PartialEq, Eq)]
struct Details {
    interface: &'static str,
    class: Option<&'static str>,
    id: Id,
    method: &'static str,
    reason: CallErrorKind,
}

impl CallError {
    /// What a raw one is aligned to.
    pub(crate) const ALIGN: usize = align_of::<Details>();

    /// The error as a pointer, which owns it.
    pub(crate) fn into_raw(self) -> NonNull<()> {
        NonNull::from(Box::leak(self.0)).cast()
    }

    /// The error again.
    ///
    /// # Safety
    /// From `into_raw`, once.
    pub(crate) unsafe fn from_raw(raw: NonNull<()>) -> CallError {
        // SAFETY: the box of `into_raw`.
        CallError(unsafe { Box::from_raw(raw.as_ptr().cast()) })
    }

    #[cold]
    pub(crate) fn new(
        interface: &'static str,
        class: Option<&'static str>,
        id: Id,
        method: &'static str,
        reason: CallErrorKind,
    ) -> CallError {
        CallError(Box::new(Details { interface, class, id, method, reason }))
    }

    /// Of a call whose interface and method are said later, by [`CallError::of`].
    #[cold]
    pub(crate) fn unnamed(class: Option<&'static str>, id: Id, reason: CallErrorKind) -> CallError {
        CallError::new("", class, id, "", reason)
    }

    #[cold]
    pub(crate) fn absent(id: Id, absent: Absent) -> CallError {
        match absent {
            // Whoever meets a mediator asks it.
            Absent::NotThere | Absent::Mediated(_) => CallError::unnamed(None, id, CallErrorKind::NotThere),
            Absent::Destroyed(class) => {
                CallError::unnamed(class.map(|class| (class.name)()), id, CallErrorKind::Destroyed)
            }
        }
    }

    /// The same, of a call of this method.
    pub(crate) fn of(mut self, interface: &'static str, method: &'static str) -> CallError {
        (self.0.interface, self.0.method) = (interface, method);
        self
    }

    /// The interface through which it was called.
    pub fn interface(&self) -> &'static str {
        self.0.interface
    }

    /// The object's class, if its place still remembers it.
    pub fn class(&self) -> Option<&'static str> {
        self.0.class
    }

    /// The object.
    pub fn id(&self) -> Id {
        self.0.id
    }

    /// The method.
    pub fn method(&self) -> &'static str {
        self.0.method
    }

    /// Why.
    pub fn reason(&self) -> CallErrorKind {
        self.0.reason
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Details { interface, class, id, method, reason } = &*self.0;
        write!(f, "{interface}#{id}.{method}()")?;
        if let Some(class) = class {
            write!(f, " of class {class}")?;
        }
        write!(f, ": {reason}")
    }
}

impl fmt::Debug for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CallError({self})")
    }
}

impl std::error::Error for CallError {}

impl From<CallError> for std::io::Error {
    fn from(error: CallError) -> std::io::Error {
        std::io::Error::new(std::io::ErrorKind::NotConnected, error)
    }
}
