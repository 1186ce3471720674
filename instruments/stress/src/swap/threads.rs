//! The threads of the stress: callers, swappers, and one that disturbs the objects.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use super::caller::{CallContext, DEPTH};
use super::counts::{Stat, count};
use super::disturb::{cancel, discard, disturb};
use super::interfaces::Act;
use super::record::Entry;
use super::swaps;
use super::world::World;
use crate::run::Rng;
use crate::skeleton::delay::{delay, spin};
use crate::skeleton::lifetime::run_thread;
use crate::skeleton::placement::switch_vp;

/// A thread runs at most two to this power steps.
const STEPS_LOG: u64 = 10;
/// Maximum number of consecutive short calls.
const BURST_MAX: u64 = 3_000;
/// Calls between two audits.
const AUDIT_EACH: u64 = 256;
/// Maximum number of consecutive swaps of one object.
const SWAPS_MAX: u64 = 40;
/// The place of duels, the maximum number of objects destroyed there in a row, and the maximum number of
/// spins before each destruction.
const DUEL_PLACE: usize = 7;
const DUELS_MAX: u64 = 100;
const SPIN_MAX: u64 = 20_000;
/// Number of calls in an exit hook.
const LAST_CALLS: u64 = 4;

/// The role of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Calls,
    Swaps,
    Disturbs,
}

/// Activities, for the report about a stuck thread. The word of a worker also holds a place.
const DOING: [&str; 12] = [
    "beginning",
    "calling",
    "passing",
    "lingering",
    "sleeping",
    "in a duel",
    "discarding tables",
    "pausing",
    "swapping",
    "requesting forbidden swaps",
    "disturbing",
    "ending",
];

/// Describes the activity of a worker.
pub(super) fn activity(world: &World, worker: usize) -> String {
    let doing = world.doing(worker);
    let (place, what) = (doing / DOING.len() as u64, doing % DOING.len() as u64);
    format!("{} (place {place})", DOING[what as usize])
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
        let first_use = |rng: &mut Rng| {
            let mut thread = StressThread::new(world, index, rng.next());
            thread.look();
            thread.call();
            thread
        };
        worker.exit_hooks.around_first_use(rng, move |number| on_exit(world, index, number), first_use)
    };
    let end = move |thread: StressThread| {
        thread.does("ending", 0);
        drop(thread);
        world.counts.flush();
    };
    move || {
        let step = |thread: &mut StressThread, _: u64, _: &mut Rng| thread.step(role);
        run_thread((world.run_state, worker), STEPS_LOG, rng, begin, step, end);
    }
}

/// Calls objects while the thread-locals of the thread are destroyed.
fn on_exit(world: &'static World, index: usize, number: u64) {
    let mut thread = StressThread::new(world, index, number);
    thread.look();
    let context = thread.context();
    for _ in 0..LAST_CALLS {
        if let Some(entry) = thread.any() {
            context.mark(entry);
            context.audit(entry);
        }
    }
    drop(thread);
    world.counts.flush();
}

/// One thread of the stress.
struct StressThread {
    world: &'static World,
    index: usize,
    rng: RefCell<Rng>,
    /// The known objects, by place.
    entries: Vec<Option<Entry>>,
}

impl StressThread {
    fn new(world: &'static World, index: usize, seed: u64) -> StressThread {
        StressThread { world, index, rng: RefCell::new(Rng::new(seed, 0)), entries: Vec::new() }
    }

    fn step(&mut self, role: Role) {
        self.look();
        match role {
            Role::Calls | Role::Swaps if self.world.duel.load(Ordering::Relaxed) => self.join_duel(role),
            Role::Calls => self.call(),
            Role::Swaps => self.swap(),
            Role::Disturbs => self.disturb(),
        }
    }

    fn draw(&self, below: u64) -> u64 {
        self.rng.borrow_mut().below(below)
    }

    /// Replaces destroyed objects among the known ones; sometimes it does not.
    fn look(&mut self) {
        let (world, rng) = (self.world, &mut *self.rng.borrow_mut());
        self.entries.resize_with(world.places.len(), || None);
        for (place, entry) in self.entries.iter_mut().enumerate() {
            let stale = entry.as_ref().is_none_or(|entry| entry.record.is_destroyed());
            if stale && !rng.one_in(4) {
                *entry = world.shown(place);
            }
        }
    }

    fn any(&self) -> Option<&Entry> {
        if self.draw(2) == 0 {
            let front = self.world.front.load(Ordering::Relaxed);
            let place = if self.index.is_multiple_of(2) { front } else { self.world.places[front].next };
            return self.entries[place].as_ref();
        }
        self.entries[self.draw(self.entries.len() as u64) as usize].as_ref()
    }

