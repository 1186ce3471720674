//! Quiescent-do: run a function on chosen VPs after the next grace period. Source: Appavoo 2005, §8.5
//! (CO-69).

use squall_machine::{Vp, VpSet, machine};
use squall_sys::sync::atomic::{AtomicUsize, Ordering};
use squall_sys::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::pin::DOMAIN;
use crate::raw::grace::{Haste, Moment};
use crate::wait::{WaitError, may_wait, wait_unchecked};

/// Selects the VPs of the set on which the function runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// Once on each VP of the set.
    Each,
    /// Once, on any one VP of the set.
    Any,
}

/// The outcome of one quiescent-do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quiescent {
    /// Runs on the requested VP.
    pub placed: usize,
    /// Runs elsewhere, because the requested VP is offline or not permitted to this process.
    pub displaced: usize,
    /// Runs that panicked.
    pub panicked: usize,
}

type Function = Arc<dyn Fn(Vp) + Send + Sync>;

struct Job {
    moment: Moment,
    vps: Vec<Vp>,
    how: Where,
    function: Function,
    done: Arc<Done>,
}

struct Done {
    outcome: Mutex<Option<Result<Quiescent, WaitError>>>,
    changed: Condvar,
}

static JOBS: Mutex<VecDeque<Job>> = Mutex::new(VecDeque::new());
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// A quiescent-do in progress. Dropping it detaches it: the work goes on.
#[must_use = "dropping it detaches the work; call `wait` or `poll` for the outcome"]
pub struct Pending(Arc<Done>);

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending").field("outcome", &self.poll()).finish()
    }
}

impl Pending {
    /// Returns the outcome, or `None` while the work is in progress.
    ///
    /// # Example
    /// ```
    /// use squall_rcu::{Where, quiescent_do};
    /// let vps = squall_machine::machine().vps();
    /// let pending = quiescent_do(vps, Where::Any, |_| ()).unwrap();
    /// while pending.poll().is_none() {
    ///     std::thread::yield_now();
    /// }
    /// ```
    pub fn poll(&self) -> Option<Result<Quiescent, WaitError>> {
        *self.0.outcome()
    }

    /// Waits for the outcome. If the reclaimer is forbidden, the calling thread does the work.
    ///
    /// # Errors
    /// The errors of [`wait`](crate::wait()).
    /// # Example
    /// ```
    /// use squall_rcu::{Where, quiescent_do};
    /// let vps = squall_machine::machine().vps();
    /// let outcome = quiescent_do(vps, Where::Any, |_| ()).unwrap().wait().unwrap();
    /// assert_eq!((outcome.placed + outcome.displaced, outcome.panicked), (1, 0));
    /// ```
    pub fn wait(self) -> Result<Quiescent, WaitError> {
        may_wait()?;
        let mut outcome = self.0.outcome();
        loop {
            if let Some(outcome) = *outcome {
                return outcome;
            }
            // Read under the lock that `wake_waiters` takes, so that a change of the reclaimer's state is not
            // missed.
            if !crate::reclaimer::allowed() && has_jobs() {
                drop(outcome);
                run_jobs();
                outcome = self.0.outcome();
                continue;
            }
            outcome = self.0.changed.wait(outcome).unwrap_or_else(|poison| poison.into_inner());
        }
    }
}

impl Done {
    fn outcome(&self) -> MutexGuard<'_, Option<Result<Quiescent, WaitError>>> {
        self.outcome.lock().unwrap_or_else(|poison| poison.into_inner())
    }
}

/// Wakes the waiters of all jobs still in the queue: the reclaimer has been forbidden, so the waiters must do
/// the work.
pub(crate) fn wake_waiters() {
    let waiting: Vec<Arc<Done>> = jobs().iter().map(|job| job.done.clone()).collect();
    for done in waiting {
        drop(done.outcome());
        done.changed.notify_all();
    }
}

