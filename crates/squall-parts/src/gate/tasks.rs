//! Futures of a gate: tasks wait for their turn, and for the requests inside, without blocking a thread.
//!
//! Problem: a task that blocks its thread may block the very requests that it waits for. Idea: beside each
//! event count of the gate there is a [`Watch`] with the wakers of tasks. The steps of a future never wait.
//!
//! - I1. No wake-up is lost. A future leaves its waker, and then looks at the gate again. A thread that
//!   signals an event count has changed the gate before, and then wakes the tasks at the watch beside it.
//! - I2. Only the poll that returns a request counts it. So a future that is dropped leaves no count.
//! - I3. A control operation under way belongs to one future. Its drop, or an error, ends the operation.
//! - I4. The drop of a future removes its waker.
//! - I5. A panic of a waker harms neither another waiter nor the thread that wakes: a request that leaves, or
//!   a control operation.
//!
//! Not promised: the order in which waiting requests enter. Cost: a gate without waiting tasks pays a load
//! where it signals.

use squall_sys::fork::forked;
use squall_sys::panics::end_panic;
use squall_sys::sync::Arc;
use squall_sys::sync::atomic::{AtomicPtr, Ordering};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::ptr;
use std::task::{Context, Poll, Waker};

use super::{GateError, Rejected, ShutDown, refuse_forked, sites};
use crate::replica::Watch;

/// The tasks that wait at one gate. A gate makes them when its first task waits.
#[derive(Debug, Default)]
pub struct Tasks {
    /// Control operations, and waits for the end of a shutdown.
    pub(super) drained: Watch,
    /// Requests.
    pub(super) turn: Watch,
}

impl Tasks {
    /// Wakes all tasks, so that they look at their gate again.
    pub fn wake(&self) {
        self.wake_turn();
        self.wake_drained();
    }

    /// Wakes the waiting requests.
    pub(super) fn wake_turn(&self) {
        wake_caught(&self.turn);
    }

    /// Wakes the tasks that wait for the last request.
    pub(super) fn wake_drained(&self) {
        wake_caught(&self.drained);
    }
}

/// Wakes all tasks at `watch`. A panic of a waker ends here, after the panic hook has reported it (I5).
fn wake_caught(watch: &Watch) {
    end_panic(|| watch.wake());
}

/// The place of a gate's tasks: empty until the first task waits.
pub(super) struct TaskPlace(AtomicPtr<Arc<Tasks>>);

impl TaskPlace {
    #[cfg(not(loom))]
    pub(super) const fn new() -> TaskPlace {
        TaskPlace(AtomicPtr::new(ptr::null_mut()))
    }

    #[cfg(loom)]
    pub(super) fn new() -> TaskPlace {
        TaskPlace(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns the tasks, if a task has waited. After a change of the gate and a full fence, the caller finds
    /// each task that may have missed the change.
    pub(super) fn get(&self) -> Option<&Arc<Tasks>> {
        // Acquire: pairs with the Release of `get_or_make`.
        let tasks = self.0.load(sites::TASKS_ACQUIRE.order(Ordering::Acquire));
        // SAFETY: the pointer is null or from a box that is freed with this place.
        unsafe { tasks.as_ref() }
    }

    /// Returns the tasks.
    pub(super) fn get_or_make(&self) -> &Arc<Tasks> {
        if let Some(tasks) = self.get() {
            return tasks;
        }
        let new = Box::into_raw(Box::new(Arc::new(Tasks::default())));
        // Release: pairs with the Acquire of `get`. Acquire: pairs with the Release of another thread here.
        match self.0.compare_exchange(
            ptr::null_mut(),
            new,
            sites::TASKS_RELEASE.order(Ordering::AcqRel),
            Ordering::Acquire,
        ) {
            // SAFETY: from a box that is freed with this place.
            Ok(_) => unsafe { &*new },
            Err(earlier) => {
                // SAFETY: from the box above, and no other thread has it.
                drop(unsafe { Box::from_raw(new) });
                // SAFETY: from another thread's box, which is freed with this place.
                unsafe { &*earlier }
            }
        }
    }
}

impl Drop for TaskPlace {
    fn drop(&mut self) {
        // A model that has failed must not go on.
        if cfg!(loom) && std::thread::panicking() {
            return;
        }
        // Acquire: pairs with the Release of `get_or_make`.
        let tasks = self.0.load(Ordering::Acquire);
        if !tasks.is_null() {
            // SAFETY: from the box of `get_or_make`. The place is no longer borrowed.
            drop(unsafe { Box::from_raw(tasks) });
        }
    }
}

/// An operation that waits until no request is inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A stop.
    Stop,
    /// A shutdown.
    Shutdown,
    /// A wait for the last request of a shutdown.
    Drain,
}

/// A part of an [`Operation`] that never waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Begins the operation.
    Begin(Operation),
    /// Looks whether no request is inside.
    Look(Operation),
    /// Ends the operation after a look that found no request inside.
    Finish(Operation),
    /// Ends the operation at its limit. A stop is undone; a shutdown stays in force.
    GiveUp(Operation),
}

/// A gate, for the futures of this module.
pub trait TaskGate: Unpin {
    /// A request inside; its drop leaves.
    type Request;

    /// Enters, if the gate is neither stopped nor shut down.
    ///
    /// # Errors
    /// [`Rejected`].
    fn try_request(&self) -> Result<Self::Request, Rejected>;

    /// Returns the tasks that wait here.
    fn tasks(&self) -> Arc<Tasks>;

