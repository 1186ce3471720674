//! The lifetime of one thread of a worker: a beginning, a random number of steps, and an end. The end of the
//! run cuts the steps short.

use squall::rcu::{in_operation, pin};

use super::expected_panic::raise_expected_panic;
use super::run_state::RunState;
use super::worker::Worker;
use crate::run::Rng;

/// One thread in this many ends by a planned panic, which unwinds through two nested operations.
const PANICS_ONE_IN: u64 = 8;

/// Runs a thread of `worker`: `begin`, then at most `2^steps_log` calls of `step` with their numbers, then
/// `end`.
///
/// The thread passes a checkpoint before `begin`, so that the first threads can start before the library's
/// first use. If a step panics, the state is dropped and the thread is detached, but `end` does not run.
pub(crate) fn run_thread<L>(
    (run_state, worker): (&RunState, &'static Worker),
    steps_log: u64,
    mut rng: Rng,
    begin: impl FnOnce(&mut Rng) -> L,
    mut step: impl FnMut(&mut L, u64, &mut Rng),
    end: impl FnOnce(L),
) {
    if !run_state.checkpoint() {
        return;
    }
    let attached = worker.attach();
    let panics = rng.one_in(PANICS_ONE_IN);
    let longest = 1 << rng.below(steps_log + 1);
    let mut state = begin(&mut rng);
    for number in 0..1 + rng.below(longest) {
        worker.begin_step();
        if !run_state.checkpoint() {
            break;
        }
        step(&mut state, number, &mut rng);
        if in_operation() {
            run_state.fail("the thread is inside an operation after its last call ended".to_owned());
        }
    }
    end(state);
    drop(step);
    drop(attached);
    if panics {
        pin(|_| pin(|_| raise_expected_panic()))
    }
}
