//! The gate in one word.
//!
//! ```text
//! word  = requests inside << COUNT_AT | BUSY | state       (phase.rs)
//! enter: if the state is NORMAL, add one; if the state was not NORMAL, subtract it again.
//!        Not NORMAL: wait or give up
//! leave: subtract one, unless the count is zero. If the state is not NORMAL, the last one wakes the control
//! stop:  state = STOP, BUSY; wait until the count is 0; clear BUSY
//! ```
//!
//! - I1. From the return of a stop until the restart, no request is inside. If the addition of an entering
//!   request comes after the stop, it returns the state set by the stop, and the request does not enter. If
//!   it comes before, the stop waits for its count.
//! - I2. No thread sleeps forever. If the request that takes the count to 0 leaves after the stop, it sees a
//!   state other than NORMAL, and signals. If it leaves before, the stop sees the count. Both facts are in
//!   the same word.
//! - I3. An addition that is subtracted again counts for a moment. A stop may wait a moment longer because of
//!   it, never less. Each thread makes at most one such addition per stop, because from then on it sees the
//!   state before it adds.
//! - I4. The count never goes below 0: a leave reads the word it subtracts from. So one leave too many
//!   changes no state visible to another thread.
//!
//! Progress: entering is wait-free unless the gate is stopped. Leaving is lock-free: its exchange fails
//! only where another one succeeded. A request that does not leave delays the control.

use super::phase::{self, BUSY, NORMAL, SHUTDOWN, STATE, STOP};
use super::records::{By, Closed, closed, drained, opened};
use super::{
    ControlFuture, GateError, GateState, Limits, Operation, Rejected, RequestFuture, ShutDown, Step,
    TakeBack, TaskGate, TaskPlace, Tasks, await_turn, refuse_in_operation, sites, wait,
};
use squall_lock::{NoSteps, Steps};
use squall_machine::park::EventCount;
use squall_sys::sync::Arc;
use squall_sys::sync::atomic::{AtomicU64, Ordering};
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::mem;
use std::time::Duration;

const COUNT_AT: u32 = 3;
const ONE: u64 = 1 << COUNT_AT;
const _: () = assert!(ONE > (STATE | BUSY) as u64);

/// A gate in one word. The [module](super) describes its behaviour and its rules.
///
/// # Cost
/// Entering: a load and an atomic addition. Leaving: a load and a compare-exchange. All requests share one
/// line; [`SpreadRequests`](super::SpreadRequests) avoids that.
///
/// # Example
/// ```
/// use squall::parts::gate::{SharedGate, ShutDown};
///
/// static GATE: SharedGate = SharedGate::new();
/// fn serve() -> Result<u32, ShutDown> {
///     let _request = GATE.request()?;
///     Ok(42)
/// }
/// assert_eq!(serve(), Ok(42));
/// GATE.stop().unwrap(); // no request is inside from here ...
/// GATE.restart().unwrap(); // ... to here
/// GATE.shutdown().unwrap();
/// assert_eq!(serve(), Err(ShutDown));
/// ```
pub struct SharedGate<S: Steps = NoSteps> {
    word: AtomicU64,
    /// The control waits here.
    drained: EventCount,
    /// Requests wait here.
    turn: EventCount,
    tasks: TaskPlace,
    steps: PhantomData<fn() -> S>,
}

impl SharedGate {
    /// Makes a gate that admits requests.
    #[cfg(not(loom))]
    pub const fn new() -> SharedGate {
        SharedGate::with_steps()
    }

    /// Makes a gate that admits requests.
    #[cfg(loom)]
    #[expect(clippy::new_without_default, reason = "only models are built so")]
    pub fn new() -> SharedGate {
        SharedGate::with_steps()
    }
}

#[cfg(not(loom))]
impl Default for SharedGate {
    fn default() -> SharedGate {
        SharedGate::new()
    }
}

fn state_of(word: u64) -> u32 {
    (word & u64::from(STATE)) as u32
}

fn refused_by(word: u64) -> Rejected {
    if state_of(word) == STOP { Rejected::Stopped } else { Rejected::ShutDown }
}

