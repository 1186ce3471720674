//! Request counters: the gate through which a service admits its requests, and by which it is drained.
//!
//! | made by | entering and leaving | stopping | memory |
//! |---|---|---|---|
//! | [`shared`] | an atomic addition each, on one line for all | one line | one block |
//! | [`distributed`] | plain instructions on lines of the caller's VP | two system calls, and two looks at a line for each VP that ever called | a block, and for each such VP a representative and 128 bytes |
//!
//! Both are the same to those who call them: a `Handle<dyn Gate>`, on which [`GateExt`] has what requests do. The rules are
//! those of [`squall_parts::gate`], whose parts these objects are made of.
//!
//! ```
//! use squall_objects::gate::{self, GateExt, Gate};
//!
//! let gate = gate::distributed();
//! let handle = gate.handle(); // `Copy`, for any thread or task
//! std::thread::scope(|scope| {
//!     for _ in 0..4 {
//!         scope.spawn(move || {
//!             while let Ok(_request) = handle.request() { /* serve */ }
//!         });
//!     }
//!     handle.stop().unwrap(); // nobody is inside from here ...
//!     handle.restart().unwrap(); // ... to here
//!     handle.shutdown().unwrap(); // nobody any more, for good
//! });
//! ```
//!
//! A signal handler must not call any of this. In the child of a fork a counter that the parent made is of no use: requests that
//! were inside on other threads of the parent never leave there, and waits return at once, so that [`GateExt::enter`] of one that was
//! stopped asks again and again, without end.
//!
//! There is no adaptive form: a service that is drained has one gate, and its form is known when it is made. Nor can the two be
//! swapped for each other: the requests that are inside would have to leave an object that they did not enter.

mod shared;
mod distributed;

use squall_core::{Handle, Owned, Root};
use squall_parts::gate::{Limits, RequestCounter};
use squall_machine::{ClusterSize, Vp};
use squall_macros::interface;
use std::time::Duration;

pub use squall_parts::gate::{ControlError, Refused, ShutDown, State};

use shared::Shared;
use distributed::Distributed;

/// A request counter.
///
/// Requests call [`GateExt::request`] or [`GateExt::enter`], which wait by these methods. A request may leave on another thread and
/// VP than it entered on.
///
/// Progress: entering is wait-free while it is not stopped; leaving is wait-free in the distributed form, lock-free in the shared
/// one. A request that does not leave holds up a stop and a
/// shutdown, and nothing else: the requests may make misses and new representatives meanwhile.
/// # Source
/// CO-49 to CO-52; Appavoo 2005, §4.1.3.
#[interface(crate = squall_core)]
pub trait Gate: Send + Sync {
    /// Enters, if it is neither stopped nor shut down. Who has entered must leave.
    ///
    /// # Errors
    /// [`Refused`]: the request has not entered, and must not leave.
    fn enter_now(&self) -> Result<(), Refused>;

    /// Leaves.
    ///
    /// # Panics
    /// If more requests left than entered, where that can be seen: by the shared form if nobody is inside, by the
    /// distributed one in builds with debug assertions, else in the next stop or shutdown.
    fn leave(&self);

    /// Sleeps while it is stopped. It may return early.
    #[blocking]
    fn await_turn(&self);

    /// Stops: requests that come from now on wait. Returns when those inside have left.
    ///
    /// A request that stops its own counter waits for itself; give such a stop a limit.
    ///
    /// # Errors
    /// [`ControlError`]; nothing has changed.
    #[blocking]
    fn stop(&self) -> Result<(), ControlError>;

    /// As [`stop`](Gate::stop); gives up after `limit`, and then admits requests as before.
    ///
    /// # Errors
    /// [`ControlError`]; nothing has changed.
    #[blocking]
    fn stop_for(&self, limit: Duration) -> Result<(), ControlError>;

    /// Admits requests again, those that wait among them. Any thread may, not only the one that stopped. It only wakes those that
    /// wait: if it is stopped again before they have gone on, they wait for the next restart.
    ///
    /// # Errors
    /// [`ControlError`]; nothing has changed.
    fn restart(&self) -> Result<(), ControlError>;

    /// Shuts down: requests that come from now on, and those that wait, are refused for good. Returns when those inside have
    /// left. It may be stopped or not.
    ///
    /// A swap of the object that comes while it waits interrupts it; if the swap is undone it begins again, and requests may have
    /// entered between.
    ///
    /// # Errors
    /// [`ControlError`]; nothing has changed, but that requests were refused before [`Interrupted`](ControlError::Interrupted), when
    /// the object was destroyed meanwhile.
    #[blocking]
    fn shutdown(&self) -> Result<(), ControlError>;

