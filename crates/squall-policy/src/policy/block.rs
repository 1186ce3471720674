//! Invocation block: a call on its way through a policy.

use squall_core::Id;
use squall_core::wrap::{Invoked, Job, NotRun, hand_off};
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use crate::attribute::{Attribute, InstanceValues, Received, Value};
use crate::invoke::Mode;
use crate::invoke::context::{self, LATE};

/// A call on its way through a [`Policy`](super::Policy).
///
/// ```
/// use squall::policy::{Block, Policy, governed};
///
/// /// Rejects one method.
/// struct ReadOnly;
/// impl Policy for ReadOnly {
///     fn invoke(&self, block: &mut Block<'_>) {
///         if block.operation() == "put" {
///             block.refuse("the map is read-only");
///         }
///     }
/// }
/// #[squall::interface]
/// trait Map: Send + Sync {
///     fn get(&self) -> u32;
///     fn put(&self, value: u32) -> Result<(), squall::CallError>;
/// }
/// struct Fixed;
/// impl Map for Fixed {
///     fn get(&self) -> u32 { 7 }
///     fn put(&self, _value: u32) -> Result<(), squall::CallError> { Ok(()) }
/// }
///
/// let map: squall::Owned<dyn Map> = governed(ReadOnly, |_| Fixed);
/// assert_eq!(map.get(), 7);
/// assert!(map.put(8).unwrap_err().to_string().ends_with("the map is read-only"));
/// ```
pub struct Block<'a> {
    id: Id,
    call: &'static Invoked,
    attributes: Received<'a>,
    values: Option<&'a Arc<InstanceValues>>,
    deadline: Option<Instant>,
    mode: Option<&'static Mode>,
    parameters: Parameters<'a>,
    state: State,
}

