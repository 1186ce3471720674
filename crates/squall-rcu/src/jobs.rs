//! The queue of the reclaimer's jobs, and the work of running them.
//!
//! A job is a *quiescent-do* (a function that runs on chosen VPs after a grace period), or a wait of a task:
//! for a grace period, or for a barrier. `quiescent` and `tasks` are the public interfaces.
//!
//! Any thread outside operations may run the queue: the reclaimer does, or a waiter if the reclaimer is
//! forbidden.

use squall_machine::{Vp, machine};
use squall_sys::sync::atomic::{AtomicUsize, Ordering};
use squall_sys::sync::{Arc, Mutex, MutexGuard};
use std::cell::Cell;
use std::collections::VecDeque;

use crate::raw::grace::Haste;
use crate::raw::moment::Moment;
use crate::raw::outcome::Outcome;
use crate::registration::with_record;
use crate::runners::{self, Function, Quiescent};
use crate::thread::{as_deferred, run_caught};
use crate::wait::{WaitError, may_run, wait_unchecked};

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

/// The function of a quiescent-do, and the VPs where it runs.
pub(crate) struct Run {
    pub(crate) vps: Vec<Vp>,
    pub(crate) how: RunOn,
    pub(crate) function: Function,
}

/// The work of a job.
pub(crate) enum Work {
    Run(Run),
    /// Waiting for the job's moment is all.
    Wait,
    /// A barrier.
    Barrier,
}

/// One job in the queue.
pub(crate) struct Job {
    /// The work is done once this moment has passed.
    pub(crate) moment: Moment,
    pub(crate) work: Work,
    pub(crate) done: Arc<Done>,
}

/// The outcome of a job, shared with its waiter.
pub(crate) type Done = Outcome<Result<Quiescent, WaitError>>;

static JOBS: Mutex<VecDeque<Job>> = Mutex::new(VecDeque::new());
/// Waits for the reclaimer's next round.
static LATER: Mutex<Vec<Arc<Done>>> = Mutex::new(Vec::new());
/// Jobs in the queue.
static WAITING: AtomicUsize = AtomicUsize::new(0);
/// Quiescent-dos that left the queue and have not ended. Locked alone, or after `JOBS`.
static RUNNING: Mutex<Vec<Arc<Done>>> = Mutex::new(Vec::new());

/// Wakes the waiters of all jobs still in the queue: the reclaimer has been forbidden, so the waiters must do
/// the work.
pub(crate) fn wake_waiters() {
    let mut waiting: Vec<Arc<Done>> = jobs().iter().map(|job| job.done.clone()).collect();
    waiting.extend(later().iter().cloned());
    for done in waiting {
        done.wake();
    }
}

fn jobs() -> MutexGuard<'static, VecDeque<Job>> {
    JOBS.lock().unwrap_or_else(|poison| poison.into_inner())
}

fn later() -> MutexGuard<'static, Vec<Arc<Done>>> {
    LATER.lock().unwrap_or_else(|poison| poison.into_inner())
}

fn running() -> MutexGuard<'static, Vec<Arc<Done>>> {
    RUNNING.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// Adds a wait for the reclaimer's next round.
pub(crate) fn push_later(done: Arc<Done>) {
    later().push(done);
}

/// Takes a wait for the next round back.
pub(crate) fn withdraw_later(done: &Arc<Done>) {
    later().retain(|other| !Arc::ptr_eq(other, done));
}

/// Returns whether a task waits for the next round.
pub(crate) fn has_later() -> bool {
    !later().is_empty()
}

/// Ends all waits for the next round.
pub(crate) fn end_later() {
    let ended = std::mem::take(&mut *later());
    ended.iter().for_each(|done| fill(done, Ok(Quiescent::NONE)));
}

/// Stores an outcome. The waker of the waiter is users' code, and must not wait here.
fn fill(done: &Done, outcome: Result<Quiescent, WaitError>) {
    as_deferred(|| done.fill(outcome));
}

/// Turns a barrier into a wait behind all other jobs, after its calls have run.
fn put_off(done: &Arc<Done>) {
    let mut jobs = jobs();
    let place = jobs.iter().position(|job| Arc::ptr_eq(&job.done, done));
    if let Some(job) = place.and_then(|place| jobs.remove(place)) {
        jobs.push_back(Job { work: Work::Wait, ..job });
    }
}

/// Adds a job to the queue.
pub(crate) fn push(job: Job) {
    jobs().push_back(job);
    // Release: pairs with the acquire in `has_jobs`.
    WAITING.fetch_add(1, Ordering::Release);
}

/// Takes a job out of the queue. Returns it, if it was still there.
pub(crate) fn withdraw(done: &Arc<Done>) -> Option<Job> {
    let mut jobs = jobs();
    let place = jobs.iter().position(|job| Arc::ptr_eq(&job.done, done))?;
    let job = jobs.remove(place);
    WAITING.fetch_sub(1, Ordering::Relaxed);
    job
}

