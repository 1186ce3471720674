//! The lives of the torture's threads: those that call, those that steer, the owner of the objects, and who reads the log.

use std::thread::{self, JoinHandle};
use std::time::Duration;

use squall::Handle;

use super::book::Book;
use super::people::Person;
use super::socket::Caller as SocketCaller;
use super::tally::{What, count};
use super::world::{Load, PLACES, SEESAW, WAVE, World};
use crate::Rng;
use crate::delay::delay;
use crate::life::live;
use crate::places::hop;

/// The longest life is shorter than two to this power, in steps.
const LIFE_STEPS_LOG: u64 = 10;
/// Additions, and sums, one after another, at most.
const ADDS_MAX: u64 = 6_000;
const TOTALS_MAX: u64 = 300;
const BURST: u64 = 30_000;
/// One in so many steps of who owns the objects destroys one.
const DESTROY_ONE_IN: u64 = 6;
/// Steps on one object, one after another, at most.
const HELD_MAX: u64 = 32;
const OWNER_SLEEP_US: u64 = 12_000;
const LOG_SLEEP: Duration = Duration::from_millis(8);

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Calls,
    Steers,
    SteersBySocket,
    Owns,
    ReadsTheLog,
}

/// What the posts behind those of the callers do.
pub(super) const OTHERS: [Role; 5] =
    [Role::Steers, Role::Steers, Role::SteersBySocket, Role::Owns, Role::ReadsTheLog];

/// Starts a life.
pub(super) fn start(
    world: &'static World,
    post: usize,
    role: Role,
    rng: Rng,
) -> std::io::Result<JoinHandle<()>> {
    let name = format!("adapt-{post}");
    thread::Builder::new().name(name).spawn(move || {
        let mut socket = SocketCaller::default();
        let step = move |number, rng: &mut Rng| match role {
            Role::Calls => call(world, post, rng),
            Role::Steers => Person { world }.steer(number, rng),
            Role::SteersBySocket => socket.steer(world, rng),
            Role::Owns => own(world, rng),
            Role::ReadsTheLog => read_the_log(world),
        };
        live((&world.trial, &world.posts[post]), LIFE_STEPS_LOG, rng, step, || world.tally.hand_in());
    })
}

/// A step of who calls: what is done in that place now.
fn call(world: &'static World, lane: usize, rng: &mut Rng) {
    if rng.one_in(64) {
        hop(rng);
    }
    if rng.one_in(32) {
        (0..rng.below(16)).for_each(|_| world.errands.run(world, rng));
    }
    if rng.one_in(8) {
        world.kinds.step(world, lane, rng);
    }
    let place = world.any_place(rng);
    let Some(book) = world.shown(place) else { return };
    // Now and then it is held on to, wherever it may have gone.
    let times = if rng.one_in(8) { 1 + rng.below(HELD_MAX) } else { 1 };
    for _ in 0..times {
        add_or_ask(world, place, &book, lane, rng);
    }
}

fn add_or_ask(world: &World, place: usize, book: &Book, lane: usize, rng: &mut Rng) {
    let owner = (book.serial % world.callers as u64) as usize;
    match world.load(place) {
        Load::Idle if rng.one_in(64) => book.ask_many(lane, 1, rng),
        Load::Idle => delay(rng),
        Load::OneAdds if lane == owner => book.add_many(lane, rng.below(ADDS_MAX), rng),
        Load::OneAdds => delay(rng),
        Load::AllAdd => book.add_many(lane, rng.below(ADDS_MAX), rng),
        Load::MostlyTotal => book.ask_many(lane, rng.below(TOTALS_MAX), rng),
        Load::Bursts if rng.one_in(4) => book.add_many(lane, BURST, rng),
        Load::Bursts => delay(rng),
    }
}

/// A step of who owns the objects: some end, and others take their places.
fn own(world: &'static World, rng: &mut Rng) {
    // One that many call, or any.
    let place = if rng.one_in(2) { world.any_in_front(rng) } else { rng.below(PLACES as u64) as usize };
    if rng.one_in(DESTROY_ONE_IN) {
        // The two whose load alternates live to the end.
        world.destroy(place, rng.one_in(2));
    } else if rng.one_in(4)
        && let Some(book) = world.shown(place).filter(|book| !book.fate.is_ending())
    {
        // Nobody adds for a moment: swapped or not, the sum must be that of the book.
        book.close();
        book.reopen();
    }
    if rng.one_in(2) {
        (0..PLACES).for_each(|place| world.fill(place, rng));
    }
    thread::sleep(Duration::from_micros(rng.below(OWNER_SLEEP_US)));
}

pub(super) fn read_the_log(world: &World) {
    let wave = world.shown(WAVE).map(|book| Handle::id(book.co));
    let collected = crate::lock(&world.log).collect(world, wave);
    if let Err(what) = collected {
        world.trial.accuse(what);
    }
    thread::sleep(LOG_SLEEP);
}

/// The load of the two counters that have one of their own: these turn in this time, which began with the run.
pub(super) fn turn_the_waves(world: &World, wave_turns: bool, seesaw_turns: bool) {
    for (place, turns) in [(WAVE, wave_turns), (SEESAW, seesaw_turns)] {
        if turns {
            let next = match world.load(place) {
                Load::AllAdd => Load::MostlyTotal,
                _ => Load::AllAdd,
            };
            world.set_load(place, next);
            if place == WAVE {
                count(What::Halves);
            }
        }
    }
}
