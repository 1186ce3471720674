//! Invocations that the object's policy or its attributes decide.

use squall_core::wrap::catching;
use squall_core::{CallErrorKind, Handle, Interface, methods_of};
use std::fmt;
use std::sync::Arc;

use super::dispatch::{self, Dispatch, Target, Terms, has_ended};
use super::error::Unknown;
use super::executor::execute;
use super::governed::{self, Governed};
use super::handle::Runner;
use super::mode::{ASYNCHRONOUS, Mode};
use super::{InvokeError, PendingCall, context, synchronous};
use crate::attribute::{self, Attribute, CallAttributes, Callee, InstanceValues, Received, choices, receive};

choices! {
    /// Value of the attribute [`INVOCATION`].
    pub enum Invocation {
        /// The caller waits for the call.
        Synchronous = "synchronous",
        /// The caller goes on, and waits for the result later.
        Asynchronous = "asynchronous",
    }
}

/// Selects how [`call`] and [`Invoker::call`] make a call: here and now, or on another thread.
///
/// It can be given to a call, and set for an operation, an object or a class that has it in its schema. The
/// innermost scope counts. Plain calls of a method are always synchronous.
pub static INVOCATION: Attribute<Invocation> =
    Attribute::new("invocation", Invocation::Synchronous).about("whether a caller waits for its call");

/// Handle with the policy of its object, looked up once, and optionally with the name of an operation.
///
/// ```
/// use squall::policy::attribute::{ClassValues, Schema};
/// use squall::policy::invoke::{INVOCATION, Invocation, InvokeError, Invoker};
/// use squall::policy::{Binding, Policy};
///
/// static SCHEMA: Schema = Schema::new("desk", &[&INVOCATION]).with_operations(&["file"]);
/// static CLASS: ClassValues = ClassValues::new(&SCHEMA);
/// struct Desk;
/// impl Policy for Desk {
///     fn class(&self) -> Option<&'static ClassValues> {
///         Some(&CLASS)
///     }
/// }
/// # #[squall::interface]
/// # trait Files: Send + Sync { fn file(&self, n: u64) -> u64; }
/// # struct Drawer;
/// # impl Files for Drawer { fn file(&self, n: u64) -> u64 { n } }
/// let binding = Binding::new(Desk);
/// let files: squall::Owned<dyn Files> = binding.govern(|_| Drawer)?;
/// binding.values().unwrap().set_for("file", &INVOCATION, Invocation::Asynchronous)?;
///
/// let filing = Invoker::new(files.handle()).operation("file")?;
/// assert_eq!(filing.invocation(), Invocation::Asynchronous);
/// assert_eq!(filing.call(|files| files.file(7)).wait()?, 7);
/// let unknown = Invoker::new(files.handle()).operation("fill").unwrap_err();
/// assert!(unknown.to_string().ends_with("has no operation `fill`; its operations are `file`"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Invoker<I: ?Sized + Interface> {
    handle: Handle<I>,
    governed: Option<Arc<dyn Governed>>,
    /// Values of the object, also of one without a policy.
    values: Option<Arc<InstanceValues>>,
    operation: Option<&'static str>,
}

impl<I: ?Sized + Interface> Invoker<I> {
    /// Looks the policy of an object up.
    ///
    /// # Cost
    /// A lock and a hash table, or two of each for an object without a policy.
    pub fn new(handle: Handle<I>) -> Invoker<I> {
        let governed = governed::find(Handle::id(handle));
        let values = match &governed {
            Some(governed) => governed.values().cloned(),
            None => attribute::values_of(Handle::id(handle)),
        };
        Invoker { handle, governed, values, operation: None }
    }

    /// Names the operation that the closures call, so that its attributes apply.
    ///
    /// # Errors
    /// [`InvokeError::UnknownOperation`] if the interface has no such method.
    pub fn operation(self, name: &str) -> Result<Invoker<I>, InvokeError> {
        let methods = methods_of::<I>();
        match methods.iter().find(|method| **method == name) {
            Some(method) => Ok(Invoker { operation: Some(method), ..self }),
            None => {
                let unknown = Unknown::new(I::NAME, Handle::id(self.handle), name, methods);
                Err(InvokeError::UnknownOperation(unknown))
            }
        }
    }

