//! Engine: samples objects after a sensor has tripped, finds their best form, and swaps them.
//!
//! Problem: the call that trips a sensor has no time for a decision, and must not swap. Idea: a sensor only
//! posts an id, and one thread does the rest. While all objects have their first form, the thread sleeps
//! until a post arrives. While an object is grown, the thread runs a round ten times per second, and never
//! more than twenty times.
//!
//! An object without sensors is an exception: while several VPs call it in its first form, the thread looks
//! at it after growing pauses (`Record::put_off`).
//!
//! A round handles many objects together, in three steps. Two readings of the sensors, some milliseconds
//! apart, find the busy objects. A count of calls for a fraction of a millisecond finds the callers and
//! methods. The families estimate costs from both. The engine then swaps an object to the best form, if the
//! object's hysteresis (`hysteresis.rs`) and the program's budget allow.
//!
//! - I1. A round runs outside every operation, on the engine's thread or on a thread that calls [`turn`], one
//!   at a time.
//! - I2. A family's code runs under no lock of the engine except `IN_ROUND`, for which no thread waits.
//! - I3. The round that takes the post of a tripped sensor does one of three things: it arms the sensor
//!   again, sets a time for the next sample of the object, or posts the object again.
//! - I4. Every decision is recorded with its readings. A held decision is recorded when it changes.
//!
//! Source: K42 §8.5 (CO-71); KTK (KT-17, sampling and reconfiguration; KT-19). Sensors only post.

mod clock;
mod decide;
mod posts;
mod record;
mod round;
mod sample;
mod shrink;
mod starved;
mod state;
mod swap;
mod switch;
mod virtual_time;
mod why;

use std::sync::atomic::Ordering;
use std::sync::{Mutex, TryLockError};
use std::time::Duration;

pub use posts::post;
pub(crate) use record::Record;
pub(crate) use round::wake;
#[doc(hidden)]
pub use starved::__plant_late;
pub(crate) use starved::pause_if_late;
pub use starved::{pauses, set_pauses};
pub(crate) use state::state;
pub(crate) use swap::{by_hand, replaced};
pub use virtual_time::VirtualTime;

use crate::records::{Mode, mode_changed};
use posts::{has_post, prepare, ring, take_posts, wait};
use switch::{ALLOWED, FAILED, OFF, PAUSED, RUNNING, THREAD, UNASKED, is_on};

/// Held by the thread that runs a round.
static IN_ROUND: Mutex<()> = Mutex::new(());

/// State of the engine's thread.
///
/// ```
/// use squall::adapt::engine::{EngineState, set_thread, thread_state};
///
/// assert_eq!(thread_state(), EngineState::NotStarted);
/// set_thread(false);
/// assert_eq!(thread_state(), EngineState::Off);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EngineState {
    /// The program has created no adaptive object.
    NotStarted,
    /// The thread `squall-adapt` exists.
    Running,
    /// The thread is switched off, by [`set_thread`] or `SQUALL_ADAPT=off`. The program calls [`turn`]
    /// instead.
    Off,
    /// The thread could not be started.
    Failed,
}

/// Returns the state of the engine's thread. For an example see [`EngineState`].
pub fn thread_state() -> EngineState {
    match THREAD.load(Ordering::Relaxed) {
        RUNNING => EngineState::Running,
        OFF | PAUSED => EngineState::Off,
        FAILED => EngineState::Failed,
        _ => EngineState::NotStarted,
    }
}

/// Starts the engine's thread, unless it exists or is switched off. Constructors of adaptive objects call
/// this. The thread sleeps until an object posts.
///
/// # Cost
/// One load; once, the start of a thread.
///
/// ```
/// use squall::adapt::engine::{EngineState, start, thread_state};
///
/// start();
/// assert_eq!(thread_state(), EngineState::Running);
/// ```
#[inline]
pub fn start() {
    if matches!(THREAD.load(Ordering::Relaxed), UNASKED | ALLOWED) {
        start_slow();
    }
}

#[cold]
fn start_slow() {
    if squall_sys::fork::forked() {
        return;
    }
    crate::costs::announce();
    let off = std::env::var_os("SQUALL_ADAPT").is_some_and(|value| value == "off");
    let change = |state| match state {
        UNASKED if off => Some(OFF),
        UNASKED | ALLOWED => Some(RUNNING),
        _ => None,
    };
    // Relaxed: starting the thread orders the data that it must see.
    let changed = THREAD.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    if changed == Ok(ALLOWED) || changed == Ok(UNASKED) && !off {
        starved::begin();
        spawn();
        mode_changed(Mode::Running);
    }
}

fn spawn() {
    let spawned = std::thread::Builder::new().name(state::NAME.to_owned()).spawn(work);
    if spawned.is_err() {
        THREAD.store(FAILED, Ordering::Relaxed);
    }
}

