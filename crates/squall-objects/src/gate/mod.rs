//! Gates: a service admits its requests through a gate, and is stopped or drained by it.
//! Feature: `gates`.
//!
//! | form | entering and leaving | stopping | memory |
//! |---|---|---|---|
//! | [`shared`] | an atomic addition on one cache line | one line | one block |
//! | [`distributed`] | plain instructions on the VP's lines | two system calls | a rep and 128 bytes per VP |
//!
//! A VP is a processor, as Squall numbers it. Stopping a distributed gate also reads a cache line twice for
//! each VP that has called.
//!
//! Both forms have one interface, [`Gate`], and are called through a `Handle<dyn Gate>`. [`GateExt`] has the
//! methods that requests use. [`squall::parts::gate`](squall_parts::gate) states the rules, and has the gates
//! without an object.
//!
//! ```
//! use squall::objects::gate::{self, Gate, GateExt};
//!
//! let gate = gate::distributed();
//! let handle = gate.handle(); // `Copy`, for any thread or task
//! std::thread::scope(|scope| {
//!     for _ in 0..4 {
//!         scope.spawn(move || {
//!             while let Ok(_request) = handle.request() { /* serve */ }
//!         });
//!     }
//!     handle.stop().unwrap(); // the service is empty from here ...
//!     handle.restart().unwrap(); // ... to here
//!     handle.shutdown().unwrap(); // requests are rejected for good
//! });
//! ```
//!
//! # Tasks
//! [`request`](GateExt::request), [`stop`](Gate::stop), [`shutdown`](Gate::shutdown) and the other methods
//! that wait block their thread and all tasks there, perhaps the very requests that they wait for. Tasks use
//! the `_async` methods of [`GateExt`], whose futures need no particular runtime. Each future may be dropped
//! at any time, so a timer of the runtime limits it. A [`Request`] may live across an `.await`.
//!
//! # Limits
//! - Signal handlers must not use a gate.
//! - In the child of a fork, calls fail: see
//!   [forked children](squall_core#forked-children). A [`Request`] dropped there is not
//!   counted out.
//! - There is no adaptive form, since a service has one gate and knows its form beforehand. The two forms
//!   cannot be swapped for each other, since each request must leave the object that it entered.

mod distributed;
mod shared;

use squall_core::{CallErrorKind, Handle, Owned, Root};
use squall_machine::{ClusterSize, Vp};
use squall_macros::interface;
use squall_parts::gate::{
    ControlFuture, Limits, Operation, RequestFuture, SharedGate, Step, TaskGate, Tasks,
};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

pub use squall_parts::gate::{GateError, GateState, Rejected, ShutDown};

use distributed::Distributed;
use shared::Shared;

/// A gate: it counts the requests inside a service, stops and restarts their admission, and drains the
/// service.
///
/// Requests use [`GateExt::request`] or [`GateExt::enter`], which wait by means of these methods. A request
/// may leave on another thread or VP than it entered on.
///
/// In builds with debug assertions [`stop`](Gate::stop), [`shutdown`](Gate::shutdown) and the other methods
/// that may wait panic inside an operation. They have not changed the gate then. A wait would delay all
/// reclamation.
///
/// # Panics
/// Each method, if the object was destroyed before the call: [`GateError`] carries no `CallError`.
/// The `try_` forms return it.
///
/// Progress: entering is wait-free unless the gate is stopped. Leaving is wait-free in the distributed form
/// and lock-free in the shared form. A request that stays inside delays a stop or a shutdown. While the
/// control waits, requests may cause misses and new representatives.
///
/// ```
/// use squall::objects::gate::{self, Gate, Rejected, GateState};
///
/// let gate = gate::shared();
/// gate.enter_now().unwrap();
/// assert_eq!((gate.inside(), gate.state()), (1, GateState::Normal));
/// gate.leave();
/// gate.stop().unwrap();
/// assert_eq!(gate.enter_now(), Err(Rejected::Stopped));
/// ```
///
/// # Source
/// Appavoo 2005, §4.1.3 (CO-49 to CO-52 in `docs/mechanisms.md`).
#[interface(crate = squall_core)]
pub trait Gate: Send + Sync {
    /// Enters if the gate is neither stopped nor shut down. A request that has entered must leave.
    ///
    /// # Errors
    /// [`Rejected`]: the request has not entered, and must not leave.
    fn enter_now(&self) -> Result<(), Rejected>;

    /// Counts a request out of the service.
    ///
    /// # Panics
    /// If more requests left than entered and the gate detects it. The shared form detects it when no request
    /// is inside. The distributed form detects it at once in builds with debug assertions, else in the next
    /// stop or shutdown.
    fn leave(&self);

