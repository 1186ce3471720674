//! Looks by callers: a thread that posted an object samples and swaps it, if the engine's thread does not.
//!
//! Problem: where all processors are busy, the engine's thread waits for one. Then objects keep a form that
//! is too expensive, just when it costs most. Idea: the thread that posted runs on a processor. After each of
//! its operations it checks whether its post was taken. After [`PATIENCE`] it takes the first reading of the
//! sensors, and goes on with its calls. After a further [`READING_GAP`] it does the rest of the round for
//! this one object.
//!
//! - I1. A caller looks outside every operation, and only while the engine's thread counts as running
//!   (`squall_rcu::__owe_errand`).
//! - I2. It takes the post and does the rest of the round under the lock of the rounds, for which it does not
//!   wait. So a post is handled once.
//! - I3. It looks only at objects of families that allow it (`Family::callers_may_swap`), and only within the
//!   engine's budget of rounds.
//!
//! Not promised: a look, if the thread that posted makes no more calls. Changes that need no post, such as a
//! return to the first form, wait for the engine's thread.
//!
//! Cost: for the thread that posted, some nanoseconds for each operation until its post is taken. A look
//! takes a third of a millisecond, and a swap at most its deadline.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::MutexGuard;
use std::time::Duration;

use squall_core::tables;

use super::clock::now;
use super::posts::{Place, forget_own_post, is_waiting, own_post, ring, take_post};
use super::record::ALARM;
use super::sample::{READING_GAP, Sample, take_sample};
use super::state::state;
use crate::family;

/// Time that a post waits for the engine's thread.
const PATIENCE: Duration = Duration::from_millis(3);
/// Number of operations between two readings of the clock.
const CLOCK_EVERY: u32 = 16;

thread_local! {
    static WAIT: RefCell<Waiting> = const { RefCell::new(Waiting::new()) };
}

/// Progress of the calling thread with its post.
struct Waiting {
    place: Option<Place>,
    /// Operations since the post.
    operations: u32,
    /// Time of the post, as far as it is known.
    since: Duration,
    first: Option<Sample>,
}

impl Waiting {
    const fn new() -> Waiting {
        Waiting { place: None, operations: 0, since: Duration::ZERO, first: None }
    }
}

/// The engine, as a caller uses it.
pub(super) struct Engine {
    /// Returns `true` while the engine's thread counts as running.
    pub(super) is_running: fn() -> bool,
    /// Takes the lock of the rounds, if it is free.
    pub(super) begin_round: fn() -> Option<MutexGuard<'static, ()>>,
    /// Does the rest of the round for the object of a sample.
    pub(super) end_round: fn(Option<Sample>),
}

/// Next step of a thread after an operation.
enum Step {
    /// The post was taken, or is left to the engine's thread.
    Over,
    Wait,
    /// Take the first reading.
    Begin,
    /// Do the rest of the round.
    Finish,
}

/// Runs after an operation of a thread that has posted. Returns `true` to be called after the next one.
pub(super) fn after_operation(engine: &Engine) -> bool {
    let Some(place) = own_post() else { return false };
    let goes_on = is_waiting(place)
        && (engine.is_running)()
        // A panic of a family has been reported by the hook. The object is left to the engine's thread.
        && catch_unwind(AssertUnwindSafe(|| look(place, engine))).unwrap_or(false);
    if !goes_on && own_post().is_some_and(|posted| posted.id == place.id) {
        forget_own_post();
        let _ = WAIT.try_with(|waiting| waiting.replace(Waiting::new()));
    }
    goes_on
}

/// Makes the next step with this post. Returns `false` if it was the last one.
fn look(place: Place, engine: &Engine) -> bool {
    // A thread that ends has no `WAIT` any more.
    match WAIT.try_with(|waiting| next_step(&mut waiting.borrow_mut(), place)).unwrap_or(Step::Over) {
        Step::Over => false,
        Step::Wait => true,
        Step::Begin => begin(place),
        Step::Finish => finish(place, engine),
    }
}

fn next_step(waiting: &mut Waiting, place: Place) -> Step {
    if waiting.place.is_none_or(|earlier| earlier.id != place.id) {
        *waiting = Waiting { place: Some(place), ..Waiting::new() };
    }
    waiting.operations = waiting.operations.wrapping_add(1);
    if waiting.operations % CLOCK_EVERY != 1 {
        return Step::Wait;
    }
    let now = now();
    if waiting.since.is_zero() {
        waiting.since = now;
    }
    match &waiting.first {
        None if now.saturating_sub(waiting.since) >= PATIENCE => Step::Begin,
        Some(first) if now.saturating_sub(first.began) >= READING_GAP => Step::Finish,
        _ => Step::Wait,
    }
}

/// Takes the first reading, if a caller may look at this object.
fn begin(place: Place) -> bool {
    let may = family::of(place.id).is_some_and(|(family, _)| family.callers_may_swap());
    if !may {
        return false;
    }
    // Until a held object is due, the thread waits.
    if state().is_held(place.id) {
        return true;
    }
    let Some(sample) = take_sample(place.id, true) else { return false };
    // From here on each caller misses once, and is seen.
    tables::forget(place.id);
    let _ = WAIT.try_with(|waiting| waiting.borrow_mut().first = Some(sample));
    true
}

/// Does the rest of the round for the object.
fn finish(place: Place, engine: &Engine) -> bool {
    // Without the lock or a round of the budget, the thread tries again.
    let Some(_guard) = (engine.begin_round)() else { return true };
    if state().may_run().is_err() {
        return true;
    }
    if !take_post(place) {
        return false;
    }
    let first = WAIT.try_with(|waiting| waiting.borrow_mut().first.take());
    (engine.end_round)(first.ok().flatten());
    // The object may now be due, which the engine's thread does not know. If that thread still gets no
    // processor then, a caller looks at a held object again.
    ring();
    let is_held = state().is_held(place.id);
    if is_held && let Some((family, _)) = family::of(place.id) {
        family.arm(place.id, ALARM);
    }
    false
}
