//! Hot-swap, tortured: objects that call each other in pairs, in chains and around rings, swapped back and forth without a
//! pause, while swaps fail, panic, time out, are cancelled and meet each other, objects are destroyed in the midst of them
//! and made anew, tables are thrown away, and arbiters and factories come and go.
//!
//! Promised (`squall::swap`): no call is lost, made twice, or out of order within its thread; a swap that does not happen
//! has a reason and changes nothing; what is destroyed answers no more; everything is dropped once; nobody waits for ever.
//!
//! - I1. Whatever is random comes from the run's seed; what the scheduler does, does not.
//! - I2. At the end all is accounted for: the state that served last has the marks of all calls (`life/I2`), every
//!   implementation and each of its representatives was dropped once, no object is known, and nothing is pending.
//! - I3. `SQUALL_STRESS_BREAK` makes the torture itself break a rule, and it must then fail (`breaks`).
//!
//! How it is seen: each call of a thread leaves a numbered mark in the object's state (`marks`), those that take long one
//! more when they end, and the state moves with the swaps; so each call sees at once whether all before it are there. What a
//! swap may end with follows from what was planned for it and from who disturbed it (`swaps`). An arbiter leaves its number
//! in its caller's thread, so that each call knows by way of what it went (`via`).
//!
//! Not seen: what the processor forgives on which it runs. The models are to find the rest.
//! Source: as for `objects`; EX-K13 and EX-K14 are its pattern.

mod acts;
mod breaks;
mod caller;
mod chassis;
mod crew;
mod faults;
mod interfaces;
mod life;
mod lives;
mod marks;
mod meddler;
pub(super) mod memory;
mod stations;
mod swaps;
mod tally;
mod verdict;
mod via;
mod world;

use std::time::Instant;

use squall::machine;

use super::crew::{CREW, Crew};
use super::places::choose_machine;
use super::{Report, Run, Stress, Violation};
use crew::{OTHERS, SwapTorture};
use tally::What;
use verdict::Before;
use world::World;

pub(super) const STRESS: Stress = Stress {
    name: "swap",
    about: "no call is lost, doubled or out of order while objects are swapped; a swap that fails changes nothing",
    run,
    threads: |real| {
        choose_machine(real);
        THREADS
    },
};

/// Threads that call, unless told; three more swap and meddle.
const THREADS: usize = 8;
/// The stream of random numbers by which the first objects are made.
const FIRST: u64 = CREW - 2;

fn run(run: &Run) -> Result<Report, Violation> {
    let _alone = super::alone();
    let broken = super::breaks::asked(&breaks::WAYS)?;
    choose_machine(run.real);
    let world = World::make(broken, run.threads + OTHERS);
    world.trial.set_paused(true);
    let mut torture = SwapTorture(world);
    let mut crew = Crew::hire(run, &world.trial, world.posts.iter(), &mut torture)?;
    // The threads exist by now, and the library has not been used.
    let before = Before::note();
    world.begin(&mut run.rng(FIRST));
    let began = Instant::now();
    world.trial.set_paused(false);
    crew.work(run, &mut torture);
    let elapsed = began.elapsed();
    crew.dismiss(&mut torture);
    if let Some(what) = world.trial.accusation() {
        return Err(Violation(what));
    }
    world.tally.hand_in();
    before.compare(world).map_err(Violation)?;
    let mut lines = world.tally.lines(elapsed);
    let undisturbed = world.tally.of(What::Undisturbed).max(1);
    lines.extend([
        ("timed out per million", world.tally.of(What::UndisturbedTimedOut) * 1_000_000 / undisturbed),
        ("threads started", crew.born),
        ("threads moved", crew.moves),
        ("pauses", crew.pauses),
        ("reclaimer switched", crew.switches),
        ("virtual processors", machine().vps().len() as u64),
    ]);
    Ok(Report(lines))
}
