//! The queue of the reclaimer's work: the jobs, and the waits of tasks.
//!
//! A job is a *quiescent-do* (a function that runs on chosen VPs after a grace period) or a barrier of a
//! task. `quiescent` and `tasks` are the public interfaces.
//!
//! Any thread outside operations may run the jobs: the reclaimer does, or a waiter if the reclaimer is
//! forbidden. Then a wait for a grace period is its own task's work.
//!
//! - I1. A quiescent-do is in `jobs` or in `running` until it has ended. It moves under the lock.
//! - I2. A barrier ends after all quiescent-dos that were in these lists when its deferred calls had run. So
//!   it does not matter which threads run them.
//! - I3. The reclaimer answers waits before each job, beside runners, and between deferred calls.
//!
//! Not promised: an answer while the reclaimer thread runs one deferred call of a user, waits for the grace
//! period of other work, or waits in a barrier for calls of another thread.
//!
//! Cost: adding or taking back an entry is a search in a tree.

use squall_machine::{Vp, machine};
use squall_sys::sync::atomic::{AtomicUsize, Ordering};
use squall_sys::sync::{Arc, Mutex, MutexGuard};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use crate::raw::grace::Haste;
use crate::raw::moment::Moment;
use crate::raw::outcome::Outcome;
use crate::registration::with_record;
use crate::runners::{self, Function, Quiescent};
use crate::thread::{DOMAIN, as_deferred, run_caught};
use crate::wait::{WaitError, may_run, wait_unchecked};

/// Selects the VPs of the set on which the function runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunOn {
    /// Once on each VP of the set.
    Each,
    /// Once, on any VP of the set. The thread may move within the set during the run; the function gets the
    /// VP on which the run began.
    Any,
}

/// The threads that run a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workers {
    /// Runners, one or more (`runners`). For the reclaimer, which answers waits meanwhile (I3).
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
enum Work {
    Run(Run),
    Barrier,
}

/// One job in the queue.
struct Job {
    /// A quiescent-do runs once this moment has passed.
    moment: Moment,
    work: Work,
    done: Arc<Done>,
}

/// A barrier after the run of its deferred calls.
struct Tail {
    /// The quiescent-dos that it still waits for (I2).
    left: BTreeSet<u64>,
    done: Arc<Done>,
}

/// The outcome of an entry, shared with its waiter.
pub(crate) type Done = Outcome<Result<Quiescent, WaitError>>;

/// The place of an entry, by which its waiter takes it back.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ticket {
    Job(u64),
    Wait(Moment, u64),
    Round(u64),
}

/// All entries. Each has a number of its own, and later ones have greater numbers.
struct Queue {
    last: u64,
    /// Run in the order of their numbers.
    jobs: BTreeMap<u64, Job>,
    /// Quiescent-dos that left `jobs` and have not ended.
    running: BTreeMap<u64, Arc<Done>>,
    /// Barriers that left `jobs` and have not ended.
    tails: BTreeMap<u64, Tail>,
    /// Waits of tasks for a grace period, in the order of their moments.
    waits: BTreeMap<(Moment, u64), Arc<Done>>,
    /// Waits for the reclaimer's next round.
    rounds: BTreeMap<u64, Arc<Done>>,
    /// The number of quiescent-dos that have ended.
    ended: u64,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue {
    last: 0,
    jobs: BTreeMap::new(),
    running: BTreeMap::new(),
    tails: BTreeMap::new(),
    waits: BTreeMap::new(),
    rounds: BTreeMap::new(),
    ended: 0,
});
/// The number of `jobs`. Written under the lock.
static JOBS: AtomicUsize = AtomicUsize::new(0);
/// The number of `waits`. Written under the lock.
static WAITS: AtomicUsize = AtomicUsize::new(0);

impl Queue {
    fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Publishes the numbers of jobs and waits.
    fn count(&self) {
        // Release: pairs with the acquire in `has_jobs` and `has_waits`.
        JOBS.store(self.jobs.len(), Ordering::Release);
        WAITS.store(self.waits.len(), Ordering::Release);
    }

    fn take_job(&mut self, number: u64) -> Option<Job> {
        let job = self.jobs.remove(&number);
        self.count();
        job
    }

