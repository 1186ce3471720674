//! The life of a thread at a post: steps until the run ends or its time is over; then, for some, a planned panic.

use squall::rcu::in_operation;

use super::Rng;
use super::planned::panic_as_planned;
use super::post::Post;
use super::trial::Trial;

/// One thread in so many ends by a panic.
const PANICS_ONE_IN: u64 = 8;

/// Lives at `post` for fewer steps than two to the power of `steps_log` and one, each the next call of `step`; then `end`s.
pub(crate) fn live(
    (trial, post): (&Trial, &Post),
    steps_log: u64,
    mut rng: Rng,
    mut step: impl FnMut(u64, &mut Rng),
    end: impl FnOnce(),
) {
    if !trial.gate() {
        return;
    }
    post.move_in();
    let panics = rng.one_in(PANICS_ONE_IN);
    let longest = 1 << rng.below(steps_log + 1);
    for number in 0..1 + rng.below(longest) {
        post.beat();
        if !trial.gate() {
            break;
        }
        step(number, &mut rng);
        if in_operation() {
            trial.accuse("the thread is inside an operation after its last call".to_owned());
        }
    }
    // What the steps hold ends first.
    drop(step);
    end();
    post.move_out();
    if panics {
        panic_as_planned()
    }
}
