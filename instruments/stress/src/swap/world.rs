//! The data that all threads of the stress share: places for objects, and the records of all objects.
//!
//! - I1. The object shown by a place may be stale. The thread that takes the owner out of a place destroys
//!   the object.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use squall::Owned;
use squall::swap::{Cancel, Factory};

use super::arbiters::Attached;
use super::breaks::Break;
use super::counts::{Counts, Stat, count};
use super::interfaces::Relay;
use super::record::{Entry, ObjectRecord};
use super::times::SwapTimes;
use crate::run::lock;
use crate::skeleton;

/// Entry `n` is the place of the object that the object of place `n` calls. Two places call each other. A
/// chain of three leads back to its first. Another chain of three ends. Two places hold the factory's
/// objects, which call into the others.
const NEXT: [usize; 10] = [1, 0, 3, 4, 2, 6, 7, 7, 0, 2];
pub(super) const FACTORY: std::ops::Range<usize> = 8..10;

/// Maximum number of records to name in a violation.
const NAMED_MAX: usize = 4;

#[derive(Default)]
pub(super) struct Place {
    shown: Mutex<Option<Entry>>,
    vault: Mutex<Option<(Owned<dyn Relay>, Entry)>>,
    pub(super) next: usize,
}

pub(crate) struct State {
    /// The activity of each worker.
    doing: Vec<AtomicU64>,
    pub(super) places: Vec<Place>,
    pub(super) factory: Factory<dyn Relay>,
    pub(super) upgrading: Mutex<()>,
    /// Twice the number of upgrades, plus one while one is under way.
    pub(super) upgrades: AtomicU64,
    /// The place where half of the threads are. Of its object and the next one, each swapper takes one.
    pub(super) front: AtomicUsize,
    /// All threads meet at one place.
    pub(super) duel: AtomicBool,
    /// Cancels every swap at the end of the run.
    pub(super) last: Cancel,
    pub(super) cancels: Mutex<VecDeque<Cancel>>,
    pub(super) arbiters: Mutex<Vec<Attached>>,
    pub(super) times: SwapTimes,
    records: Mutex<BTreeMap<u64, Weak<ObjectRecord>>>,
    serials: AtomicU64,
    /// Number of the next implementation.
    pub(super) numbers: AtomicU64,
    pub(super) implementations_made: AtomicU64,
    pub(super) implementations_dropped: AtomicU64,
    pub(super) marks_made: AtomicU64,
    pub(super) marks_dropped: AtomicU64,
    /// Arbitrated calls, as the arbiters and as the callers count them.
    pub(super) arbitrated: AtomicU64,
    met: AtomicU64,
}

pub(super) type World = skeleton::world::World<Break, Counts, State>;