    /// Returns the handle.
    pub fn handle(&self) -> Handle<I> {
        self.handle
    }

    /// Returns the modes of the object's policy.
    pub fn modes(&self) -> &'static [&'static Mode] {
        self.governed.as_ref().map_or(&[], |governed| governed.modes())
    }

    /// Returns the value of [`INVOCATION`] for the operation, the object or its class.
    pub fn invocation(&self) -> Invocation {
        let Some(values) = &self.values else { return INVOCATION.default() };
        if !values.schema().has(&INVOCATION) {
            return INVOCATION.default();
        }
        let operation = self.operation.and_then(|name| values.schema().operation(name));
        values.view(operation, Received::NONE).get(&INVOCATION)
    }

    /// Calls as [`INVOCATION`] says, like [`call`].
    pub fn call<R: Send + 'static>(&self, f: impl FnOnce(Handle<I>) -> R + Send + 'static) -> PendingCall<R> {
        let handle = self.handle;
        receive(self.callee(), |received| {
            let mut given = received.keep();
            let own = given.take(&INVOCATION);
            if own.is_some() && self.values.as_ref().is_some_and(|values| values.fixed(&INVOCATION).is_some())
            {
                return PendingCall::ended(Err(self.target().error(CallErrorKind::Refused(context::FIXED))));
            }
            match own.unwrap_or_else(|| self.invocation()) {
                // Without attributes there is nothing to pass on: the call has the context of this code.
                Invocation::Synchronous if received.is_empty() => PendingCall::ended(synchronous(handle, f)),
                Invocation::Synchronous => {
                    let result = attribute::with(handle, &given, |handle| synchronous(handle, f));
                    PendingCall::ended(result.unwrap_or_else(|error| unreachable!("{error}")))
                }
                Invocation::Asynchronous => match self.with_threads() {
                    Some((governed, mode)) => self.dispatch(governed, mode, self.terms(&given), f),
                    None => {
                        let terms = self.terms(&given);
                        let (runner, pending) = Runner::new(move || terms.make(handle, None, f));
                        execute(runner.into_work());
                        pending
                    }
                },
            }
        })
    }

    /// Calls in a mode of the object's policy, like [`in_mode`].
    pub fn in_mode<R: Send + 'static>(
        &self,
        mode: &'static Mode,
        f: impl FnOnce(Handle<I>) -> R + Send + 'static,
    ) -> PendingCall<R> {
        self.in_mode_named(mode.name(), f)
    }

    /// Calls in a mode of the object's policy, like [`in_mode_named`].
    pub fn in_mode_named<R: Send + 'static>(
        &self,
        name: &str,
        f: impl FnOnce(Handle<I>) -> R + Send + 'static,
    ) -> PendingCall<R> {
        match self.governed_in(name) {
            Err(error) => PendingCall::ended(Err(error)),
            Ok((governed, mode)) => receive(self.callee(), |received| {
                self.dispatch(governed, mode, self.terms(&received.keep()), f)
            }),
        }
    }

    /// Has the policy make the call. Runs while the attributes of the call are received.
    fn dispatch<R: Send + 'static>(
        &self,
        governed: &dyn Governed,
        mode: &'static Mode,
        terms: Terms,
        f: impl FnOnce(Handle<I>) -> R + Send + 'static,
    ) -> PendingCall<R> {
        let (handle, own) = (self.handle, terms.clone());
        let (invocation, pending) = PendingCall::for_policy(move || own.make(handle, Some(mode), f));
        let target = Target { id: governed.ids().0, ..self.target() };
        let call = Dispatch::new(Arc::clone(&invocation), target, terms, self.values.clone());
        let passed = catching(|| {
            let _in_place = dispatch::in_place(&invocation);
            // The policy's own calls do not have the deadline of this call.
            let _begun = context::begun();
            governed.invoke_mode(mode, call);
        });
        if let Err(caught) = passed {
            invocation.fail(caught.into());
        }
        pending
    }

    fn governed_in(&self, name: &str) -> Result<(&dyn Governed, &'static Mode), InvokeError> {
        if squall_sys::fork::forked() {
            return Err(self.target().error(CallErrorKind::Forked));
        }
        let has_ended = match &self.governed {
            Some(governed) => has_ended(governed.ids().0),
            // The id of an interface that the object's own one extends has no class, but a place.
            None => has_ended(Handle::id(self.handle)) && squall_core::place_of(self.handle).is_none(),
        };
        if has_ended {
            return Err(self.target().error(CallErrorKind::Destroyed));
        }
        match self.modes().iter().find(|mode| mode.name() == name).zip(self.governed.as_deref()) {
            Some((mode, governed)) => Ok((governed, mode)),
            None => {
                let names = self.modes().iter().map(|mode| mode.name()).collect();
                let unknown = Unknown::new(I::NAME, Handle::id(self.handle), name, names);
                Err(InvokeError::UnknownMode(unknown))
            }
        }
    }

    /// Returns the policy if it makes the asynchronous calls of its object.
    fn with_threads(&self) -> Option<(&dyn Governed, &'static Mode)> {
        let governed = self.governed.as_deref().filter(|_| !squall_sys::fork::forked())?;
        let mode = governed.modes().iter().find(|mode| ***mode == ASYNCHRONOUS)?;
        // The policy of an object that has ended should not start a thread again.
        (!has_ended(governed.ids().0)).then_some((governed, mode))
    }

    fn target(&self) -> Target {
        Target { interface: I::NAME, id: Handle::id(self.handle), operation: self.operation }
    }

    fn callee(&self) -> Callee {
        self.governed.as_ref().map_or_else(|| Callee::from(self.handle), |governed| governed.callee())
    }

    fn terms(&self, given: &CallAttributes) -> Terms {
        let (first, count) = match &self.governed {
            Some(governed) => governed.ids(),
            None => (Handle::id(self.handle), squall_core::interfaces_count::<I>()),
        };
        Terms::new(given, context::of(first, count).0)
    }
}

