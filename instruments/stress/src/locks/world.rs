//! The data that all threads of the stress share: the locks and their records.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::breaks::Break;
use super::counts::Counts;
use super::gates::{Gate, gates};
use super::lock_types::{Exclusive, Forgetful, SharedAccess, locks, shared_locks};
use super::slots::Slot;
use super::turnstile::{Pass, Turnstile};
use crate::run::Rng;
use crate::skeleton;
use crate::skeleton::run_state::RunState;
use crate::skeleton::store_buffer::StoreBuffer;

/// A lock of either trait, or a gate.
pub(super) enum AnyLock {
    One(Box<dyn Exclusive>),
    Several(Box<dyn SharedAccess>),
    Gate(Gate),
}

/// A lock and its record.
#[repr(align(128))]
pub(super) struct Place {
    pub(super) any_lock: AnyLock,
    /// Before every second lock.
    turnstile: Option<Turnstile>,
    pub(super) sections: SectionCounts,
    /// Sections that ended threads have reported.
    pub(super) reported: AtomicU64,
}

/// The record of a lock, which only the thread inside writes, with plain stores.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct SectionCounts {
    /// The worker whose thread is inside alone, plus one.
    pub(super) owner: AtomicU64,
    /// Sections begun and ended.
    pub(super) begun: AtomicU64,
    pub(super) ended: AtomicU64,
}

impl SectionCounts {
    /// Returns the sections begun and ended.
    pub(super) fn seen(&self) -> (u64, u64) {
        (self.begun.load(Ordering::Relaxed), self.ended.load(Ordering::Relaxed))
    }
}

impl Place {
    fn new(any_lock: AnyLock, turnstile: Option<Turnstile>) -> Place {
        Place { any_lock, turnstile, sections: SectionCounts::default(), reported: AtomicU64::new(0) }
    }

    /// Passes the turnstile, if any. Returns `None` if its group is complete.
    pub(super) fn come(&self) -> Option<Option<Pass<'_>>> {
        match &self.turnstile {
            None => Some(None),
            Some(turnstile) => turnstile.come().map(Some),
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match &self.any_lock {
            AnyLock::One(lock) => lock.name(),
            AnyLock::Several(lock) => lock.name(),
            AnyLock::Gate(gate) => gate.name(),
        }
    }
}

pub(crate) struct State {
    pub(super) slots: Vec<Slot>,
    pub(super) places: Vec<Place>,
    /// The place that most threads visit.
    front: AtomicUsize,
    /// A thread was found that waits forever.
    pub(super) has_lost: AtomicBool,
    pub(super) store_buffer: StoreBuffer,
}

pub(super) type World = skeleton::world::World<Break, Counts, State>;

fn places(broken: Option<Break>, run_state: &'static RunState) -> Vec<Place> {
    let mut places = Vec::new();
    for turnstile in [|| None, || Some(Turnstile::default())] {
        let one = locks().into_iter().map(AnyLock::One);
        let several = shared_locks().into_iter().map(AnyLock::Several);
        let gates = gates().into_iter().map(AnyLock::Gate);
        places.extend(one.chain(several).chain(gates).map(|any_lock| Place::new(any_lock, turnstile())));
    }
    if broken == Some(Break::LoseWakeup) {
        places[0] = Place::new(AnyLock::One(Box::new(Forgetful::new(run_state))), None);
    }
    places
}

impl World {
    /// Makes the world for so many threads.
    pub(super) fn make(broken: Option<Break>, threads: usize) -> &'static World {
        World::leaked(broken, threads, |run_state| {
            let places = places(broken, run_state);
            State {
                slots: (0..threads).map(|_| Slot::new(places.len())).collect(),
                places,
                front: AtomicUsize::new(0),
                has_lost: AtomicBool::new(false),
                store_buffer: StoreBuffer::new(),
            }
        })
    }

    /// Sends the threads to another place; often to one where a lost wake-up is most likely, and visible.
    pub(super) fn move_front(&self, rng: &mut Rng) {
        let hunts = rng.one_in(2);
        let is_wanted = |place: &usize| {
            let place = &self.places[*place];
            !hunts || (place.turnstile.is_some() && place.name().contains("disturbed"))
        };
        let wanted: Vec<usize> = (0..self.places.len()).filter(is_wanted).collect();
        self.front.store(wanted[rng.below(wanted.len() as u64) as usize], Ordering::Relaxed);
    }

    /// Returns a place to visit.
    pub(super) fn any_place(&self, rng: &mut Rng) -> usize {
        match rng.below(4) {
            0 => rng.below(self.places.len() as u64) as usize,
            _ => self.front.load(Ordering::Relaxed),
        }
    }

    pub(super) fn fail(&self, place: usize, what: &str) {
        self.run_state.fail(format!("{}: {what}", self.places[place].name()));
    }
}
