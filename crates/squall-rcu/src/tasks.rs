//! Waits of tasks: futures for any runtime, which block no thread.
//!
//! Problem: a task must not block its thread for a grace period. Idea: the future leaves a job to the
//! reclaimer thread, which waits for grace periods anyway. The job's outcome wakes the task.
//!
//! - I1. A future leaves its job and its waker, and then looks whether the reclaimer is forbidden. A thread
//!   that forbids it wakes the waiters of all jobs afterwards. So one of them leads to the work.
//! - I2. The drop of a future takes its job and its waker back.

use squall_sys::fork::forked;
use squall_sys::sync::Arc;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::jobs::{Done, Job, Work, Workers, has_jobs, push, push_later, run_jobs, withdraw, withdraw_later};
use crate::runners::Quiescent;
use crate::wait::{Marker, MarkerState, WaitError, may_run};

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

/// A job for which a task waits.
struct Awaited(Arc<Done>);

impl Awaited {
    fn new(marker: Marker, work: Work) -> Awaited {
        let done = Arc::new(Done::new());
        push(Job { moment: marker.0, work, done: done.clone() });
        crate::reclaimer::wake();
        Awaited(done)
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        // In the child of a fork the locks may be held for ever.
        if !forked() {
            drop(withdraw(&self.0));
            self.0.forget_waker();
        }
    }
}

/// A wait for a grace period.
struct Elapse {
    marker: Marker,
    job: Option<Awaited>,
}

impl Future for Elapse {
    type Output = Result<(), WaitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let marker = self.marker;
        if marker.update_and_check()? == MarkerState::Elapsed {
            self.job = None;
            return Poll::Ready(Ok(()));
        }
        let job = self.job.get_or_insert_with(|| Awaited::new(marker, Work::Wait));
        poll_job(&job.0, context.waker()).map_ok(|_| ())
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
        let job = self.0.get_or_insert_with(|| Awaited::new(Marker::set(), Work::Barrier));
        poll_job(&job.0, context.waker()).map_ok(|_| ())
    }
}

impl Marker {
    /// Waits until the marker has elapsed, like [`wait`](Marker::wait), for a task.
    ///
    /// The future blocks no thread: the reclaimer thread waits. Dropping it has no effect. It needs no
    /// particular runtime, so a timer of the task's runtime can limit it.
    ///
    /// While the reclaimer is [forbidden](crate::set_reclaimer), a poll waits for the grace period itself,
    /// and blocks its thread.
    ///
    /// # Errors
    /// [`WaitError::Forked`], [`WaitError::NoFence`]. While the reclaimer is forbidden, also the errors of
    /// [`wait`](crate::wait()).
    /// # Example
    /// ```
    /// async fn replaced(old: Box<u64>) -> Result<(), squall_rcu::WaitError> {
    ///     let marker = squall_rcu::Marker::set();
    ///     // Every operation that was open at the marker has ended behind this line.
    ///     marker.wait_async().await?;
    ///     drop(old);
    ///     Ok(())
    /// }
    /// ```
    pub fn wait_async(&self) -> impl Future<Output = Result<(), WaitError>> + Send + Unpin + use<> {
        Elapse { marker: *self, job: None }
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
/// async fn quiet() -> Result<(), squall_rcu::WaitError> {
///     squall_rcu::wait_async().await
/// }
/// ```
pub fn wait_async() -> impl Future<Output = Result<(), WaitError>> + Send + Unpin {
    Marker::set().wait_async()
}

/// Waits until every call that any thread deferred before the first poll has run, like
/// [`barrier`](crate::barrier), for a task.
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
/// async fn all_dropped() -> Result<(), squall_rcu::WaitError> {
///     squall_rcu::retire(Box::new([0; 100]));
///     squall_rcu::barrier_async().await
/// }
/// ```
pub fn barrier_async() -> impl Future<Output = Result<(), WaitError>> + Send + Unpin {
    Barrier(None)
}

/// A wait for the reclaimer's next round.
struct Round(Option<Arc<Done>>);

impl Future for Round {
    type Output = Result<(), WaitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if forked() {
            return Poll::Ready(Err(WaitError::Forked));
        }
        let done = self.0.get_or_insert_with(|| {
            let done = Arc::new(Done::new());
            push_later(done.clone());
            crate::reclaimer::announce();
            done
        });
        if let Some(outcome) = done.poll(context.waker()) {
            return Poll::Ready(outcome.map(drop));
        }
        // After the waker was left (I1).
        if !crate::reclaimer::allowed() {
            withdraw_later(done);
            // Wakes this task: other tasks of its thread go first.
            done.fill(Ok(Quiescent::NONE));
        }
        Poll::Pending
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        // In the child of a fork the locks may be held for ever.
        if let Some(done) = self.0.take().filter(|_| !forked()) {
            withdraw_later(&done);
            done.forget_waker();
        }
    }
}

/// Not public: waits for the reclaimer's next round, at least some milliseconds later. While the reclaimer is
/// forbidden, only lets other tasks go first.
#[doc(hidden)]
pub fn __round_async() -> impl Future<Output = Result<(), WaitError>> + Send + Unpin {
    Round(None)
}