impl<I: ?Sized + Interface> Clone for Invoker<I> {
    fn clone(&self) -> Invoker<I> {
        Invoker { governed: self.governed.clone(), values: self.values.clone(), ..*self }
    }
}

impl<I: ?Sized + Interface> fmt::Debug for Invoker<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invoker")
            .field("handle", &self.handle)
            .field("operation", &self.operation)
            .field("modes", &self.modes())
            .finish_non_exhaustive()
    }
}

/// Calls in a mode of the object's policy.
///
/// The policy decides when and on which thread the call runs. The call has the attributes and the deadline
/// that surround this function for its object.
///
/// # Errors
/// Through the [`PendingCall`]. [`InvokeError::UnknownMode`] if the policy lacks the mode, or the object a
/// policy. [`InvokeError::Call`] if the object was destroyed, or the policy refuses. [`InvokeError::Dropped`]
/// if the policy drops the call. [`InvokeError::Panicked`] if the method or the policy panics.
/// # Cost
/// Two allocations, the lookup of [`Invoker::new`], and the policy's work.
/// # Source
/// KTK §4: `INVOKE$mode` (KT-08).
/// # Example
/// ```
/// use squall::CallErrorKind;
/// use squall::policy::invoke::{InvokeError, TRY, in_mode};
/// use squall::policy::{Monitor, governed};
/// use std::sync::mpsc::{Receiver, Sender, channel};
///
/// #[squall::interface]
/// trait Desk: Send + Sync {
///     #[blocking]
///     fn serve(&self, begun: Option<Sender<()>>, over: Option<Receiver<()>>);
/// }
/// struct Clerk;
/// impl Desk for Clerk {
///     fn serve(&self, begun: Option<Sender<()>>, over: Option<Receiver<()>>) {
///         drop(begun.map(|begun| begun.send(())));
///         drop(over.map(|over| over.recv()));
///     }
/// }
///
/// let desk: squall::Owned<dyn Desk> = governed(Monitor::new(), |_| Clerk);
/// let handle = desk.handle();
/// let ((begin, begun), (end, over)) = (channel(), channel());
/// let other = std::thread::spawn(move || handle.serve(Some(begin), Some(over)));
/// begun.recv()?;
/// // The other call is inside. This one does not wait for it.
/// match in_mode(handle, &TRY, |desk| desk.serve(None, None)).wait() {
///     Err(InvokeError::Call(error)) => assert!(matches!(error.reason(), CallErrorKind::Refused(_))),
///     other => panic!("{other:?}"),
/// }
/// end.send(())?;
/// other.join().unwrap();
/// in_mode(handle, &TRY, |desk| desk.serve(None, None)).wait()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn in_mode<I, R>(
    handle: Handle<I>,
    mode: &'static Mode,
    f: impl FnOnce(Handle<I>) -> R + Send + 'static,
) -> PendingCall<R>
where
    I: ?Sized + Interface,
    R: Send + 'static,
{
    Invoker::new(handle).in_mode(mode, f)
}

