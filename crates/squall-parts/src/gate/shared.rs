//! The request counter in one word.
//!
//! ```text
//! word = requests inside << COUNT_AT | BUSY | state        (phase.rs)
//! enter:  if the state is NORMAL: add one; if the state is not NORMAL, subtract it again. Not NORMAL: wait or go
//! leave:  subtract one, unless there is none; the last one wakes the control, if the state is not NORMAL
//! stop:   state = STOP, BUSY; wait until the count is 0; not BUSY
//! ```
//!
//! - I1. When a stop has returned, and until the restart, nobody is inside: the addition of who enters returns the state that
//!   the stop has set, or precedes it, and is counted in what the stop waits for.
//! - I2. Nobody sleeps for ever. Who takes the count to 0 sees a state other than NORMAL, and signals, or precedes the stop,
//!   which sees it; the same word tells both.
//! - I3. An addition that is taken back counts for a moment: a stop may wait a moment longer for it, never less. Each thread
//!   makes one at most for a stop, since it then sees the state before it adds.
//! - I4. The count never goes below 0: a leave looks at what it subtracts from. So one leave too many changes nothing that
//!   another thread could see.
//!
//! Progress: entering is wait-free unless it is stopped; leaving is lock-free, its exchange fails where another's went through. A request that does not leave holds up the control.

use super::phase::{self, BUSY, NORMAL, SHUTDOWN, STATE, STOP};
use super::{ControlError, Limits, Refused, ShutDown, State, sites, wait};
use squall_lock::{Steps, Undisturbed};
use squall_machine::park::EventCount;
use squall_sys::sync::atomic::{AtomicU64, Ordering};
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

const COUNT_AT: u32 = 3;
const ONE: u64 = 1 << COUNT_AT;
const _: () = assert!(ONE > (STATE | BUSY) as u64);

/// A request counter of one word. What it does, and the rules: the [module](super).
///
/// # Cost
/// A load and an atomic addition to enter, a load and a compare-exchange to leave, on one line for all; see [`SpreadRequests`](super::SpreadRequests) for
/// the form that does without.
/// # Example
/// ```
/// use squall_lock::requests::{RequestCounter, ShutDown};
///
/// static GATE: RequestCounter = RequestCounter::new();
/// fn serve() -> Result<u32, ShutDown> {
///     let _request = GATE.request()?;
///     Ok(42)
/// }
/// assert_eq!(serve(), Ok(42));
/// GATE.stop().unwrap(); // nobody is inside from here ...
/// GATE.restart().unwrap(); // ... to here
/// GATE.shutdown().unwrap();
/// assert_eq!(serve(), Err(ShutDown));
/// ```
pub struct RequestCounter<S: Steps = Undisturbed> {
    word: AtomicU64,
    /// The control waits here.
    drained: EventCount,
    /// Requests wait here.
    turn: EventCount,
    steps: PhantomData<fn() -> S>,
}

impl RequestCounter {
    /// A counter that admits requests.
    #[cfg(not(loom))]
    pub const fn new() -> RequestCounter {
        RequestCounter::disturbed()
    }

    /// A counter that admits requests.
    #[cfg(loom)]
    #[expect(clippy::new_without_default, reason = "only models are built so")]
    pub fn new() -> RequestCounter {
        RequestCounter::disturbed()
    }
}

#[cfg(not(loom))]
impl Default for RequestCounter {
    fn default() -> RequestCounter {
        RequestCounter::new()
    }
}

fn state_of(word: u64) -> u32 {
    (word & u64::from(STATE)) as u32
}

fn refused_by(word: u64) -> Refused {
    if state_of(word) == STOP { Refused::Stopped } else { Refused::ShutDown }
}

impl<S: Steps> RequestCounter<S> {
    /// As [`RequestCounter::new`], with something that happens at each step.
    #[doc(hidden)]
    #[cfg(not(loom))]
    pub const fn disturbed() -> RequestCounter<S> {
        RequestCounter {
            word: AtomicU64::new(NORMAL as u64),
            drained: EventCount::new(),
            turn: EventCount::new(),
            steps: PhantomData,
        }
    }

