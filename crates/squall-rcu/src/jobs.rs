//! The queue of *quiescent-dos* (functions that run on chosen VPs after a grace period), and the work of
//! running them. `quiescent` is the public interface.
//!
//! Any thread outside operations may run the queue: the reclaimer does, or a waiter if the reclaimer is
//! forbidden.

use squall_machine::{Vp, machine};
use squall_sys::sync::atomic::{AtomicUsize, Ordering};
use squall_sys::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;

use crate::raw::grace::Haste;
use crate::raw::moment::Moment;
use crate::runners::{self, Function, Quiescent};
use crate::thread::run_caught;
use crate::wait::{WaitError, wait_unchecked};

/// Selects the VPs of the set on which the function runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunOn {
    /// Once on each VP of the set.
    Each,
    /// Once, on any one VP of the set.
    Any,
}

/// The threads that run a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workers {
    /// Runners, one or more (`runners`). For the reclaimer, which stays where it is.
    Runners,
    /// The calling thread, which moves from VP to VP.
    Caller,
}

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
pub(crate) fn run_jobs<P>(workers: Workers, enter: impl Fn() -> Option<P>) {
    loop {
        let Some(moment) = jobs().front().map(|job| job.moment) else { return };
        let passed = wait_unchecked(moment, Haste::Normal, None);
        let Some(_permission) = enter() else { return };
        // Another thread may have taken the first job meanwhile.
        let Some(job) = jobs().pop_front_if(|job| job.moment <= moment) else { continue };
        WAITING.fetch_sub(1, Ordering::Relaxed);
        let outcome = passed.map(|()| run_job(&job, workers));
        *job.done.outcome() = Some(outcome);
        job.done.changed.notify_all();
        // The drop of the function's captures is the caller's code.
        let _ = run_caught(|| drop(job));
    }
}

fn run_job(job: &Job, workers: Workers) -> Quiescent {
    // A run on any one VP is not worth a thread.
    let on_runners = workers == Workers::Runners && job.how == RunOn::Each;
    let ran = on_runners.then(|| runners::run_on_each(&job.vps, &job.function)).flatten();
    ran.unwrap_or_else(|| run_here(job))
}

/// Runs a job on the calling thread, which moves to the VPs and back.
fn run_here(job: &Job) -> Quiescent {
    let home = squall_sys::affinity::allowed();
    let mut result = Quiescent::NONE;
    for (index, &vp) in job.vps.iter().enumerate() {
        let last = index + 1 == job.vps.len();
        let any = job.how == RunOn::Any;
        if let Some((placed, panicked)) = run_on(vp, &job.function, any && !last) {
            result.add(placed, panicked);
            if any {
                break;
            }
        }
    }
    if let Ok(home) = home {
        // A processor of the old mask may have gone offline since; the kernel then keeps the present mask.
        let _ = squall_sys::affinity::restrict_to(&home);
    }
    result
}

/// Runs `function` on `vp`. If that is impossible, runs it elsewhere, unless the run is optional. Returns
/// whether it ran on the VP, and whether it panicked.
fn run_on(vp: Vp, function: &Function, optional: bool) -> Option<(bool, bool)> {
    let run = || run_caught(|| function(vp));
    if machine().is_virtual() {
        if let Ok(panicked) = Vp::with_vp(vp, run) {
            return Some((true, panicked));
        }
    } else if squall_sys::affinity::restrict_to(&[vp.index()]).is_ok() {
        return Some((true, run()));
    }
    (!optional).then(|| (false, run()))
}
