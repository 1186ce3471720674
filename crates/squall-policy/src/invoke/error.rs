//! Errors of invocations.

use squall_core::wrap::Caught;
use squall_core::{CallError, CallErrorKind, Id};
use std::any::Any;
use std::fmt;
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};

use super::context::LATE;
use crate::attribute::{list, quotable};

/// Reason why an invocation has no result.
///
/// ```
/// use squall::policy::invoke::{InvokeError, synchronous};
/// # #[squall::interface]
/// # trait Door: Send + Sync { fn open(&self); }
/// # struct Stuck;
/// # impl Door for Stuck { fn open(&self) { panic!("it is stuck") } }
/// # let door: squall::Owned<dyn Door> = squall::shared(Stuck);
/// match synchronous(door.handle(), |door| door.open()) {
///     Err(InvokeError::Panicked(payload)) => assert_eq!(payload.message(), "it is stuck"),
///     other => panic!("{other:?}"),
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum InvokeError {
    /// The object could not be called, or its policy refused the call. A method with an error type that
    /// is `From<CallError>` returns the error in its result instead. If the policy refused the mode, the
    /// error's method is that of the [`Invoker`](super::Invoker), or `invoke`.
    Call(CallError),
    /// The method, the closure around it, or the policy's code for a mode panicked.
    Panicked(Payload),
    /// The object's policy has no such mode. The method did not run.
    UnknownMode(Unknown),
    /// The interface has no such method.
    UnknownOperation(Unknown),
    /// The deadline passed before the method began. The method did not run and will not.
    TooLate,
    /// The event that the invocation depended on was cancelled. The method did not run.
    Cancelled,
    /// The executor or the policy dropped the invocation. The method did not run.
    Dropped,
    /// The queue is full. The invocation was rejected and did not run.
    Full,
    /// The result was waited for inside an operation, where a thread must not wait. The invocation goes on.
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
            InvokeError::Panicked(payload) => write!(f, "the method panicked: {}", payload.message()),
            InvokeError::UnknownMode(unknown) => unknown.show(f, "invocation mode"),
            InvokeError::UnknownOperation(unknown) => unknown.show(f, "operation"),
            InvokeError::TooLate => write!(f, "the method did not run: {LATE}; allow more time"),
            InvokeError::Cancelled => {
                f.write_str("the method did not run: its event was cancelled; invoke it again")
            }
            InvokeError::Dropped => {
                f.write_str("the method did not run: its executor or its policy dropped it; keep the call")
            }
            InvokeError::Full => {
                f.write_str("the method did not run: its queue is full; invoke it again later")
            }
            InvokeError::InOperation => {
                f.write_str("the result was waited for inside an operation; wait for it outside")
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

/// Name that an object does not have.
///
/// ```
/// use squall::policy::invoke::{InvokeError, in_mode_named};
/// use squall::policy::{Monitor, governed};
/// # #[squall::interface]
/// # trait Door: Send + Sync {
/// #     #[blocking]
/// #     fn open(&self);
/// # }
/// # struct Wood;
/// # impl Door for Wood { fn open(&self) {} }
/// let door: squall::Owned<dyn Door> = governed(Monitor::new(), |_| Wood);
/// let Err(InvokeError::UnknownMode(unknown)) = in_mode_named(door.handle(), "tri", |door| door.open()).wait()
/// else {
///     panic!()
/// };
/// assert_eq!((unknown.name(), unknown.names()), ("tri", &["try"][..]));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown(Box<Missing>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Missing {
    interface: &'static str,
    id: Id,
    name: String,
    names: Vec<&'static str>,
}

impl Unknown {
    #[cold]
    pub(super) fn new(interface: &'static str, id: Id, name: &str, names: Vec<&'static str>) -> Unknown {
        Unknown(Box::new(Missing { interface, id, name: quotable(name), names }))
    }

    /// Returns the object.
    pub fn id(&self) -> Id {
        self.0.id
    }

    /// Returns the name. Control characters are escaped, and a long name is truncated.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the names that the object has.
    pub fn names(&self) -> &[&'static str] {
        &self.0.names
    }

    fn show(&self, f: &mut fmt::Formatter<'_>, kind: &str) -> fmt::Result {
        let Missing { interface, id, name, names } = &*self.0;
        write!(f, "{interface}#{id} has no {kind} `{name}`; ")?;
        list(f, &format!("{kind}s"), names)
    }
}

/// Payload of a panic.
///
/// ```
/// use squall::policy::invoke::{InvokeError, synchronous};
/// # #[squall::interface]
/// # trait Door: Send + Sync { fn open(&self); }
/// # struct Stuck;
/// # impl Door for Stuck { fn open(&self) { std::panic::panic_any(7_u32) } }
/// # let door: squall::Owned<dyn Door> = squall::shared(Stuck);
/// let Err(InvokeError::Panicked(payload)) = synchronous(door.handle(), |door| door.open()) else { panic!() };
/// assert_eq!(payload.message(), "no message");
/// assert_eq!(payload.into_inner().downcast_ref::<u32>(), Some(&7));
/// ```
pub struct Payload(Mutex<Box<dyn Any + Send>>);

impl Payload {
    /// Returns the panic's message, or `no message` if the payload is not text.
    pub fn message(&self) -> String {
        let payload = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
    }

    /// Returns the payload itself.
    pub fn into_inner(self) -> Box<dyn Any + Send> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resumes the panic on this thread.
    pub fn resume(self) -> ! {
        resume_unwind(self.into_inner())
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({:?})", self.message())
    }
}
