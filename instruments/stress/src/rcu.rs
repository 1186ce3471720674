//! Read-copy-update, tortured: readers of every kind, writers that use every way to a grace period, and threads that
//! come, go, are moved, are interrupted, pause and crowd.
//!
//! Promised (`squall_rcu`): what an operation has read is not reclaimed while it is open; a deferred call runs exactly
//! once, outside every operation, after a grace period that began after it was deferred; a barrier comes after every
//! call deferred before it.
//!
//! Tried, after Linux's rcutorture: writers replace blocks from a pool whose memory is never freed. A removed block ages
//! by one at its removal and by one for each of ten grace periods, each got in a random way; then it is poisoned and
//! serves again. A reader that sees age 2, poison, or another block's serial number, in a block that it got inside an
//! operation that is still open, has caught the library (`world` says why this is the exact rule). The same is played
//! with values that are really freed, for the sanitizers.
//!
//! - I1. Whatever is random comes from the run's seed; what the scheduler does, does not.
//! - I2. At the end all is accounted for: each deferred call ran once, each block has served again, nothing is pending,
//!   no thread is registered that ended.
//! - I3. `SQUALL_STRESS_BREAK` makes the torture itself break a rule, and it must then fail (`breaks`).
//!
//! A missing fence between two threads shows only while a store waits in a store buffer, so readers fill theirs before
//! some operations (`World::fill_store_buffer`): without the heavy fence of a grace period this fails within a second.
//! Not seen by it: what the processor it runs on forgives (on x86-64 most orderings), and lost wake-ups that the next
//! operation of the thread makes good; those are for the models.
//! Source: McKenney, "RCU torture test operation" (Linux, Documentation/RCU/torture.rst). Deviations: several ways to
//! age at once; blocks age whoever asks, so a block's ten grace periods are ten different questions.

mod breaks;
mod calls;
mod crew;
mod leaf;
mod lives;
mod reader;
mod signals;
mod verdict;
mod world;
mod writer;

use std::sync::atomic::Ordering;

use squall_rcu::stats;

use super::crew::Crew;
use super::{Report, Run, Stress, Violation};
use crew::RcuTorture;
use verdict::Before;
use world::World;

pub(super) const STRESS: Stress = Stress {
    name: "rcu",
    about: "no reader sees a block age by more than its removal; every deferred call runs once; nothing is left behind",
    run,
    threads: super::threads_beyond_processors,
};

fn run(run: &Run) -> Result<Report, Violation> {
    let _alone = super::alone();
    let broken = super::breaks::asked(&breaks::WAYS)?;
    signals::install().map_err(|error| Violation(format!("cannot start: no signal handler ({error})")))?;
    let leaves = leaf::Leaf::alive();
    let world = World::make(broken, run.threads);
    squall_rcu::on_stall(|_| {
        world.stalls.fetch_add(1, Ordering::Relaxed);
    });
    world.trial.set_paused(true);
    let mut torture = RcuTorture::new(world);
    let posts = world.slots.iter().map(|slot| &slot.post);
    let mut crew = Crew::hire(run, &world.trial, posts, &mut torture)?;
    // The threads exist by now, and the library has not been used.
    let before = Before::note(leaves)?;
    world.trial.set_paused(false);
    crew.work(run, &mut torture);
    crew.dismiss(&mut torture);
    if let Some(what) = world.trial.accusation().or_else(|| signals::accusation(world)) {
        return Err(Violation(what));
    }
    before.compare(world).map_err(Violation)?;
    Ok(report(world, &crew, torture.crowds, &before))
}

fn report(world: &World, crew: &Crew, crowds: u64, before: &Before) -> Report {
    let seen = world.seen();
    let count = |number: &std::sync::atomic::AtomicU64| number.load(Ordering::Relaxed);
    let now = stats();
    let mut lines = vec![
        ("operations", seen.operations),
        ("nested operations", seen.nested),
        ("panics caught", seen.panics),
        ("waits refused inside", seen.refused),
        ("grace periods", now.grace_periods - before.grace_periods()),
    ];
    lines.extend(writer::ALL_WAYS.iter().map(|(way, name)| (*name, count(&world.ways[*way as usize]))));
    lines.extend([
        ("deadlines that passed", count(&world.timeouts)),
        ("deferred calls", world.calls.ran()),
        ("deferred calls panicked", world.calls.panics_planned()),
        ("callers throttled", now.throttled - before.throttled()),
        ("blocks reused", count(&world.freed)),
        ("signals handled", count(&world.handled)),
        ("operations refused there", count(&world.handled_refused)),
        ("stalls reported", count(&world.stalls)),
        ("threads started", crew.born),
        ("threads moved", crew.moves),
        ("pauses", crew.pauses),
        ("crowds", crowds),
        ("reclaimer switched", crew.switches),
        ("seen in place (age 0)", seen.ages[0]),
        ("seen removed (age 1)", seen.ages[1]),
        ("seen older", seen.ages[2..].iter().sum()),
    ]);
    Report(lines)
}
