//! The reclaimer: one named thread that runs what its owners will not come back for.
//!
//! - I1. It exists only after something was deferred, or asked of [`quiescent_do`](crate::quiescent_do), while it is
//!   allowed. It is named [`NAME`], sleeps without a time-out when there is nothing to do, and never ends.
//! - I2. No work is overlooked: whoever defers a thread's first call announces it after its list shows that call, and
//!   the reclaimer sleeps only after it has cleared the flag and looked at the lists again (`work/I1`).
//! - I3. It takes from a thread that ran no batch of its own for one [`ROUND`], or whose calls exceed half its bound. So
//!   threads at work reclaim for themselves, and nothing ripe waits much longer than two rounds.
//!
//! Cost while there is something to reclaim: one look at all records per round. When there is nothing: none.
//! Source: K42's worker events (CO-26); named, on demand and switchable, as the design asks.

use squall_machine::park::EventCount;
use squall_sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use crate::defer::{LIMIT_BYTES, LIMIT_CALLS, orphaned, run_everything};
use crate::op::{DOMAIN, own_record};
use crate::raw::domain::Domain;
use crate::raw::record::Record;
use crate::raw::work::Work;

/// The thread's name.
pub(crate) const NAME: &str = "squall-reclaim";
/// How long a round lasts while there is something to reclaim.
const ROUND: Duration = Duration::from_millis(10);

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
    loop {
        let seen = EVENT.prepare();
        // Acquire: pairs with `set_reclaimer`, and below with whoever sets `WORK`.
        let paused = STATE.load(Ordering::Acquire) != RUNNING;
        if paused || !WORK.is_set() {
            EVENT.wait(seen, None);
            continue;
        }
        if !crate::quiescent::has_jobs() {
            EVENT.wait(seen, Some(ROUND));
        }
        round(record);
        rest();
    }
}

/// Runs the jobs, and what was let lie (I3).
fn round(record: &'static Record) {
    crate::quiescent::run_jobs();
    let ran = run_everything(record, |other| {
        let (calls, bytes) = other.deferrals.pending();
        let idle = other.deferrals.let_lie();
        // Such a thread gives back the room of its lists, too.
        (idle && (calls > 0 || other.deferrals.room() > 0))
            || (calls > 0 && (calls > LIMIT_CALLS / 2 || bytes > LIMIT_BYTES / 2))
    });
    if ran.is_err() {
        // No grace period can be concluded: look again when something new happens, not before.
        WORK.give_up();
    }
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