/// Calls in the mode of the object's policy with this name, like [`in_mode`].
///
/// # Errors
/// Those of [`in_mode`]. [`InvokeError::UnknownMode`] lists the modes that the policy has.
///
/// ```
/// use squall::policy::invoke::in_mode_named;
/// use squall::policy::{Monitor, governed};
/// # #[squall::interface]
/// # trait Door: Send + Sync {
/// #     #[blocking]
/// #     fn open(&self) -> bool;
/// # }
/// # struct Wood;
/// # impl Door for Wood { fn open(&self) -> bool { true } }
/// let door: squall::Owned<dyn Door> = governed(Monitor::new(), |_| Wood);
/// assert!(in_mode_named(door.handle(), "try", |door| door.open()).wait()?);
/// let error = in_mode_named(door.handle(), "tri", |door| door.open()).wait().unwrap_err();
/// assert!(error.to_string().ends_with("has no invocation mode `tri`; its invocation modes are `try`"));
/// # Ok::<(), squall::policy::invoke::InvokeError>(())
/// ```
pub fn in_mode_named<I, R>(
    handle: Handle<I>,
    name: &str,
    f: impl FnOnce(Handle<I>) -> R + Send + 'static,
) -> PendingCall<R>
where
    I: ?Sized + Interface,
    R: Send + 'static,
{
    Invoker::new(handle).in_mode_named(name, f)
}

/// Calls here and now, or on another thread, as the attribute [`INVOCATION`] says.
///
/// The value given to the call counts most, then that of the object, then that of its class. To have that of
/// an operation count, name it with [`Invoker::operation`]. A synchronous call has ended when this returns.
/// An asynchronous one runs on a thread of the policy, if the policy has the mode [`ASYNCHRONOUS`], or on the
/// program's executor, as in [`asynchronous`](super::asynchronous). In both cases the call has the attributes
/// and the deadline that surround this function for its object, except for `invocation` itself.
///
/// # Errors
/// Through the [`PendingCall`]: [`InvokeError::Call`] and [`InvokeError::Panicked`]. A call with an
/// `invocation` is refused if the object's one is [fixed](crate::Creation::fix).
/// # Cost
/// The lookup of [`Invoker::new`], and one allocation. An asynchronous call allocates twice.
/// # Source
/// KTK §2.1 and §3: `InvocationType` (KT-09).
/// # Example
/// ```
/// use squall::policy::attribute::with;
/// use squall::policy::invoke::{INVOCATION, Invocation, call};
/// # #[squall::interface]
/// # trait Mail: Send + Sync { fn send(&self, n: u64) -> u64; }
/// # struct Post;
/// # impl Mail for Post { fn send(&self, n: u64) -> u64 { n } }
/// # let mail: squall::Owned<dyn Mail> = squall::shared(Post);
/// let pending = call(mail.handle(), |mail| mail.send(6));
/// assert!(pending.is_finished(), "synchronous by default");
/// let given = (&INVOCATION, Invocation::Asynchronous);
/// let pending = with(mail.handle(), given, |mail| call(mail, |mail| mail.send(7)))?;
/// assert_eq!(pending.wait()?, 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn call<I, R>(handle: Handle<I>, f: impl FnOnce(Handle<I>) -> R + Send + 'static) -> PendingCall<R>
where
    I: ?Sized + Interface,
    R: Send + 'static,
{
    Invoker::new(handle).call(f)
}
