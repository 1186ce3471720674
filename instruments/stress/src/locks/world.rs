//! What the threads of the torture share: the locks, and what is known of each.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::breaks::Break;
use super::gates::{Gate, gates};
use super::kinds::{Excludes, Forgetful, Shares, locks, shared_locks};
use super::slots::Slot;
use super::tally::Tally;
use super::turnstile::{Pass, Turnstile};
use crate::ballast::Ballast;
use crate::post::Post;
use crate::trial::Trial;
use crate::{Rng, leak};

/// A lock of one face or the other, or a gate.
pub(super) enum Guard {
    One(Box<dyn Excludes>),
    Several(Box<dyn Shares>),
    Gate(Gate),
}

/// A lock, and what it guards.
#[repr(align(128))]
pub(super) struct Place {
    pub(super) guard: Guard,
    /// Before every second one.
    turnstile: Option<Turnstile>,
    pub(super) book: Book,
    /// Sections of all threads that have told theirs.
    pub(super) told: AtomicU64,
}

/// What only the thread inside stores to, with plain stores.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Book {
    /// The thread that is inside alone: the number of its post, plus one.
    pub(super) owner: AtomicU64,
    /// Sections begun and ended.
    pub(super) begun: AtomicU64,
    pub(super) ended: AtomicU64,
}

impl Book {
    /// Sections begun, and ended.
    pub(super) fn seen(&self) -> (u64, u64) {
        (self.begun.load(Ordering::Relaxed), self.ended.load(Ordering::Relaxed))
    }
}

impl Place {
    fn new(guard: Guard, turnstile: Option<Turnstile>) -> Place {
        Place { guard, turnstile, book: Book::default(), told: AtomicU64::new(0) }
    }

    /// None if nobody may come just now.
    pub(super) fn come(&self) -> Option<Option<Pass<'_>>> {
        match &self.turnstile {
            None => Some(None),
            Some(turnstile) => turnstile.come().map(Some),
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match &self.guard {
            Guard::One(lock) => lock.name(),
            Guard::Several(lock) => lock.name(),
            Guard::Gate(gate) => gate.name(),
        }
    }
}

pub(super) struct World {
    pub(super) trial: &'static Trial,
    broken: Option<Break>,
    pub(super) posts: Vec<Post>,
    pub(super) slots: Vec<Slot>,
    pub(super) places: Vec<Place>,
    /// The place where most of them go.
    front: AtomicUsize,
    /// Somebody was found who will wait for ever.
    pub(super) has_lost: AtomicBool,
    pub(super) ballast: Ballast,
    pub(super) tally: Tally,
}

impl World {
    /// For so many threads.
    pub(super) fn make(broken: Option<Break>, threads: usize) -> &'static World {
        let trial = leak(Trial::default());
        let mut places = Vec::new();
        for turnstile in [|| None, || Some(Turnstile::default())] {
            let one = locks().into_iter().map(Guard::One);
            let several = shared_locks().into_iter().map(Guard::Several);
            let gates = gates().into_iter().map(Guard::Gate);
            places.extend(one.chain(several).chain(gates).map(|guard| Place::new(guard, turnstile())));
        }
        if broken == Some(Break::LoseWakeup) {
            places[0] = Place::new(Guard::One(Box::new(Forgetful::new(trial))), None);
        }
        leak(World {
            trial,
            broken,
            posts: (0..threads).map(|_| Post::default()).collect(),
            slots: (0..threads).map(|_| Slot::new(places.len())).collect(),
            places,
            front: AtomicUsize::new(0),
            has_lost: AtomicBool::new(false),
            ballast: Ballast::new(),
            tally: Tally::default(),
        })
    }

    pub(super) fn is_broken(&self, how: Break) -> bool {
        self.broken == Some(how)
    }

    /// Broken, but not so.
    pub(super) fn is_broken_otherwise(&self, how: Break) -> bool {
        self.broken.is_some_and(|broken| broken != how)
    }

    /// Whether to do it wrong, now and then.
    pub(super) fn breaks(&self, how: Break, one_in: u64, rng: &mut Rng) -> bool {
        self.is_broken(how) && rng.one_in(one_in)
    }

    /// Others go to another place: often to one where a wake-up is most likely lost, and seen to be.
    pub(super) fn move_front(&self, rng: &mut Rng) {
        let hunts = rng.one_in(2);
        let is_wanted = |place: &usize| {
            let place = &self.places[*place];
            !hunts || (place.turnstile.is_some() && place.name().contains("disturbed"))
        };
        let wanted: Vec<usize> = (0..self.places.len()).filter(is_wanted).collect();
        self.front.store(wanted[rng.below(wanted.len() as u64) as usize], Ordering::Relaxed);
    }

    /// A place to go to.
    pub(super) fn any_place(&self, rng: &mut Rng) -> usize {
        match rng.below(4) {
            0 => rng.below(self.places.len() as u64) as usize,
            _ => self.front.load(Ordering::Relaxed),
        }
    }

    pub(super) fn accuse(&self, place: usize, what: &str) {
        self.trial.accuse(format!("{}: {what}", self.places[place].name()));
    }
}
