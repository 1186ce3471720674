//! Handles of asynchronous invocations.
//!
//! - I1. What is to be run is taken by exactly one: the executor, who drops it unrun, a waiter that helps, or a cancelled event.
//!   Who took it puts a result in.
//! - I2. A result is put in once, and taken once or dropped with the last of handle and runner; no lock is held then.

use squall_core::wrap::catching;
use std::fmt;
use std::future::Future;
use std::mem::replace;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::InvokeError;
use super::executor::{Work, in_pool};

type Function<R> = Box<dyn FnOnce() -> Result<R, InvokeError> + Send>;

/// The result of an asynchronous invocation, when there is one: [wait](Handle::wait) for it, [look](Handle::try_take) for it,
/// await it, or drop this, whereupon the call goes on, and its result is dropped where it ran.
///
/// A future that is awaited needs no runtime of ours, and may be awaited in any.
#[must_use = "the invocation goes on without it, and its errors are lost"]
pub struct PendingCall<R>(Arc<Invocation<R>>);

struct Invocation<R> {
    function: Mutex<Option<Function<R>>>,
    slot: Mutex<Slot<R>>,
    filled: Condvar,
}

enum Slot<R> {
    Empty(Option<Waker>),
    Full(Result<R, InvokeError>),
    Taken,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing of the users' runs under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<R> Invocation<R> {
    fn take_function(&self) -> Option<Function<R>> {
        lock(&self.function).take()
    }

    fn run(&self) {
        if let Some(function) = self.take_function() {
            self.fill(function());
        }
    }

    /// Ends it without a result, if nobody runs it.
    fn give_up(&self, error: InvokeError) {
        if let Some(function) = self.take_function() {
            // What it holds is the users'. A panic in its drop shall not keep the waiter waiting.
            let _ = catching(|| drop(function));
            self.fill(Err(error));
        }
    }

    fn fill(&self, result: Result<R, InvokeError>) {
        let before = replace(&mut *lock(&self.slot), Slot::Full(result));
        self.filled.notify_all();
        if let Slot::Empty(Some(waker)) = before {
            waker.wake();
        }
    }

    /// The result, if it is there.
    fn take(slot: &mut Slot<R>) -> Option<Result<R, InvokeError>> {
        match slot {
            Slot::Empty(_) => None,
            Slot::Full(_) => match replace(slot, Slot::Taken) {
                Slot::Full(result) => Some(result),
                _ => None,
            },
            Slot::Taken => panic!("the result of an invocation was taken before"),
        }
    }
}

/// An invocation that is not run yet.
pub(super) struct Runner<R>(Arc<Invocation<R>>);

impl<R: Send + 'static> Runner<R> {
    /// An invocation of `f`, and its handle.
    pub(super) fn new(f: impl FnOnce() -> Result<R, InvokeError> + Send + 'static) -> (Runner<R>, PendingCall<R>) {
        let invocation = Arc::new(Invocation {
            function: Mutex::new(Some(Box::new(f))),
            slot: Mutex::new(Slot::Empty(None)),
            filled: Condvar::new(),
        });
        (Runner(Arc::clone(&invocation)), PendingCall(invocation))
    }

    /// What an executor gets.
    pub(super) fn into_work(self) -> Work {
        Box::new(move || self.0.run())
    }

    /// It shall not run.
    pub(super) fn give_up(self, error: InvokeError) {
        self.0.give_up(error);
    }
}

impl<R> Drop for Runner<R> {
    fn drop(&mut self) {
        self.0.give_up(InvokeError::Dropped);
    }
}

impl<R> PendingCall<R> {
    /// Whether the result is there.
    pub fn is_finished(&self) -> bool {
        !matches!(&*lock(&self.0.slot), Slot::Empty(_))
    }

    /// The result, if it is there. Take it once.
    ///
    /// # Panics
    /// If it was taken before.
    pub fn try_take(&mut self) -> Option<Result<R, InvokeError>> {
        Invocation::take(&mut lock(&self.0.slot))
    }

    /// Waits for the result. In a thread of the pool it runs the call here if nobody has begun it, so that invocations which
    /// wait for each other do not use the pool up.
    ///
    /// # Errors
    /// [`InvokeError`]; inside an operation, where the result is not there yet, [`InvokeError::InOperation`] at once.
    /// # Panics
    /// If it was taken before.
    pub fn wait(self) -> Result<R, InvokeError> {
        self.wait_by(None).unwrap_or(Err(InvokeError::Dropped))
    }

    /// The same, for so long; `None` if there is no result by then. Take it once.
    ///
    /// # Errors
    /// As [`wait`](Handle::wait).
    /// # Panics
    /// If it was taken before.
    pub fn wait_timeout(&mut self, limit: Duration) -> Option<Result<R, InvokeError>> {
        self.wait_by(Instant::now().checked_add(limit))
    }

    /// `None` when it is that time.
    fn wait_by(&self, by: Option<Instant>) -> Option<Result<R, InvokeError>> {
        let mut slot = lock(&self.0.slot);
        if let Some(result) = Invocation::take(&mut slot) {
            return Some(result);
        }
        if squall_rcu::in_operation() {
            return Some(Err(InvokeError::InOperation));
        }
        if in_pool() && by.is_none() {
            drop(slot);
            self.0.run();
            slot = lock(&self.0.slot);
        }
        loop {
            if let Some(result) = Invocation::take(&mut slot) {
                return Some(result);
            }
            slot = match by.map(|by| by.saturating_duration_since(Instant::now())) {
                None => self.0.filled.wait(slot).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => return None,
                Some(left) => {
                    self.0.filled.wait_timeout(slot, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

impl<R> Future for PendingCall<R> {
    type Output = Result<R, InvokeError>;

    /// # Panics
    /// If the result was taken before.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<R, InvokeError>> {
        let mut slot = lock(&self.0.slot);
        if let Some(result) = Invocation::take(&mut slot) {
            return Poll::Ready(result);
        }
        let before = replace(&mut *slot, Slot::Empty(Some(context.waker().clone())));
        drop(slot);
        // A waker is the user's: outside the lock.
        drop(before);
        Poll::Pending
    }
}

impl<R> fmt::Debug for PendingCall<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("is_finished", &self.is_finished()).finish_non_exhaustive()
    }
}
