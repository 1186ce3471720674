//! The threads of the stress: each calls, creates and destroys objects for a while and ends.

use std::panic::catch_unwind;

use squall::rcu::{barrier, pin, reclaim};
use squall::{CallErrorKind, Handle, ObjectState, info_of, snapshot};

use super::board::Entry;
use super::caller::{Caller, DEPTH};
use super::classes::call_known;
use super::counts::{Stat, count, count_many};
use super::interfaces::{AnyHandle, Kind};
use super::methods::discard;
use super::owner::{self, NO_SLOT};
use super::world::World;
use crate::run::Rng;
use crate::skeleton::delay::delay;
use crate::skeleton::expected_panic::ExpectedPanic;
use crate::skeleton::lifetime::run_thread;
use crate::skeleton::placement::switch_vp;

/// A thread runs at most two to this power steps.
const STEPS_LOG: u64 = 9;
/// Maximum number of consecutive calls without delay.
const BURST_MAX: u64 = 600;
/// Maximum number of consecutive calls with a full store buffer.
const BURST_LATE_MAX: u64 = 150;
/// Maximum number of consecutive objects in a skirmish.
const SKIRMISH_MAX: u64 = 60;
/// Number of slots for skirmishes.
const HOT_SLOTS: u64 = 2;
/// Maximum number of spins of a call in a skirmish.
const SPINS_LATE: u64 = 256;
/// Maximum number of objects created and destroyed in a row.
const CHURN_MAX: u64 = 60;
/// Number of stale handles that a thread remembers.
const MEMORY: usize = 64;
/// Number of calls in an exit hook.
const LAST_CALLS: u64 = 6;

/// Uses the library while the thread-locals of the thread are destroyed.
fn on_exit(world: &'static World, number: u64) {
    let mut rng = Rng::new(number, 0);
    let mut caller = Caller { world, rng: &mut rng, depth: 1 };
    (0..LAST_CALLS).for_each(|_| caller.call_any());
    count_many(Stat::ExitHooks, LAST_CALLS);
    if let Some(held) = owner::create(world, &mut rng, NO_SLOT) {
        Caller { world, rng: &mut rng, depth: 1 }.call(&held.entry);
        owner::end(world, &mut rng, held);
    }
    world.counts.flush();
}

/// Returns the body of a thread at a worker.
pub(super) fn body(world: &'static World, index: usize, rng: Rng) -> impl FnOnce() + Send + 'static {
    let worker = &world.workers[index];
    let begin = move |rng: &mut Rng| {
        let mut memory = Vec::with_capacity(MEMORY);
        let first_use = |rng: &mut Rng| StressThread { world, rng, memory: &mut memory }.call_one();
        worker.exit_hooks.around_first_use(rng, move |number| on_exit(world, number), first_use);
        memory
    };
    let step =
        move |memory: &mut Vec<Entry>, _: u64, rng: &mut Rng| StressThread { world, rng, memory }.step();
    move || run_thread((world.run_state, worker), STEPS_LOG, rng, begin, step, |_| world.counts.flush())
}

/// One thread of the stress.
struct StressThread<'a> {
    world: &'static World,
    rng: &'a mut Rng,
    /// Handles that the thread saw at any time.
    memory: &'a mut Vec<Entry>,
}

