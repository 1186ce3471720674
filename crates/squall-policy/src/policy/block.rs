//! The invocation block: a call on its way through a policy.

use squall_core::Id;
use squall_core::wrap::{Invoked, Job, NotRun, hand_off};
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use crate::attribute::{Attribute, InstanceValues, Received, Value};
use crate::invoke::deadline;

/// A call on its way through a [`Policy`](super::Policy).
pub struct Block<'a> {
    id: Id,
    call: &'static Invoked,
    attributes: Received<'a>,
    values: Option<&'a Arc<InstanceValues>>,
    deadline: Option<Instant>,
    parameters: Parameters<'a>,
    state: State,
}

/// The method and its arguments: to be run once.
pub(super) enum Parameters<'a> {
    /// By this thread.
    Kept(&'a mut dyn FnMut()),
    /// By any.
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

/// Why a call that came too late is refused.
pub(crate) const LATE: &str = "its deadline passed before it began";

impl<'a> Block<'a> {
    #[inline]
    pub(super) fn new(
        id: Id,
        call: &'static Invoked,
        attributes: Received<'a>,
        values: Option<&'a Arc<InstanceValues>>,
        deadline: Option<Instant>,
        parameters: Parameters<'a>,
    ) -> Block<'a> {
        Block { id, call, attributes, values, deadline, parameters, state: State::Waiting }
    }

    /// The object.
    #[inline]
    pub fn id(&self) -> Id {
        self.id
    }

    /// The interface that declares the operation.
    #[inline]
    pub fn interface(&self) -> &'static str {
        self.call.interface()
    }

    /// The operation: the method's name.
    #[inline]
    pub fn operation(&self) -> &'static str {
        self.call.method()
    }

    /// Its place among those of its interface.
    #[inline]
    pub fn index(&self) -> usize {
        self.call.index()
    }

    /// Whether the operation is marked `#[blocking]`, so that the policy may wait.
    #[inline]
    pub fn may_wait(&self) -> bool {
        self.call.is_blocking()
    }

    /// The attributes that were given to this call. They are for the policy: what the method calls does not have them.
    #[inline]
    pub fn attributes(&self) -> Received<'a> {
        self.attributes
    }

    /// The value of an attribute for this call: given to it, set for its operation, for the object, for the class, or the
    /// default.
    ///
    /// # Panics
    /// As [`InstanceValues::get`].
    #[inline]
    #[track_caller]
    pub fn get<T: Value>(&self, attribute: &'static Attribute<T>) -> T {
        let Some(values) = self.values else {
            return self.attributes.get(attribute).unwrap_or(attribute.default());
        };
        let operations = values.schema().operations();
        let operation = operations.iter().position(|name| *name == self.call.method());
        values.view(operation, self.attributes).get(attribute)
    }

    /// When the call must have begun, if its caller says so (see [`invoke::synchronous_by`](crate::invoke::synchronous_by)). From then on
    /// [`proceed`](Block::proceed) refuses it; a policy that makes calls wait may give up at that time.
    #[inline]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Whether another thread may make the call, as its arguments and its result are `Send`.
    #[inline]
    pub fn can_be_sent(&self) -> bool {
        matches!(self.parameters, Parameters::Sent(_))
    }

    /// Makes the call now, in this thread, so that the policy may do something after it. Once: later calls of this do nothing,
    /// and so do those after a refusal.
    ///
    /// # Panics
    /// If the method does: let that through, so that it reaches the caller.
    #[inline]
    pub fn proceed(&mut self) {
        if let State::Waiting = self.state {
            if self.deadline.is_some_and(has_passed) {
                self.state = State::Refused(LATE);
                return;
            }
            self.state = State::Made;
            // What the method calls has no deadline of this one.
            let _begun = self.deadline.map(|_| deadline::begun());
            match &mut self.parameters {
                Parameters::Kept(run) => run(),
                Parameters::Sent(run) => run(),
            }
        }
    }

    /// Has another thread make the call, while this one waits: `submit` gives the job away. A call that [cannot be
    /// sent](Block::can_be_sent) proceeds in this thread. Otherwise as [`proceed`](Block::proceed).
    ///
    /// # Errors
    /// [`NotRun`]: the job was dropped, or this thread [moves state](squall_core::wrap::in_transfer), and there was none; the
    /// call can still proceed, or be refused.
    /// # Panics
    /// As [`hand_off`]: if the method does, if `submit` does, and inside an operation.
    pub fn proceed_elsewhere(&mut self, submit: impl FnOnce(Job)) -> Result<(), NotRun> {
        let (State::Waiting, Parameters::Sent(run)) = (self.state, &mut self.parameters) else {
            self.proceed();
            return Ok(());
        };
        let (by, state) = (self.deadline, &mut self.state);
        let made = || {
            // In its turn, which is on that thread.
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

    /// The call errs, for this reason ([`CallErrorKind::Refused`](squall_core::CallErrorKind::Refused)). Not after it was made.
    #[inline]
    pub fn refuse(&mut self, why: &'static str) {
        if let State::Waiting = self.state {
            self.state = State::Refused(why);
        }
    }

    /// The policy has done what it does.
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
