//! Calls in the hands of a policy, which makes them in one of its modes.
//!
//! - I1. The policy runs a call at most once: running, refusing and submitting consume it.
//! - I2. A call runs with the attributes and the deadline that its caller gave it, on whichever thread it
//!   runs, and with no others.

use squall_core::{CallError, CallErrorKind, Handle, Id, Interface, class_of};
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use super::context;
use super::executor::{Work, execute};
use super::handle::AnyInvocation;
use super::mode::Mode;
use super::{InvokeError, synchronous};
use crate::attribute::{Attribute, CallAttributes, InstanceValues, Received, Value, with};

/// A call that a policy makes in one of its modes, at any time and on any thread.
///
/// The policy [runs](Dispatch::run) the call, [submits](Dispatch::submit) it to the program's executor, hands
/// it to another thread, or keeps it and does so later. Or it [refuses](Dispatch::refuse) the call. If the
/// policy drops the call, its caller gets [`InvokeError::Dropped`], or an error of the call if the object has
/// ended.
///
/// When the call runs, its method goes through [`Policy::invoke`](crate::Policy::invoke), like each call. The
/// policy finds the mode there, in [`Block::mode`](crate::Block::mode).
///
/// A call runs at most once. To run it twice does not compile:
/// ```compile_fail,E0382
/// fn twice(call: squall::policy::invoke::Dispatch) {
///     call.run();
///     call.run();
/// }
/// ```
///
/// # Example
/// A mode in which calls wait until the policy is told to go on:
/// ```
/// use squall::policy::invoke::{Dispatch, Mode, in_mode};
/// use squall::policy::{Binding, Policy};
/// use std::sync::Mutex;
///
/// static LATER: Mode = Mode::new("later").about("waits until the policy is told to go on");
///
/// #[derive(Default)]
/// struct Batched(Mutex<Vec<Dispatch>>);
/// impl Policy for Batched {
///     const MODES: &'static [&'static Mode] = &[&LATER];
///
///     fn invoke_mode(&self, _later: &'static Mode, call: Dispatch) {
///         self.0.lock().unwrap().push(call);
///     }
/// }
/// impl Batched {
///     fn go_on(&self) {
///         let calls = std::mem::take(&mut *self.0.lock().unwrap());
///         calls.into_iter().for_each(Dispatch::run);
///     }
/// }
/// # #[squall::interface]
/// # trait Mail: Send + Sync { fn send(&self, n: u64) -> u64; }
/// # struct Post;
/// # impl Mail for Post { fn send(&self, n: u64) -> u64 { n } }
/// let binding = Binding::new(Batched::default());
/// let mail: squall::Owned<dyn Mail> = binding.govern(|_| Post)?;
/// let pending = in_mode(mail.handle(), &LATER, |mail| mail.send(7));
/// assert!(!pending.is_finished());
/// binding.go_on();
/// assert_eq!(pending.wait()?, 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a dropped call does not run, and its caller gets an error"]
pub struct Dispatch {
    invocation: Arc<dyn AnyInvocation>,
    target: Target,
    terms: Terms,
    values: Option<Arc<InstanceValues>>,
}

/// The object and the operation of a call.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub(super) interface: &'static str,
    pub(super) id: Id,
    pub(super) operation: Option<&'static str>,
}

impl Target {
    #[cold]
    pub(super) fn error(self, reason: CallErrorKind) -> InvokeError {
        let method = self.operation.unwrap_or("invoke");
        InvokeError::Call(CallError::__remote(self.interface, self.id, method, reason))
    }
}

/// The attributes and the deadline of a call (I2).
#[derive(Clone)]
pub(super) struct Terms {
    /// Absent if the list is empty.
    attributes: Option<Arc<CallAttributes>>,
    deadline: Option<Instant>,
}

impl Terms {
    pub(super) fn new(attributes: &CallAttributes, deadline: Option<Instant>) -> Terms {
        Terms { attributes: (!attributes.is_empty()).then(|| Arc::new(*attributes)), deadline }
    }

    fn attributes(&self) -> &CallAttributes {
        self.attributes.as_ref().map_or(&CallAttributes::NONE, |attributes| attributes)
    }

    /// Makes the call in this mode. Hides the attributes and the deadline of the code around it (I2).
    pub(super) fn make<I, R>(
        &self,
        handle: Handle<I>,
        mode: Option<&'static Mode>,
        f: impl FnOnce(Handle<I>) -> R,
    ) -> Result<R, InvokeError>
    where
        I: ?Sized + Interface,
    {
        if self.deadline.is_some_and(|by| Instant::now() >= by) {
            return Err(InvokeError::TooLate);
        }
        let _context = context::set(Handle::id(handle), self.deadline, mode);
        match with(handle, self.attributes(), |handle| synchronous(handle, f)) {
            Ok(result) => result,
            // Each attribute was checked when it was given.
            Err(error) => unreachable!("{error}"),
        }
    }
}