/// Returns whether a job waits to be run.
pub(crate) fn has_jobs() -> bool {
    // Acquire: pairs with the release in `push`: a thread that sees the number finds the job.
    WAITING.load(Ordering::Acquire) > 0
}

/// Runs the jobs that are queued at this call. The caller is outside every operation.
///
/// A job stays in the queue until its moment has passed. Then this function calls `enter`, and keeps the
/// result while the job runs. If `enter` returns `None`, the job and later ones stay in the queue.
pub(crate) fn run_jobs<P>(workers: Workers, enter: impl Fn() -> Option<P>) {
    // Later jobs wait for the next call. So tasks that push again and again do not keep the reclaimer here.
    let queued = jobs().len();
    for _ in 0..queued {
        let front = |jobs: &VecDeque<Job>| {
            let job = jobs.front()?;
            Some((job.moment, matches!(job.work, Work::Barrier).then(|| job.done.clone())))
        };
        let Some((moment, barrier)) = front(&jobs()) else { return };
        if let Some(done) = barrier {
            let Some(passed) = run_barrier(&enter) else { return };
            match passed {
                // It ends after the quiescent-dos that the deferred calls began.
                Ok(()) => put_off(&done),
                Err(error) => _ = withdraw(&done).map(|job| fill(&job.done, Err(error))),
            }
            continue;
        }
        let passed = wait_unchecked(moment, Haste::Normal, None);
        let Some(_permission) = enter() else { return };
        // Another thread may have taken the first job meanwhile.
        let Some(job) = pop(moment) else { continue };
        let outcome = passed.map(|()| match &job.work {
            Work::Run(run) => run_job(run, workers),
            Work::Wait | Work::Barrier => Quiescent::NONE,
        });
        let done = job.done.clone();
        // The drop of the function's captures is the caller's code.
        let _ = run_caught(|| drop(job));
        fill(&done, outcome);
        running().retain(|other| !Arc::ptr_eq(other, &done));
    }
}

/// Waits until all quiescent-dos that are in the queue, or are being run, have ended.
pub(crate) fn wait_for_runs() -> Result<(), WaitError> {
    // Under both locks, so that a job on its way from one list to the other is found.
    let begun: Vec<Arc<Done>> = {
        let jobs = jobs();
        let waiting = jobs.iter().filter(|job| matches!(job.work, Work::Run(_)));
        waiting.map(|job| job.done.clone()).chain(running().iter().cloned()).collect()
    };
    begun.iter().try_for_each(|done| wait_for(done).map(drop))
}

/// Blocks the thread until the outcome is there. If the reclaimer is forbidden, the thread does the work.
pub(crate) fn wait_for(done: &Done) -> Result<Quiescent, WaitError> {
    let mut state = done.lock();
    loop {
        if let Some(outcome) = state.outcome {
            return outcome;
        }
        // Read under the lock that `wake_waiters` takes, so that a change of the reclaimer's state is not
        // missed.
        if !crate::reclaimer::allowed() && has_jobs() {
            drop(state);
            // The queue may have barriers, whose deferred calls must not run everywhere.
            may_run()?;
            run_jobs(Workers::Caller, || Some(()));
            state = done.lock();
            continue;
        }
        state = done.wait(state);
    }
}

/// Takes the first job if it is no barrier and its moment is at most `passed`.
fn pop(passed: Moment) -> Option<Job> {
    let mut jobs = jobs();
    let first = jobs.front()?;
    if first.moment > passed || matches!(first.work, Work::Barrier) {
        return None;
    }
    let job = jobs.pop_front()?;
    WAITING.fetch_sub(1, Ordering::Relaxed);
    running().push(job.done.clone());
    Some(job)
}

/// Runs every call that was deferred before. Deferred calls run only while the result of `enter` is kept.
/// Without that permission, the outcome is missing.
fn run_barrier<P>(enter: impl Fn() -> Option<P>) -> Option<Result<(), WaitError>> {
    let refused = Cell::new(false);
    let enter = || {
        let permission = enter();
        refused.set(refused.get() || permission.is_none());
        permission
    };
    let ran = with_record(|record| crate::defer::barrier_with(record, enter));
    let ran = ran.unwrap_or(Err(WaitError::Forked)).map(drop);
    (!refused.get()).then_some(ran)
}

fn run_job(job: &Run, workers: Workers) -> Quiescent {
    // A run on any one VP is not worth a thread.
    let on_runners = workers == Workers::Runners && job.how == RunOn::Each;
    let ran = on_runners.then(|| runners::run_on_each(&job.vps, &job.function)).flatten();
    ran.unwrap_or_else(|| run_here(job))
}

/// Runs a job on the calling thread, which moves to the VPs and back.
fn run_here(job: &Run) -> Quiescent {
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