    /// As [`RequestCounter::new`], with something that happens at each step.
    #[doc(hidden)]
    #[cfg(loom)]
    pub fn disturbed() -> RequestCounter<S> {
        RequestCounter {
            word: AtomicU64::new(NORMAL as u64),
            drained: EventCount::new(),
            turn: EventCount::new(),
            steps: PhantomData,
        }
    }

    // --- requests ---

    /// Enters; waits while it is stopped. Who has entered must [`leave`](RequestCounter::leave).
    ///
    /// # Errors
    /// [`ShutDown`]: the request has not entered.
    #[inline]
    pub fn enter(&self) -> Result<(), ShutDown> {
        loop {
            match self.try_enter() {
                Ok(()) => return Ok(()),
                Err(Refused::ShutDown) => return Err(ShutDown),
                Err(Refused::Stopped) => self.await_turn(Limits::NONE),
            }
        }
    }

    /// Enters, if it is neither stopped nor shut down.
    ///
    /// # Errors
    /// [`Refused`]: the request has not entered.
    #[inline]
    pub fn try_enter(&self) -> Result<(), Refused> {
        // Relaxed: what admits is below. Who is refused here has counted nothing (I3).
        let seen = self.word.load(Ordering::Relaxed);
        if state_of(seen) != NORMAL {
            return Err(refused_by(seen));
        }
        // Acquire: pairs with the Release of a restart: a request sees what was done while it was stopped.
        let before = self.word.fetch_add(ONE, sites::ENTER_ACQUIRE.order(Ordering::Acquire));
        if state_of(before) == NORMAL {
            return Ok(());
        }
        Err(self.refuse(before))
    }

    #[cold]
    fn refuse(&self, before: u64) -> Refused {
        S::step();
        // Not there any more only where somebody left who had not entered: nothing is inside by this one then, either.
        let _taken_back = self.count_out();
        refused_by(before)
    }

    /// Sleeps while it is stopped, or until its limits are over.
    #[doc(hidden)]
    #[cold]
    pub fn await_turn(&self, limits: Limits<'_>) {
        // Relaxed: who goes on enters, with its own ordering.
        let is_over = || state_of(self.word.load(Ordering::Relaxed)) != STOP;
        let _ = wait::<S>(&self.turn, is_over, limits);
    }

    /// Leaves.
    ///
    /// # Panics
    /// If nobody is inside: a request left without having entered, or twice; nothing has changed. Where others are inside that
    /// cannot be seen here.
    #[inline]
    pub fn leave(&self) {
        if !self.count_out() {
            nobody_is_inside();
        }
    }

