//! Request counters: the gate through which a service admits its requests, and by which it is drained.
//!
//! A request *enters*, does its work, and *leaves*. The control *stops* (later requests wait, the stop returns when those inside
//! are gone), *restarts*, and *shuts down* (later requests, and those that wait, are refused for good).
//!
//! | | entering and leaving | stopping | memory |
//! |---|---|---|---|
//! | [`RequestCounter`] | an atomic addition each, on one line for all | one line | 24 bytes |
//! | [`SpreadRequests`] | plain additions on the processor's own lines | two system calls, and a line for each processor | 128 bytes for each processor that has called |
//!
//! The second is a constituent, to be embedded in the root and the representatives of a clustered object;
//! `squall_objects::requests` is that object ready-made, in both forms.
//!
//! # The rules
//! 1. While something is made or changed under a stop, no request is inside.
//! 2. A shutdown lets the requests that are inside finish, and then returns.
//! 3. From its beginning on, requests that come are refused.
//! 4. One control operation wins; those that come before its end are refused ([`ControlError`]).
//! 5. After a shutdown nothing is admitted any more: neither stop nor restart is possible.
//! 6. and 7. Requests that come while it is stopped wait; they are admitted by the restart. The restart only wakes them: a stop
//!    that follows at once may find some still asleep, and these wait for the next restart. Who must not be overtaken so counts
//!    its requests itself, and stops when they are in.
//!
//! Who was refused has not entered, and does not leave. A shutdown that is interrupted has not taken place (5 does not hold),
//! but those who came meanwhile were refused.
//!
//! # Not for
//! - *Signal handlers*: none of this may be called there. Leaving may have to wake somebody, and the distributed form may have to
//!   make room.
//! - *The child of a fork*, unless the counter was made there. Requests that were inside on other threads of the parent never
//!   leave in the child, so that a stop without a limit waits for ever.
//!
//! Source: CO-48 to CO-52; Appavoo, "Clustered Objects", 2005, §4.1.3 (the request counter of K42's regions). Otherwise than
//! there: a stop can give up, and a request counter can be stopped by one thread and restarted by another.

#[cfg(all(test, any(loom, squall_model)))]
mod model;
mod phase;
mod shared;
mod sites;
mod spread;

pub use shared::{Request, RequestCounter};
pub use spread::{Control, Gate, LocalRequests, SpreadRequests, Tally};

use std::fmt;
use std::time::{Duration, Instant};

/// The counter has been shut down: the request has not entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShutDown;

impl fmt::Display for ShutDown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the service has been shut down: the request was refused")
    }
}

impl std::error::Error for ShutDown {}

/// Why a request has not entered. It must not leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The counter is stopped; a restart will admit requests again.
    Stopped,
    /// It has been shut down.
    ShutDown,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Stopped => f.write_str("the service is stopped: the request was not admitted"),
            Refused::ShutDown => ShutDown.fmt(f),
        }
    }
}

impl std::error::Error for Refused {}

/// Why a control operation was refused, or gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ControlError {
    /// A stop found it stopped, or another stop at work.
    Stopped,
    /// A restart found that it is not stopped.
    NotStopped,
    /// It has been shut down, or is about to be.
    ShutDown,
    /// Another control operation is at work.
    Busy,
    /// Who waits for the end of a shutdown found that there is none.
    NotShutDown,
    /// The time was over before the last request had left. After a stop everything is as before it; a shutdown stays in force,
    /// and its requests go on leaving.
    TimedOut,
    /// What the caller said to be more important came first. Everything is as before, after a shutdown too; requests that came
    /// meanwhile were refused by that.
    Interrupted,
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ControlError::Stopped => "the request counter is stopped already",
            ControlError::NotStopped => "the request counter is not stopped",
            ControlError::ShutDown => "the request counter has been shut down",
            ControlError::NotShutDown => "the request counter has not been shut down",
            ControlError::Busy => "another control operation of the request counter has not ended",
            ControlError::TimedOut => "the time was over before the last request had left",
            ControlError::Interrupted => "the wait for the last request was interrupted",
        })
    }
}

impl std::error::Error for ControlError {}

/// What a request counter does with requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It admits them.
    Normal,
    /// They wait.
    Stopped,
    /// They are refused.
    ShutDown,
}

impl State {
    fn of(bits: u32) -> State {
        match bits & phase::STATE {
            phase::NORMAL => State::Normal,
            phase::STOP => State::Stopped,
            _ => State::ShutDown,
        }
    }
}

/// What ends a wait before its time.
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
    /// Nothing does.
    pub const NONE: Limits<'static> = Limits { deadline: None, interrupt: &|| false };

    /// Only the clock. A time beyond the clock's end is none.
    pub fn after(limit: Duration) -> Limits<'static> {
        Limits { deadline: Instant::now().checked_add(limit), ..Limits::NONE }
    }
}

impl<'a> Limits<'a> {
    /// Also this, which is asked before each sleep; whoever makes it true calls `wake` of the counter.
    pub fn or(self, interrupt: &'a dyn Fn() -> bool) -> Limits<'a> {
        Limits { deadline: self.deadline, interrupt }
    }

    /// Why to wait no longer.
    fn over(&self) -> Option<ControlError> {
        if (self.interrupt)() {
            return Some(ControlError::Interrupted);
        }
        is_past(self.deadline).then_some(ControlError::TimedOut)
    }

    fn left(&self) -> Option<Duration> {
        left(self.deadline)
    }
}

/// Whether the deadline has passed.
fn is_past(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

/// Time left until the deadline.
fn left(deadline: Option<Instant>) -> Option<Duration> {
    deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
}

/// Restarts the restartable sequences that run on any processor: those that began before this call have ended or begin anew.
fn visit_processors() {
    #[cfg(not(loom))]
    squall_sys::rseq::restart_everywhere(squall_machine::machine().vp_limit());
}

/// Waits until something is so, which is signalled at `events`.
fn wait<S: squall_lock::Steps>(
    events: &squall_machine::park::EventCount,
    mut is_so: impl FnMut() -> bool,
    limits: Limits<'_>,
) -> Result<(), ControlError> {
    loop {
        let seen = events.prepare();
        if is_so() {
            return Ok(());
        }
        if let Some(why) = limits.over() {
            return Err(why);
        }
        S::step();
        events.wait(seen, limits.left());
    }
}