/// The method with its arguments, to be run once.
pub(super) enum Parameters<'a> {
    /// Must run on the calling thread.
    Kept(&'a mut dyn FnMut()),
    /// May run on any thread.
    Sent(&'a mut (dyn FnMut() + Send)),
}

#[derive(Clone, Copy)]
pub(super) enum State {
    Waiting,
    Made,
    Refused(&'static str),
}

fn has_passed(deadline: Instant) -> bool {
    Instant::now() >= deadline
}

impl<'a> Block<'a> {
    #[inline]
    pub(super) fn new(
        id: Id,
        call: &'static Invoked,
        attributes: Received<'a>,
        values: Option<&'a Arc<InstanceValues>>,
        (deadline, mode): (Option<Instant>, Option<&'static Mode>),
        parameters: Parameters<'a>,
    ) -> Block<'a> {
        Block { id, call, attributes, values, deadline, mode, parameters, state: State::Waiting }
    }

    /// Returns the object.
    #[inline]
    pub fn id(&self) -> Id {
        self.id
    }

    /// Returns the name of the interface that declares the operation.
    #[inline]
    pub fn interface(&self) -> &'static str {
        self.call.interface()
    }

    /// Returns the operation: the name of the method.
    #[inline]
    pub fn operation(&self) -> &'static str {
        self.call.method()
    }

    /// Returns the position of the operation in its interface.
    #[inline]
    pub fn index(&self) -> usize {
        self.call.index()
    }

    /// Returns `true` if the operation is marked `#[blocking]`, so that the policy may wait.
    #[inline]
    pub fn may_wait(&self) -> bool {
        self.call.is_blocking()
    }

    /// Returns the attributes given to this call. They are for the policy: calls that the method makes do not
    /// have them.
    #[inline]
    pub fn attributes(&self) -> Received<'a> {
        self.attributes
    }

    /// Returns the value of an attribute for this call: fixed, or given to the call, or set for its
    /// operation, the object or the class, or the default.
    ///
    /// # Panics
    /// With debug assertions, if the policy has a class without this attribute.
    #[inline]
    #[track_caller]
    pub fn get<T: Value>(&self, attribute: &'static Attribute<T>) -> T {
        let Some(values) = self.values else {
            return self.attributes.get(attribute).unwrap_or(attribute.default());
        };
        // A fixed value takes no search for the operation.
        if let Some(fixed) = values.fixed(attribute) {
            return fixed;
        }
        let operation = values.schema().operation(self.call.method());
        values.view(operation, self.attributes).get(attribute)
    }

    /// Returns the time by which the call must begin, if its caller set one with
    /// [`invoke::synchronous_by`](crate::invoke::synchronous_by). After that time [`proceed`](Block::proceed)
    /// refuses the call. A policy that makes calls wait may give up at that time.
    #[inline]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns the mode of the policy in which the call is made, or `None` for a plain call. Calls that the
    /// method makes are not in this mode.
    #[inline]
    pub fn mode(&self) -> Option<&'static Mode> {
        self.mode
    }

    /// Returns `true` if the call is made in this mode.
    #[inline]
    pub fn is_in(&self, mode: &'static Mode) -> bool {
        self.mode.is_some_and(|own| own == mode)
    }

    /// Returns `true` if another thread may run the call, because its arguments and its result are `Send`.
    #[inline]
    pub fn can_be_sent(&self) -> bool {
        matches!(self.parameters, Parameters::Sent(_))
    }

    /// Runs the call now, on this thread, so that the policy can act after it. A second `proceed`, or one
    /// after a refusal, has no effect.
    ///
    /// # Panics
    /// If the method panics. Let the panic through, so that it reaches the caller.
    ///
    /// ```
    /// use squall::policy::{Block, Policy, governed};
    /// use std::time::Instant;
    ///
    /// /// Prints how long each call takes.
    /// struct Timed;
    /// impl Policy for Timed {
    ///     fn invoke(&self, block: &mut Block<'_>) {
    ///         let began = Instant::now();
    ///         block.proceed();
    ///         println!("{}: {:?}", block.operation(), began.elapsed());
    ///     }
    /// }
    /// # #[squall::interface]
    /// # trait Hits: Send + Sync { fn add(&self) -> u32; }
    /// # struct Count;
    /// # impl Hits for Count { fn add(&self) -> u32 { 1 } }
    /// let hits: squall::Owned<dyn Hits> = governed(Timed, |_| Count);
    /// assert_eq!(hits.add(), 1);
    /// ```
    #[inline]
    pub fn proceed(&mut self) {
        if let State::Waiting = self.state {
            if self.deadline.is_some_and(has_passed) {
                self.state = State::Refused(LATE);
                return;
            }
            self.state = State::Made;
            // Calls that the method makes do not inherit the deadline and the mode.
            let _begun = (self.deadline.is_some() || self.mode.is_some()).then(context::begun);
            match &mut self.parameters {
                Parameters::Kept(run) => run(),
                Parameters::Sent(run) => run(),
            }
        }
    }

    /// Has another thread run the call while this one waits. `submit` passes the job to that thread. A call
    /// that [cannot be sent](Block::can_be_sent) runs on this thread. Runs the call only once, like
    /// [`proceed`](Block::proceed).
    ///
    /// # Errors
    /// [`NotRun`]: the job was dropped, or this thread [moves state](squall_core::wrap::in_transfer) and no
    /// job was made. The call can still proceed or be refused.
    /// # Panics
    /// If the method or `submit` panics, and inside an operation (see [`hand_off`]).
    ///
    /// ```
    /// use squall::policy::{Block, Policy, governed};
    /// use std::thread;
    ///
    /// /// Runs each call on a thread of its own.
    /// struct Elsewhere;
    /// impl Policy for Elsewhere {
    ///     const WAITS: bool = true;
    ///     fn invoke(&self, block: &mut Block<'_>) {
    ///         let sent = block.proceed_elsewhere(|job| thread::spawn(move || job.run()).join().unwrap());
    ///         if sent.is_err() {
    ///             block.refuse("no thread could run it");
    ///         }
    ///     }
    /// }
    /// #[squall::interface]
    /// trait Work: Send + Sync {
    ///     #[blocking]
    ///     fn runs_in(&self) -> thread::ThreadId;
    /// }
    /// struct Worker;
    /// impl Work for Worker {
    ///     fn runs_in(&self) -> thread::ThreadId { thread::current().id() }
    /// }
    ///
    /// let work: squall::Owned<dyn Work> = governed(Elsewhere, |_| Worker);
    /// assert_ne!(work.runs_in(), thread::current().id());
    /// ```
    pub fn proceed_elsewhere(&mut self, submit: impl FnOnce(Job)) -> Result<(), NotRun> {
        let (State::Waiting, Parameters::Sent(run)) = (self.state, &mut self.parameters) else {
            self.proceed();
            return Ok(());
        };
        let (by, state) = (self.deadline, &mut self.state);
        let made = || {
            // Checked when the call's turn comes, which is on that thread.
            if by.is_some_and(has_passed) {
                return false;
            }
            *state = State::Made;
            run();
            true
        };
        if !hand_off(made, submit)? {
            self.state = State::Refused(LATE);
        }
        Ok(())
    }

    /// Refuses the call for this reason: its caller gets
    /// [`CallErrorKind::Refused`](squall_core::CallErrorKind::Refused). Has no effect once the call has run.
    #[inline]
    pub fn refuse(&mut self, why: &'static str) {
        if let State::Waiting = self.state {
            self.state = State::Refused(why);
        }
    }

    /// Ends the policy's part: runs the call if it still waits.
    #[inline]
    pub(super) fn end(mut self) -> State {
        self.proceed();
        self.state
    }
}

impl fmt::Debug for Block<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({}#{}.{}())", self.interface(), self.id, self.operation())
    }
}
