//! Disturbances of the objects, besides calls and swaps.

use squall::{Handle, info_of, tables};

use super::attach::{ask_for_no_method, attach};
use super::counts::{Stat, count};
use super::interfaces::Relay;
use super::swaps;
use super::variants::any_vp;
use super::world::World;
use crate::run::{Rng, lock};

/// Maximum number of arbiters at the same time.
const ARBITERS_MAX: usize = 4;

/// Discards tables: all, one VP's, or one page.
pub(super) fn discard(handle: Handle<dyn Relay>, rng: &mut Rng) {
    let vp = any_vp(rng);
    match rng.below(16) {
        0 => tables::discard_all(),
        1..6 => tables::discard(vp),
        _ => tables::discard_page_of(vp, Handle::id(handle)),
    }
    count(Stat::Discards);
}

/// Disturbs an object in one random way.
pub(super) fn disturb(world: &'static World, rng: &mut Rng) {
    let place = rng.below(world.places.len() as u64) as usize;
    let Some(entry) = world.shown(place) else { return world.fill(place, rng) };
    match rng.below(64) {
        0..14 => arbitrate(world, rng),
        14..18 => world.destroy(place),
        18..40 => (0..world.places.len()).for_each(|place| world.fill(place, rng)),
        40..50 => discard(entry.handle, rng),
        50..52 => swaps::upgrade(world, rng),
        52 => swaps::refused_upgrade(world),
        53 => ask_for_no_method(world, &entry),
        54 => swaps::look_back(world),
        55..59 => {
            if info_of(Handle::id(entry.handle)).is_none() && !entry.record.destroy_begun() {
                world
                    .run_state
                    .fail(format!("object #{} is alive, but info_of does not know it", entry.record.serial));
            }
        }
        _ => cancel(world),
    }
}

/// Attaches an arbiter somewhere, or detaches one.
fn arbitrate(world: &'static World, rng: &mut Rng) {
    let there = lock(&world.arbiters).len();
    if there == 0 || (there < ARBITERS_MAX && rng.one_in(2)) {
        let place = rng.below(world.places.len() as u64) as usize;
        let Some(entry) = world.shown(place) else { return };
        if let Some(attached) = attach(world, &entry, rng) {
            count(Stat::Attached);
            lock(&world.arbiters).push(attached);
        }
        return;
    }
    let mut arbiters = lock(&world.arbiters);
    if arbiters.is_empty() {
        return;
    }
    let index = rng.below(arbiters.len() as u64) as usize;
    let one = arbiters.swap_remove(index);
    drop(arbiters);
    one.detach();
}

/// Cancels a swap that a thread waits for.
pub(super) fn cancel(world: &World) {
    let cancel = lock(&world.cancels).pop_back();
    if let Some(cancel) = cancel {
        cancel.cancel();
    }
}