impl<S: Steps> SharedGate<S> {
    /// Like [`SharedGate::new`], with the steps `S` of a stress test.
    #[doc(hidden)]
    #[cfg(not(loom))]
    pub const fn with_steps() -> SharedGate<S> {
        SharedGate {
            word: AtomicU64::new(NORMAL as u64),
            drained: EventCount::new(),
            turn: EventCount::new(),
            tasks: TaskPlace::new(),
            steps: PhantomData,
        }
    }

    /// Like [`SharedGate::new`], with the steps `S` of a stress test.
    #[doc(hidden)]
    #[cfg(loom)]
    pub fn with_steps() -> SharedGate<S> {
        SharedGate {
            word: AtomicU64::new(NORMAL as u64),
            drained: EventCount::new(),
            turn: EventCount::new(),
            tasks: TaskPlace::new(),
            steps: PhantomData,
        }
    }

    // --- requests ---

    /// Enters; blocks the thread while the gate is stopped. A request that entered must
    /// [`leave`](SharedGate::leave). [`request`](SharedGate::request) returns a guard that does so.
    ///
    /// # Errors
    /// [`ShutDown`]: the request did not enter.
    ///
    /// # Panics
    /// In builds with debug assertions, if it must wait inside an operation.
    ///
    /// # Example
    /// ```
    /// let gate = squall::parts::gate::SharedGate::new();
    /// gate.enter().unwrap();
    /// assert_eq!(gate.inside(), 1);
    /// gate.leave();
    /// ```
    #[inline]
    pub fn enter(&self) -> Result<(), ShutDown> {
        loop {
            match self.try_enter() {
                Ok(()) => return Ok(()),
                Err(Rejected::ShutDown) => return Err(ShutDown),
                Err(Rejected::Stopped) => self.await_turn(Limits::NONE),
            }
        }
    }

    /// Enters, if the gate is neither stopped nor shut down.
    ///
    /// # Errors
    /// [`Rejected`]: the request did not enter.
    ///
    /// # Example
    /// ```
    /// use squall::parts::gate::{Rejected, SharedGate};
    ///
    /// let gate = SharedGate::new();
    /// gate.stop().unwrap();
    /// assert_eq!(gate.try_enter(), Err(Rejected::Stopped));
    /// ```
    #[inline]
    pub fn try_enter(&self) -> Result<(), Rejected> {
        // Relaxed: the addition below decides. A request rejected here has not touched the count (I3).
        let seen = self.word.load(Ordering::Relaxed);
        if state_of(seen) != NORMAL {
            return Err(refused_by(seen));
        }
        // Acquire: pairs with the Release of a restart, so that a request sees the changes made during the
        // stop.
        let before = self.word.fetch_add(ONE, sites::ENTER_ACQUIRE.order(Ordering::Acquire));
        if state_of(before) == NORMAL {
            return Ok(());
        }
        Err(self.refuse(before))
    }

    #[cold]
    fn refuse(&self, before: u64) -> Rejected {
        S::step();
        // The count is missing only if a request left that had not entered. Then this request is not inside
        // either.
        let _taken_back = self.count_out();
        refused_by(before)
    }

    /// Sleeps while the gate is stopped, or until the limits end the wait.
    #[doc(hidden)]
    #[cold]
    pub fn await_turn(&self, limits: Limits<'_>) {
        // Relaxed: the thread then enters with its own ordering.
        let is_over = || state_of(self.word.load(Ordering::Relaxed)) != STOP;
        await_turn::<S>(&self.turn, is_over, limits);
    }

    /// Counts a request out.
    ///
    /// # Panics
    /// If no request is inside: this one had not entered, or left twice. The gate is unchanged. While
    /// other requests are inside, such an error is not detected.
    #[inline]
    pub fn leave(&self) {
        if !self.count_out() {
            nobody_is_inside();
        }
    }

    /// Subtracts one from the count, if it is not zero (I4).
    #[inline(always)]
    fn count_out(&self) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word >> COUNT_AT == 0 {
                return false;
            }
            // Release: pairs with the Acquire in `drain`, so that the control sees the writes of the request.
            let release = sites::LEAVE_RELEASE.order(Ordering::Release);
            match self.word.compare_exchange_weak(word, word - ONE, release, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        if state_of(word) != NORMAL && word >> COUNT_AT == 1 {
            self.last_left();
        }
        true
    }

