//! Clustered objects, tortured: more threads than virtual processors, which start and end all the time, create objects of
//! every class, show their references to everybody, call through any reference they ever saw, and destroy what they own
//! at any moment, from inside methods and drops too, while tables are thrown away and values panic.
//!
//! Promised (`squall`): a call reaches the object that its reference names or errs; a call that begins after `destroy`
//! returned errs; nothing is dropped while a call is inside it, everything is dropped once, and a root after all its
//! representatives; a panic reaches its own caller only; nothing is lost of what was added.
//!
//! - I1. Whatever is random comes from the run's seed; what the scheduler does, does not.
//! - I2. At the end all is accounted for: each object made was dropped with all its parts, each once; no object is known,
//!   and nothing is pending.
//! - I3. `SQUALL_STRESS_BREAK` makes the torture itself break a rule, and it must then fail (`breaks`).
//!
//! How it is seen: each object has a page in the `ledger`, which outlives it; each representative carries the number of
//! its object, and a word that says whether it is alive (`body`); each reference goes with the number of its object, and
//! every answer is held against that and against whether `destroy` had returned before the call (`caller`). For half of
//! the objects callers pass a gate, so that the owner can stop them and compare the total exactly (`owner`).
//!
//! Not seen by it: what the processor forgives on which it runs. A call that looks has no fence of ours in it, and some
//! begin with a full store buffer, so that a missing fence has its chance; the models are to find the rest.
//! Source: as for `rcu`, McKenney's torture of read-copy-update; the board is ours.

mod acts;
mod board;
mod body;
mod breaks;
mod caller;
mod classes;
mod crew;
mod drops;
mod interfaces;
mod ledger;
mod lives;
mod owner;
mod parts;
mod tally;
mod verdict;
mod world;

use squall::{machine, tables};

use super::crew::Crew;
use super::places::choose_machine;
use super::{Report, Run, Stress, Violation};
use crew::ObjectsTorture;
use verdict::Before;
use world::World;

pub(super) const STRESS: Stress = Stress {
    name: "objects",
    about: "a call reaches its object or errs; all is dropped once, and nothing while a call is inside; nothing is lost",
    run,
    threads,
};

/// Threads beyond the VPs, unless told.
const THREADS_BEYOND: usize = 8;

fn threads(real: bool) -> usize {
    choose_machine(real);
    machine().vps().len() + THREADS_BEYOND
}

fn run(run: &Run) -> Result<Report, Violation> {
    let _alone = super::alone();
    let broken = super::breaks::asked(&breaks::WAYS)?;
    choose_machine(run.real);
    let world = World::make(broken, run.threads);
    world.trial.set_paused(true);
    let mut torture = ObjectsTorture(world);
    let mut crew = Crew::hire(run, &world.trial, world.posts.iter(), &mut torture)?;
    // The threads exist by now, and the library has not been used.
    let before = Before::note();
    world.trial.set_paused(false);
    crew.work(run, &mut torture);
    crew.dismiss(&mut torture);
    if let Some(what) = world.trial.accusation() {
        return Err(Violation(what));
    }
    world.tally.hand_in();
    before.compare(world).map_err(Violation)?;
    Ok(report(world, &crew))
}

fn report(world: &World, crew: &Crew) -> Report {
    let now = tables::stats();
    let mut lines: Vec<(&'static str, u64)> = world.tally.lines();
    lines.extend([
        ("drops that panicked", world.drop_panics.load(std::sync::atomic::Ordering::Relaxed)),
        ("slots ever used", now.slots_count as u64),
        ("threads started", crew.born),
        ("threads moved", crew.moves),
        ("pauses", crew.pauses),
        ("reclaimer switched", crew.switches),
        ("virtual processors", machine().vps().len() as u64),
    ]);
    Report(lines)
}
