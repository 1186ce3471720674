//! Gates: each admits the requests of a service, counts them, and drains it.
//!
//! - I1. When a stop or a shutdown has returned without an error, no request is inside until the restart.
//! - I2. A waiting request is woken by the restart or the shutdown, and a waiting control by the last
//!   request. Both may be threads or tasks.
#![doc = include_str!("README.md")]

#[cfg(all(test, any(loom, squall_model)))]
mod model;
mod phase;
mod records;
mod shared;
mod sites;
mod spread;
mod tasks;

pub use shared::{Request, SharedGate};
pub use spread::{Control, Gate, LocalRequests, SpreadRequests, Tally};
// For the gates of squall-objects.
#[doc(hidden)]
pub use tasks::{ControlFuture, Operation, RequestFuture, Step, TaskGate, Tasks};

use squall_machine::park::{is_past, time_left};
use std::fmt;
use std::time::{Duration, Instant};
use tasks::TaskPlace;

/// The error of a request that did not enter, because the gate was shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShutDown;

impl fmt::Display for ShutDown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the gate was shut down, so the request was rejected; a shutdown is final")
    }
}

impl std::error::Error for ShutDown {}

/// The reason why a request did not enter. A rejected request must not leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// The gate is stopped. A restart will admit requests again.
    Stopped,
    /// The gate was shut down.
    ShutDown,
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rejected::Stopped => {
                f.write_str("the gate is stopped, so the request was rejected; try again after the restart")
            }
            Rejected::ShutDown => ShutDown.fmt(f),
        }
    }
}

impl std::error::Error for Rejected {}

/// The reason why a control operation was rejected or gave up.
///
/// # Example
/// ```
/// use squall::parts::gate::{GateError, SharedGate};
///
/// let gate = SharedGate::new();
/// assert_eq!(gate.restart(), Err(GateError::NotStopped));
/// gate.stop().unwrap();
/// assert_eq!(gate.stop(), Err(GateError::Stopped));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GateError {
    /// A stop failed: the gate is stopped already, or another stop is at work.
    Stopped,
    /// A restart failed: the gate is not stopped.
    NotStopped,
    /// The gate was shut down, or another thread is shutting it down.
    ShutDown,
    /// Another control operation is at work.
    Busy,
    /// A wait for the end of a shutdown failed: there is no shutdown.
    NotShutDown,
    /// The limit passed before the last request left. After a stop the gate is as before. A shutdown stays
    /// in force, and its requests continue to leave.
    TimedOut,
    /// The caller's interrupt came first. The gate is as before, also after a shutdown. But requests that
    /// arrived during the shutdown were rejected.
    Interrupted,
    /// The process is the child of a fork, where the threads to wait for do not exist.
    Forked,
    /// An arbiter of the gate's object refused the operation. The gate is unchanged.
    Refused,
}

impl fmt::Display for GateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GateError::Stopped => "the gate is stopped already; restart it before the next stop",
            GateError::NotStopped => "the gate is not stopped, so it cannot be restarted; stop it first",
            GateError::ShutDown => "the gate was shut down; a shutdown is final",
            GateError::NotShutDown => "the gate was not shut down, so its end cannot be awaited; shut it down first",
            GateError::Busy => "another control operation of the gate is at work; try again later",
            GateError::TimedOut => "the limit passed before the last request left the gate; allow more time",
            GateError::Interrupted => "the wait for the last request of the gate was interrupted; try again",
            GateError::Refused => "an arbiter refused the operation of the gate; detach it, or try again later",
            GateError::Forked => {
                "the gate cannot wait in the child of a fork, where other threads do not exist; such a child may only exec"
            }
        })
    }
}

impl std::error::Error for GateError {}

/// The way a gate treats arriving requests.
///
/// # Example
/// ```
/// use squall::parts::gate::{SharedGate, GateState};
///
/// let gate = SharedGate::new();
/// gate.stop().unwrap();
/// assert_eq!(gate.state(), GateState::Stopped);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateState {
    /// The gate admits arriving requests.
    Normal,
    /// Arriving requests wait.
    Stopped,
    /// Arriving requests are rejected.
    ShutDown,
}

impl GateState {
    fn of(bits: u32) -> GateState {
        match bits & phase::STATE {
            phase::NORMAL => GateState::Normal,
            phase::STOP => GateState::Stopped,
            _ => GateState::ShutDown,
        }
    }
}

