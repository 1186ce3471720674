//! State of the engine: the records of objects and the budgets, under one lock.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use squall_core::Id;

use super::clock::now;
use super::record::Record;
use crate::hysteresis::Allowance;

/// Name of the engine's thread.
pub(super) const NAME: &str = "squall-adapt";

/// Largest number of rounds per second, and the burst on top.
const ROUNDS_PER_S: f64 = 16.0;
const ROUNDS_BURST: f64 = 4.0;
/// Time between two rounds while an object is grown.
pub(super) const GROWN_TICK: Duration = Duration::from_millis(100);
/// Time between two rounds while an object is held.
pub(super) const HELD_TICK: Duration = Duration::from_millis(50);
/// Longest time until a held object is sampled again.
pub(super) const HELD_TICK_MAX: Duration = Duration::from_millis(400);

static STATE: Mutex<Option<State>> = Mutex::new(None);

/// State of the engine.
pub(crate) struct State {
    pub(crate) records: HashMap<Id, Record>,
    /// Number of records at which those of destroyed objects are removed.
    pub(super) prune_at: usize,
    /// Budget of swaps.
    pub(super) swaps: Allowance,
    /// Budget of rounds.
    rounds: Allowance,
}

impl State {
    fn new() -> State {
        State {
            records: HashMap::new(),
            prune_at: 64,
            swaps: Allowance::full(1.0),
            rounds: Allowance::full(ROUNDS_BURST),
        }
    }

    /// Returns the record of an object, and creates it if needed.
    pub(crate) fn record(&mut self, id: Id, make: impl FnOnce() -> Record) -> &mut Record {
        self.records.entry(id).or_insert_with(make)
    }

    /// Returns the time until the next round that is due without a post.
    pub(super) fn next_round(&self) -> Option<Duration> {
        let now = now();
        self.records.values().filter_map(|record| record.due).min().map(|due| due.saturating_sub(now))
    }

    /// Takes a round from the budget. If it is used up, returns the time until the next one.
    pub(super) fn may_run(&mut self) -> Result<(), Duration> {
        self.rounds.take(now(), ROUNDS_PER_S, ROUNDS_BURST)
    }
}

/// Guard of the engine's state, which holds its lock.
pub(crate) struct Locked(MutexGuard<'static, Option<State>>);

impl std::ops::Deref for Locked {
    type Target = State;
    fn deref(&self) -> &State {
        self.0.as_ref().expect("the engine has no state, although `state()` returned its guard")
    }
}

impl std::ops::DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut State {
        self.0.as_mut().expect("the engine has no state, although `state()` returned its guard")
    }
}

/// Locks the state of the engine.
pub(crate) fn state() -> Locked {
    // Only a failed allocation panics under this lock, and it leaves the state intact.
    let mut state = STATE.lock().unwrap_or_else(|poison| poison.into_inner());
    state.get_or_insert_with(State::new);
    Locked(state)
}