    #[cold]
    fn last_left(&self) {
        S::step();
        self.signal_drained();
    }

    /// Enters, and returns a guard that leaves when it is dropped, on any thread. Blocks the thread while the
    /// gate is stopped; a task uses [`request_async`](SharedGate::request_async).
    ///
    /// # Errors
    /// [`ShutDown`]: the request did not enter.
    ///
    /// # Panics
    /// In builds with debug assertions, if it must wait inside an operation.
    ///
    /// # Example
    /// ```
    /// let gate = squall::parts::gate::SharedGate::new();
    /// let request = gate.request().unwrap();
    /// assert_eq!(gate.inside(), 1);
    /// drop(request);
    /// assert_eq!(gate.inside(), 0);
    /// ```
    #[inline]
    pub fn request(&self) -> Result<Request<'_, S>, ShutDown> {
        self.enter().map(|()| Request { gate: self })
    }

    /// Like [`request`](SharedGate::request), but never waits.
    ///
    /// # Errors
    /// [`Rejected`]: the request did not enter.
    ///
    /// # Example
    /// ```
    /// let gate = squall::parts::gate::SharedGate::new();
    /// assert!(gate.try_request().is_ok());
    /// gate.shutdown().unwrap();
    /// assert!(gate.try_request().is_err());
    /// ```
    #[inline]
    pub fn try_request(&self) -> Result<Request<'_, S>, Rejected> {
        self.try_enter().map(|()| Request { gate: self })
    }

    // --- the control ---

    /// Stops the gate: requests that arrive from now on wait. Returns when the requests inside have left.
    ///
    /// Blocks the thread; a task uses [`stop_async`](SharedGate::stop_async). A request that stops its own
    /// gate waits for itself. Such a stop needs a limit.
    ///
    /// # Errors
    /// [`GateError`]; the gate is unchanged.
    ///
    /// # Panics
    /// In builds with debug assertions, inside an operation. The gate is unchanged.
    ///
    /// # Example
    /// ```
    /// use squall::parts::gate::{SharedGate, GateState};
    ///
    /// let gate = SharedGate::new();
    /// gate.stop().unwrap();
    /// assert_eq!((gate.state(), gate.inside()), (GateState::Stopped, 0));
    /// gate.restart().unwrap();
    /// ```
    pub fn stop(&self) -> Result<(), GateError> {
        self.stop_within(Limits::NONE)
    }

    /// Like [`stop`](SharedGate::stop), but gives up after `limit`, and then admits requests as before.
    ///
    /// # Errors
    /// [`GateError`]; the gate is unchanged.
    ///
    /// # Panics
    /// In builds with debug assertions, inside an operation. The gate is unchanged.
    ///
    /// # Example
    /// ```
    /// use squall::parts::gate::{GateError, SharedGate};
    /// use std::time::Duration;
    ///
    /// let gate = SharedGate::new();
    /// let _request = gate.request().unwrap();
    /// assert_eq!(gate.stop_for(Duration::from_millis(1)), Err(GateError::TimedOut));
    /// ```
    pub fn stop_for(&self, limit: Duration) -> Result<(), GateError> {
        self.stop_within(Limits::after(limit))
    }

    /// Like [`stop`](SharedGate::stop), but gives up when `limits` end the wait, and then admits requests
    /// as before.
    ///
    /// # Errors
    /// [`GateError`]; the gate is unchanged.
    ///
    /// # Panics
    /// In builds with debug assertions, inside an operation. The gate is unchanged.
    pub fn stop_within(&self, limits: Limits<'_>) -> Result<(), GateError> {
        refuse_in_operation();
        self.begin(phase::stopped)?;
        let take_back = TakeBack(|| {
            S::step();
            self.admit();
            opened(self, By::GiveUp);
        });
        closed(self, Closed::Stopped, || self.inside());
        self.drain(limits)?;
        mem::forget(take_back);
        self.end();
        drained(self, Closed::Stopped);
        Ok(())
    }

    /// Restarts the gate: admits requests again, and wakes those that wait. Any thread may call this, not
    /// only the one that stopped.
    ///
    /// # Errors
    /// [`GateError`]; the gate is unchanged.
    ///
    /// # Example
    /// ```
    /// let gate = squall::parts::gate::SharedGate::new();
    /// gate.stop().unwrap();
    /// gate.restart().unwrap();
    /// assert!(gate.try_request().is_ok());
    /// ```
    pub fn restart(&self) -> Result<(), GateError> {
        self.begin(phase::restarting)?;
        S::step();
        self.admit();
        opened(self, By::Restart);
        Ok(())
    }

    /// Shuts the gate down, whether it is stopped or not. Later requests, and those that wait, are
    /// rejected for good. Returns when the requests inside have left. Blocks the thread; a task uses
    /// [`shutdown_async`](SharedGate::shutdown_async).
    ///
    /// # Errors
    /// [`GateError`]; the gate is unchanged.
    ///
    /// # Panics
    /// In builds with debug assertions, inside an operation. The gate is unchanged.
    ///
    /// # Example
    /// ```
    /// use squall::parts::gate::{SharedGate, ShutDown};
    ///
    /// let gate = SharedGate::new();
    /// gate.shutdown().unwrap();
    /// assert_eq!(gate.enter(), Err(ShutDown));
    /// ```
    pub fn shutdown(&self) -> Result<(), GateError> {
        self.shutdown_within(Limits::NONE)
    }

    /// Like [`shutdown`](SharedGate::shutdown), but waits at most `limit` for the requests inside.
    ///
    /// # Errors
    /// [`GateError`]. After [`TimedOut`](GateError::TimedOut) the gate is shut down.
    /// [`inside`](SharedGate::inside) returns the number of requests that have not left, and
    /// [`drained_for`](SharedGate::drained_for) waits for them.
    ///
    /// # Panics
    /// In builds with debug assertions, inside an operation. The gate is unchanged.
    ///
    /// # Example
    /// ```
    /// use squall::parts::gate::{GateError, SharedGate};
    /// use std::time::Duration;
    ///
    /// let gate = SharedGate::new();
    /// let request = gate.request().unwrap();
    /// let limit = Duration::from_millis(1);
    /// assert_eq!(gate.shutdown_for(limit), Err(GateError::TimedOut));
    /// drop(request);
    /// assert_eq!(gate.drained_for(limit), Ok(()));
    /// ```
    pub fn shutdown_for(&self, limit: Duration) -> Result<(), GateError> {
        self.shutdown_within(Limits::after(limit))
    }

    /// Like [`shutdown`](SharedGate::shutdown), but gives up when `limits` end the wait.
    ///
    /// # Errors
    /// [`GateError`], as described at [`shutdown_for`](SharedGate::shutdown_for). After
    /// [`Interrupted`](GateError::Interrupted) the gate has its previous state. Requests that arrived
    /// during the call were rejected.
    ///
    /// # Panics
    /// In builds with debug assertions, inside an operation. The gate is unchanged.
    pub fn shutdown_within(&self, limits: Limits<'_>) -> Result<(), GateError> {
        refuse_in_operation();
        let before = self.begin(phase::shut_down)?;
        let take_back = TakeBack(|| {
            S::step();
            if before == STOP {
                self.stop_again();
            } else {
                self.admit();
            }
            self.signal_drained();
            match before {
                STOP => closed(self, Closed::Stopped, || self.inside()),
                _ => opened(self, By::GiveUp),
            }
        });
        S::step();
        self.signal_turn();
        closed(self, Closed::ShutDown, || self.inside());
        let end = self.drain(limits);
        if let Ok(()) | Err(GateError::TimedOut) = end {
            mem::forget(take_back);
            self.end_shutdown();
        }
        if end.is_ok() {
            drained(self, Closed::ShutDown);
        }
        end
    }

    /// Blocks the thread for up to `limit`, until the last request has left after a shutdown that timed out.
    /// Callable while another thread shuts down, and repeatedly. A task uses
    /// [`drained_async`](SharedGate::drained_async).
    ///
    /// # Errors
    /// [`NotShutDown`](GateError::NotShutDown) or [`TimedOut`](GateError::TimedOut); the gate is
    /// unchanged.
    ///
    /// # Panics
    /// In builds with debug assertions, inside an operation. The gate is unchanged.
    pub fn drained_for(&self, limit: Duration) -> Result<(), GateError> {
        self.drained_within(Limits::after(limit))
    }

    /// Like [`drained_for`](SharedGate::drained_for), but with `limits`.
    ///
    /// # Errors
    /// [`NotShutDown`](GateError::NotShutDown), [`TimedOut`](GateError::TimedOut) or
    /// [`Interrupted`](GateError::Interrupted); the gate is unchanged.
    ///
    /// # Panics
    /// In builds with debug assertions, inside an operation. The gate is unchanged.
    pub fn drained_within(&self, limits: Limits<'_>) -> Result<(), GateError> {
        refuse_in_operation();
        let mut is_drained = Ok(false);
        let is_over = || {
            is_drained = self.is_drained();
            is_drained != Ok(false)
        };
        wait::<S>(&self.drained, is_over, limits)?;
        is_drained.map(drop)
    }

    /// Wakes the waiting threads, so that they check their limits, and the waiting tasks.
    #[doc(hidden)]
    pub fn wake(&self) {
        self.signal_turn();
        self.signal_drained();
    }

    /// Returns the number of requests inside. A request that is about to be rejected may be counted for a
    /// moment.
    pub fn inside(&self) -> u64 {
        self.word.load(Ordering::Relaxed) >> COUNT_AT
    }

    /// Returns the way the gate treats arriving requests now.
    pub fn state(&self) -> GateState {
        GateState::of(state_of(self.word.load(Ordering::Relaxed)))
    }

    /// Changes the state by `next`, or returns its error. Returns the previous state.
    fn begin(&self, next: fn(u32) -> Result<u32, GateError>) -> Result<u32, GateError> {
        const BITS: u64 = (STATE | BUSY) as u64;
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let new = word & !BITS | u64::from(next((word & BITS) as u32)?);
            // Acquire: pairs with the Release of `end`, so that a restart by another thread sees the changes
            // made during the stop.
            match self.word.compare_exchange_weak(word, new, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(state_of(word)),
                Err(now) => word = now,
            }
        }
    }

    /// Returns to STOP after a shutdown that gave up. Requests that wait for the restart, and did not see the
    /// shutdown, continue to wait.
    fn stop_again(&self) {
        const FROM: u64 = (SHUTDOWN | BUSY) as u64;
        // Release: pairs with the Acquire in `begin`.
        self.word.fetch_xor(FROM ^ u64::from(STOP), Ordering::Release);
    }

    /// Ends the control operation, in the state that it set at its start.
    fn end(&self) {
        // Release: pairs with the Acquire in `begin`.
        self.word.fetch_and(!u64::from(BUSY), Ordering::Release);
    }

    /// Ends the control operation in NORMAL, and wakes the waiting requests.
    fn admit(&self) {
        // Release: pairs with the Acquire of entering requests.
        let release = sites::RESTART_RELEASE.order(Ordering::Release);
        self.word.fetch_and(!u64::from(STATE | BUSY), release);
        S::step();
        self.signal_turn();
    }

    /// Ends a shutdown, drained or not. It stays in force.
    fn end_shutdown(&self) {
        S::step();
        self.end();
        self.signal_drained();
    }

    fn drain(&self, limits: Limits<'_>) -> Result<(), GateError> {
        wait::<S>(&self.drained, || self.is_empty(), limits)
    }

    fn is_empty(&self) -> bool {
        // Acquire: pairs with the Release of requests that left.
        self.word.load(sites::DRAIN_ACQUIRE.order(Ordering::Acquire)) >> COUNT_AT == 0
    }

    /// Returns whether a shutdown has ended and its last request has left.
    fn is_drained(&self) -> Result<bool, GateError> {
        // Acquire: pairs with the Release of requests that left, and of `end`.
        let word = self.word.load(Ordering::Acquire);
        if state_of(word) != SHUTDOWN {
            return Err(GateError::NotShutDown);
        }
        Ok(word & !u64::from(STATE) == 0)
    }

    /// Wakes the threads and tasks that wait for the last request.
    fn signal_drained(&self) {
        self.drained.signal(u32::MAX);
        // The fence of `signal` pairs with the fence of `Watch::register`: a task that makes the list only
        // now sees the change.
        if let Some(tasks) = self.tasks.get() {
            tasks.wake_drained();
        }
    }

    /// Wakes the waiting requests: threads and tasks.
    fn signal_turn(&self) {
        self.turn.signal(u32::MAX);
        // The fence of `signal`: as in `signal_drained`.
        if let Some(tasks) = self.tasks.get() {
            tasks.wake_turn();
        }
    }

    // --- tasks ---

    /// Enters like [`request`](SharedGate::request), for a task: the future waits while the gate is stopped,
    /// and blocks no thread.
    ///
    /// Dropping the future has no effect: the request has not entered.
    ///
    /// # Errors
    /// [`ShutDown`]: the request did not enter.
    ///
    /// # Panics
    /// In the child of a fork, if it must wait.
    ///
    /// # Example
    /// ```
    /// use squall::parts::gate::{SharedGate, ShutDown};
    ///
    /// async fn serve(gate: &SharedGate) -> Result<u32, ShutDown> {
    ///     let _request = gate.request_async().await?; // leaves when it is dropped
    ///     Ok(42)
    /// }
    /// ```
    pub fn request_async(&self) -> impl Future<Output = Result<Request<'_, S>, ShutDown>> + Send {
        RequestFuture::new(self)
    }

    /// Stops the gate like [`stop`](SharedGate::stop), for a task: the future waits for the requests inside,
    /// and blocks no thread.
    ///
    /// The first poll stops the gate. If the future is dropped before it is ready, the gate admits requests
    /// again, as after a [`stop_for`](SharedGate::stop_for) that timed out. So a timer of the runtime
    /// around the future limits it.
    ///
    /// # Errors
    /// [`GateError`]; the gate is unchanged.
    pub fn stop_async(&self) -> impl Future<Output = Result<(), GateError>> + Send {
        ControlFuture::new(self, Operation::Stop)
    }

    /// Shuts the gate down like [`shutdown`](SharedGate::shutdown), for a task: the future waits for the
    /// requests inside, and blocks no thread.
    ///
    /// The first poll shuts the gate down. If the future is dropped before it is ready, the gate stays shut
    /// down, as after a [`shutdown_for`](SharedGate::shutdown_for) that timed out.
    /// [`drained_async`](SharedGate::drained_async) then waits for the last request.
    ///
    /// # Errors
    /// [`GateError`]; the gate is unchanged.
    ///
    /// # Example
    /// ```
    /// use squall::parts::gate::SharedGate;
    /// use std::future::Future;
    /// use std::pin::pin;
    /// use std::task::{Context, Poll, Waker};
    ///
    /// let gate = SharedGate::new();
    /// let request = gate.request().unwrap();
    /// let mut shutdown = pin!(gate.shutdown_async());
    /// let mut context = Context::from_waker(Waker::noop()); // a runtime does this
    /// assert_eq!(shutdown.as_mut().poll(&mut context), Poll::Pending);
    /// drop(request);
    /// assert_eq!(shutdown.as_mut().poll(&mut context), Poll::Ready(Ok(())));
    /// ```
    pub fn shutdown_async(&self) -> impl Future<Output = Result<(), GateError>> + Send {
        ControlFuture::new(self, Operation::Shutdown)
    }

    /// Waits for the last request of a shutdown like [`drained_for`](SharedGate::drained_for), for a task and
    /// without a limit. The future blocks no thread, and dropping it has no effect.
    ///
    /// # Errors
    /// [`NotShutDown`](GateError::NotShutDown); the gate is unchanged.
    pub fn drained_async(&self) -> impl Future<Output = Result<(), GateError>> + Send {
        ControlFuture::new(self, Operation::Drain)
    }

    /// Returns the tasks that wait here.
    #[doc(hidden)]
    pub fn tasks(&self) -> &Arc<Tasks> {
        self.tasks.get_or_make()
    }

    /// Makes a step of a future's operation.
    #[doc(hidden)]
    pub fn step(&self, step: Step) -> Result<bool, GateError> {
        match step {
            Step::Begin(Operation::Stop) => {
                self.begin(phase::stopped)?;
                closed(self, Closed::Stopped, || self.inside());
                Ok(false)
            }
            Step::Begin(Operation::Shutdown) => {
                self.begin(phase::shut_down)?;
                S::step();
                self.signal_turn();
                closed(self, Closed::ShutDown, || self.inside());
                Ok(false)
            }
            Step::Look(Operation::Drain) => self.is_drained(),
            Step::Look(_) => Ok(self.is_empty()),
            Step::Finish(Operation::Stop) => {
                self.end();
                drained(self, Closed::Stopped);
                Ok(true)
            }
            Step::GiveUp(Operation::Stop) => {
                S::step();
                self.admit();
                opened(self, By::GiveUp);
                Ok(false)
            }
            Step::Finish(Operation::Shutdown) => {
                self.end_shutdown();
                drained(self, Closed::ShutDown);
                Ok(true)
            }
            Step::GiveUp(Operation::Shutdown) => {
                self.end_shutdown();
                Ok(true)
            }
            Step::Begin(Operation::Drain)
            | Step::Finish(Operation::Drain)
            | Step::GiveUp(Operation::Drain) => Ok(false),
        }
    }
}

