//! Waits of tasks: futures for any runtime, which block no thread.
//!
//! Problem: a task must not block its thread for a grace period. Idea: the future leaves an entry in the
//! queue of the reclaimer thread, which waits for grace periods anyway. The entry's outcome wakes the task.
//!
//! - I1. A future leaves its entry and its waker, and then looks whether the reclaimer is forbidden. A thread
//!   that forbids it wakes the waiters of all entries afterwards. So one of them leads to the work.
//! - I2. The drop of a future takes its entry and its waker back.
//!
//! Cost: a first poll and a drop search a tree of the waiting tasks.

use squall_sys::fork::forked;
use squall_sys::sync::Arc;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::jobs::{Done, Ticket, Workers, has_jobs, push_barrier, push_round, push_wait, run_jobs, withdraw};
use crate::raw::grace::Haste;
use crate::runners::Quiescent;
use crate::wait::{Marker, MarkerState, WaitError, may_run, may_wait, wait_unchecked};

/// Returns the outcome of a job, or leaves the waker. While the reclaimer is forbidden, does the work.
pub(crate) fn poll_job(done: &Arc<Done>, waker: &Waker) -> Poll<Result<Quiescent, WaitError>> {
    if forked() {
        return Poll::Ready(Err(WaitError::Forked));
    }
    loop {
        if let Some(outcome) = done.poll(waker) {
            return Poll::Ready(outcome);
        }
        // After the waker was left (I1).
        if crate::reclaimer::allowed() || !has_jobs() {
            return Poll::Pending;
        }
        may_run()?;
        run_jobs(Workers::Caller, || Some(()));
    }
}

/// An entry of the queue for which a task waits.
struct Awaited {
    ticket: Ticket,
    done: Arc<Done>,
}

impl Awaited {
    fn new((ticket, done): (Ticket, Arc<Done>)) -> Awaited {
        Awaited { ticket, done }
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        // In the child of a fork the locks may be held for ever.
        if !forked() {
            withdraw(self.ticket);
            self.done.forget_waker();
        }
    }
}

/// A wait for a grace period.
struct Elapse {
    marker: Marker,
    wait: Option<Awaited>,
}

impl Future for Elapse {
    type Output = Result<(), WaitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let marker = self.marker;
        if marker.update_and_check()? == MarkerState::Elapsed {
            self.wait = None;
            return Poll::Ready(Ok(()));
        }
        let wait = self.wait.get_or_insert_with(|| {
            let wait = Awaited::new(push_wait(marker.0));
            crate::reclaimer::wake();
            wait
        });
        if let Some(outcome) = wait.done.poll(context.waker()) {
            return Poll::Ready(outcome.map(drop));
        }
        // After the waker was left (I1).
        if crate::reclaimer::allowed() {
            return Poll::Pending;
        }
        may_wait()?;
        Poll::Ready(wait_unchecked(marker.0, Haste::Normal, None))
    }
}

/// A barrier.
struct Barrier(Option<Awaited>);

impl Future for Barrier {
    type Output = Result<(), WaitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if forked() {
            return Poll::Ready(Err(WaitError::Forked));
        }
        let barrier = self.0.get_or_insert_with(|| {
            let barrier = Awaited::new(push_barrier());
            crate::reclaimer::wake();
            barrier
        });
        poll_job(&barrier.done, context.waker()).map_ok(|_| ())
    }
}

impl Marker {
    /// Waits until the marker has elapsed, like [`wait`](Marker::wait), for a task.
    ///
    /// The future blocks no thread: the reclaimer thread waits. Dropping it has no effect. It needs no
    /// particular runtime, so a timer of the task's runtime can limit it.
    ///
    /// The reclaimer answers waits before its other work. A deferred call or quiescent-do on that thread
    /// delays them until it ends. So do waits of that thread: for the grace period of other work, and in a
    /// barrier for deferred calls that another thread is running.
    ///
    /// While the reclaimer is [forbidden](crate::set_reclaimer), a poll waits for the grace period itself,
    /// and blocks its thread.
    ///
    /// # Errors
    /// [`WaitError::Forked`], [`WaitError::NoFence`]. While the reclaimer is forbidden, also the errors of
    /// [`wait`](crate::wait()).
    /// # Example
    /// ```
    /// async fn replaced(old: Box<u64>) -> Result<(), squall::rcu::WaitError> {
    ///     let marker = squall::rcu::Marker::set();
    ///     // Every operation that was open at the marker has ended behind this line.
    ///     marker.wait_async().await?;
    ///     drop(old);
    ///     Ok(())
    /// }
    /// ```
    pub fn wait_async(&self) -> impl Future<Output = Result<(), WaitError>> + Send + Unpin + use<> {
        Elapse { marker: *self, wait: None }
    }
}

/// Waits until every operation that is open at this call has ended, like [`wait`](crate::wait()), for a task.
///
/// The moment is that of the call, not of the first poll. [`Marker::wait_async`] has the rest.
///
/// # Errors
/// The errors of [`Marker::wait_async`].
/// # Example
/// ```
/// async fn quiet() -> Result<(), squall::rcu::WaitError> {
///     squall::rcu::wait_async().await
/// }
/// ```
pub fn wait_async() -> impl Future<Output = Result<(), WaitError>> + Send + Unpin {
    Marker::set().wait_async()
}

/// Waits until every call that any thread deferred before the first poll has run, like
/// [`barrier`](crate::barrier), for a task. Waits also for every [quiescent-do](crate::quiescent_do) that has
/// begun until then. Calls that these defer may run later.
///
/// The reclaimer thread runs the calls. Dropping the future has no effect on them. It needs no particular
/// runtime, so a timer of the task's runtime can limit it.
///
/// While the reclaimer is [forbidden](crate::set_reclaimer), a poll runs the calls itself, and blocks its
/// thread.
///
/// # Errors
/// [`WaitError::Forked`], [`WaitError::NoFence`]. While the reclaimer is forbidden, also the errors of
/// [`barrier`](crate::barrier).
/// # Example
/// ```
/// async fn all_dropped() -> Result<(), squall::rcu::WaitError> {
///     squall::rcu::retire(Box::new([0; 100]));
///     squall::rcu::barrier_async().await
/// }
/// ```
pub fn barrier_async() -> impl Future<Output = Result<(), WaitError>> + Send + Unpin {
    Barrier(None)
}

/// A wait for the reclaimer's next round.
struct Round(Option<Awaited>);

impl Future for Round {
    type Output = Result<(), WaitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if forked() {
            return Poll::Ready(Err(WaitError::Forked));
        }
        let round = self.0.get_or_insert_with(|| {
            let round = Awaited::new(push_round());
            crate::reclaimer::announce();
            round
        });
        if let Some(outcome) = round.done.poll(context.waker()) {
            return Poll::Ready(outcome.map(drop));
        }
        // After the waker was left (I1).
        if !crate::reclaimer::allowed() {
            withdraw(round.ticket);
            // Wakes this task: other tasks of its thread go first.
            round.done.fill(Ok(Quiescent::NONE));
        }
        Poll::Pending
    }
}

/// Not public: waits for the reclaimer's next round, at least some milliseconds later. While the reclaimer is
/// forbidden, only lets other tasks go first.
#[doc(hidden)]
pub fn __round_async() -> impl Future<Output = Result<(), WaitError>> + Send + Unpin {
    Round(None)
}
