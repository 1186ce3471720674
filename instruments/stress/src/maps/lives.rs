//! The lives of the torture's threads: those that call, who swaps the maps, and who owns them.

use std::thread::{self, JoinHandle};
use std::time::Duration;

use squall::adapt::control;
use squall::objects::map::{SHARED, REPLICATED, SMALL};
use squall::{ClusterSize, Vp, machine, tables};

use super::breaks::Break;
use super::tally::{What, count};
use super::world::{PLACES, World};
use crate::Rng;
use crate::delay::delay;
use crate::life::live;
use crate::places::hop;
use crate::planned::quietly;

/// The longest life is shorter than two to this power, in steps.
const LIFE_STEPS_LOG: u64 = 12;
/// Calls of one map one after another, at most.
const CALLS_MAX: u64 = 64;
/// One in so many steps of who owns the maps destroys one.
const DESTROY_ONE_IN: u64 = 4;
const OWNER_SLEEP_US: u64 = 12_000;
const SWAP_SLEEP_US: u64 = 2_000;
/// A swap waits so long for calls under way.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Calls,
    Swaps,
    Owns,
}

/// What the posts behind those of the callers do.
pub(super) const OTHERS: [Role; 2] = [Role::Swaps, Role::Owns];

/// Starts a life.
pub(super) fn start(
    world: &'static World,
    post: usize,
    role: Role,
    rng: Rng,
) -> std::io::Result<JoinHandle<()>> {
    let name = format!("maps-{post}");
    let step = move |_, rng: &mut Rng| match role {
        Role::Calls => call(world, post, rng),
        Role::Swaps => swap(world, rng),
        Role::Owns => own(world, rng),
    };
    thread::Builder::new().name(name).spawn(move || {
        live((&world.trial, &world.posts[post]), LIFE_STEPS_LOG, rng, step, || world.tally.hand_in());
    })
}

/// A step of who calls.
fn call(world: &'static World, lane: usize, rng: &mut Rng) {
    if rng.one_in(16) {
        hop(rng);
    }
    let Some(book) = world.any(rng) else { return };
    // What most of them are is the thread's mood in this step: so policies have loads to tell from each other.
    let mood = rng.below(4);
    for _ in 0..1 + rng.below(CALLS_MAX) {
        match (mood, rng.below(64)) {
            (_, 0) => book.walk(lane, rng),
            (_, 1) => book.change_room(rng),
            (_, 2) => delay(rng),
            (0, _) => book.write(lane, rng),
            (1, _) => book.look(rng),
            (2, _) => book.add(lane, rng),
            (_, 3..24) => book.write(lane, rng),
            (_, 24..44) => book.look(rng),
            (..) => book.add(lane, rng),
        }
    }
    if world.is_broken(Break::LeakValue) && rng.one_in(256) {
        std::mem::forget(world.token(0, 0));
    }
}

/// A step of who swaps maps, changes their clusters, and throws tables away.
fn swap(world: &'static World, rng: &mut Rng) {
    const FORMS: [&str; 3] = [SMALL, SHARED, REPLICATED];
    let Some(book) = world.any(rng) else { return };
    match rng.below(8) {
        0 => {
            let vp = Vp::new(rng.below(machine().vp_limit() as u64) as u32);
            match rng.below(8) {
                0 => tables::discard_all(),
                1..4 => tables::discard(vp),
                _ => tables::discard_page_of(vp, book.id()),
            }
            count(What::Discards);
        }
        1 | 2 => {
            let sizes = [ClusterSize::Cpu, ClusterSize::Core, ClusterSize::Node, ClusterSize::Machine];
            let size = sizes[rng.below(4) as usize];
            // Forms that have one representative refuse, and a map that is gone has the call panic.
            let resized = quietly(|| book.co.set_cluster_size(size));
            count(if let Ok(true) = resized { What::Resized } else { What::NotResized });
        }
        _ if book.is_adaptive => {
            let swapped = control::swap(book.id(), FORMS[rng.below(3) as usize]).is_ok();
            count(if swapped { What::Swaps } else { What::SwapsFailed });
        }
        _ => {
            // Another swap may be under way, or the map gone.
            let swapped = book.co.swap(PATIENCE, rng).is_ok();
            count(if swapped { What::Swaps } else { What::SwapsFailed });
        }
    }
    thread::sleep(Duration::from_micros(rng.below(SWAP_SLEEP_US)));
}

/// A step of who owns the maps: some end, and others take their places.
fn own(world: &'static World, rng: &mut Rng) {
    if rng.one_in(DESTROY_ONE_IN) {
        world.destroy(rng.below(PLACES as u64) as usize, rng.one_in(2));
    } else if rng.one_in(2)
        && let Some(book) = world.any(rng)
    {
        // Nobody writes for a moment: swapped or not, the map must be as the book has it.
        book.close();
        book.reopen();
    }
    if rng.one_in(2) {
        world.fill(rng);
    }
    thread::sleep(Duration::from_micros(rng.below(OWNER_SLEEP_US)));
}
