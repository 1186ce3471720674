//! The queue of *quiescent-dos* (functions that run on chosen VPs after a grace period), and the work of
//! running them. `quiescent` is the public interface.
//!
//! Any thread outside operations may run the queue: the reclaimer does, or a waiter if the reclaimer is
//! forbidden.

use squall_machine::{Vp, machine};
use squall_sys::sync::atomic::{AtomicUsize, Ordering};
use squall_sys::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::raw::grace::Haste;
use crate::raw::moment::Moment;
use crate::thread::as_deferred;
use crate::wait::{WaitError, wait_unchecked};

/// Selects the VPs of the set on which the function runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunOn {
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

/// The function of a job.
pub(crate) type Function = Arc<dyn Fn(Vp) + Send + Sync>;

/// One quiescent-do in the queue.
pub(crate) struct Job {
    /// The function runs once this moment has passed.
    pub(crate) moment: Moment,
    pub(crate) vps: Vec<Vp>,
    pub(crate) how: RunOn,
    pub(crate) function: Function,
    pub(crate) done: Arc<Done>,
}

/// The outcome of a job, shared with its waiter.
pub(crate) struct Done {
    outcome: Mutex<Option<Result<Quiescent, WaitError>>>,
    changed: Condvar,
}

type OutcomeGuard<'a> = MutexGuard<'a, Option<Result<Quiescent, WaitError>>>;

static JOBS: Mutex<VecDeque<Job>> = Mutex::new(VecDeque::new());
static WAITING: AtomicUsize = AtomicUsize::new(0);

impl Done {
    /// Creates the outcome of a job that has not run.
    pub(crate) fn new() -> Done {
        Done { outcome: Mutex::new(None), changed: Condvar::new() }
    }

    /// Waits once for a change of the outcome.
    pub(crate) fn wait<'a>(&self, outcome: OutcomeGuard<'a>) -> OutcomeGuard<'a> {
        self.changed.wait(outcome).unwrap_or_else(|poison| poison.into_inner())
    }

    /// Locks the outcome.
    pub(crate) fn outcome(&self) -> OutcomeGuard<'_> {
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

fn jobs() -> MutexGuard<'static, VecDeque<Job>> {
    JOBS.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// Adds a job to the queue.
pub(crate) fn push(job: Job) {
    jobs().push_back(job);
    // Release: pairs with the acquire in `has_jobs`.
    WAITING.fetch_add(1, Ordering::Release);
}

/// Returns whether a quiescent-do waits to be run.
pub(crate) fn has_jobs() -> bool {
    // Acquire: pairs with the release in `push`: a thread that sees the number finds the job.
    WAITING.load(Ordering::Acquire) > 0
}

/// Runs all queued jobs. The caller is outside every operation.
///
/// A job stays in the queue until its moment has passed. Then this function calls `enter`, and keeps the
/// result while the job runs. If `enter` returns `None`, the job and later ones stay in the queue.
pub(crate) fn run_jobs<P>(enter: impl Fn() -> Option<P>) {
    loop {
        let Some(moment) = jobs().front().map(|job| job.moment) else { return };
        let passed = wait_unchecked(moment, Haste::Normal, None);
        let Some(_permission) = enter() else { return };
        // Another thread may have taken the first job meanwhile.
        let Some(job) = jobs().pop_front_if(|job| job.moment <= moment) else { continue };
        WAITING.fetch_sub(1, Ordering::Relaxed);
        let outcome = passed.map(|()| run_job(&job));
        *job.done.outcome() = Some(outcome);
        job.done.changed.notify_all();
    }
}

fn run_job(job: &Job) -> Quiescent {
    let home = squall_sys::affinity::allowed();
    let mut result = Quiescent { placed: 0, displaced: 0, panicked: 0 };
    for (index, &vp) in job.vps.iter().enumerate() {
        let last = index + 1 == job.vps.len();
        let optional = job.how == RunOn::Any && !last;
        match run_on(vp, &job.function, optional) {
            Ran::Placed(panicked) => {
                result.placed += 1;
                result.panicked += usize::from(panicked);
            }
            Ran::Displaced(panicked) => {
                result.displaced += 1;
                result.panicked += usize::from(panicked);
            }
            Ran::Skipped => continue,
        }
        if job.how == RunOn::Any {
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
    Skipped,
}

/// Runs `function` on `vp`. If that is impossible, runs it elsewhere, unless the run is optional.
fn run_on(vp: Vp, function: &Function, optional: bool) -> Ran {
    // The payload is leaked: its drop is also the caller's code, and could panic here.
    let run = || {
        let caught = catch_unwind(AssertUnwindSafe(|| as_deferred(|| function(vp))));
        caught.map_err(std::mem::forget).is_err()
    };
    if machine().is_virtual() {
        if let Ok(panicked) = Vp::with_vp(vp, run) {
            return Ran::Placed(panicked);
        }
    } else if squall_sys::affinity::restrict_to(&[vp.index()]).is_ok() {
        return Ran::Placed(run());
    }
    if optional { Ran::Skipped } else { Ran::Displaced(run()) }
}