    /// Takes one from the count, if there is one (I4).
    #[inline(always)]
    fn count_out(&self) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word >> COUNT_AT == 0 {
                return false;
            }
            // Release: pairs with the Acquire in `drain`: the control sees what the request did.
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
        self.drained.signal(u32::MAX);
    }

    /// Enters, and leaves when what this returns is dropped, on whatever thread that is. Waits while it is stopped.
    ///
    /// # Errors
    /// [`ShutDown`]: the request has not entered.
    #[inline]
    pub fn request(&self) -> Result<Request<'_, S>, ShutDown> {
        self.enter().map(|()| Request { counter: self })
    }

    /// As [`request`](RequestCounter::request), without waiting.
    ///
    /// # Errors
    /// [`Refused`]: the request has not entered.
    #[inline]
    pub fn try_request(&self) -> Result<Request<'_, S>, Refused> {
        self.try_enter().map(|()| Request { counter: self })
    }

    // --- the control ---

    /// Stops: requests that come from now on wait. Returns when those inside have left.
    ///
    /// A request that stops its own counter waits for itself; give such a stop a limit.
    ///
    /// # Errors
    /// [`ControlError`]; nothing has changed.
    pub fn stop(&self) -> Result<(), ControlError> {
        self.stop_within(Limits::NONE)
    }

    /// As [`stop`](RequestCounter::stop); gives up after `limit`, and then admits requests as before.
    ///
    /// # Errors
    /// [`ControlError`]; nothing has changed.
    pub fn stop_for(&self, limit: Duration) -> Result<(), ControlError> {
        self.stop_within(Limits::after(limit))
    }

    /// As [`stop`](RequestCounter::stop), within these limits.
    ///
    /// # Errors
    /// [`ControlError`]; nothing has changed.
    pub fn stop_within(&self, limits: Limits<'_>) -> Result<(), ControlError> {
        self.begin(phase::stopped)?;
        let drained = self.drain(limits);
        if drained.is_err() {
            S::step();
            self.admit();
        } else {
            self.end();
        }
        drained
    }

    /// Admits requests again, those that wait among them. Any thread may, not only the one that stopped.
    ///
    /// # Errors
    /// [`ControlError`]; nothing has changed.
    pub fn restart(&self) -> Result<(), ControlError> {
        self.begin(phase::restarting)?;
        S::step();
        self.admit();
        Ok(())
    }

    /// Shuts down: requests that come from now on, and those that wait, are refused for good. Returns when those inside have
    /// left. It may be stopped or not.
    ///
    /// # Errors
    /// [`ControlError`]; nothing has changed.
    pub fn shutdown(&self) -> Result<(), ControlError> {
        self.shutdown_within(Limits::NONE)
    }

    /// As [`shutdown`](RequestCounter::shutdown), but waits no longer than `limit` for those inside.
    ///
    /// # Errors
    /// [`ControlError`]; after [`TimedOut`](ControlError::TimedOut) it is shut down: [`inside`](RequestCounter::inside)
    /// tells how many have not left, and [`drained_for`](RequestCounter::drained_for) waits for them.
    pub fn shutdown_for(&self, limit: Duration) -> Result<(), ControlError> {
        self.shutdown_within(Limits::after(limit))
    }

    /// As [`shutdown`](RequestCounter::shutdown), within these limits.
    ///
    /// # Errors
    /// As for [`shutdown_for`](RequestCounter::shutdown_for). After [`Interrupted`](ControlError::Interrupted) it is stopped or
    /// not as it was before; requests that came meanwhile were refused.
    pub fn shutdown_within(&self, limits: Limits<'_>) -> Result<(), ControlError> {
        let before = self.begin(phase::shut_down)?;
        S::step();
        self.turn.signal(u32::MAX);
        let drained = self.drain(limits);
        S::step();
        match drained {
            Err(ControlError::Interrupted) if before == STOP => self.stop_again(),
            Err(ControlError::Interrupted) => self.admit(),
            _ => self.end(),
        }
        self.drained.signal(u32::MAX);
        drained
    }

    /// After a shutdown whose time was over: waits for the last request, no longer than `limit`. It may be called while another
    /// thread shuts down, and again and again.
    ///
    /// # Errors
    /// [`NotShutDown`](ControlError::NotShutDown), [`TimedOut`](ControlError::TimedOut); nothing has changed.
    pub fn drained_for(&self, limit: Duration) -> Result<(), ControlError> {
        self.drained_within(Limits::after(limit))
    }

    /// As [`drained_for`](RequestCounter::drained_for), within these limits.
    ///
    /// # Errors
    /// As there, and [`Interrupted`](ControlError::Interrupted).
    pub fn drained_within(&self, limits: Limits<'_>) -> Result<(), ControlError> {
        const BUSY_OR_INSIDE: u64 = !(STATE as u64);
        let mut word = 0;
        let is_over = || {
            // Acquire: as in `drain`.
            word = self.word.load(Ordering::Acquire);
            state_of(word) != SHUTDOWN || word & BUSY_OR_INSIDE == 0
        };
        wait::<S>(&self.drained, is_over, limits)?;
        if state_of(word) == SHUTDOWN { Ok(()) } else { Err(ControlError::NotShutDown) }
    }

    /// Has those who wait look at their limits.
    #[doc(hidden)]
    pub fn wake(&self) {
        self.turn.signal(u32::MAX);
        self.drained.signal(u32::MAX);
    }

    /// How many requests are inside; one that is about to be refused may be among them for a moment.
    pub fn inside(&self) -> u64 {
        self.word.load(Ordering::Relaxed) >> COUNT_AT
    }

    /// What it does with requests now.
    pub fn state(&self) -> State {
        State::of(state_of(self.word.load(Ordering::Relaxed)))
    }

    /// Goes from one state to the next, or is refused. Returns the state before.
    fn begin(&self, next: fn(u32) -> Result<u32, ControlError>) -> Result<u32, ControlError> {
        const BITS: u64 = (STATE | BUSY) as u64;
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let new = word & !BITS | u64::from(next((word & BITS) as u32)?);
            // Acquire: of a restart by another thread than the one that stopped: it sees what that one did.
            match self.word.compare_exchange_weak(word, new, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(state_of(word)),
                Err(now) => word = now,
            }
        }
    }

    /// A shutdown gives up, back to STOP. Those who wait for the restart, and did not look meanwhile, wait on.
    fn stop_again(&self) {
        const FROM: u64 = (SHUTDOWN | BUSY) as u64;
        // Release: pairs with the Acquire in `begin`.
        self.word.fetch_xor(FROM ^ u64::from(STOP), Ordering::Release);
    }

    /// The control operation has ended, in the state that it began.
    fn end(&self) {
        // Release: pairs with the Acquire in `begin`.
        self.word.fetch_and(!u64::from(BUSY), Ordering::Release);
    }

    /// Ends in NORMAL.
    fn admit(&self) {
        // Release: pairs with the Acquire of who enters.
        let release = sites::RESTART_RELEASE.order(Ordering::Release);
        self.word.fetch_and(!u64::from(STATE | BUSY), release);
        S::step();
        self.turn.signal(u32::MAX);
    }

    fn drain(&self, limits: Limits<'_>) -> Result<(), ControlError> {
        // Acquire: pairs with the Release of who left.
        let acquire = sites::DRAIN_ACQUIRE.order(Ordering::Acquire);
        wait::<S>(&self.drained, || self.word.load(acquire) >> COUNT_AT == 0, limits)
    }
}

