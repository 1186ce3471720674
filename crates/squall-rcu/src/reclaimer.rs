//! The reclaimer: one named thread that runs the deferred calls that their owners have left behind.
//!
//! - I1. The thread exists only after the first deferred call or [`quiescent_do`](crate::quiescent_do), and
//!   only if it is allowed. It is named [`NAME`], sleeps without a time-out when it has no work, and never
//!   ends.
//! - I2. Work is never overlooked: a thread that defers its first call announces it after its list shows that
//!   call. The reclaimer sleeps only after it has cleared the flag and looked at the lists again (`work/I1`).
//! - I3. The reclaimer takes calls from three groups of threads. (a) A thread that asked for it. (b) A thread
//!   that has neither deferred nor run a call since the last round, although it ran, or is asleep. (c) A
//!   thread that has run no pending call for a second. So working threads reclaim for themselves, even if
//!   they seldom get a processor. If a thread turns to other work, its calls run two or three rounds later.
//! - I4. The reclaimer runs deferred calls and quiescent-dos only within a turn (`switch/I1`). It waits for
//!   grace periods before the turn, so a thread that waits for the end of a turn does not wait for readers.
//!
//! Cost: while calls are pending, each round reads all records, and the state of each thread that seems idle.
//! Rounds grow from [`ROUND`] to [`ROUND_MAX`] while the reclaimer takes no call. Free while no call is
//! pending.
//! Source: K42's worker events (CO-26). Deviation: the thread is named, started on demand, and can be
//! switched off.

use squall_machine::park::EventCount;
use squall_sys::affinity;
use std::ptr;
use std::time::{Duration, Instant};

use crate::jobs::{
    Workers, answer_waits, end_rounds, has_jobs, has_rounds, has_waits, run_jobs, wake_waiters,
};
use crate::raw::defer::Owner;
use crate::raw::domain::Domain;
use crate::raw::record::Record;
use crate::raw::switch::{FAILED, OFF, PAUSED, RUNNING, STOPPING, Switch, TURN, UNASKED};
use crate::raw::work::Work;
use crate::run::{LIMIT_BYTES, orphaned, run_everything};
use crate::thread::{DOMAIN, take_record};
use crate::wait::may_run;

/// The thread's name.
pub(crate) const NAME: &str = "squall-reclaim";
/// Duration of a round while the reclaimer finds calls to take.
const ROUND: Duration = Duration::from_millis(10);
/// Longest duration of a round, reached while every thread reclaims for itself.
const ROUND_MAX: Duration = Duration::from_millis(40);

/// Set if calls may be pending in some list (I2).
static WORK: Work = Work::new();
static EVENT: EventCount = EventCount::new();
static SWITCH: Switch = Switch::new();

/// The state of the reclaimer thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReclaimerState {
    /// The thread has not been started, because no call was deferred yet.
    NotStarted,
    /// The thread runs, under the name `squall-reclaim`.
    Running,
    /// The thread was switched off by [`set_reclaimer`] or `SQUALL_RECLAIMER=off`: callers do the work.
    Off,
    /// The thread was switched off, and still runs deferred calls that it took before. A caller of
    /// [`set_reclaimer`] that could not wait sees this state.
    Stopping,
    /// The system refused to start the thread: callers do the work.
    Failed,
}

/// Returns the state of the reclaimer thread.
///
/// # Example
/// ```
/// use squall::rcu::{ReclaimerState, reclaimer_state};
/// assert_ne!(reclaimer_state(), ReclaimerState::Failed);
/// ```
pub fn reclaimer_state() -> ReclaimerState {
    match SWITCH.state() {
        RUNNING | TURN => ReclaimerState::Running,
        STOPPING => ReclaimerState::Stopping,
        OFF | PAUSED => ReclaimerState::Off,
        FAILED => ReclaimerState::Failed,
        _ => ReclaimerState::NotStarted,
    }
}

/// Allows or forbids the reclaimer thread. Overrides `SQUALL_RECLAIMER`.
///
/// Once `set_reclaimer(false)` has returned, the reclaimer thread runs no deferred call and no quiescent-do
/// until it is allowed again. The function waits for those that the thread and its runners run now, but not
/// for readers. So the caller must not hold a lock that they take.
///
/// The function does not wait inside an operation, a deferred call, a quiescent-do,
/// [`without_callbacks`](crate::without_callbacks) or the transfer of a hot-swap, where the wait could be a
/// deadlock. It then returns while the reclaimer thread still runs the calls that it has taken; the thread
/// takes no more. Until these calls have ended, [`reclaimer_state`] returns [`ReclaimerState::Stopping`]. A
/// second `set_reclaimer(false)`, in a place where waiting is allowed, waits for the end.
///
/// While it is forbidden, callers do the work: users' deferred calls then also run when a thread leaves an
/// operation. The pending calls of a thread that stopped retiring stay until it or another thread calls
/// [`barrier`](crate::barrier). [`reclaim`](crate::reclaim()) runs the calls of its own thread and of ended
/// threads.
///
/// While it is forbidden, the bound of [`retire`](crate::retire) does not limit users' calls of ended
/// threads. They wait until a thread calls `reclaim` or `barrier`, so call one of them now and then. Values
/// without a `Drop` stay bounded: a thread over its bound also frees those of ended threads.
///
/// In the child of a fork, which has no reclaimer, the function has no effect.
///
/// # Cost
/// Blocks on the deferred calls that the reclaimer thread runs, if it is forbidden; otherwise lock-free.
/// # Example
/// ```
/// use squall::rcu::{ReclaimerState, barrier, reclaimer_state, retire, set_reclaimer};
/// set_reclaimer(false);
/// assert_eq!(reclaimer_state(), ReclaimerState::Off);
/// retire(Box::new(7));
/// // This thread must drop the value itself.
/// assert_eq!(barrier().unwrap(), 1);
/// ```
pub fn set_reclaimer(allowed: bool) {
    if squall_sys::fork::forked() {
        return;
    }
    let old = SWITCH.set(allowed);
    if allowed && matches!(old, PAUSED | STOPPING) {
        let _ = WORK.claim();
        EVENT.signal(1);
    } else if allowed && (has_jobs() || has_waits() || has_rounds()) {
        wake();
    } else if allowed && orphaned().calls > 0 {
        announce();
    } else if !allowed {
        wake_waiters();
        if may_run().is_ok() {
            SWITCH.wait_turn_end();
        }
    }
}

