//! The threads of the stress: callers, the swapper of the maps, and their owner.

use std::thread;
use std::time::Duration;

use squall::ClusterSize;
use squall::adapt::control;
use squall::objects::map::{REPLICATED, SHARED, SMALL};

use super::breaks::Break;
use super::counts::{Stat, count};
use super::world::{PLACES, World};
use crate::run::Rng;
use crate::skeleton::delay::delay;
use crate::skeleton::expected_panic::catch_silently;
use crate::skeleton::lifetime::run_thread;
use crate::skeleton::placement::{discard_tables, switch_vp};

/// A thread runs at most two to this power steps.
const STEPS_LOG: u64 = 12;
/// Maximum number of consecutive calls of one map.
const CALLS_MAX: u64 = 64;
/// The owner destroys a map once in this many steps.
const DESTROY_ONE_IN: u64 = 4;
const OWNER_SLEEP_US: u64 = 12_000;
const SWAP_SLEEP_US: u64 = 2_000;
/// Drain timeout of a swap.
const PATIENCE: Duration = Duration::from_secs(60);

/// The role of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Calls,
    Swaps,
    Owns,
}

/// The roles of the workers after those of the callers.
pub(super) const OTHERS: [Role; 2] = [Role::Swaps, Role::Owns];

/// Returns the body of a thread at a worker.
pub(super) fn body(
    world: &'static World,
    worker: usize,
    role: Role,
    rng: Rng,
) -> impl FnOnce() + Send + 'static {
    let step = move |(): &mut (), _: u64, rng: &mut Rng| match role {
        Role::Calls => call(world, worker, rng),
        Role::Swaps => swap(world, rng),
        Role::Owns => own(world, rng),
    };
    move || {
        let place = (world.run_state, &world.workers[worker]);
        run_thread(place, STEPS_LOG, rng, |_| (), step, |()| world.counts.flush());
    }
}

/// Runs one step of a caller.
fn call(world: &'static World, lane: usize, rng: &mut Rng) {
    if rng.one_in(16) {
        switch_vp(rng);
    }
    let Some(tracked) = world.any(rng) else { return };
    // The mix of calls in this step, so that policies see different loads.
    let mood = rng.below(4);
    for _ in 0..1 + rng.below(CALLS_MAX) {
        match (mood, rng.below(64)) {
            (_, 0) => tracked.walk(lane, rng),
            (_, 1) => tracked.change_room(rng),
            (_, 2) => delay(rng),
            (0, _) => tracked.write(lane, rng),
            (1, _) => tracked.look(rng),
            (2, _) => tracked.add(lane, rng),
            (_, 3..24) => tracked.write(lane, rng),
            (_, 24..44) => tracked.look(rng),
            (..) => tracked.add(lane, rng),
        }
    }
    if world.breaks(Break::LeakValue, 256, rng) {
        std::mem::forget(world.token(0, 0));
    }
}

/// Runs one step of the swapper: swaps a map, changes its cluster size, or discards tables.
fn swap(world: &'static World, rng: &mut Rng) {
    const FORMS: [&str; 3] = [SMALL, SHARED, REPLICATED];
    let Some(tracked) = world.any(rng) else { return };
    match rng.below(8) {
        0 => {
            discard_tables(tracked.id(), rng);
            count(Stat::Discards);
        }
        1 | 2 => {
            let sizes = [ClusterSize::Cpu, ClusterSize::Core, ClusterSize::Node, ClusterSize::Machine];
            let size = sizes[rng.below(4) as usize];
            // Forms with one representative refuse, and on a destroyed map the call panics.
            let resized = catch_silently(|| tracked.map.set_cluster_size(size));
            count(if let Ok(true) = resized { Stat::Resized } else { Stat::NotResized });
        }
        _ if tracked.is_adaptive => {
            let swapped = control::swap(tracked.id(), FORMS[rng.below(3) as usize]).is_ok();
            count(if swapped { Stat::Swaps } else { Stat::SwapsFailed });
        }
        _ => {
            // Another swap may be under way, or the map is gone.
            let swapped = tracked.map.swap(PATIENCE, rng).is_ok();
            count(if swapped { Stat::Swaps } else { Stat::SwapsFailed });
        }
    }
    thread::sleep(Duration::from_micros(rng.below(SWAP_SLEEP_US)));
}

/// Runs one step of the owner: some maps end, and others take their places.
fn own(world: &'static World, rng: &mut Rng) {
    if rng.one_in(DESTROY_ONE_IN) {
        world.destroy(rng.below(PLACES as u64) as usize, rng.one_in(2));
    } else if rng.one_in(2)
        && let Some(tracked) = world.any(rng)
    {
        // With writers drained, the map must equal its record, swapped or not.
        tracked.close();
        tracked.reopen();
    }
    if rng.one_in(2) {
        world.fill(rng);
    }
    thread::sleep(Duration::from_micros(rng.below(OWNER_SLEEP_US)));
}