impl<'a, S: Steps> TaskGate for &'a SharedGate<S> {
    type Request = Request<'a, S>;

    fn try_request(&self) -> Result<Request<'a, S>, Rejected> {
        SharedGate::try_request(self)
    }

    fn tasks(&self) -> Arc<Tasks> {
        SharedGate::tasks(self).clone()
    }

    fn step(&self, _: &Arc<Tasks>, step: Step) -> Result<bool, GateError> {
        SharedGate::step(self, step)
    }
}

#[cold]
#[track_caller]
fn nobody_is_inside() -> ! {
    panic!("a request left an empty gate: it had not entered, or left twice")
}

impl<S: Steps> fmt::Debug for SharedGate<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedGate").field("state", &self.state()).field("inside", &self.inside()).finish()
    }
}

/// A request inside a [`SharedGate`]; dropping it leaves. It is `Send`, so it can live across an
/// `.await`.
///
/// # Example
/// ```
/// let gate = squall::parts::gate::SharedGate::new();
/// let request = gate.request().unwrap();
/// std::thread::scope(|threads| {
///     threads.spawn(move || drop(request)); // leaves on the other thread
/// });
/// assert_eq!(gate.inside(), 0);
/// ```
#[must_use = "the request leaves when this is dropped"]
#[derive(Debug)]
pub struct Request<'a, S: Steps = NoSteps> {
    gate: &'a SharedGate<S>,
}