#[cold]
#[track_caller]
fn nobody_is_inside() -> ! {
    panic!("a request left a request counter in which nobody is: it had not entered, or left twice")
}

impl<S: Steps> fmt::Debug for RequestCounter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestCounter")
            .field("state", &self.state())
            .field("inside", &self.inside())
            .finish()
    }
}

/// A request that has entered; its drop leaves. It may be dropped on another thread, so that it can live across an `.await`.
#[must_use = "the request leaves when this is dropped"]
#[derive(Debug)]
pub struct Request<'a, S: Steps = Undisturbed> {
    counter: &'a RequestCounter<S>,
}

impl<S: Steps> Drop for Request<'_, S> {
    #[inline]
    fn drop(&mut self) {
        self.counter.leave();
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
        let counter = RequestCounter::new();
        counter.stop().unwrap();
        // A request that is about to be refused.
        let before = counter.word.fetch_add(ONE, Ordering::Relaxed);
        assert_eq!(counter.shutdown_within(Limits::NONE.or(&|| true)), Err(ControlError::Interrupted));
        assert_eq!(counter.refuse(before), Refused::Stopped);
        assert_eq!((counter.try_enter(), counter.inside()), (Err(Refused::Stopped), 0));
        assert_eq!(counter.stop(), Err(ControlError::Stopped));
        counter.restart().unwrap();
        assert_eq!(counter.try_enter(), Ok(()));
    }

    #[test]
    fn what_another_left_for_is_not_taken_back() {
        let counter = RequestCounter::new();
        counter.stop().unwrap();
        let before = counter.word.fetch_add(ONE, Ordering::Relaxed);
        counter.leave();
        assert_eq!((counter.refuse(before), counter.inside()), (Refused::Stopped, 0));
    }
}
