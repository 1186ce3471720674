//! Pending results of asynchronous invocations.
//!
//! - I1. Exactly one party takes the function of an invocation: the executor or the policy that runs it or
//!   drops it, a waiter that helps, or a cancelled event. That party stores the result.
//! - I2. The first result stays, unless the policy panicked before the caller had the `PendingCall`. A result
//!   is then taken once, or dropped when both the `PendingCall` and the `Runner` are gone. The drop runs
//!   under no lock.
//! - I3. A waiter helps only an invocation that was passed to an executor. One that a policy or an event
//!   keeps runs when the policy or the event says so.
//! - I4. The function runs without the state of the code around it: attributes, deadlines and callers belong
//!   to an invocation, not to the thread that runs it. One exception: a policy that runs a call on its
//!   caller's thread, before the caller goes on, leaves the caller's state in place.
//! - I5. A panic of one caller's code ends in its own invocation: that of its function, of a drop, or of a
//!   waker. The thread of the executor or the policy goes on with the calls of others.

use squall_core::wrap::catching;
use squall_sys::panics::end_panic;
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

/// Result of an asynchronous invocation, available later.
///
/// [Wait](PendingCall::wait) for it, [poll](PendingCall::try_take) it, or await it. If the `PendingCall` is
/// dropped, the call goes on. Its result is then dropped on the thread that ran the call, where a panic of
/// that drop ends. The future needs no particular runtime.
///
/// ```
/// use squall::policy::invoke::asynchronous;
/// use std::time::Duration;
/// # #[squall::interface]
/// # trait Mail: Send + Sync { fn send(&self, n: u64) -> u64; }
/// # struct Post;
/// # impl Mail for Post { fn send(&self, n: u64) -> u64 { n } }
/// # let mail: squall::Owned<dyn Mail> = squall::shared(Post);
/// let mut pending = asynchronous(mail.handle(), |mail| mail.send(7));
/// let result = loop {
///     if let Some(result) = pending.wait_timeout(Duration::from_millis(10)) {
///         break result;
///     }
/// };
/// assert_eq!(result?, 7);
/// assert!(pending.is_finished());
/// # Ok::<(), squall::policy::invoke::InvokeError>(())
/// ```
#[must_use = "the invocation goes on without it, and its errors are lost"]
pub struct PendingCall<R>(Arc<Invocation<R>>);

pub(super) struct Invocation<R> {
    waiting: Mutex<Waiting<R>>,
    slot: Mutex<Slot<R>>,
    filled: Condvar,
}

struct Waiting<R> {
    /// Absent once a party has taken it (I1).
    function: Option<Function<R>>,
    /// `true` once a waiter may run the function (I3).
    is_helped: bool,
}

enum Slot<R> {
    Empty(Option<Waker>),
    Full(Result<R, InvokeError>),
    Taken,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // User code does not run under these locks, so a poisoned lock is usable.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<R> Invocation<R> {
    fn new(function: Option<Function<R>>, slot: Slot<R>) -> Invocation<R> {
        Invocation {
            waiting: Mutex::new(Waiting { function, is_helped: false }),
            slot: Mutex::new(slot),
            filled: Condvar::new(),
        }
    }

    fn take_function(&self) -> Option<Function<R>> {
        lock(&self.waiting).function.take()
    }

    /// Runs the function on a thread without state for it (I4).
    fn run(&self) {
        self.run_by(squall_rcu::__run_served);
    }

    /// Has `run` call the function, unless a party has taken it, and stores the result (I5).
    fn run_by(&self, run: impl FnOnce(Function<R>) -> Result<R, InvokeError>) {
        if let Some(function) = self.take_function() {
            // A function that comes too late is dropped without a call. That drop may panic, too.
            self.fill(catching(|| run(function)).unwrap_or_else(|caught| Err(caught.into())));
        }
    }

    /// Runs the function for a waiter, if a waiter may (I3).
    fn help(&self) {
        let is_helped = lock(&self.waiting).is_helped;
        if is_helped {
            self.run();
        }
    }

    fn let_waiters_help(&self) {
        lock(&self.waiting).is_helped = true;
    }

    /// Ends the invocation without a result, unless a thread runs it.
    fn give_up(&self, error: InvokeError) {
        if let Some(function) = self.take_function() {
            // The function holds user data. A panic in its drop must not leave the waiter waiting.
            end_panic(|| drop(function));
            self.fill(Err(error));
        }
    }

    /// Stores the result, unless there is one (I2).
    fn fill(&self, result: Result<R, InvokeError>) {
        let mut slot = lock(&self.slot);
        let Slot::Empty(_) = &*slot else {
            drop(slot);
            return end_panic(|| drop(result));
        };
        let before = replace(&mut *slot, Slot::Full(result));
        drop(slot);
        self.filled.notify_all();
        if let Slot::Empty(Some(waker)) = before {
            end_panic(|| waker.wake());
        }
    }