/// Returns whether the reclaimer may run users' code.
pub(crate) fn allowed() -> bool {
    match SWITCH.state() {
        UNASKED => {
            let off = std::env::var_os("SQUALL_RECLAIMER").is_some_and(|value| value == "off");
            // If another thread set the state first, its decision stands.
            SWITCH.decide(!off);
            !off
        }
        OFF | PAUSED | STOPPING | FAILED => false,
        _ => true,
    }
}

/// Announces a deferred call in a list that was empty.
pub(crate) fn announce() {
    if WORK.announce(Domain::fenced()) {
        announce_cold();
    }
}

#[cold]
fn announce_cold() {
    if allowed() && !squall_sys::fork::forked() && WORK.claim() {
        start();
        EVENT.signal(1);
    }
}

/// Wakes the reclaimer now, for work that should not wait for the next round.
pub(crate) fn wake() {
    if allowed() && !squall_sys::fork::forked() {
        let _ = WORK.claim();
        start();
        EVENT.signal(1);
    }
}

fn start() {
    if !SWITCH.start() {
        return;
    }
    let spawned = squall_sys::sync::thread::Builder::new().name(NAME.to_owned()).spawn(work);
    if spawned.is_err() {
        SWITCH.fail();
        // They found the reclaimer allowed, and must do the work themselves.
        wake_waiters();
    }
}

fn work() {
    // Without an exit hook: the thread never ends (I1).
    let Ok(record) = take_record(|| (), |_, ()| ()) else { return };
    let begun = Instant::now();
    let mut pause = ROUND;
    loop {
        let seen = EVENT.prepare();
        // Relaxed: `begin_turn` decides whether calls may run. A thread that allows the reclaimer signals
        // `EVENT` after its exchange (`park/I2`).
        let paused = SWITCH.state() != RUNNING;
        if paused || !WORK.is_set() {
            EVENT.wait(seen, None);
            pause = ROUND;
            continue;
        }
        if !has_jobs() && !has_waits() {
            EVENT.wait(seen, Some(pause));
        }
        let now_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        match round(record, now_ms) {
            Round::Took => pause = ROUND,
            Round::LeftAlone => pause = (pause * 2).min(ROUND_MAX),
        }
        rest();
    }
}

/// A thread with pending calls.
enum Thread {
    /// The reclaimer itself, with calls that deferred calls deferred in turn. It runs them now.
    Reclaimer,
    /// Another thread, with this id.
    Other(u32),
}

impl Owner for Thread {
    fn time_run(&self) -> Option<u64> {
        match self {
            Thread::Reclaimer => None,
            Thread::Other(id) => affinity::time_run(*id),
        }
    }

    fn is_asleep(&self) -> bool {
        match self {
            Thread::Reclaimer => true,
            Thread::Other(id) => !affinity::is_runnable(*id),
        }
    }
}

/// The outcome of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    /// Calls were taken, or the attempt was made.
    Took,
    /// All calls were left to their owners.
    LeftAlone,
}

/// Runs the queued jobs and the deferred calls that their owners left behind (I3).
fn round(record: &'static Record, now_ms: u64) -> Round {
    run_jobs(Workers::Runners, || SWITCH.begin_turn());
    end_rounds();
    let mut outcome = if orphaned().calls > 0 { Round::Took } else { Round::LeftAlone };
    let choose = |other: &Record| {
        let (calls, bytes) = other.deferrals.pending();
        // A thread with no calls but with room in its lists is still asked: the reclaimer frees that room
        // too.
        if calls == 0 && other.deferrals.list_bytes() == 0 {
            other.deferrals.note_empty();
            return false;
        }
        let owner = if ptr::eq(other, record) { Thread::Reclaimer } else { Thread::Other(other.thread()) };
        let take = other.deferrals.is_left_behind(now_ms, &owner) || bytes > LIMIT_BYTES / 2;
        if take {
            outcome = Round::Took;
        }
        take
    };
    let ran = run_everything(record, choose, || SWITCH.begin_turn(), answer_waits);
    if ran.is_err() {
        // Grace periods can no longer end: look again only when a new call is announced.
        WORK.clear();
    }
    outcome
}

/// Clears the flag if no work is left (I2).
fn rest() {
    let pending = || {
        let mut left = orphaned().calls;
        DOMAIN
            .registry
            .for_each(|record| left += record.deferrals.pending().0 + record.deferrals.list_bytes());
        left > 0 || has_jobs() || has_waits() || has_rounds()
    };
    // On an error, memory can no longer be reclaimed, so there is no work to look for either.
    let _ = WORK.rest(pending);
}
