//! The threads of the stress: callers, operators, the owner of the objects, and the reader of the log.

use std::thread;
use std::time::Duration;

use squall::Handle;

use super::counts::{Stat, count};
use super::operators::Operator;
use super::socket::SocketOperator;
use super::tracked_counter::TrackedCounter;
use super::world::{Load, PLACES, SEESAW, WAVE, World};
use crate::run::Rng;
use crate::skeleton::delay::delay;
use crate::skeleton::lifetime::run_thread;
use crate::skeleton::placement::switch_vp;

/// A thread runs at most two to this power steps.
const STEPS_LOG: u64 = 10;
/// Maximum numbers of consecutive additions and sums, and the length of a burst.
const ADDS_MAX: u64 = 6_000;
const TOTALS_MAX: u64 = 300;
const BURST: u64 = 30_000;
/// The owner destroys an object once in this many steps.
const DESTROY_ONE_IN: u64 = 6;
/// Maximum number of consecutive steps on one object.
const HELD_MAX: u64 = 32;
const OWNER_SLEEP_US: u64 = 12_000;
const LOG_SLEEP: Duration = Duration::from_millis(8);

/// The role of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Calls,
    Steers,
    SteersBySocket,
    Owns,
    ReadsTheLog,
}

/// The roles of the workers after those of the callers.
pub(super) const OTHERS: [Role; 5] =
    [Role::Steers, Role::Steers, Role::SteersBySocket, Role::Owns, Role::ReadsTheLog];

/// Returns the body of a thread at a worker.
pub(super) fn body(
    world: &'static World,
    worker: usize,
    role: Role,
    rng: Rng,
) -> impl FnOnce() + Send + 'static {
    let step = move |socket: &mut SocketOperator, number: u64, rng: &mut Rng| match role {
        Role::Calls => call(world, worker, rng),
        Role::Steers => Operator { world }.steer(number, rng),
        Role::SteersBySocket => socket.steer(world, rng),
        Role::Owns => own(world, rng),
        Role::ReadsTheLog => read_the_log(world),
    };
    let end = move |socket| {
        drop(socket);
        world.counts.flush();
    };
    move || {
        let place = (world.run_state, &world.workers[worker]);
        run_thread(place, STEPS_LOG, rng, |_| SocketOperator::default(), step, end);
    }
}

/// Runs one step of a caller, according to the load of a place.
fn call(world: &'static World, lane: usize, rng: &mut Rng) {
    if rng.one_in(64) {
        switch_vp(rng);
    }
    if rng.one_in(32) {
        (0..rng.below(16)).for_each(|_| world.invocations.run(world, rng));
    }
    if rng.one_in(8) {
        world.kinds.step(world, lane, rng);
    }
    let place = world.any_place(rng);
    let Some(tracked) = world.shown(place) else { return };
    // Sometimes the object is kept for several steps, even if it leaves its place.
    let times = if rng.one_in(8) { 1 + rng.below(HELD_MAX) } else { 1 };
    for _ in 0..times {
        add_or_ask(world, place, &tracked, lane, rng);
    }
}

fn add_or_ask(world: &World, place: usize, tracked: &TrackedCounter, lane: usize, rng: &mut Rng) {
    let owner = (tracked.serial % world.callers as u64) as usize;
    match world.load(place) {
        Load::Idle if rng.one_in(64) => tracked.ask_many(lane, 1, rng),
        Load::Idle => delay(rng),
        Load::OneAdds if lane == owner => tracked.add_many(lane, rng.below(ADDS_MAX), rng),
        Load::OneAdds => delay(rng),
        Load::AllAdd => tracked.add_many(lane, rng.below(ADDS_MAX), rng),
        Load::MostlyTotal => tracked.ask_many(lane, rng.below(TOTALS_MAX), rng),
        Load::Bursts if rng.one_in(4) => tracked.add_many(lane, BURST, rng),
        Load::Bursts => delay(rng),
    }
}

/// Runs one step of the owner: some objects end, and others take their places.
fn own(world: &'static World, rng: &mut Rng) {
    // A place in front, or any.
    let place = if rng.one_in(2) { world.any_in_front(rng) } else { rng.below(PLACES as u64) as usize };
    if rng.one_in(DESTROY_ONE_IN) {
        // The wave and the seesaw live until the end.
        world.destroy(place, rng.one_in(2));
    } else if rng.one_in(4)
        && let Some(tracked) = world.shown(place).filter(|tracked| !tracked.lifecycle.is_ending())
    {
        // With additions drained, the sum must be exact, swapped or not.
        tracked.close();
        tracked.reopen();
    }
    if rng.one_in(2) {
        (0..PLACES).for_each(|place| world.fill(place, rng));
    }
    thread::sleep(Duration::from_micros(rng.below(OWNER_SLEEP_US)));
}

pub(super) fn read_the_log(world: &World) {
    let wave = world.shown(WAVE).map(|tracked| Handle::id(tracked.handle));
    let collected = crate::run::lock(&world.log).collect(world, wave);
    if let Err(what) = collected {
        world.run_state.fail(what);
    }
    thread::sleep(LOG_SLEEP);
}

/// Alternates the loads of the wave and the seesaw.
pub(super) fn turn_the_waves(world: &World, wave_turns: bool, seesaw_turns: bool) {
    for (place, turns) in [(WAVE, wave_turns), (SEESAW, seesaw_turns)] {
        if turns {
            let next = match world.load(place) {
                Load::AllAdd => Load::MostlyTotal,
                _ => Load::AllAdd,
            };
            world.set_load(place, next);
            if place == WAVE {
                count(Stat::Halves);
            }
        }
    }
}