    /// Blocks the thread while the gate is stopped. May return early.
    #[blocking]
    fn await_turn(&self);

    /// Stops the gate: later requests wait. Returns when all requests inside have left. Blocks the thread; a
    /// task uses [`GateExt::stop_async`].
    ///
    /// A request that stops its own gate waits for itself. In a request, use [`stop_for`](Gate::stop_for).
    ///
    /// # Errors
    /// [`GateError`]: the gate is unchanged.
    #[blocking]
    fn stop(&self) -> Result<(), GateError>;

    /// Like [`stop`](Gate::stop), but gives up after `limit` and admits requests again.
    ///
    /// # Errors
    /// [`GateError`]: the gate is unchanged.
    #[blocking]
    fn stop_for(&self, limit: Duration) -> Result<(), GateError>;

    /// Admits requests again, including the waiting ones. Any thread may call this, not only the one that
    /// stopped the gate.
    ///
    /// A waiter that is woken but has not yet entered when the gate is stopped again waits for the next
    /// restart.
    ///
    /// # Errors
    /// [`GateError`]: the gate is unchanged.
    fn restart(&self) -> Result<(), GateError>;

    /// Shuts the gate down: later requests and waiting requests are rejected for good. Returns when all
    /// requests inside have left. The gate may be stopped or not. Blocks the thread; a task uses
    /// [`GateExt::shutdown_async`].
    ///
    /// A swap of the object interrupts a shutdown that waits. If the swap is undone, the shutdown starts
    /// again. Requests may have entered in between.
    ///
    /// # Errors
    /// [`GateError`]: the gate is unchanged. The exception is [`Interrupted`](GateError::Interrupted),
    /// if the object was destroyed meanwhile: requests were rejected before.
    #[blocking]
    fn shutdown(&self) -> Result<(), GateError>;

    /// Like [`shutdown`](Gate::shutdown), but waits at most `limit` for the requests inside. A task puts the
    /// runtime's timer around [`GateExt::shutdown_async`].
    ///
    /// # Errors
    /// [`GateError`]. After [`TimedOut`](GateError::TimedOut) the gate is shut down:
    /// [`inside`](Gate::inside) returns the number of requests left, and [`drained_for`](Gate::drained_for)
    /// waits for them. After other errors see [`shutdown`](Gate::shutdown).
    #[blocking]
    fn shutdown_for(&self, limit: Duration) -> Result<(), GateError>;

    /// Waits at most `limit` for the last request, after a shutdown that timed out. May be called repeatedly,
    /// and while another thread shuts the gate down. Blocks the thread; a task uses
    /// [`GateExt::drained_async`].
    ///
    /// # Errors
    /// [`NotShutDown`](GateError::NotShutDown), [`TimedOut`](GateError::TimedOut), or
    /// [`Interrupted`](GateError::Interrupted) if the object was destroyed meanwhile. The gate is
    /// unchanged.
    #[blocking]
    fn drained_for(&self, limit: Duration) -> Result<(), GateError>;

    /// Returns the number of requests inside. Exact while no request enters or leaves.
    fn inside(&self) -> u64;

    /// Returns the state of the gate.
    ///
    /// The distributed form returns the state for a representative that is created now. Until a control
    /// operation returns, other representatives may still be in the previous state.
    fn state(&self) -> GateState;

    /// Asks an arbiter whether a future of [`GateExt`] may begin this operation. Changes nothing, so an
    /// arbiter that panics or refuses leaves no operation without its future.
    #[doc(hidden)]
    fn begin(&self, operation: Operation) {
        let _ = operation;
    }

    /// Returns the list of the tasks that wait here, for the futures of [`GateExt`].
    #[doc(hidden)]
    fn tasks_unarbitrated(&self) -> Arc<Tasks>;

    /// Makes a step of a future's operation, if `tasks` wait here. No arbiter can refuse it: an operation
    /// that has begun must end.
    ///
    /// # Errors
    /// [`GateError`]. [`Interrupted`](GateError::Interrupted) if `tasks` wait at another object, which
    /// a swap has replaced.
    #[doc(hidden)]
    fn step_unarbitrated(&self, tasks: Arc<Tasks>, step: Step) -> Result<bool, GateError>;
}