    /// Takes the result, if it is there.
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

/// An invocation, with the type of its result erased.
pub(super) trait AnyInvocation: Send + Sync {
    /// Runs it on a thread without state for it.
    fn run(&self);
    /// Runs it on its caller's thread, before the caller goes on.
    fn run_in_place(&self);
    /// Lets a waiter of the pool run it.
    fn let_waiters_help(&self);
    /// Returns `true` if it has neither begun nor ended.
    fn is_waiting(&self) -> bool;
    /// Ends it with this error, unless it has begun.
    fn give_up(&self, error: InvokeError);
    /// Ends it with this error, even if it has begun or ended.
    fn fail(&self, error: InvokeError);
}

impl<R: Send> AnyInvocation for Invocation<R> {
    fn run(&self) {
        Invocation::run(self);
    }
    fn run_in_place(&self) {
        self.run_by(|function| function());
    }
    fn let_waiters_help(&self) {
        Invocation::let_waiters_help(self);
    }
    fn is_waiting(&self) -> bool {
        lock(&self.waiting).function.is_some()
    }
    fn give_up(&self, error: InvokeError) {
        Invocation::give_up(self, error);
    }
    fn fail(&self, error: InvokeError) {
        let function = self.take_function();
        end_panic(|| drop(function));
        let before = replace(&mut *lock(&self.slot), Slot::Full(Err(error)));
        end_panic(|| drop(before));
    }
}

impl<R> Drop for Invocation<R> {
    /// Drops a result that no party took (I5).
    fn drop(&mut self) {
        let slot = self.slot.get_mut().unwrap_or_else(PoisonError::into_inner);
        let slot = replace(slot, Slot::Taken);
        end_panic(|| drop(slot));
    }
}

/// The side of an invocation that runs it or gives it up.
pub(super) struct Runner<R>(Arc<Invocation<R>>);

impl<R: Send + 'static> Runner<R> {
    /// Creates an invocation of `f` and its pending result.
    pub(super) fn new(
        f: impl FnOnce() -> Result<R, InvokeError> + Send + 'static,
    ) -> (Runner<R>, PendingCall<R>) {
        let invocation = Arc::new(Invocation::new(Some(Box::new(f)), Slot::Empty(None)));
        (Runner(Arc::clone(&invocation)), PendingCall(invocation))
    }

    /// Converts it to work for an executor. A waiter of the pool may run it first.
    pub(super) fn into_work(self) -> Work {
        self.0.let_waiters_help();
        Box::new(move || self.0.run())
    }

    /// Ends the invocation with this error, without running it.
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
    /// Creates the pending result of an invocation that has ended.
    pub(super) fn ended(result: Result<R, InvokeError>) -> PendingCall<R> {
        PendingCall(Arc::new(Invocation::new(None, Slot::Full(result))))
    }

    /// Creates an invocation of `f`, to be run by a policy, and its pending result.
    pub(super) fn for_policy(
        f: impl FnOnce() -> Result<R, InvokeError> + Send + 'static,
    ) -> (Arc<dyn AnyInvocation>, PendingCall<R>)
    where
        R: Send + 'static,
    {
        let invocation = Arc::new(Invocation::new(Some(Box::new(f)), Slot::Empty(None)));
        (invocation.clone(), PendingCall(invocation))
    }

    /// Returns `true` if the result is there, or was taken.
    pub fn is_finished(&self) -> bool {
        !matches!(&*lock(&self.0.slot), Slot::Empty(_))
    }

    /// Takes the result, if the invocation has ended. Take it only once.
    ///
    /// # Panics
    /// If the result was taken before.
    ///
    /// ```
    /// use squall::policy::invoke::{Event, event_dependent};
    /// # #[squall::interface]
    /// # trait Mail: Send + Sync { fn send(&self, n: u64) -> u64; }
    /// # struct Post;
    /// # impl Mail for Post { fn send(&self, n: u64) -> u64 { n } }
    /// # let mail: squall::Owned<dyn Mail> = squall::shared(Post);
    /// let never = Event::new();
    /// let mut pending = event_dependent(&never, mail.handle(), |mail| mail.send(7));
    /// assert!(pending.try_take().is_none());
    /// ```
    pub fn try_take(&mut self) -> Option<Result<R, InvokeError>> {
        Invocation::take(&mut lock(&self.0.slot))
    }

    /// Blocks the thread until the result is there. A task awaits the `PendingCall` itself.
    ///
    /// A pool thread runs the call itself if an executor has it and it has not begun, so that invocations
    /// that wait for each other do not exhaust the pool.
    ///
    /// # Errors
    /// [`InvokeError`]. Inside an operation, if the invocation has not ended yet,
    /// [`InvokeError::InOperation`] at once.
    /// # Panics
    /// If the result was taken before.
    pub fn wait(self) -> Result<R, InvokeError> {
        self.wait_by(None).unwrap_or(Err(InvokeError::Dropped))
    }

    /// Blocks the thread until the result is there, for at most `limit`. Returns `None` if the time passed
    /// without a result. Take the result only once.
    ///
    /// # Errors
    /// [`InvokeError`]. Inside an operation, if the invocation has not ended yet,
    /// [`InvokeError::InOperation`] at once.
    /// # Panics
    /// If the result was taken before.
    pub fn wait_timeout(&mut self, limit: Duration) -> Option<Result<R, InvokeError>> {
        self.wait_by(Instant::now().checked_add(limit))
    }

    /// Waits until `by`. Returns `None` if that time passed without a result.
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
            self.0.help();
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
        if let Some(result) = Invocation::take(&mut lock(&self.0.slot)) {
            return Poll::Ready(result);
        }
        // Cloned and dropped outside the lock, because a waker is user code.
        let waker = context.waker().clone();
        let mut slot = lock(&self.0.slot);
        if let Some(result) = Invocation::take(&mut slot) {
            return Poll::Ready(result);
        }
        let before = replace(&mut *slot, Slot::Empty(Some(waker)));
        drop(slot);
        drop(before);
        Poll::Pending
    }
}

impl<R> fmt::Debug for PendingCall<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingCall").field("is_finished", &self.is_finished()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiter_helps_only_what_an_executor_has() {
        let (runner, pending) = Runner::new(|| Ok(7));
        pending.0.help();
        assert!(!pending.is_finished());
        let work = runner.into_work();
        pending.0.help();
        assert!(pending.is_finished());
        drop(work);
        assert_eq!(pending.wait().unwrap(), 7);
    }
}