    /// As [`shutdown`](Gate::shutdown), but waits no longer than `limit` for those inside.
    ///
    /// # Errors
    /// [`ControlError`]. After [`TimedOut`](ControlError::TimedOut) it is shut down: [`inside`](Gate::inside) tells how
    /// many have not left, and [`drained_for`](Gate::drained_for) waits for them. After others as for
    /// [`shutdown`](Gate::shutdown).
    #[blocking]
    fn shutdown_for(&self, limit: Duration) -> Result<(), ControlError>;

    /// After a shutdown whose time was over: waits for the last request, no longer than `limit`. It may be called while another
    /// thread shuts down, and again and again.
    ///
    /// # Errors
    /// [`NotShutDown`](ControlError::NotShutDown), [`TimedOut`](ControlError::TimedOut), and
    /// [`Interrupted`](ControlError::Interrupted) when the object was destroyed meanwhile; nothing has changed.
    #[blocking]
    fn drained_for(&self, limit: Duration) -> Result<(), ControlError>;

    /// How many requests are inside: exactly, while none enters or leaves.
    fn inside(&self) -> u64;

    /// What it does with requests now. In the distributed form: what a representative that is made now does; until the control
    /// operation that changed it has returned, others may still do what they did before.
    fn state(&self) -> State;
}

/// What a request does with its counter. Comes with the reference.
pub trait GateExt {
    /// Enters; waits while it is stopped. Who has entered must [leave](Gate::leave).
    ///
    /// # Errors
    /// [`ShutDown`]: the request has not entered, and must not leave.
    /// # Panics
    /// As each call, if the object was destroyed.
    fn enter(self) -> Result<(), ShutDown>;

    /// Enters, and leaves when what this returns is dropped, on whatever thread that is. Waits while it is stopped.
    ///
    /// # Errors
    /// [`ShutDown`]: the request has not entered.
    /// # Panics
    /// As each call, if the object was destroyed.
    fn request(self) -> Result<Request, ShutDown>;

    /// As [`request`](GateExt::request), without waiting: for tasks that must not block.
    ///
    /// # Errors
    /// [`Refused`]: the request has not entered.
    /// # Panics
    /// As each call, if the object was destroyed.
    fn request_now(self) -> Result<Request, Refused>;
}

impl GateExt for Handle<dyn Gate> {
    #[inline]
    fn enter(self) -> Result<(), ShutDown> {
        loop {
            match self.enter_now() {
                Ok(()) => return Ok(()),
                Err(Refused::Stopped) => self.await_turn(),
                Err(Refused::ShutDown) => return Err(ShutDown),
            }
        }
    }

    #[inline]
    fn request(self) -> Result<Request, ShutDown> {
        self.enter().map(|()| Request { counter: self })
    }

    #[inline]
    fn request_now(self) -> Result<Request, Refused> {
        self.enter_now().map(|()| Request { counter: self })
    }
}

/// A request that has entered; its drop leaves. It may be dropped on another thread, so that it can live across an `.await`,
/// and after the object was destroyed.
#[must_use = "the request leaves when this is dropped"]
#[derive(Debug)]
pub struct Request {
    counter: Handle<dyn Gate>,
}

impl Drop for Request {
    #[inline]
    fn drop(&mut self) {
        // Of an object that has ended there is nothing to leave.
        let _ended = self.counter.try_leave();
    }
}

/// Makes a request counter with one representative, for everybody.
///
/// # Panics
/// As [`squall_core::try_shared`] errs.
#[track_caller]
pub fn shared() -> Owned<dyn Gate> {
    Shared::new(RequestCounter::new()).create(ClusterSize::Machine)
}

/// Makes a request counter with a representative for each VP on which requests enter or leave.
///
/// # Panics
/// As [`squall_core::try_shared`] errs.
#[track_caller]
pub fn distributed() -> Owned<dyn Gate> {
    Distributed::new(Vp::current()).create(ClusterSize::Cpu)
}

/// The limits of a control operation: the clock's, and that the object ends or a swap waits for the call.
fn until<'a>(limit: Option<Duration>, shall_leave: &'a dyn Fn() -> bool) -> Limits<'a> {
    limit.map_or(Limits::NONE, Limits::after).or(shall_leave)
}