/// Runs `function` on each VP of the set, or on any one of them, once every operation that is open now has
/// ended.
///
/// The call returns at once. The reclaimer thread does the work, moving from VP to VP by changing its
/// affinity. If the reclaimer is forbidden, a thread that waits for the result or calls
/// [`barrier`](crate::barrier) does it.
///
/// If a VP is offline or not permitted, its run happens elsewhere and counts as displaced. A VP is a place to
/// run, not mutual exclusion.
///
/// `function` runs outside every operation. It may not wait for grace periods, deferred calls or other
/// quiescent-dos, since it might wait for itself: such waits return an error, as in a deferred call. A panic
/// in one run is counted; the other runs go on.
///
/// # Errors
/// [`WaitError::Forked`].
/// # Source
/// Appavoo 2005, §8.5 ("Quiescent Do").
/// # Example
/// ```
/// use squall_rcu::{Where, quiescent_do};
/// let vps = squall_machine::machine().vps();
/// let pending = quiescent_do(vps, Where::Each, |vp| println!("flushing {vp:?}")).unwrap();
/// let outcome = pending.wait().unwrap();
/// assert_eq!(outcome.placed + outcome.displaced, vps.len());
/// ```
pub fn quiescent_do(
    vps: &VpSet,
    how: Where,
    function: impl Fn(Vp) + Send + Sync + 'static,
) -> Result<Pending, WaitError> {
    if squall_sys::fork::forked() {
        return Err(WaitError::Forked);
    }
    let done = Arc::new(Done { outcome: Mutex::new(None), changed: Condvar::new() });
    let job = Job {
        moment: DOMAIN.grace.mark(),
        vps: vps.iter().collect(),
        how,
        function: Arc::new(function),
        done: done.clone(),
    };
    jobs().push_back(job);
    // Release: pairs with the acquire in `has_jobs`.
    WAITING.fetch_add(1, Ordering::Release);
    crate::reclaimer::urge();
    Ok(Pending(done))
}

fn jobs() -> MutexGuard<'static, VecDeque<Job>> {
    JOBS.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// Returns whether a quiescent-do waits to be run.
pub(crate) fn has_jobs() -> bool {
    // Acquire: pairs with the release in `quiescent_do`: a thread that sees the number finds the job.
    WAITING.load(Ordering::Acquire) > 0
}

/// Runs all queued jobs. The caller is outside every operation.
pub(crate) fn run_jobs() {
    loop {
        let Some(job) = jobs().pop_front() else { return };
        WAITING.fetch_sub(1, Ordering::Relaxed);
        let outcome = wait_unchecked(job.moment, Haste::Normal, None).map(|()| run_job(&job));
        *job.done.outcome() = Some(outcome);
        job.done.changed.notify_all();
    }
}

fn run_job(job: &Job) -> Quiescent {
    let home = squall_sys::affinity::allowed();
    let mut result = Quiescent { placed: 0, displaced: 0, panicked: 0 };
    for (index, &vp) in job.vps.iter().enumerate() {
        let last = index + 1 == job.vps.len();
        let optional = job.how == Where::Any && !last;
        match run_on(vp, &job.function, optional) {
            Ran::Placed(panicked) => {
                result.placed += 1;
                result.panicked += usize::from(panicked);
            }
            Ran::Displaced(panicked) => {
                result.displaced += 1;
                result.panicked += usize::from(panicked);
            }
            Ran::Not => continue,
        }
        if job.how == Where::Any {
            break;
        }
    }
    if let Ok(home) = home {
        // A processor of the old mask may have gone offline since; the kernel then keeps the present mask.
        let _ = squall_sys::affinity::restrict_to(&home);
    }
    result
}

/// The place of one run, and whether it panicked.
enum Ran {
    Placed(bool),
    Displaced(bool),
    Not,
}

/// Runs `function` on `vp`. If that is impossible, runs it elsewhere, unless the run is optional.
fn run_on(vp: Vp, function: &Function, optional: bool) -> Ran {
    // The payload is leaked: its drop is also the caller's code, and could panic here.
    let run = || {
        let caught = catch_unwind(AssertUnwindSafe(|| crate::defer::as_deferred(|| function(vp))));
        caught.map_err(std::mem::forget).is_err()
    };
    if machine().is_virtual() {
        if let Ok(panicked) = Vp::with_vp(vp, run) {
            return Ran::Placed(panicked);
        }
    } else if squall_sys::affinity::restrict_to(&[vp.index()]).is_ok() {
        return Ran::Placed(run());
    }
    if optional { Ran::Not } else { Ran::Displaced(run()) }
}