/// Methods for requests and for tasks, on a handle or an owner of a gate.
///
/// Each method panics if the object was destroyed. In builds with debug assertions a method that must block
/// panics inside an operation, since the wait would delay all reclamation.
///
/// The futures of the `_async` methods block no thread and need no particular runtime. They do nothing before
/// their first poll. Wakers run inside an operation, so they must only schedule their task.
///
/// ```
/// use squall::objects::gate::{self, Gate, GateExt, Rejected};
///
/// let gate = gate::shared();
/// let request = gate.request().unwrap();
/// assert_eq!(gate.inside(), 1);
/// drop(request);
/// gate.shutdown().unwrap();
/// assert!(gate.enter().is_err());
/// assert_eq!(gate.request_now().unwrap_err(), Rejected::ShutDown);
/// ```
pub trait GateExt {
    /// Enters; blocks the thread while the gate is stopped. A request that has entered must
    /// [leave](Gate::leave).
    ///
    /// # Errors
    /// [`ShutDown`]: the request has not entered, and must not leave.
    /// # Panics
    /// If the object was destroyed.
    fn enter(self) -> Result<(), ShutDown>;

    /// Enters, and leaves when the returned [`Request`] is dropped, on any thread. Blocks the thread while
    /// the gate is stopped.
    ///
    /// # Errors
    /// [`ShutDown`]: the request has not entered.
    /// # Panics
    /// If the object was destroyed.
    fn request(self) -> Result<Request, ShutDown>;

    /// Like [`request`](GateExt::request), but never waits: for tasks that must not block.
    ///
    /// # Errors
    /// [`Rejected`]: the request has not entered.
    /// # Panics
    /// If the object was destroyed.
    fn request_now(self) -> Result<Request, Rejected>;

    /// Enters like [`request`](GateExt::request), for a task. The future waits while the gate is stopped.
    ///
    /// Dropping the future has no effect: the request has not entered.
    ///
    /// # Errors
    /// [`ShutDown`]: the request has not entered.
    /// # Panics
    /// A poll, if the object was destroyed.
    ///
    /// ```
    /// use squall::Handle;
    /// use squall::objects::gate::{self, Gate, GateExt, ShutDown};
    ///
    /// async fn serve(gate: Handle<dyn Gate>) -> Result<u32, ShutDown> {
    ///     let _request = gate.request_async().await?; // leaves when it is dropped
    ///     Ok(42)
    /// }
    /// ```
    fn request_async(self) -> impl Future<Output = Result<Request, ShutDown>> + Send;

    /// Stops the gate like [`stop`](Gate::stop), for a task. The future waits for the requests inside.
    ///
    /// The first poll stops the gate. If the future is dropped before it is ready, the gate admits requests
    /// again, as after a [`stop_for`](Gate::stop_for) that timed out. An arbiter sees the first poll as the
    /// method `begin`. It cannot refuse the end of an operation that has begun.
    ///
    /// # Errors
    /// [`Interrupted`](GateError::Interrupted) if the object was destroyed or swapped meanwhile. After any
    /// other [`GateError`] the gate is unchanged.
    /// # Panics
    /// The first poll, if the object was destroyed.
    fn stop_async(self) -> impl Future<Output = Result<(), GateError>> + Send;

    /// Shuts the gate down like [`shutdown`](Gate::shutdown), for a task. The future waits for the requests
    /// inside.
    ///
    /// The first poll shuts the gate down. If the future is dropped before it is ready, the gate stays shut
    /// down, as after a [`shutdown_for`](Gate::shutdown_for) that timed out.
    /// [`drained_async`](GateExt::drained_async) then waits for the last request.
    ///
    /// # Errors
    /// [`Interrupted`](GateError::Interrupted) if the object was destroyed or swapped meanwhile. After any
    /// other [`GateError`] the gate is unchanged.
    /// # Panics
    /// The first poll, if the object was destroyed.
    ///
    /// ```
    /// use squall::Handle;
    /// use squall::objects::gate::{Gate, GateExt};
    ///
    /// async fn end(gate: Handle<dyn Gate>) {
    ///     // With tokio: tokio::time::timeout(limit, gate.shutdown_async()).await
    ///     match gate.shutdown_async().await {
    ///         Ok(()) => println!("all requests have ended"),
    ///         Err(error) => println!("{error}"),
    ///     }
    /// }
    /// ```
    fn shutdown_async(self) -> impl Future<Output = Result<(), GateError>> + Send;

    /// Waits for the last request of a shutdown like [`drained_for`](Gate::drained_for), for a task and
    /// without a limit. Dropping the future has no effect.
    ///
    /// # Errors
    /// [`NotShutDown`](GateError::NotShutDown), or [`Interrupted`](GateError::Interrupted) if the
    /// object was destroyed or swapped meanwhile. The gate is unchanged.
    /// # Panics
    /// The first poll, if the object was destroyed.
    fn drained_async(self) -> impl Future<Output = Result<(), GateError>> + Send;
}

impl GateExt for Handle<dyn Gate> {
    #[inline]
    fn enter(self) -> Result<(), ShutDown> {
        loop {
            match self.enter_now() {
                Ok(()) => return Ok(()),
                Err(Rejected::Stopped) => self.await_turn(),
                Err(Rejected::ShutDown) => return Err(ShutDown),
            }
        }
    }