impl StressThread<'_> {
    fn caller(&mut self) -> Caller<'_> {
        Caller { world: self.world, rng: self.rng, depth: DEPTH }
    }

    /// Runs one random action.
    fn step(&mut self) {
        if self.rng.one_in(8) {
            switch_vp(self.rng);
        }
        if self.rng.one_in(8) {
            self.call_known();
        }
        match self.rng.below(128) {
            0..30 => self.burst(),
            30..50 => self.burst_late(),
            50..56 => self.skirmish(),
            56..78 => (0..16).for_each(|_| self.call_one()),
            78..92 => owner::publish(self.world, self.rng),
            92..99 => owner::destroy_any(self.world, self.rng),
            99..109 => self.churn(),
            109..114 => self.discard(),
            114..117 => self.inspect(),
            117..120 => self.await_one(),
            120..122 => self.reclaim(),
            _ => delay(self.rng),
        }
    }

    /// Returns an entry from the board, or a remembered one.
    fn any(&mut self) -> Option<Entry> {
        if !self.memory.is_empty() && self.rng.one_in(4) {
            let index = self.rng.below(self.memory.len() as u64) as usize;
            return Some(self.memory[index]);
        }
        let entry = self.world.board.any(self.rng)?;
        if self.memory.len() < MEMORY {
            self.memory.push(entry);
        } else {
            let index = self.rng.below(MEMORY as u64) as usize;
            self.memory[index] = entry;
        }
        Some(entry)
    }

    fn call_one(&mut self) {
        match self.rng.one_in(4) {
            true => self.caller().call_any(),
            false => {
                if let Some(entry) = self.any() {
                    self.caller().call(&entry);
                }
            }
        }
    }

    /// Calls the well-known object, if there is one.
    fn call_known(&mut self) {
        match catch_unwind(call_known) {
            Ok(Ok(reply)) if reply.kind == Kind::Probe => count(Stat::Known),
            Ok(Err(error))
                if matches!(error.reason(), CallErrorKind::NotThere | CallErrorKind::Destroyed) => {}
            Err(payload) if payload.is::<ExpectedPanic>() => {}
            Err(_) => self
                .world
                .run_state
                .fail("a call of the well-known object panicked without a planned panic".to_owned()),
            Ok(outcome) => {
                self.world.run_state.fail(format!("a call of the well-known object returned {outcome:?}"))
            }
        }
    }

    /// Calls one object many times as fast as possible.
    fn burst(&mut self) {
        let Some(entry) = self.any() else { return };
        let adds = self.rng.one_in(2);
        for _ in 0..self.rng.below(BURST_MAX) {
            let mut caller = self.caller();
            if adds { caller.add(&entry) } else { caller.glance(&entry) }
        }
    }

    /// Calls one object after another while the store buffer is full.
    fn burst_late(&mut self) {
        for _ in 0..self.rng.below(BURST_LATE_MAX) {
            let Some(entry) = self.world.board.any(self.rng) else { return };
            self.world.store_buffer.fill(self.rng);
            self.caller().glance(&entry);
        }
    }

    /// Some threads create, destroy and await objects in a few slots as fast as they can. Others call these
    /// objects with a full store buffer. If a fence is missing, the destruction completes during a call.
    fn skirmish(&mut self) {
        let destroys = self.rng.one_in(2);
        for _ in 0..self.rng.below(SKIRMISH_MAX) {
            let slot = self.rng.below(HOT_SLOTS) as usize;
            if destroys {
                let Some(held) = owner::create(self.world, self.rng, slot) else { continue };
                let entry = held.entry;
                let old = self.world.board.publish(held);
                let mine = self.world.board.take(slot, Some(entry.key));
                for held in old.into_iter().chain(mine) {
                    let entry = held.entry;
                    if let Some(destruction) = owner::end(self.world, self.rng, held) {
                        owner::await_end(self.world, &entry, destruction);
                    }
                }
            } else if let Some(entry) = pin(|o| *self.world.board.shown(o, slot)) {
                // After this call, the entry of this VP exists, and the next call is a hit.
                self.caller().glance_for(&entry, 0);
                let spins = self.rng.below(SPINS_LATE);
                self.world.store_buffer.fill(self.rng);
                self.caller().glance_for(&entry, spins);
            }
        }
    }

    /// Creates objects that live for a call or two, so that ids are reused soon.
    fn churn(&mut self) {
        for _ in 0..self.rng.below(CHURN_MAX) {
            let Some(held) = owner::create(self.world, self.rng, NO_SLOT) else { continue };
            (0..self.rng.below(3)).for_each(|_| self.caller().call(&held.entry));
            let entry = held.entry;
            owner::end(self.world, self.rng, held);
            if self.memory.len() < MEMORY {
                self.memory.push(entry);
            }
        }
    }

    fn discard(&mut self) {
        if let Some(entry) = self.any() {
            discard(self.rng, entry.handle);
            self.caller().glance(&entry);
        }
    }

    /// Creates, calls and destroys an object, and waits until it is gone.
    fn await_one(&mut self) {
        let Some(held) = owner::create(self.world, self.rng, NO_SLOT) else { return };
        let entry = held.entry;
        self.caller().call(&entry);
        if let Some(destruction) = owner::end(self.world, self.rng, held) {
            owner::await_end(self.world, &entry, destruction);
        }
    }

    /// Inspects objects from outside.
    fn inspect(&mut self) {
        count(Stat::Snapshots);
        if self.rng.one_in(4) {
            let objects = snapshot();
            // An object that is destroyed during the snapshot may be seen twice, alive and then held.
            let mut seen: Vec<_> = objects.iter().map(|o| (o.id, o.state == ObjectState::Live)).collect();
            seen.sort_unstable();
            seen.dedup();
            if seen.len() != objects.len() {
                let (count, others) = (objects.len(), seen.len());
                self.world
                    .run_state
                    .fail(format!("a snapshot lists {count} objects, but only {others} are different"));
            }
            return;
        }
        let Some(entry) = self.any() else { return };
        // Read before the object is inspected.
        let over = self.world.ledger.is_over(entry.key);
        let (id, interface) = match entry.handle {
            AnyHandle::Probe(handle) => (Handle::id(handle), "Probe"),
            AnyHandle::Deep(handle) => (Handle::id(handle), "Deep"),
            AnyHandle::Pair(handle) => (Handle::id(handle), "Pair"),
        };
        match info_of(id) {
            Some(info) if info.id != id || info.interface != interface => {
                self.world
                    .run_state
                    .fail(format!("info_of describes {interface}#{id} as {}#{}", info.interface, info.id));
            }
            None if !self.world.ledger.destroy_begun(entry.key) => {
                self.world.run_state.fail(format!("{interface}#{id} is alive, but info_of does not know it"));
            }
            Some(info) if over && info.reps.iter().any(|rep| rep.holds > 0) => {
                self.world.run_state.fail(format!("{interface}#{id} was dropped, but info_of reports holds"));
            }
            _ => {}
        }
    }

    fn reclaim(&mut self) {
        let outcome = if self.rng.one_in(2) { barrier().map(|_| ()) } else { reclaim().map(|_| ()) };
        if let Err(error) = outcome {
            self.world.run_state.fail(format!("reclaiming outside every operation failed: {error}"));
        }
    }
}