impl World {
    pub(super) fn make(broken: Option<Break>, workers: usize) -> &'static World {
        World::leaked(broken, workers, |_| State {
            doing: (0..workers).map(|_| AtomicU64::new(0)).collect(),
            places: NEXT.iter().map(|&next| Place { next, ..Place::default() }).collect(),
            // Upgraded before it makes any object.
            factory: Factory::new(|| unreachable!("the factory was not upgraded yet")),
            upgrading: Mutex::default(),
            upgrades: AtomicU64::new(0),
            front: AtomicUsize::new(0),
            duel: AtomicBool::new(false),
            last: Cancel::new(),
            cancels: Mutex::default(),
            arbiters: Mutex::default(),
            times: SwapTimes::default(),
            records: Mutex::default(),
            serials: AtomicU64::new(1),
            numbers: AtomicU64::new(1),
            implementations_made: AtomicU64::new(0),
            implementations_dropped: AtomicU64::new(0),
            marks_made: AtomicU64::new(0),
            marks_dropped: AtomicU64::new(0),
            arbitrated: AtomicU64::new(0),
            met: AtomicU64::new(0),
        })
    }

    /// Records the activity of a worker, as an index of the activities.
    pub(super) fn does(&self, worker: usize, what: u64) {
        self.doing[worker].store(what, Ordering::Relaxed);
    }

    pub(super) fn doing(&self, worker: usize) -> u64 {
        self.doing[worker].load(Ordering::Relaxed)
    }

    /// Counts a call that passed an arbiter.
    pub(super) fn note_met(&self) {
        self.met.fetch_add(1, Ordering::Relaxed);
    }

    /// Opens the record of a new object.
    pub(super) fn open(&'static self) -> Arc<ObjectRecord> {
        let serial = self.serials.fetch_add(1, Ordering::Relaxed);
        let record = Arc::new(ObjectRecord::new(self, serial));
        lock(&self.records).insert(serial, Arc::downgrade(&record));
        record
    }

    /// Removes the record of a balanced object.
    pub(super) fn forget(&self, serial: u64) {
        lock(&self.records).remove(&serial);
    }

    /// Returns the record with this number.
    pub(super) fn record(&self, serial: u64) -> Option<Arc<ObjectRecord>> {
        lock(&self.records).get(&serial).and_then(Weak::upgrade)
    }

    /// Destroys an object that is in no place.
    pub(super) fn destroy_apart(&self, owned: Owned<dyn Relay>, entry: &Entry) {
        let swaps = entry.record.swaps_under_way();
        if self.is_broken(Break::EarlyMark) {
            entry.record.mark_destroyed();
        }
        entry.record.begin_destroy();
        Owned::destroy(owned);
        entry.record.mark_destroyed();
        count(Stat::DestroyedAll);
        if swaps {
            count(Stat::DestroyedSwapping);
        }
    }

    pub(super) fn shown(&self, place: usize) -> Option<Entry> {
        lock(&self.places[place].shown).clone()
    }

    /// Returns whether a place has an object.
    pub(super) fn is_filled(&self, place: usize) -> bool {
        lock(&self.places[place].vault).is_some()
    }

    /// Puts an object into a place. Destroys the one that another thread put there meanwhile.
    pub(super) fn put(&self, place: usize, owned: Owned<dyn Relay>, entry: Entry) {
        let shown = lock(&self.places[place].shown).replace(entry.clone());
        let before = lock(&self.places[place].vault).replace((owned, entry));
        if let Some((owned, entry)) = before {
            self.destroy_apart(owned, &entry);
        }
        drop(shown);
    }

    /// Destroys the object of a place. The place still shows it.
    pub(super) fn destroy(&self, place: usize) {
        let taken = lock(&self.places[place].vault).take();
        if let Some((owned, entry)) = taken {
            self.destroy_apart(owned, &entry);
        }
    }

    /// Destroys all remaining objects.
    pub(super) fn end(&self) {
        lock(&self.cancels).clear();
        let arbiters = std::mem::take(&mut *lock(&self.arbiters));
        arbiters.into_iter().for_each(Attached::detach);
        for place in 0..self.places.len() {
            self.destroy(place);
            let shown = lock(&self.places[place].shown).take();
            drop(shown);
        }
    }

    /// Describes the objects and parts that are not accounted for, if any.
    pub(super) fn left(&self) -> Option<String> {
        let records = lock(&self.records);
        if !records.is_empty() {
            let named: Vec<String> =
                records.keys().take(NAMED_MAX).map(|serial| format!("#{serial}")).collect();
            return Some(format!("{} objects are not accounted for: {}", records.len(), named.join(", ")));
        }
        drop(records);
        let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let pairs = [
            ("implementations", read(&self.implementations_made), read(&self.implementations_dropped)),
            ("representatives", read(&self.marks_made), read(&self.marks_dropped)),
        ];
        let (what, made, dropped) = pairs.into_iter().find(|(_, made, dropped)| made != dropped)?;
        Some(format!("{what}: made {made}, dropped {dropped}"))
    }

    /// Checks that arbiters have seen as many calls as callers have seen arbiters.
    pub(super) fn compare_arbiters(&self) -> Result<(), String> {
        let (ran, met) = (self.arbitrated.load(Ordering::Relaxed), self.met.load(Ordering::Relaxed));
        match ran == met {
            true => Ok(()),
            false => Err(format!("arbiters ran {ran} times, but {met} calls met one")),
        }
    }
}