impl<S: Steps> Drop for Request<'_, S> {
    #[inline]
    fn drop(&mut self) {
        self.gate.leave();
    }
}

const _: () = {
    const fn may_go_to_another_thread<T: Send>() {}
    may_go_to_another_thread::<Request<'static>>();
};

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_shutdown_of_a_stopped_counter_gives_up_and_it_is_stopped() {
        let gate = SharedGate::new();
        gate.stop().unwrap();
        // A request that is about to be rejected.
        let before = gate.word.fetch_add(ONE, Ordering::Relaxed);
        assert_eq!(gate.shutdown_within(Limits::NONE.or(&|| true)), Err(GateError::Interrupted));
        assert_eq!(gate.refuse(before), Rejected::Stopped);
        assert_eq!((gate.try_enter(), gate.inside()), (Err(Rejected::Stopped), 0));
        assert_eq!(gate.stop(), Err(GateError::Stopped));
        gate.restart().unwrap();
        assert_eq!(gate.try_enter(), Ok(()));
    }

    #[test]
    fn a_stray_leave_is_not_subtracted_twice() {
        let gate = SharedGate::new();
        gate.stop().unwrap();
        let before = gate.word.fetch_add(ONE, Ordering::Relaxed);
        gate.leave();
        assert_eq!((gate.refuse(before), gate.inside()), (Rejected::Stopped, 0));
    }
}