/// The limits of a wait: a deadline and an interrupt.
///
/// # Example
/// ```
/// use squall::parts::gate::{GateError, Limits, SharedGate};
/// use std::time::Duration;
///
/// let gate = SharedGate::new();
/// let request = gate.request().unwrap();
/// let limits = Limits::after(Duration::from_secs(60)).or(&|| true);
/// assert_eq!(gate.stop_within(limits), Err(GateError::Interrupted));
/// drop(request);
/// assert_eq!(gate.stop_within(limits), Ok(()));
/// ```
#[derive(Clone, Copy)]
pub struct Limits<'a> {
    deadline: Option<Instant>,
    interrupt: &'a dyn Fn() -> bool,
}

impl fmt::Debug for Limits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limits").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

impl Limits<'static> {
    /// A wait without limits.
    pub const NONE: Limits<'static> = Limits { deadline: None, interrupt: &|| false };

    /// Limits a wait to this time from now. A time beyond the end of the clock is no limit.
    pub fn after(limit: Duration) -> Limits<'static> {
        Limits { deadline: Instant::now().checked_add(limit), ..Limits::NONE }
    }
}

impl<'a> Limits<'a> {
    /// Adds an interrupt. The waiting thread calls it before each sleep. The thread that makes it true must
    /// call `wake` of the gate. If the interrupt panics, the gate has its previous state, as after
    /// [`Interrupted`](GateError::Interrupted).
    pub fn or(self, interrupt: &'a dyn Fn() -> bool) -> Limits<'a> {
        Limits { deadline: self.deadline, interrupt }
    }

    /// Returns the reason why the wait must end, if there is one.
    fn over(&self) -> Option<GateError> {
        if (self.interrupt)() {
            return Some(GateError::Interrupted);
        }
        is_past(self.deadline).then_some(GateError::TimedOut)
    }

    fn left(&self) -> Option<Duration> {
        time_left(self.deadline)
    }
}

/// Lets a request sleep at `turn` until `is_over` holds or the limits end the wait.
///
/// # Panics
/// In the child of a fork. In builds with debug assertions, inside an operation.
fn await_turn<S: squall_lock::Steps>(
    turn: &squall_machine::park::EventCount,
    is_over: impl FnMut() -> bool,
    limits: Limits<'_>,
) {
    refuse_in_operation();
    if wait::<S>(turn, is_over, limits) == Err(GateError::Forked) {
        refuse_forked();
    }
}

/// Panics in the child of a fork, for a request that must wait.
fn refuse_forked() {
    assert!(
        !squall_sys::fork::forked(),
        "squall-parts: the gate is stopped, and the process is the child of a fork, where no other thread restarts it; \
         such a child may only exec"
    );
}

/// Panics if the thread is inside an operation: a wait would delay all reclamation. Each control operation
/// that may wait calls this before it changes the gate.
#[inline]
fn refuse_in_operation() {
    #[cfg(all(debug_assertions, not(loom)))]
    if squall_rcu::in_operation() {
        let object = squall_rcu::__object_of_operation().map(|object| format!(", a call of {object}"));
        panic!(
            "a gate was waited for inside an operation{}: the wait would delay all reclamation; wait after the \
             operation, or use the methods that do not wait",
            object.unwrap_or_default()
        );
    }
}

/// Takes a control operation back, unless it is forgotten: after an error, or a panic of the interrupt.
struct TakeBack<F: Fn()>(F);

impl<F: Fn()> Drop for TakeBack<F> {
    fn drop(&mut self) {
        // A model that has failed must not go on.
        if !(cfg!(loom) && std::thread::panicking()) {
            (self.0)();
        }
    }
}

/// Waits at `events` until `is_so` holds.
fn wait<S: squall_lock::Steps>(
    events: &squall_machine::park::EventCount,
    mut is_so: impl FnMut() -> bool,
    limits: Limits<'_>,
) -> Result<(), GateError> {
    loop {
        let seen = events.prepare();
        if is_so() {
            return Ok(());
        }
        if let Some(why) = limits.over() {
            return Err(why);
        }
        if squall_sys::fork::forked() {
            return Err(GateError::Forked);
        }
        S::step();
        events.wait(seen, limits.left());
    }
}
