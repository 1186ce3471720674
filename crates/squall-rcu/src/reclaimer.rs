//! The reclaimer: one named thread that runs what its owners will not come back for.
//!
//! - I1. It exists only after something was deferred, or asked of [`quiescent_do`](crate::quiescent_do), while it is
//!   allowed. It is named [`NAME`], sleeps without a time-out when there is nothing to do, and never ends.
//! - I2. No work is overlooked: whoever defers a thread's first call announces it after its list shows that call, and
//!   the reclaimer sleeps only after it has cleared the flag and looked at the lists again (`work/I1`).
//! - I3. It takes from a thread that asked for it; from one that has neither deferred nor run anything since the last round
//!   although it ran, or that sleeps; and from one that has run none of its own for a second. So threads at work reclaim for
//!   themselves, even where they seldom get a processor; what a thread leaves that turns to something else is run two or
//!   three rounds later.
//!
//! Cost while there is something to reclaim: one look at all records per round, and a look at the state of each thread that
//! seems idle. Rounds grow from [`ROUND`] to [`ROUND_MAX`] while there is nothing to take. When nothing is pending: none.
//! Source: K42's worker events (CO-26); named, on demand and switchable, as the design asks.

use squall_machine::park::EventCount;
use squall_sync::atomic::{AtomicU8, Ordering};
use squall_sys::affinity;
use std::ptr;
use std::time::{Duration, Instant};

use crate::defer::{LIMIT_BYTES, orphaned, run_everything};
use crate::op::{DOMAIN, own_record};
use crate::raw::defer::Owner;
use crate::raw::domain::Domain;
use crate::raw::record::Record;
use crate::raw::work::Work;

/// The thread's name.
pub(crate) const NAME: &str = "squall-reclaim";
/// How long a round lasts while there is something to take.
const ROUND: Duration = Duration::from_millis(10);
/// How long it lasts at most while every thread reclaims for itself.
const ROUND_MAX: Duration = Duration::from_millis(40);

/// Something may be deferred somewhere (I2).
static WORK: Work = Work::new();
static EVENT: EventCount = EventCount::new();
static STATE: AtomicU8 = AtomicU8::new(UNASKED);

const UNASKED: u8 = 0;
const OFF: u8 = 1;
const ALLOWED: u8 = 2;
const RUNNING: u8 = 3;
const FAILED: u8 = 4;
const PAUSED: u8 = 5;

/// What the reclaimer thread is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReclaimerState {
    /// Nothing was deferred yet, so it was not started.
    NotStarted,
    /// It runs, under the name `squall-reclaim`.
    Running,
    /// It was switched off, by [`set_reclaimer`] or `SQUALL_RECLAIMER=off`: callers do the work.
    Off,
    /// The system refused a thread: callers do the work.
    Failed,
}

/// What the reclaimer thread is doing.
pub fn reclaimer_state() -> ReclaimerState {
    match STATE.load(Ordering::Relaxed) {
        RUNNING => ReclaimerState::Running,
        OFF | PAUSED => ReclaimerState::Off,
        FAILED => ReclaimerState::Failed,
        _ => ReclaimerState::NotStarted,
    }
}

/// Allows or forbids the reclaimer thread; overrides `SQUALL_RECLAIMER`. One that runs stops working when forbidden, and
/// sleeps until allowed again.
///
/// Without it, callers do the work: deferred calls of users' code then also run when a thread leaves an operation, and
/// what a thread that stopped retiring has pending stays until it ends or somebody calls [`reclaim`](crate::reclaim()) or
/// [`barrier`](crate::barrier).
pub fn set_reclaimer(allowed: bool) {
    let change = |state| match (state, allowed) {
        (RUNNING | PAUSED, true) => RUNNING,
        (RUNNING | PAUSED, false) => PAUSED,
        (_, true) => ALLOWED,
        (_, false) => OFF,
    };
    // AcqRel: pairs with itself and with the exchange in `start`: one decision follows the other.
    let old = STATE.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| Some(change(state)));
    if allowed && old == Ok(PAUSED) {
        let _ = WORK.claim();
        EVENT.signal(1);
    } else if allowed && orphaned().0 > 0 {
        announce();
    } else if !allowed {
        crate::quiescent::wake_waiters();
    }
}

