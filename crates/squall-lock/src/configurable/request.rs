//! The parameters of one acquisition, and the reasons for which it can fail.

use std::fmt;
use std::time::Instant;

use super::cancel::Cancel;
use super::sites;
use super::waiting::Waiting;
use crate::forked::REFUSAL;
use crate::parking::{self, ParkResult, ParkToken};
use crate::steps::Steps;
use squall_sys::trace::Subject;

/// The parameters of one acquisition: a deadline, a cancellation, a priority, a way to wait.
///
/// # Example
/// ```
/// use squall::lock::{ConfigurableLock, Request};
/// use std::time::{Duration, Instant};
///
/// let lock = ConfigurableLock::new(1);
/// let request = Request::new().deadline(Instant::now() + Duration::from_secs(1));
/// assert_eq!(*lock.lock_with(&request).unwrap(), 1);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Request<'a> {
    pub(super) ask: Ask<'a>,
}

impl<'a> Request<'a> {
    /// Makes a request that follows the lock's attributes.
    pub fn new() -> Request<'a> {
        Request::default()
    }

    /// Gives up at `deadline`.
    pub fn deadline(mut self, deadline: Instant) -> Request<'a> {
        self.ask.deadline = Some(deadline);
        self
    }

    /// Gives up when `cancel` is cancelled.
    pub fn cancel(mut self, cancel: &'a Cancel) -> Request<'a> {
        self.ask.cancel = Some(cancel);
        self
    }

    /// Sets the priority; the default is zero. If the lock's order is
    /// [`Order::Priority`](crate::Order::Priority), the request comes before those with a lower one. Allowed
    /// only for locks that register waiters.
    pub fn priority(mut self, priority: i32) -> Request<'a> {
        self.ask.priority = priority;
        self.ask.must_register = true;
        self
    }

    /// Sets the way this request waits. Allowed only for locks that register waiters.
    pub fn waiting(mut self, waiting: Waiting) -> Request<'a> {
        self.ask.waiting = Some(waiting);
        self.ask.must_register = true;
        self
    }
}

/// The reason why a request did not get the lock.
///
/// # Example
/// ```
/// use squall::lock::LockError;
///
/// assert_eq!(LockError::Cancelled.to_string(), "the wait for the lock was cancelled");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockError {
    /// The deadline or the timeout passed.
    TimedOut,
    /// Another thread cancelled the wait.
    Cancelled,
    /// The request has a priority or its own way to wait, and the lock does not register waiters.
    NotRegistered,
    /// The lock is held, and the process is the child of a fork, where its holder may not exist.
    Forked,
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LockError::TimedOut => "the lock was not free in time; allow more time, or hold it for less",
            LockError::Cancelled => "the wait for the lock was cancelled",
            LockError::Forked => REFUSAL,
            LockError::NotRegistered => {
                "the request has a priority or its own way to wait, but the lock does not register waiters: set Scheduling::registration"
            }
        })
    }
}

impl std::error::Error for LockError {}

/// The parameters of one acquisition.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ask<'a> {
    pub(super) deadline: Option<Instant>,
    pub(super) cancel: Option<&'a Cancel>,
    pub(super) priority: i32,
    pub(super) waiting: Option<Waiting>,
    /// True if the request needs a lock that registers its waiters.
    pub(super) must_register: bool,
    /// The lock, for the events of the wait.
    pub(super) subject: Subject,
}

impl Ask<'_> {
    /// Returns the reason why this wait must end, if there is one.
    pub(super) fn over(&self) -> Option<LockError> {
        if self.cancel.is_some_and(Cancel::is_cancelled) {
            return Some(LockError::Cancelled);
        }
        self.deadline.is_some_and(is_past).then_some(LockError::TimedOut)
    }

    /// Sleeps under this key like [`parking::park`], but can also be cancelled. Other threads with the same
    /// key and token must share the cancellation.
    pub(super) fn park<S: Steps>(
        &self,
        key: usize,
        token: ParkToken,
        validate: impl FnOnce() -> bool,
        timed_out: impl FnOnce(bool),
    ) -> ParkResult {
        let Some(cancel) = self.cancel else {
            return parking::park(key, validate, || {}, timed_out, token, self.deadline);
        };
        if !cancel.enter(key, token) {
            return ParkResult::Invalid;
        }
        S::step();
        let look = sites::CANCEL_LOOK.is_weak();
        let validate = || (look || !cancel.is_cancelled()) && validate();
        let result = parking::park(key, validate, || {}, timed_out, token, self.deadline);
        cancel.leave(key, token);
        result
    }
}

#[cfg(not(loom))]
fn is_past(deadline: Instant) -> bool {
    Instant::now() >= deadline
}

/// A model has no clock: a deadline has always passed.
#[cfg(loom)]
fn is_past(_deadline: Instant) -> bool {
    true
}