    #[inline]
    fn request(self) -> Result<Request, ShutDown> {
        self.enter().map(|()| Request { counter: self })
    }

    #[inline]
    fn request_now(self) -> Result<Request, Rejected> {
        self.enter_now().map(|()| Request { counter: self })
    }

    fn request_async(self) -> impl Future<Output = Result<Request, ShutDown>> + Send {
        RequestFuture::new(Object(self))
    }

    fn stop_async(self) -> impl Future<Output = Result<(), GateError>> + Send {
        ControlFuture::new(Object(self), Operation::Stop)
    }

    fn shutdown_async(self) -> impl Future<Output = Result<(), GateError>> + Send {
        ControlFuture::new(Object(self), Operation::Shutdown)
    }

    fn drained_async(self) -> impl Future<Output = Result<(), GateError>> + Send {
        ControlFuture::new(Object(self), Operation::Drain)
    }
}

/// A gate for futures.
struct Object(Handle<dyn Gate>);

impl TaskGate for Object {
    type Request = Request;

    fn try_request(&self) -> Result<Request, Rejected> {
        self.0.request_now()
    }

    fn tasks(&self) -> Arc<Tasks> {
        self.0.tasks_unarbitrated()
    }

    fn step(&self, tasks: &Arc<Tasks>, step: Step) -> Result<bool, GateError> {
        let Object(gate) = *self;
        let made = match step {
            // The operation begins after the permission, where no arbiter can end the call.
            Step::Begin(operation) => {
                gate.try_begin(operation).and_then(|()| gate.try_step_unarbitrated(tasks.clone(), step))
            }
            _ => gate.try_step_unarbitrated(tasks.clone(), step),
        };
        made.unwrap_or_else(|error| match error.reason() {
            CallErrorKind::Refused(_) => Err(GateError::Refused),
            CallErrorKind::Forked => Err(GateError::Forked),
            CallErrorKind::InTransfer => {
                // The gate may serve on after the swap for which the call would have waited.
                if let Step::GiveUp(_) = step {
                    let tasks = tasks.clone();
                    squall_rcu::defer(move || _ = gate.try_step_unarbitrated(tasks, step));
                }
                Err(GateError::Interrupted)
            }
            _ => Err(GateError::Interrupted),
        })
    }
}

/// Returns an error if a future's `tasks` wait at another gate than the one with these tasks.
fn check_place(here: &Arc<Tasks>, tasks: &Arc<Tasks>) -> Result<(), GateError> {
    if Arc::ptr_eq(here, tasks) { Ok(()) } else { Err(GateError::Interrupted) }
}

/// A request inside the gate. Dropping it leaves.
///
/// It may be dropped on another thread, so it can live across an `.await`. It may also outlive the object.
///
/// ```
/// use squall::objects::gate::{self, Gate, GateExt};
///
/// let gate = gate::distributed();
/// let request = gate.request().unwrap();
/// std::thread::spawn(move || drop(request)).join().unwrap();
/// assert_eq!(gate.inside(), 0);
/// ```
#[must_use = "the request leaves when this is dropped"]
#[derive(Debug)]
pub struct Request {
    counter: Handle<dyn Gate>,
}

impl Drop for Request {
    #[inline]
    fn drop(&mut self) {
        // An error means that the object was destroyed, so there is no count to decrement.
        let _ended = self.counter.try_leave();
    }
}

/// Creates a gate with one representative.
///
/// ```
/// use squall::objects::gate::{self, Gate};
///
/// assert_eq!(gate::shared().inside(), 0);
/// ```
///
/// # Panics
/// If the object cannot be created: see [`CreateError`](squall_core::CreateError).
#[track_caller]
pub fn shared() -> Owned<dyn Gate> {
    Shared::new(SharedGate::new()).create(ClusterSize::Machine)
}

/// Creates a gate with a representative for each VP on which requests enter or leave.
///
/// ```
/// use squall::objects::gate::{self, Gate, GateExt};
///
/// let gate = gate::distributed();
/// let _request = gate.request_now().unwrap();
/// assert_eq!(gate.inside(), 1);
/// ```
///
/// # Panics
/// If the object cannot be created: see [`CreateError`](squall_core::CreateError).
#[track_caller]
pub fn distributed() -> Owned<dyn Gate> {
    Distributed::new(Vp::current()).create(ClusterSize::Cpu)
}

/// Limits of a control operation: a time limit, the end of the object, and a swap that waits for the call.
fn until<'a>(limit: Option<Duration>, shall_leave: &'a dyn Fn() -> bool) -> Limits<'a> {
    limit.map_or(Limits::NONE, Limits::after).or(shall_leave)
}
