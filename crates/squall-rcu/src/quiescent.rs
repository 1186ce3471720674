//! Quiescent-do: run a function on chosen VPs after the next grace period. Source: Appavoo 2005, §8.5
//! (CO-69).

use squall_machine::{Vp, VpSet};
use squall_sys::sync::Arc;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::jobs::{Done, Run, RunOn, push_run, wait_for};
use crate::runners::Quiescent;
use crate::tasks::poll_job;
use crate::wait::{WaitError, may_wait};

/// A quiescent-do in progress. Dropping it detaches it: the work goes on.
///
/// [Wait](PendingRun::wait) for it, [poll](PendingRun::poll) it, or await it. The outcome is there when the
/// last run has ended and the function with its captures was dropped.
///
/// The future needs no particular runtime. While the reclaimer is forbidden, a poll of the future does the
/// work, and blocks the thread meanwhile.
#[must_use = "dropping it detaches the work; call `wait` or `poll` for the outcome"]
pub struct PendingRun(Arc<Done>);

impl std::fmt::Debug for PendingRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingRun").field("outcome", &self.poll()).finish()
    }
}

impl PendingRun {
    /// Returns the outcome, if the work is done. In the child of a fork, this is [`WaitError::Forked`].
    ///
    /// # Example
    /// ```
    /// use squall::rcu::{RunOn, quiescent_do};
    /// let vps = squall::machine().vps();
    /// let pending = quiescent_do(vps, RunOn::Any, |_| ()).unwrap();
    /// while pending.poll().is_none() {
    ///     std::thread::yield_now();
    /// }
    /// ```
    pub fn poll(&self) -> Option<Result<Quiescent, WaitError>> {
        if squall_sys::fork::forked() {
            return Some(Err(WaitError::Forked));
        }
        self.0.lock().outcome
    }

    /// Blocks the thread until the outcome is there. If the reclaimer is forbidden, the thread does the work.
    ///
    /// # Errors
    /// The errors of [`wait`](crate::wait()).
    /// # Example
    /// ```
    /// use squall::rcu::{RunOn, quiescent_do};
    /// let vps = squall::machine().vps();
    /// let outcome = quiescent_do(vps, RunOn::Any, |_| ()).unwrap().wait().unwrap();
    /// assert_eq!((outcome.placed + outcome.displaced, outcome.panicked), (1, 0));
    /// ```
    pub fn wait(self) -> Result<Quiescent, WaitError> {
        may_wait()?;
        wait_for(&self.0)
    }
}

impl Future for PendingRun {
    type Output = Result<Quiescent, WaitError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        poll_job(&self.0, context.waker())
    }
}

impl Drop for PendingRun {
    fn drop(&mut self) {
        if !squall_sys::fork::forked() {
            self.0.forget_waker();
        }
    }
}

/// Runs `function` on each VP of the set, or on any one of them, once every operation that is open now has
/// ended (a *quiescent-do*).
///
/// The call returns at once. For [`RunOn::Each`] the reclaimer starts a thread `squall-runner`, which moves
/// from VP to VP by changing its affinity, and then ends. After each 2 ms in which a VP waits for that
/// thread, the reclaimer starts another one, so long runs proceed in parallel. The reclaimer itself does the
/// work of [`RunOn::Any`]. It changes its affinity for the run only if it may run on other VPs. If it is
/// forbidden, a thread that waits for the result or calls
/// [`barrier`](crate::barrier) does all the work, one run after the other.
///
/// If a VP is offline, not permitted, or admits no runner for 100 ms, its run happens elsewhere and counts as
/// displaced. A VP is a place to run, not mutual exclusion.
///
/// `function` runs outside every operation. It must not wait for grace periods, deferred calls or other
/// quiescent-dos, because it might wait for itself. Such waits return an error, as in a deferred call. A
/// panic in one run is counted; the other runs go on.
///
/// # Errors
/// [`WaitError::Forked`].
/// # Source
/// Appavoo 2005, §8.5 ("Quiescent Do").
/// # Example
/// ```
/// use squall::rcu::{RunOn, quiescent_do};
/// let vps = squall::machine().vps();
/// let pending = quiescent_do(vps, RunOn::Each, |vp| println!("flushing {vp:?}")).unwrap();
/// let outcome = pending.wait().unwrap();
/// assert_eq!(outcome.placed + outcome.displaced, vps.len());
/// ```
pub fn quiescent_do(
    vps: &VpSet,
    how: RunOn,
    function: impl Fn(Vp) + Send + Sync + 'static,
) -> Result<PendingRun, WaitError> {
    if squall_sys::fork::forked() {
        return Err(WaitError::Forked);
    }
    let done = push_run(Run { vps: vps.iter().collect(), how, function: Arc::new(function) });
    crate::reclaimer::wake();
    Ok(PendingRun(done))
}
