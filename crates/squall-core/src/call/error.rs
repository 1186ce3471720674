//! Errors of calls that did not happen.

use std::fmt;
use std::ptr::NonNull;

use crate::call::transport::Transport;
use crate::protocol::id::Id;
use crate::protocol::names::{Name, name_of};
use crate::protocol::slot::Absent;

/// The reason why a call did not happen.
///
/// With the feature `serde` of squall-core, which `squall/call` turns on, it can be sent to another process.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// use squall::CallErrorKind;
///
/// let counter = squall::shared::<dyn Counter, _>(Central::default());
/// let handle = counter.handle();
/// drop(counter);
/// match handle.try_get().map_err(|error| error.reason()) {
///     Err(CallErrorKind::Destroyed) => {}
///     other => panic!("{other:?}"),
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallErrorKind {
    /// The object was destroyed. For an imported object: this process dropped its import. If the other
    /// process destroyed the object, the reason is [`Transport::Destroyed`].
    Destroyed,
    /// The object is well-known and is not installed yet.
    NotThere,
    /// The object's root or an arbiter refused the call, for this reason.
    Refused(&'static str),
    /// The process is the child of a fork: see
    /// [forked children](crate#forked-children).
    Forked,
    /// The call comes from a signal handler that interrupted a slow path of Squall on this thread.
    Reentrant,
    /// The calling thread moves the state of an object for a swap, and the call would wait for a swap.
    InTransfer,
    /// The object belongs to another process, and the call failed between the two processes. Unlike all other
    /// kinds, this one does not always mean that the method was not entered: see [`Transport`].
    Transport(Transport),
}

impl fmt::Display for CallErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallErrorKind::Destroyed => {
                f.write_str("the object was destroyed; keep its owner as long as it is called")
            }
            CallErrorKind::NotThere => f.write_str("the object is not installed yet; install it first (`WellKnown`)"),
            CallErrorKind::Refused(why) => write!(f, "the call was refused: {why}"),
            CallErrorKind::Forked => f.write_str("this is the child of a fork, which may only exec"),
            CallErrorKind::Reentrant => {
                f.write_str(
                    "a signal handler interrupted a slow path of Squall on this thread; call no object in a handler",
                )
            }
            CallErrorKind::InTransfer => {
                f.write_str(
                    "this thread moves the state of an object, and the call would wait for a swap; call after it",
                )
            }
            CallErrorKind::Transport(transport) => transport.fmt(f),
        }
    }
}

/// A call that did not happen: the method was not entered. The one exception are calls of objects of another
/// process that failed on the way: see [`Transport`].
///
/// One word in size. The details are on the heap, so that fast paths do not carry them.
///
/// With the feature `serde` of squall-core, which `squall/call` turns on, it can be sent to another process:
/// as a part of an error type of one's own, for example. The id then names an object of the process that
/// made the error. A received error equals the sent one.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// let counter = squall::shared::<dyn Counter, _>(Central::default());
/// let handle = counter.handle();
/// drop(counter);
/// let error = handle.try_add(1).unwrap_err();
/// assert_eq!((error.interface(), error.method()), ("Counter", "add"));
/// assert_eq!(error.id(), squall::Handle::id(handle));
/// assert!(error.to_string().contains(": the object was destroyed;"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct CallError(pub(crate) Box<Details>);

#[derive(Clone)]
pub(crate) struct Details {
    pub(crate) interface: &'static str,
    pub(crate) class: Option<&'static str>,
    pub(crate) id: Id,
    pub(crate) name: Option<Name>,
    pub(crate) method: &'static str,
    pub(crate) reason: CallErrorKind,
    /// The error was decoded. Its id says nothing about objects of this process.
    pub(crate) is_received: bool,
}

impl PartialEq for Details {
    fn eq(&self, other: &Details) -> bool {
        let Details { interface, class, id, name, method, reason, is_received: _ } = self;
        (interface, class, id, name, method, reason)
            == (&other.interface, &other.class, &other.id, &other.name, &other.method, &other.reason)
    }
}

impl Eq for Details {}