    /// Takes the waits with a moment up to `passed`.
    fn take_waits(&mut self, passed: Moment) -> Vec<Arc<Done>> {
        let mut taken = Vec::new();
        while let Some(first) = self.waits.first_entry().filter(|first| first.key().0 <= passed) {
            taken.push(first.remove());
        }
        self.count();
        taken
    }

    /// The quiescent-dos that have not ended (I1).
    fn runs(&self) -> BTreeMap<u64, Arc<Done>> {
        let waiting = self.jobs.iter().filter(|(_, job)| matches!(job.work, Work::Run(_)));
        let waiting = waiting.map(|(&number, job)| (number, job.done.clone()));
        waiting.chain(self.running.iter().map(|(&number, done)| (number, done.clone()))).collect()
    }

    /// Notes the end of a quiescent-do. Returns the barriers that end with it.
    fn end_run(&mut self, number: u64, failed: bool) -> Vec<Arc<Done>> {
        self.running.remove(&number);
        self.ended += 1;
        let mut ended = Vec::new();
        self.tails.retain(|_, tail| {
            let over = tail.left.remove(&number) && (failed || tail.left.is_empty());
            if over {
                ended.push(tail.done.clone());
            }
            !over
        });
        ended
    }
}

fn queue() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// Wakes the waiters of all entries: the reclaimer has been forbidden, so the waiters must do the work.
pub(crate) fn wake_waiters() {
    let waiting: Vec<Arc<Done>> = {
        let queue = queue();
        let jobs = queue.jobs.values().map(|job| &job.done);
        let tails = queue.tails.values().map(|tail| &tail.done);
        jobs.chain(tails).chain(queue.waits.values()).chain(queue.rounds.values()).cloned().collect()
    };
    waiting.iter().for_each(|done| done.wake());
}

/// Stores an outcome. The waker of the waiter is users' code, and must not wait here.
fn fill(done: &Done, outcome: Result<Quiescent, WaitError>) {
    as_deferred(|| done.fill(outcome));
}

fn fill_all(ended: &[Arc<Done>], outcome: Result<Quiescent, WaitError>) {
    ended.iter().for_each(|done| fill(done, outcome));
}

fn push(moment: Moment, work: Work) -> (Ticket, Arc<Done>) {
    let done = Arc::new(Done::new());
    let mut queue = queue();
    let number = queue.next_number();
    queue.jobs.insert(number, Job { moment, work, done: done.clone() });
    queue.count();
    (Ticket::Job(number), done)
}

/// Adds a quiescent-do.
pub(crate) fn push_run(run: Run) -> Arc<Done> {
    push(DOMAIN.grace.mark(), Work::Run(run)).1
}

/// Adds the barrier of a task.
pub(crate) fn push_barrier() -> (Ticket, Arc<Done>) {
    push(DOMAIN.grace.mark(), Work::Barrier)
}

/// Adds the wait of a task for this moment.
pub(crate) fn push_wait(moment: Moment) -> (Ticket, Arc<Done>) {
    let done = Arc::new(Done::new());
    let mut queue = queue();
    let number = queue.next_number();
    queue.waits.insert((moment, number), done.clone());
    queue.count();
    (Ticket::Wait(moment, number), done)
}

/// Adds a wait for the reclaimer's next round.
pub(crate) fn push_round() -> (Ticket, Arc<Done>) {
    let done = Arc::new(Done::new());
    let mut queue = queue();
    let number = queue.next_number();
    queue.rounds.insert(number, done.clone());
    (Ticket::Round(number), done)
}

/// Takes an entry back, if it is still there. For a waiter that has gone.
pub(crate) fn withdraw(ticket: Ticket) {
    let mut queue = queue();
    // Dropped behind the lock: the last link to an outcome drops its waker, which is users' code.
    let taken = match ticket {
        Ticket::Job(number) => {
            queue.take_job(number).map(|job| job.done).or(queue.tails.remove(&number).map(|tail| tail.done))
        }
        Ticket::Wait(moment, number) => queue.waits.remove(&(moment, number)),
        Ticket::Round(number) => queue.rounds.remove(&number),
    };
    queue.count();
    drop(queue);
    drop(taken);
}

/// Returns whether a job waits to be run.
pub(crate) fn has_jobs() -> bool {
    // Acquire: pairs with the release in `count`: a thread that sees the number finds the job.
    JOBS.load(Ordering::Acquire) > 0
}

/// Returns whether a task waits for a grace period.
pub(crate) fn has_waits() -> bool {
    // Acquire: as in `has_jobs`.
    WAITS.load(Ordering::Acquire) > 0
}

