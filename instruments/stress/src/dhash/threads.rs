//! The threads of the stress: callers, the filler of handed keys, the swapper, and the owner.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::counts::{Stat, count};
use super::tracked::{Reserved, Tracked};
use super::world::{PLACES, SIZES, World};
use crate::run::Rng;
use crate::skeleton::delay::delay;
use crate::skeleton::lifetime::run_thread;
use crate::skeleton::placement::{discard_tables, switch_vp};

/// A thread runs at most two to this power steps.
const STEPS_LOG: u64 = 12;
/// Maximum number of consecutive calls of one directory.
const CALLS_MAX: u64 = 64;
/// The owner destroys a directory once in this many steps.
const DESTROY_ONE_IN: u64 = 4;
const OWNER_SLEEP_US: u64 = 12_000;
const SWAP_SLEEP_US: u64 = 4_000;
/// Sleep of the filler if no key was handed over.
const FILL_SLEEP_US: u64 = 100;
/// Drain timeout of a swap. A call that waits for a handed key delays a swap, and the swap delays the fill.
const PATIENCE: Duration = Duration::from_millis(20);

/// The role of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Calls,
    Fills,
    Swaps,
    Owns,
}

/// The roles of the workers after those of the callers.
pub(super) const OTHERS: [Role; 3] = [Role::Fills, Role::Swaps, Role::Owns];

/// Reservations that a filler keeps for later steps.
type Kept = Vec<(Arc<Tracked>, Reserved)>;

/// Returns the body of a thread at a worker.
pub(super) fn body(
    world: &'static World,
    worker: usize,
    role: Role,
    rng: Rng,
) -> impl FnOnce() + Send + 'static {
    let step = move |kept: &mut Kept, _: u64, rng: &mut Rng| match role {
        Role::Calls => call(world, worker, rng),
        Role::Fills => fill(world, kept, rng),
        Role::Swaps => swap(world, rng),
        Role::Owns => own(world, rng),
    };
    let end = move |kept: Kept| {
        drop(kept);
        world.counts.flush();
    };
    move || {
        let place = (world.run_state, &world.workers[worker]);
        run_thread(place, STEPS_LOG, rng, |_| Kept::new(), step, end);
    }
}

/// Runs one step of a caller.
fn call(world: &'static World, lane: usize, rng: &mut Rng) {
    if rng.one_in(16) {
        switch_vp(rng);
    }
    let Some(tracked) = world.any(rng) else { return };
    for _ in 0..1 + rng.below(CALLS_MAX) {
        match rng.below(64) {
            0 => delay(rng),
            1..24 => tracked.look(rng),
            _ => tracked.use_any(lane, rng),
        }
    }
}

/// Runs one step of the filler: ends handed reservations, at once or in a later step.
fn fill(world: &'static World, kept: &mut Kept, rng: &mut Rng) {
    if rng.one_in(16) {
        switch_vp(rng);
    }
    kept.drain(..).for_each(|(tracked, reserved)| tracked.end_reserved(reserved, rng));
    let Some((tracked, reserved)) = world.handed.take() else {
        return thread::sleep(Duration::from_micros(rng.below(FILL_SLEEP_US)));
    };
    match rng.below(4) {
        0 => kept.push((tracked, reserved)),
        1 => {
            delay(rng);
            tracked.end_reserved(reserved, rng);
        }
        _ => tracked.end_reserved(reserved, rng),
    }
}

/// Runs one step of the swapper: changes the cluster size of a directory, or discards tables.
fn swap(world: &'static World, rng: &mut Rng) {
    let Some(tracked) = world.any(rng) else { return };
    if rng.one_in(4) {
        discard_tables(tracked.id(), rng);
        count(Stat::Discards);
    } else {
        // Fails if a call waits for a handed key, or the directory is gone.
        let swapped = tracked.swap(SIZES[rng.below(SIZES.len() as u64) as usize], PATIENCE);
        count(if swapped { Stat::Swaps } else { Stat::SwapsFailed });
    }
    thread::sleep(Duration::from_micros(rng.below(SWAP_SLEEP_US)));
}

/// Runs one step of the owner: some directories end, and others take their places.
fn own(world: &'static World, rng: &mut Rng) {
    if rng.one_in(DESTROY_ONE_IN) {
        world.destroy(rng.below(PLACES as u64) as usize, rng.one_in(2));
    } else if rng.one_in(2)
        && let Some(tracked) = world.any(rng)
    {
        // With callers drained, the sums must equal the record, swapped or not.
        tracked.close();
        tracked.reopen();
    }
    if rng.one_in(2) {
        world.fill(rng);
    }
    thread::sleep(Duration::from_micros(rng.below(OWNER_SLEEP_US)));
}