/// Allows or forbids the engine's thread. Overrides `SQUALL_ADAPT`. Without the thread, objects change by
/// themselves only in calls of [`turn`].
///
/// ```
/// use squall::adapt::engine::{set_thread, turn};
///
/// set_thread(false);
/// assert_eq!(turn(), 0, "no object has posted");
/// ```
pub fn set_thread(allowed: bool) {
    switch_thread(allowed);
    if allowed {
        start();
    }
}

/// Notes that the engine's thread is allowed or forbidden, and wakes it. Returns the state before.
fn switch_thread(allowed: bool) -> u8 {
    let change = |state| match (state, allowed) {
        (RUNNING | PAUSED, true) => RUNNING,
        (RUNNING | PAUSED, false) => PAUSED,
        (_, true) => ALLOWED,
        (_, false) => OFF,
    };
    let before = THREAD.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |state| Some(change(state)));
    ring();
    let before = before.unwrap_or_else(|state| state);
    match (before, change(before)) {
        (RUNNING, PAUSED) | (UNASKED | ALLOWED, OFF) => mode_changed(Mode::Off),
        (PAUSED, RUNNING) => mode_changed(Mode::Running),
        _ => {}
    }
    before
}

/// Runs one round on the calling thread, as the engine's thread would: samples objects that posted, and those
/// that are grown or held. Returns the number of objects sampled.
///
/// For programs that switched the thread off. Returns 0 at once if another thread runs a round or holds a
/// [`VirtualTime`], and inside an operation or a method. For an example see [`set_thread`].
///
/// # Cost
/// Some milliseconds if there are objects to sample.
pub fn turn() -> usize {
    turn_if(|| true)
}

/// Runs one round if a condition holds, which is checked under the lock of the rounds.
fn turn_if(may_run: impl FnOnce() -> bool) -> usize {
    if squall_rcu::in_operation() || squall_sys::fork::forked() {
        return 0;
    }
    let _guard = match IN_ROUND.try_lock() {
        Ok(guard) => guard,
        // A previous round panicked.
        Err(TryLockError::Poisoned(poison)) => poison.into_inner(),
        Err(TryLockError::WouldBlock) => return 0,
    };
    let _in_round = starved::InRound::begin();
    if may_run() && !clock::is_held_elsewhere() { round::run(take_posts()) } else { 0 }
}

/// Next action of the thread that runs the rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// Run a round now.
    Round,
    /// Sleep until an object posts, for at most this time.
    Wait(Option<Duration>),
    /// Sleep for this time: too many rounds were run.
    Pause(Duration),
}

/// Returns the next action, and takes a round from the budget if it is [`Action::Round`].
fn next_action() -> Action {
    let mut state = state();
    let next = if has_post() { Some(Duration::ZERO) } else { state.next_round() };
    if next != Some(Duration::ZERO) {
        return Action::Wait(next);
    }
    state.may_run().map_or_else(Action::Pause, |()| Action::Round)
}

/// Runs rounds one after the other, and survives their panics.
#[derive(Debug, Default)]
struct Rounds {
    failures: u32,
}

impl Rounds {
    /// Runs a round. Returns an error with the pause before the next round if a family's code panicked. The
    /// work of that round is lost; its objects can post again.
    fn run(&mut self, round: fn() -> usize) -> Result<(), Duration> {
        if std::panic::catch_unwind(round).is_ok() {
            return Ok(());
        }
        self.failures += 1;
        Err(Duration::from_millis(100) * self.failures.min(100))
    }
}

/// Body of the engine's thread.
fn work() {
    starved::become_engine();
    let mut rounds = Rounds::default();
    let sleep = |pause| starved::asleep(Some(pause), false, || std::thread::sleep(pause));
    loop {
        let seen = prepare();
        match if is_on() { next_action() } else { Action::Wait(None) } {
            Action::Wait(limit) => starved::asleep(limit, true, || wait(seen, limit)),
            Action::Pause(pause) => sleep(pause),
            // Checked again under the lock, because `pause_thread` waits for that lock.
            Action::Round => {
                if let Err(pause) = rounds.run(|| turn_if(is_on)) {
                    sleep(pause);
                }
            }
        }
    }
}

/// Pauses the engine's thread, or keeps it from starting, and waits for the round in progress. Then calls
/// `then`, while no other round can begin. Returns the state before, for [`resume_thread`].
fn pause_thread(then: impl FnOnce()) -> u8 {
    let before = switch_thread(false);
    let _no_round = IN_ROUND.lock();
    then();
    before
}

/// Restores the state from before [`pause_thread`], unless the program has switched the thread on meanwhile.
fn resume_thread(before: u8) {
    let resumed = match before {
        RUNNING => THREAD.compare_exchange(PAUSED, RUNNING, Ordering::Relaxed, Ordering::Relaxed),
        _ => THREAD.compare_exchange(OFF, before, Ordering::Relaxed, Ordering::Relaxed),
    };
    ring();
    if before == RUNNING && resumed.is_ok() {
        mode_changed(Mode::Running);
    }
}