/// Whether the reclaimer may run users' code.
pub(crate) fn allowed() -> bool {
    match STATE.load(Ordering::Relaxed) {
        UNASKED => {
            let off = std::env::var_os("SQUALL_RECLAIMER").is_some_and(|value| value == "off");
            let state = if off { OFF } else { ALLOWED };
            // If somebody was faster, what they decided counts. AcqRel: as in `set_reclaimer`.
            let _ = STATE.compare_exchange(UNASKED, state, Ordering::AcqRel, Ordering::Acquire);
            !off
        }
        OFF | PAUSED | FAILED => false,
        _ => true,
    }
}

/// Something was deferred where nothing was before.
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

/// Wakes the reclaimer now, for work that should not wait for its round.
pub(crate) fn urge() {
    if allowed() && !squall_sys::fork::forked() {
        let _ = WORK.claim();
        start();
        EVENT.signal(1);
    }
}

fn start() {
    // AcqRel: as in `set_reclaimer`; whoever wins starts the thread.
    let mine = STATE.compare_exchange(ALLOWED, RUNNING, Ordering::AcqRel, Ordering::Acquire);
    if mine.is_err() {
        return;
    }
    let spawned = squall_sync::thread::Builder::new().name(NAME.to_owned()).spawn(work);
    if spawned.is_err() {
        // Release: pairs with the exchange in `set_reclaimer`.
        STATE.store(FAILED, Ordering::Release);
    }
}

fn work() {
    if crate::op::register().is_err() {
        return;
    }
    let Some(record) = own_record() else { return };
    let begun = Instant::now();
    let mut pause = ROUND;
    loop {
        let seen = EVENT.prepare();
        // Acquire: pairs with `set_reclaimer`, and below with whoever sets `WORK`.
        let paused = STATE.load(Ordering::Acquire) != RUNNING;
        if paused || !WORK.is_set() {
            EVENT.wait(seen, None);
            pause = ROUND;
            continue;
        }
        if !crate::quiescent::has_jobs() {
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

/// A thread that has something pending.
enum Thread {
    /// The reclaimer: what deferred calls defer in turn. It comes back for that now.
    Ourselves,
    /// One with this id.
    Other(u32),
}

impl Owner for Thread {
    fn time_run(&self) -> Option<u64> {
        match self {
            Thread::Ourselves => None,
            Thread::Other(id) => affinity::time_run(*id),
        }
    }

    fn is_asleep(&self) -> bool {
        match self {
            Thread::Ourselves => true,
            Thread::Other(id) => !affinity::is_runnable(*id),
        }
    }
}

/// What a round came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    /// It took something, or tried to.
    Took,
    /// It left everything to its owners.
    LeftAlone,
}

/// Runs the jobs, and what was let lie (I3).
fn round(record: &'static Record, now_ms: u64) -> Round {
    crate::quiescent::run_jobs();
    let mut outcome = if orphaned().0 > 0 { Round::Took } else { Round::LeftAlone };
    let ran = run_everything(record, |other| {
        let (calls, bytes) = other.deferrals.pending();
        // Such a thread gives back the room of its lists, too.
        if calls == 0 && other.deferrals.room() == 0 {
            other.deferrals.note_empty();
            return false;
        }
        let owner = if ptr::eq(other, record) { Thread::Ourselves } else { Thread::Other(other.thread()) };
        let take = other.deferrals.lies(now_ms, &owner) || bytes > LIMIT_BYTES / 2;
        if take {
            outcome = Round::Took;
        }
        take
    });
    if ran.is_err() {
        // No grace period can be concluded: look again when something new happens, not before.
        WORK.give_up();
    }
    outcome
}

/// Goes to rest if nothing is left to do (I2).
fn rest() {
    let pending = || {
        let mut left = orphaned().0;
        DOMAIN.registry.for_each(|record| left += record.deferrals.pending().0 + record.deferrals.room());
        left > 0 || crate::quiescent::has_jobs()
    };
    // An error: nothing can be reclaimed any more, so there is nothing to look for either.
    let _ = WORK.rest(pending);
}