impl CallError {
    /// The alignment of a raw error pointer.
    pub(crate) const ALIGN: usize = align_of::<Details>();

    /// Turns the error into a pointer that owns it.
    pub(crate) fn into_raw(self) -> NonNull<()> {
        NonNull::from(Box::leak(self.0)).cast()
    }

    /// Turns the pointer back into the error.
    ///
    /// # Safety
    /// The pointer comes from `into_raw`, and is used once.
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
        let name = name_of(id);
        CallError(Box::new(Details { interface, class, id, name, method, reason, is_received: false }))
    }

    /// Makes an error without interface and method; [`CallError::of`] adds them later.
    #[cold]
    pub(crate) fn unnamed(class: Option<&'static str>, id: Id, reason: CallErrorKind) -> CallError {
        CallError::new("", class, id, "", reason)
    }

    #[cold]
    pub(crate) fn absent(id: Id, absent: Absent) -> CallError {
        match absent {
            // A call that finds a mediator asks it, so this arm serves only ids that are not installed.
            Absent::NotThere | Absent::Mediated(_) => CallError::unnamed(None, id, CallErrorKind::NotThere),
            Absent::Destroyed(class) => {
                CallError::unnamed(class.map(|class| (class.name)()), id, CallErrorKind::Destroyed)
            }
        }
    }

    /// Adds the interface and the method of the call.
    pub(crate) fn of(mut self, interface: &'static str, method: &'static str) -> CallError {
        (self.0.interface, self.0.method) = (interface, method);
        self
    }

    /// Not public: replaces the method by the one that the caller wrote, which made the call.
    #[doc(hidden)]
    #[cold]
    pub fn __in_method(mut self, method: &'static str) -> CallError {
        self.0.method = method;
        self
    }

    /// Not public: makes the error of a call of an object of another process. `id` is the id of the imported
    /// object.
    #[doc(hidden)]
    #[cold]
    pub fn __remote(
        interface: &'static str,
        id: Id,
        method: &'static str,
        reason: CallErrorKind,
    ) -> CallError {
        CallError::new(interface, None, id, method, reason)
    }

    /// Not public: returns whether the error was decoded, for example from a message of another process. Its
    /// id may then be that of an unrelated object of this process.
    #[doc(hidden)]
    pub fn __is_received(&self) -> bool {
        self.0.is_received
    }

    /// Returns the interface through which the object was called.
    pub fn interface(&self) -> &'static str {
        self.0.interface
    }

    /// Returns the name of the object's class (the author's type), if the object's slot still has it.
    pub fn class(&self) -> Option<&'static str> {
        self.0.class
    }

    /// Returns the id of the object.
    pub fn id(&self) -> Id {
        self.0.id
    }

    /// Returns the name that the program gave the object, if it did ([`Owned::named`](crate::Owned::named)).
    ///
    /// It outlives the object: the names of the latest 1,024 named objects that ended are kept.
    pub fn name(&self) -> Option<&Name> {
        self.0.name.as_ref()
    }

    /// Returns the name of the method.
    pub fn method(&self) -> &'static str {
        self.0.method
    }

    /// Returns the reason.
    pub fn reason(&self) -> CallErrorKind {
        self.0.reason
    }

    /// Returns whether the method may have run, in full or in part. If not, the call can be repeated safely.
    ///
    /// Always false for objects of this process.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// let counter = squall::shared::<dyn Counter, _>(Central::default());
    /// let handle = counter.handle();
    /// drop(counter);
    /// assert!(!handle.try_add(1).unwrap_err().may_have_run());
    /// ```
    pub fn may_have_run(&self) -> bool {
        matches!(self.0.reason, CallErrorKind::Transport(transport) if transport.may_have_run())
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Details { interface, class, id, name, method, reason, is_received: _ } = &*self.0;
        write!(f, "{interface}#{id}.{method}()")?;
        if let Some(name) = name {
            write!(f, " of {name:?}")?;
        }
        if let Some(class) = class {
            write!(f, "{} class {class}", if name.is_some() { "," } else { " of" })?;
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