    fn context(&self) -> CallContext<'_> {
        CallContext { world: self.world, lane: self.index, entries: &self.entries, rng: &self.rng }
    }

    fn does(&self, what: &str, entry: usize) {
        let index = DOING.iter().position(|known| *known == what).unwrap_or(0);
        self.world.does(self.index, (entry * DOING.len() + index) as u64);
    }

    fn place_of(&self, entry: &Entry) -> usize {
        self.entries
            .iter()
            .position(|known| known.as_ref().is_some_and(|known| Arc::ptr_eq(&known.record, &entry.record)))
            .unwrap_or(0)
    }

    fn call(&self) {
        if self.draw(8) == 0 {
            switch_vp(&mut self.rng.borrow_mut());
        }
        let context = self.context();
        let Some(entry) = self.any() else { return };
        let place = self.place_of(entry);
        match self.draw(256) {
            0..120 => {
                self.does("calling", place);
                for index in 0..self.draw(BURST_MAX) {
                    context.mark(entry);
                    if index % AUDIT_EACH == 0 {
                        context.audit(entry);
                        if entry.record.is_destroyed() {
                            break;
                        }
                    }
                }
            }
            120..200 => {
                self.does("passing", place);
                (0..16).for_each(|_| context.pass(entry, context.act(), DEPTH));
            }
            200..230 => {
                self.does("lingering", place);
                context.linger(entry, context.act(), DEPTH);
            }
            230..232 => {
                self.does("sleeping", place);
                context.rest(entry);
            }
            232..236 => {
                self.does("discarding tables", place);
                discard(entry.handle, &mut self.rng.borrow_mut());
                context.mark(entry);
            }
            236..240 => cancel(self.world),
            _ => {
                self.does("pausing", place);
                delay(&mut self.rng.borrow_mut());
            }
        }
        context.audit(entry);
    }

    fn swap(&self) {
        let world = self.world;
        let Some(entry) = self.any() else { return };
        let place = self.place_of(entry);
        if self.draw(8) > 0 {
            self.does("swapping", place);
            // Swaps one object, or two that call each other, in turn.
            let alone = self.draw(2) == 0;
            let other = if alone { None } else { self.entries[world.places[place].next].as_ref() };
            for _ in 0..1 + self.draw(SWAPS_MAX) {
                for entry in std::iter::once(entry).chain(other) {
                    swaps::one(world, entry, false, &mut self.rng.borrow_mut());
                }
                if world.run_state.is_stopped() || entry.record.is_destroyed() {
                    return;
                }
                if self.draw(4) == 0 {
                    self.context().mark(entry);
                }
            }
            return;
        }
        self.does("requesting forbidden swaps", place);
        match self.draw(4) {
            0 => swaps::refused_in_operation(world, entry),
            1 => swaps::refused_of_super(world, entry),
            2 => swaps::refused_in_deferred_call(world, entry),
            _ => {
                self.does("pausing", place);
                delay(&mut self.rng.borrow_mut());
            }
        }
    }

    fn disturb(&self) {
        if self.draw(64) == 0 {
            return self.duel();
        }
        self.does("disturbing", 0);
        if self.draw(64) == 0 {
            self.world.front.store(self.draw(self.entries.len() as u64) as usize, Ordering::Relaxed);
        }
        disturb(self.world, &mut self.rng.borrow_mut());
        if let Some(entry) = self.any() {
            self.context().pass(entry, Act::Wake, 0);
        }
        thread::sleep(Duration::from_micros(self.draw(1_000)));
    }

    /// Creates and destroys objects at one place as fast as possible, while the other threads call and swap
    /// them. Then calls each destroyed object at once, on several VPs.
    fn duel(&self) {
        self.does("in a duel", DUEL_PLACE);
        let world = self.world;
        world.duel.store(true, Ordering::Relaxed);
        for _ in 0..self.draw(DUELS_MAX) {
            world.fill(DUEL_PLACE, &mut self.rng.borrow_mut());
            let Some(entry) = world.shown(DUEL_PLACE) else { continue };
            match self.draw(4) {
                0 => thread::yield_now(),
                1 => thread::sleep(Duration::from_micros(self.draw(200))),
                _ => spin(self.draw(SPIN_MAX)),
            }
            world.destroy(DUEL_PLACE);
            for _ in 0..4 {
                self.context().mark(&entry);
                switch_vp(&mut self.rng.borrow_mut());
            }
            count(Stat::Duels);
            if world.run_state.is_stopped() {
                break;
            }
        }
        world.duel.store(false, Ordering::Relaxed);
    }

    /// Takes part in a duel.
    fn join_duel(&self, role: Role) {
        self.does("in a duel", DUEL_PLACE);
        let world = self.world;
        while world.duel.load(Ordering::Relaxed) && !world.run_state.is_stopped() {
            let Some(entry) = world.shown(DUEL_PLACE) else { continue };
            switch_vp(&mut self.rng.borrow_mut());
            match role {
                Role::Swaps => swaps::one(world, &entry, false, &mut self.rng.borrow_mut()),
                _ => (0..16).for_each(|_| self.context().mark(&entry)),
            }
            thread::yield_now();
        }
    }
}
