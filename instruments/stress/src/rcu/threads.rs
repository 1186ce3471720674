//! The threads of the stress. Each starts before or after the library's first use, registers itself or not,
//! and reads and writes for a while.

use std::sync::atomic::{AtomicU64, Ordering};

use squall_rcu::{Marker, barrier, pin, register, wait};

use super::calls::{BatchCount, defer_aging, expect_all, flood};
use super::reader::{Reader, Seen};
use super::signals;
use super::world::{Removed, World, any_place};
use super::writer::Writer;
use crate::run::{Rng, lock};
use crate::skeleton::lifetime::run_thread;
use crate::skeleton::placement::switch_vp;
use crate::skeleton::worker::ExitHooks;

/// A thread runs at most two to this power steps.
const STEPS_LOG: u64 = 9;
/// Number of calls that an exit hook defers.
const LAST_CALLS: u64 = 5;

/// The role of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Reader,
    Writer,
    Mixed,
}

/// Uses the library while the thread-locals of the thread are destroyed.
fn on_exit(world: &'static World, number: u64) {
    let mut rng = Rng::new(number, 0);
    let mut seen = Seen::default();
    let mut reader = Reader { world, rng: &mut rng, seen: &mut seen };
    (0..3).for_each(|_| reader.step());
    let done = BatchCount::default();
    world
        .pick_up(2)
        .into_iter()
        .for_each(|removed| defer_aging(world, removed, rng.next(), &BatchCount::default()));
    flood(world, LAST_CALLS, &done, || rng.next());
    let outcome = match number % 4 {
        0 => wait(),
        1 => Marker::set().wait(),
        2 => barrier().map(|_| expect_all(world, &done, LAST_CALLS)),
        _ => Ok(()),
    };
    if let Err(error) = outcome {
        world.run_state.fail(format!("waiting in a thread-local destructor failed: {error}"));
    }
}

/// The state of one thread.
#[derive(Default)]
struct Thread {
    seen: Seen,
    hand: Vec<Removed>,
    later: Vec<(Marker, Removed)>,
}

/// Returns the body of a thread at a worker.
pub(super) fn body(
    world: &'static World,
    index: usize,
    role: Role,
    rng: Rng,
) -> impl FnOnce() + Send + 'static {
    let worker = &world.workers[index];
    let begin = move |rng: &mut Rng| {
        register_thread(world, &worker.exit_hooks, rng);
        // The end draws from a stream of its own.
        (Thread::default(), Rng::new(rng.next(), 0))
    };
    let step = move |(thread, _): &mut (Thread, Rng), _: u64, rng: &mut Rng| step(world, role, rng, thread);
    move || run_thread((world.run_state, worker), STEPS_LOG, rng, begin, step, move |state| end(world, state))
}

fn end(world: &'static World, (thread, mut rng): (Thread, Rng)) {
    let Thread { seen, mut hand, mut later } = thread;
    lock(&world.seen).add(&seen);
    if rng.one_in(2) {
        // These calls are deferred by a thread that ends before they run.
        Writer { world, rng: &mut rng, hand: &mut hand, later: &mut later }.defer_hand();
    }
    world.give(hand);
    world.give(later.into_iter().map(|(_, removed): (Marker, Removed)| removed));
    // Signals that arrive later are ignored.
    signals::listen(None);
}

/// Uses the library for the first time in this thread, and registers the exit hooks around that.
fn register_thread(world: &'static World, exit_hooks: &'static ExitHooks, rng: &mut Rng) {
    let first_use = |rng: &mut Rng| if rng.one_in(2) { register() } else { pin(|_| register()) };
    let registered = exit_hooks.around_first_use(rng, move |number| on_exit(world, number), first_use);
    if let Err(error) = registered {
        world.run_state.fail(format!("a thread could not be registered: {error}"));
    }
    signals::listen(Some(world));
}

fn step(world: &'static World, role: Role, rng: &mut Rng, thread: &mut Thread) {
    let Thread { seen, hand, later } = thread;
    if rng.one_in(8) {
        switch_vp(rng);
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

/// The data that the members of a crowd share.
pub(super) struct Crowd {
    pub(super) members: u64,
    pub(super) deferred: AtomicU64,
    pub(super) done: BatchCount,
}

/// The body of a visitor: it registers, does one or two things, defers a few calls, and ends. The last one to
/// defer then asks for a barrier while the others are ending. Their calls must have run too.
pub(super) fn visit(world: &'static World, crowd: &Crowd, mut rng: Rng) {
    register_thread(world, &world.visitor_exit_hooks, &mut rng);
    let mut seen = Seen::default();
    for _ in 0..1 + rng.below(2) {
        Reader { world, rng: &mut rng, seen: &mut seen }.step();
    }
    if let Some(removed) = world.replace(any_place(&mut rng)) {
        defer_aging(world, removed, rng.next(), &BatchCount::default());
    }
    flood(world, LAST_CALLS, &crowd.done, || rng.next());
    // AcqRel: the last one has seen the others defer.
    if crowd.deferred.fetch_add(1, Ordering::AcqRel) + 1 == crowd.members {
        match barrier() {
            Ok(_) => expect_all(world, &crowd.done, crowd.members * LAST_CALLS),
            Err(error) => world.run_state.fail(format!("a barrier outside every operation failed: {error}")),
        }
    }
    signals::listen(None);
}
