//! The lives of the torture's threads: each is born before or after the library's first use, registers itself or not,
//! reads and writes for a while, and ends in some way; then another takes its slot.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use squall_rcu::{Marker, barrier, pin, register, wait};

use super::calls::{Tally, defer_aging, expect_all, flood};
use super::reader::{Reader, Seen};
use super::signals;
use super::world::{Removed, World, any_place};
use super::writer::Writer;
use crate::places::hop;
use crate::planned::panic_as_planned;
use crate::post::{Farewells, Post};
use crate::{Rng, lock};

/// The longest life is shorter than two to this power, in steps.
const LIFE_STEPS_LOG: u64 = 9;
/// Calls that a destructor of a thread-local defers.
const LAST_CALLS: u64 = 5;

/// What a thread does in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Reader,
    Writer,
    Mixed,
}

/// Where one thread after another lives.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) post: Post,
    /// What those that ended have seen.
    pub(super) seen: Mutex<Seen>,
}

/// What a thread does when its thread-locals are destroyed.
fn say_farewell(world: &'static World, number: u64) {
    let mut rng = Rng::new(number, 0);
    let mut seen = Seen::default();
    let mut reader = Reader { world, rng: &mut rng, seen: &mut seen };
    (0..3).for_each(|_| reader.step());
    let tally = Tally::default();
    world
        .pick_up(2)
        .into_iter()
        .for_each(|removed| defer_aging(world, removed, rng.next(), &Tally::default()));
    flood(world, LAST_CALLS, &tally, || rng.next());
    let outcome = match number % 4 {
        0 => wait(),
        1 => Marker::set().wait(),
        2 => barrier().map(|_| expect_all(world, &tally, LAST_CALLS)),
        _ => Ok(()),
    };
    if let Err(error) = outcome {
        world.trial.accuse(format!("waiting in a thread-local destructor failed: {error}"));
    }
}

/// Starts a life in `slot`.
pub(super) fn start(
    world: &'static World,
    slot: &'static Slot,
    name: String,
    role: Role,
    rng: Rng,
) -> std::io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name).spawn(move || live(world, slot, role, rng))
}

fn live(world: &'static World, slot: &'static Slot, role: Role, mut rng: Rng) {
    // Nothing of the library is touched before all may go on: so the first lives begin before its first use.
    if !world.trial.gate() {
        return;
    }
    slot.post.move_in();
    be_born(world, &slot.post.farewells, &mut rng);
    let (mut seen, mut hand, mut later) = (Seen::default(), Vec::new(), Vec::new());
    let longest = 1 << rng.below(LIFE_STEPS_LOG + 1);
    let steps = 1 + rng.below(longest);
    for _ in 0..steps {
        slot.post.beat();
        if !world.trial.gate() {
            break;
        }
        step(world, role, &mut rng, &mut seen, &mut hand, &mut later);
    }
    lock(&slot.seen).add(&seen);
    if rng.one_in(2) {
        // Deferred by a thread that ends before they run.
        Writer { world, rng: &mut rng, hand: &mut hand, later: &mut later }.defer_hand();
    }
    world.give(hand);
    world.give(later.into_iter().map(|(_, removed): (Marker, Removed)| removed));
    slot.post.move_out();
    // A signal that was sent before is ignored from here on.
    signals::listen(None);
    if rng.one_in(8) {
        pin(|_| pin(|_| panic_as_planned()))
    }
}

/// The first use of the library by this thread, and the plans of its farewells.
fn be_born(world: &'static World, farewells: &'static Farewells, rng: &mut Rng) {
    let number = rng.next();
    farewells.say_after_the_library(move || say_farewell(world, number));
    let registered = if rng.one_in(2) { register() } else { pin(|_| register()) };
    if let Err(error) = registered {
        world.trial.accuse(format!("a thread could not be registered: {error}"));
    }
    let number = rng.next();
    farewells.say_before_the_library(move || say_farewell(world, number));
    signals::listen(Some(world));
}

fn step(
    world: &'static World,
    role: Role,
    rng: &mut Rng,
    seen: &mut Seen,
    hand: &mut Vec<Removed>,
    later: &mut Vec<(Marker, Removed)>,
) {
    if rng.one_in(8) {
        hop(rng);
    }
    let reads = match role {
        Role::Reader => true,
        Role::Writer => false,
        Role::Mixed => rng.one_in(2),
    };
    if reads {
        Reader { world, rng, seen }.step();
    } else {
        Writer { world, rng, hand, later }.step();
    }
}

/// What the members of a crowd share.
pub(super) struct Crowd {
    pub(super) members: u64,
    pub(super) deferred: AtomicU64,
    pub(super) tally: Tally,
}

/// A short life: registers, does one or two things, defers a few calls, and ends. The last to have deferred then asks
/// for a barrier, while the others are ending: their calls have to have run too.
pub(super) fn visit(world: &'static World, crowd: &Crowd, mut rng: Rng) {
    be_born(world, &world.visitors_farewells, &mut rng);
    let mut seen = Seen::default();
    for _ in 0..1 + rng.below(2) {
        Reader { world, rng: &mut rng, seen: &mut seen }.step();
    }
    if let Some(removed) = world.replace(any_place(&mut rng)) {
        defer_aging(world, removed, rng.next(), &Tally::default());
    }
    flood(world, LAST_CALLS, &crowd.tally, || rng.next());
    // AcqRel: the last one has seen the others defer.
    if crowd.deferred.fetch_add(1, Ordering::AcqRel) + 1 == crowd.members {
        match barrier() {
            Ok(_) => expect_all(world, &crowd.tally, crowd.members * LAST_CALLS),
            Err(error) => world.trial.accuse(format!("a barrier outside every operation failed: {error}")),
        }
    }
    signals::listen(None);
}