/// Returns whether a task waits for the next round.
pub(crate) fn has_rounds() -> bool {
    !queue().rounds.is_empty()
}

/// Ends all waits for the next round.
pub(crate) fn end_rounds() {
    let ended: Vec<_> = std::mem::take(&mut queue().rounds).into_values().collect();
    fill_all(&ended, Ok(Quiescent::NONE));
}

/// Answers the waits that have ended. Drives grace periods, but does not wait for them.
pub(crate) fn answer_waits() {
    // Relaxed: a wait that is missed is answered by the next call.
    if WAITS.load(Ordering::Relaxed) > 0 {
        answer_ripe();
    }
}

#[cold]
fn answer_ripe() {
    loop {
        let Some(first) = queue().waits.first_key_value().map(|(key, _)| key.0) else { return };
        // On an error the next round answers.
        if !matches!(DOMAIN.grace.poll(&DOMAIN.registry, first), Ok(true)) {
            return;
        }
        let ended = queue().take_waits(DOMAIN.grace.passed());
        fill_all(&ended, Ok(Quiescent::NONE));
    }
}

/// The next entry for `run_jobs`.
enum Next {
    Wait(Moment),
    Run(u64, Moment),
    Barrier(u64),
}

/// Runs the jobs that are queued at this call. The reclaimer also ends the waits. The caller is outside every
/// operation.
///
/// An entry stays in the queue until its moment has passed. Then this function calls `enter`, and keeps the
/// result while the job runs. If `enter` returns `None`, that entry and later ones stay in the queue.
pub(crate) fn run_jobs<P>(workers: Workers, enter: impl Fn() -> Option<P>) {
    // Later entries wait for the next call. So tasks that push again and again do not keep the reclaimer
    // here.
    let (last_job, last_wait) = {
        let queue = queue();
        let last = queue.waits.last_key_value().map(|(key, _)| key.0);
        (queue.last, last.filter(|_| workers == Workers::Runners))
    };
    let next = || {
        let queue = queue();
        let wait =
            queue.waits.first_key_value().map(|(key, _)| key.0).filter(|&wait| Some(wait) <= last_wait);
        let job = queue.jobs.first_key_value().filter(|(number, _)| **number <= last_job);
        match (wait, job) {
            // A job with an earlier moment does not wait for later readers.
            (Some(wait), job) if job.is_none_or(|(_, job)| wait <= job.moment) => Some(Next::Wait(wait)),
            (_, Some((&number, job))) => Some(match job.work {
                Work::Run(_) => Next::Run(number, job.moment),
                Work::Barrier => Next::Barrier(number),
            }),
            _ => None,
        }
    };
    while let Some(next) = next() {
        match next {
            Next::Wait(moment) => {
                let passed = wait_unchecked(moment, Haste::Normal, None);
                let Some(_permission) = enter() else { return };
                let ended = queue().take_waits(moment);
                fill_all(&ended, passed.map(|()| Quiescent::NONE));
            }
            Next::Run(number, moment) => {
                let passed = wait_unchecked(moment, Haste::Normal, None);
                let Some(_permission) = enter() else { return };
                if workers == Workers::Runners {
                    answer_waits();
                }
                run_one(number, passed, workers);
            }
            Next::Barrier(number) => {
                let Some(passed) = run_barrier(workers, &enter) else { return };
                end_barrier(number, passed);
            }
        }
    }
}

/// Runs a quiescent-do after its grace period, unless another thread has taken it.
fn run_one(number: u64, passed: Result<(), WaitError>, workers: Workers) {
    let job = {
        let mut queue = queue();
        let Some(job) = queue.take_job(number) else { return };
        queue.running.insert(number, job.done.clone());
        job
    };
    let outcome = passed.map(|()| match &job.work {
        Work::Run(run) => run_job(run, workers),
        Work::Barrier => Quiescent::NONE,
    });
    let done = job.done.clone();
    // The drop of the function's captures is the caller's code.
    let _ = run_caught(|| drop(job));
    // Before its waiters are told, so that a barrier among them sees the number of ended runs.
    let barriers = queue().end_run(number, outcome.is_err());
    fill(&done, outcome);
    fill_all(&barriers, outcome.map(|_| Quiescent::NONE));
}