    /// Makes a step of an operation at the gate of these `tasks`. A look returns whether no request is
    /// inside.
    ///
    /// # Errors
    /// [`GateError`]; the operation has ended.
    fn step(&self, tasks: &Arc<Tasks>, step: Step) -> Result<bool, GateError>;
}

/// A waker that a future has left (I4).
struct Waiter {
    list: fn(&Tasks) -> &Watch,
    /// The gate's tasks, and the waker's ticket there.
    left: Option<(Arc<Tasks>, u64)>,
}

impl Waiter {
    fn leave_waker(&mut self, tasks: Arc<Tasks>, waker: &Waker) {
        let ticket = self.left.as_ref().filter(|left| Arc::ptr_eq(&left.0, &tasks)).map(|left| left.1);
        if ticket.is_none() {
            self.forget_waker();
        }
        let ticket = (self.list)(&tasks).register(ticket, waker);
        self.left = Some((tasks, ticket));
    }

    fn forget_waker(&mut self) {
        if let Some((tasks, ticket)) = self.left.take() {
            (self.list)(&tasks).unregister(ticket);
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        // A model that has failed must not go on.
        if !(cfg!(loom) && std::thread::panicking()) {
            self.forget_waker();
        }
    }
}

/// A future that enters a gate.
#[must_use = "a future does nothing unless it is polled"]
pub struct RequestFuture<G: TaskGate> {
    gate: G,
    waiter: Waiter,
}

impl<G: TaskGate> RequestFuture<G> {
    /// Makes a future that enters `gate`.
    pub fn new(gate: G) -> RequestFuture<G> {
        RequestFuture { gate, waiter: Waiter { list: |tasks| &tasks.turn, left: None } }
    }
}

impl<G: TaskGate> Future for RequestFuture<G> {
    type Output = Result<G::Request, ShutDown>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let RequestFuture { gate, waiter } = self.get_mut();
        let mut entered = gate.try_request();
        if let Err(Rejected::Stopped) = entered {
            waiter.leave_waker(gate.tasks(), context.waker());
            // Again, after the waker was left (I1).
            if !sites::LOOK_AGAIN.is_weak() {
                entered = gate.try_request();
            }
        }
        let entered = match entered {
            Ok(request) => Ok(request),
            Err(Rejected::ShutDown) => Err(ShutDown),
            Err(Rejected::Stopped) => {
                refuse_forked();
                return Poll::Pending;
            }
        };
        waiter.forget_waker();
        Poll::Ready(entered)
    }
}

impl<G: TaskGate> fmt::Debug for RequestFuture<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestFuture").finish_non_exhaustive()
    }
}

/// A future that performs an [`Operation`].
#[must_use = "a future does nothing unless it is polled"]
pub struct ControlFuture<G: TaskGate> {
    gate: G,
    operation: Operation,
    /// The tasks of the gate at which the operation is under way (I3).
    begun: Option<Arc<Tasks>>,
    waiter: Waiter,
}

impl<G: TaskGate> ControlFuture<G> {
    /// Makes a future that performs `operation` at `gate`.
    pub fn new(gate: G, operation: Operation) -> ControlFuture<G> {
        let waiter = Waiter { list: |tasks| &tasks.drained, left: None };
        ControlFuture { gate, operation, begun: None, waiter }
    }

    fn poll_steps(&mut self, waker: &Waker) -> Poll<Result<(), GateError>> {
        let tasks = match &self.begun {
            Some(tasks) => tasks.clone(),
            None => {
                let tasks = self.gate.tasks();
                // There, requests inside that belong to threads of the parent never leave.
                if forked() && !self.look(&tasks)? {
                    return Poll::Ready(Err(GateError::Forked));
                }
                self.gate.step(&tasks, Step::Begin(self.operation))?;
                self.begun.insert(tasks).clone()
            }
        };
        let mut is_over = self.look(&tasks)?;
        if !is_over {
            self.waiter.leave_waker(tasks.clone(), waker);
            // Again, after the waker was left (I1).
            if !sites::LOOK_AGAIN.is_weak() {
                is_over = self.look(&tasks)?;
            }
        }
        if is_over {
            self.begun = None;
            let finished = self.gate.step(&tasks, Step::Finish(self.operation));
            if finished.is_err() {
                self.begun = Some(tasks);
                self.give_up();
            }
            Poll::Ready(finished.map(drop))
        } else if forked() {
            self.give_up();
            Poll::Ready(Err(GateError::Forked))
        } else {
            Poll::Pending
        }
    }

    fn look(&mut self, tasks: &Arc<Tasks>) -> Result<bool, GateError> {
        let found = self.gate.step(tasks, Step::Look(self.operation));
        if found.is_err() {
            self.give_up();
        }
        found
    }

    fn give_up(&mut self) {
        if let Some(tasks) = self.begun.take() {
            // An error means that the gate is gone, and the operation with it.
            let _ = self.gate.step(&tasks, Step::GiveUp(self.operation));
        }
    }
}

impl<G: TaskGate> Future for ControlFuture<G> {
    type Output = Result<(), GateError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let polled = this.poll_steps(context.waker());
        if polled.is_ready() {
            this.waiter.forget_waker();
        }
        polled
    }
}

impl<G: TaskGate> Drop for ControlFuture<G> {
    fn drop(&mut self) {
        // A model that has failed must not go on.
        if !(cfg!(loom) && std::thread::panicking()) {
            self.give_up();
        }
    }
}

impl<G: TaskGate> fmt::Debug for ControlFuture<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlFuture").field("operation", &self.operation).finish_non_exhaustive()
    }
}