thread_local! {
    /// Address of the invocation that this thread has just passed to a policy; 0 otherwise.
    static PASSED: Cell<usize> = const { Cell::new(0) };
}

/// Guard of the time in which a policy may run a call in place. Dropping it restores the previous state.
#[must_use]
pub(super) struct InPlace(usize);

impl Drop for InPlace {
    fn drop(&mut self) {
        PASSED.set(self.0);
    }
}

fn address(invocation: &Arc<dyn AnyInvocation>) -> usize {
    Arc::as_ptr(invocation).addr()
}

/// Lets the policy run the invocation in place on this thread, until the result is dropped.
pub(super) fn in_place(invocation: &Arc<dyn AnyInvocation>) -> InPlace {
    InPlace(PASSED.replace(address(invocation)))
}

/// Returns `true` if the object with this id has ended.
pub(super) fn has_ended(id: Id) -> bool {
    // A thread that cannot begin an operation cannot find the object.
    class_of(id).is_none() && squall_rcu::__try_pin(|_| ()).is_ok()
}

impl Dispatch {
    pub(super) fn new(
        invocation: Arc<dyn AnyInvocation>,
        target: Target,
        terms: Terms,
        values: Option<Arc<InstanceValues>>,
    ) -> Dispatch {
        Dispatch { invocation, target, terms, values }
    }

    /// Returns the object.
    pub fn id(&self) -> Id {
        self.target.id
    }

    /// Returns the name of the interface of the caller's handle.
    pub fn interface(&self) -> &'static str {
        self.target.interface
    }

    /// Returns the name of the operation, if the caller named it with
    /// [`Invoker::operation`](super::Invoker::operation).
    pub fn operation(&self) -> Option<&'static str> {
        self.target.operation
    }

    /// Returns the attributes given to the call.
    pub fn attributes(&self) -> &CallAttributes {
        self.terms.attributes()
    }

    /// Returns the value of an attribute for this call, like [`Block::get`](crate::Block::get).
    ///
    /// # Panics
    /// With debug assertions, if the policy has a class without this attribute.
    #[track_caller]
    pub fn get<T: Value>(&self, attribute: &'static Attribute<T>) -> T {
        let given = || self.attributes().get(attribute);
        let Some(values) = &self.values else { return given().unwrap_or(attribute.default()) };
        let set = || {
            let operation = self.target.operation.and_then(|name| values.schema().operation(name));
            values.view(operation, Received::NONE).get(attribute)
        };
        values.fixed(attribute).or_else(given).unwrap_or_else(set)
    }

    /// Returns the time by which the call must begin, if its caller set one with
    /// [`synchronous_by`](super::synchronous_by). A call that begins later ends with
    /// [`InvokeError::TooLate`].
    pub fn deadline(&self) -> Option<Instant> {
        self.terms.deadline
    }

    /// Makes the call now, on this thread. A panic of the method goes to the caller.
    ///
    /// The call has the attributes and the deadline that its caller gave it. It runs without the state of the
    /// code around it.
    pub fn run(self) {
        if PASSED.get() == address(&self.invocation) {
            self.invocation.run_in_place();
        } else {
            self.invocation.run();
        }
    }

    /// Passes the call to the program's [executor](super::set_executor), or to the pool.
    pub fn submit(self) {
        self.invocation.let_waiters_help();
        execute(self.into_work());
    }

    /// Converts the call to work, for an executor of the policy.
    pub fn into_work(self) -> Work {
        Box::new(move || self.run())
    }

    /// Refuses the call for this reason. Its caller gets [`InvokeError::Call`] with
    /// [`CallErrorKind::Refused`](squall_core::CallErrorKind::Refused).
    pub fn refuse(self, why: &'static str) {
        self.invocation.give_up(self.target.error(CallErrorKind::Refused(why)));
    }

    /// Ends the call because a queue of the policy is full.
    pub(crate) fn end_full(self) {
        self.invocation.give_up(InvokeError::Full);
    }
}

impl Drop for Dispatch {
    fn drop(&mut self) {
        if !self.invocation.is_waiting() {
            return;
        }
        let error = match self.target {
            _ if squall_sys::fork::forked() => self.target.error(CallErrorKind::Forked),
            Target { id, .. } if has_ended(id) => self.target.error(CallErrorKind::Destroyed),
            _ => InvokeError::Dropped,
        };
        self.invocation.give_up(error);
    }
}

impl fmt::Debug for Dispatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Target { interface, id, operation } = self.target;
        write!(f, "Dispatch({interface}#{id}.{}())", operation.unwrap_or("invoke"))
    }
}