/// Ends a barrier after its deferred calls, or leaves it to the last of the quiescent-dos (I2).
fn end_barrier(number: u64, passed: Result<(), WaitError>) {
    let ended = {
        let mut queue = queue();
        // Another thread may have ended it meanwhile, and its task may have gone.
        let Some(job) = queue.take_job(number) else { return };
        let left: BTreeSet<u64> = queue.runs().into_keys().collect();
        if passed.is_err() || left.is_empty() {
            job.done
        } else {
            queue.tails.insert(number, Tail { left, done: job.done });
            return;
        }
    };
    fill(&ended, passed.map(|()| Quiescent::NONE));
}

/// Returns the number of quiescent-dos that have ended.
pub(crate) fn ended_runs() -> u64 {
    queue().ended
}

/// Waits until all quiescent-dos that are in the queue, or are being run, have ended.
pub(crate) fn wait_for_runs() -> Result<(), WaitError> {
    let begun = queue().runs();
    begun.values().try_for_each(|done| wait_for(done).map(drop))
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

/// Runs every call that was deferred before. Deferred calls run only while the result of `enter` is kept.
/// Without that permission, the outcome is missing.
fn run_barrier<P>(workers: Workers, enter: impl Fn() -> Option<P>) -> Option<Result<(), WaitError>> {
    let refused = Cell::new(false);
    let enter = || {
        let permission = enter();
        refused.set(refused.get() || permission.is_none());
        permission
    };
    let ran = with_record(|record| match workers {
        Workers::Runners => crate::defer::barrier_with(record, enter, answer_waits),
        Workers::Caller => crate::defer::barrier_with(record, enter, || ()),
    });
    let ran = ran.unwrap_or(Err(WaitError::Forked)).map(drop);
    (!refused.get()).then_some(ran)
}

fn run_job(job: &Run, workers: Workers) -> Quiescent {
    match job.how {
        RunOn::Any => run_on_any(job),
        RunOn::Each => {
            let on_runners = workers == Workers::Runners;
            let ran = on_runners.then(|| runners::run_on_each(&job.vps, &job.function)).flatten();
            ran.unwrap_or_else(|| run_on_each(job))
        }
    }
}

/// Runs a job once, on the calling thread. The thread changes its affinity only if it may run on a VP outside
/// the set. Then it moves to the whole set, so that no busy VP of the set holds it up.
fn run_on_any(job: &Run) -> Quiescent {
    let mut result = Quiescent::NONE;
    let Some(&first) = job.vps.first() else { return result };
    let run = |vp| run_caught(|| (job.function)(vp));
    if machine().is_virtual() {
        let placed = job.vps.iter().find_map(|&vp| Vp::with_vp(vp, || run(vp)).ok());
        result.add(placed.is_some(), placed.unwrap_or_else(|| run(first)));
        return result;
    }
    let targets: Vec<usize> = job.vps.iter().map(|vp| vp.index()).collect();
    let home = squall_sys::affinity::allowed().ok();
    let is_there = home.as_ref().is_some_and(|home| home.iter().all(|cpu| targets.contains(cpu)));
    // Without `home` it could not move back.
    let moved = home.filter(|_| !is_there && squall_sys::affinity::restrict_to(&targets).is_ok());
    let placed = is_there || moved.is_some();
    let vp = Some(Vp::current()).filter(|vp| placed && job.vps.contains(vp));
    result.add(placed, run(vp.unwrap_or(first)));
    moved.into_iter().for_each(|home| move_back(&home));
    result
}

/// Runs a job on each of its VPs, on the calling thread, which moves to the VPs and back.
fn run_on_each(job: &Run) -> Quiescent {
    let home = squall_sys::affinity::allowed().ok();
    let mut result = Quiescent::NONE;
    for &vp in &job.vps {
        let run = || run_caught(|| (job.function)(vp));
        let on_vp = if machine().is_virtual() { Vp::with_vp(vp, run).ok() } else { None };
        // Without `home` it could not move back.
        let placed =
            on_vp.is_some() || (home.is_some() && squall_sys::affinity::restrict_to(&[vp.index()]).is_ok());
        result.add(placed, on_vp.unwrap_or_else(run));
    }
    home.into_iter().for_each(|home| move_back(&home));
    result
}

fn move_back(home: &[usize]) {
    // A processor of the old mask may have gone offline since; the kernel then keeps the present mask.
    let _ = squall_sys::affinity::restrict_to(home);
}
