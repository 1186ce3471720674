//! The data that all threads of the stress share: places for counters, the loads on them, and the log.
//!
//! - I1. The counter shown by a place may be stale. The thread that takes the owner out of a place destroys
//!   the object.
//! - I2. An operator of one object holds the lock of its place, and `everything` for reading. An operator of
//!   all objects holds `everything` for writing. So no operator thaws an object that another has just frozen.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use squall::adapt::{control, settings};
use squall::objects::counter::{self, Counter};
use squall::{Handle, Id, Owned};

use super::breaks::Break;
use super::counts::{Counts, Stat, count};
use super::invocations::Invocations;
use super::kinds::Kinds;
use super::log::DecisionLog;
use super::tracked_counter::TrackedCounter;
use crate::run::{Rng, lock};
use crate::skeleton;

/// Number of places with an ordinary counter.
pub(super) const PLACES: usize = 96;
/// The place of the wave: its load alternates faster than its cool-down.
pub(super) const WAVE: usize = PLACES;
/// The place of the seesaw: its load alternates slowly enough for its policy to follow.
pub(super) const SEESAW: usize = PLACES + 1;
/// Number of ordinary places that are called much more than the others.
const FRONT: u64 = 6;
/// Maximum number of attempts to exclude all operators.
const ALONE_TRIES: u32 = 30;
/// The cool-downs and half periods of the wave and the seesaw.
pub(super) const WAVE_COOLDOWN: Duration = Duration::from_secs(5);
const SEESAW_COOLDOWN: Duration = Duration::from_millis(10);
pub(super) const WAVE_HALF: Duration = Duration::from_millis(30);
pub(super) const SEESAW_HALF: Duration = Duration::from_millis(250);
/// Budgets of swaps per second. A run draws one.
const BUDGETS: [f64; 3] = [5.0, 20.0, 80.0];

/// The load on a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    Idle,
    OneAdds,
    AllAdd,
    MostlyTotal,
    Bursts,
}

impl Load {
    pub(super) const ALL: [Load; 5] =
        [Load::Idle, Load::OneAdds, Load::AllAdd, Load::MostlyTotal, Load::Bursts];
}

/// An object and its record.
type Kept = (Owned<dyn Counter>, Arc<TrackedCounter>);

#[derive(Default)]
pub(super) struct Place {
    shown: Mutex<Option<Arc<TrackedCounter>>>,
    vault: Mutex<Option<Kept>>,
    load: AtomicUsize,
    /// Held by the operator of its object (I2).
    steering: Mutex<()>,
}

pub(crate) struct State {
    /// Number of calling workers.
    pub(super) callers: usize,
    pub(super) places: Vec<Place>,
    /// The first of the places in front.
    front: AtomicU64,
    everything: RwLock<()>,
    pub(super) log: Mutex<DecisionLog>,
    /// The budget that the swaps are checked against.
    pub(super) swaps_per_s: f64,
    pub(super) socket: PathBuf,
    pub(super) invocations: Invocations,
    pub(super) kinds: Kinds,
    /// All counters of the run.
    tracked_by_id: Mutex<HashMap<Id, Arc<TrackedCounter>>>,
    serials: AtomicU64,
}

pub(super) type World = skeleton::world::World<Break, Counts, State>;

impl World {
    pub(super) fn make(
        broken: Option<Break>,
        callers: usize,
        others: usize,
        socket: PathBuf,
        rng: &mut Rng,
    ) -> &'static World {
        let budget = BUDGETS[rng.below(BUDGETS.len() as u64) as usize];
        World::leaked(broken, callers + others, |_| State {
            callers,
            places: (0..PLACES + 2).map(|_| Place::default()).collect(),
            front: AtomicU64::new(0),
            everything: RwLock::default(),
            log: Mutex::new(DecisionLog::begin()),
            // Less than one swap in a run.
            swaps_per_s: if broken == Some(Break::OverBudget) { 1e-3 } else { budget },
            socket,
            invocations: Invocations::default(),
            kinds: Kinds::default(),
            tracked_by_id: Mutex::default(),
            serials: AtomicU64::new(1),
        })
    }

    /// Sets the budget, and fills every place.
    pub(super) fn begin(&'static self, rng: &mut Rng) {
        let budget = if self.is_broken(Break::OverBudget) { 1e6 } else { self.swaps_per_s };
        if let Err(error) = settings::ALL.set(&settings::SWAPS, budget) {
            self.run_state.fail(format!("a budget of {budget} swaps in each second was refused: {error}"));
        }
        // An implementation outside the family.
        control::register::<dyn Counter>(PLAIN, counter::new_shared);
        (0..self.places.len()).for_each(|place| self.fill(place, rng));
        self.invocations.begin();
    }

    pub(super) fn tracked(&self, id: Id) -> Option<Arc<TrackedCounter>> {
        lock(&self.tracked_by_id).get(&id).cloned()
    }

    pub(super) fn shown(&self, place: usize) -> Option<Arc<TrackedCounter>> {
        lock(&self.places[place].shown).clone()
    }

    /// Returns the live counters.
    pub(super) fn all(&self) -> Vec<Arc<TrackedCounter>> {
        (0..self.places.len())
            .filter_map(|place| self.shown(place))
            .filter(|tracked| !tracked.lifecycle.is_ending())
            .collect()
    }

    pub(super) fn load(&self, place: usize) -> Load {
        Load::ALL[self.places[place].load.load(Ordering::Relaxed)]
    }

    pub(super) fn set_load(&self, place: usize, load: Load) {
        self.places[place].load.store(load as usize, Ordering::Relaxed);
    }

    /// Changes a load, or the places in front.
    pub(super) fn change(&self, rng: &mut Rng) {
        if rng.one_in(24) {
            self.front.store(rng.below(PLACES as u64), Ordering::Relaxed);
        }
        let load = Load::ALL[rng.below(Load::ALL.len() as u64) as usize];
        self.set_load(self.any_in_front(rng), load);
    }

    /// Excludes all other operators (I2). Returns `None` if that takes too long.
    pub(super) fn alone(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        (0..ALONE_TRIES).find_map(|_| {
            let alone = self.everything.try_write().ok();
            if alone.is_none() {
                std::thread::sleep(Duration::from_millis(1));
            }
            alone
        })
    }

    /// Excludes other operators of the object of a place (I2). Returns `None` if there is one.
    pub(super) fn steer(&self, place: usize) -> Option<(RwLockReadGuard<'_, ()>, MutexGuard<'_, ()>)> {
        Some((self.everything.try_read().ok()?, self.places[place].steering.try_lock().ok()?))
    }

    pub(super) fn any_in_front(&self, rng: &mut Rng) -> usize {
        let front = self.front.load(Ordering::Relaxed);
        ((front + rng.below(FRONT)) % PLACES as u64) as usize
    }

    /// Returns a place to call or to steer.
    pub(super) fn any_place(&self, rng: &mut Rng) -> usize {
        match rng.below(16) {
            0 => rng.below(PLACES as u64) as usize,
            1..3 => WAVE,
            3..6 => SEESAW,
            _ => self.any_in_front(rng),
        }
    }

    /// Puts an object into a place without one.
    pub(super) fn fill(&'static self, place: usize, rng: &mut Rng) {
        if lock(&self.places[place].vault).is_some() {
            return;
        }
        let owned = match counter::try_adaptive() {
            Ok(owned) => owned,
            Err(error) => return self.run_state.fail(format!("the creation of a counter failed: {error}")),
        };
        count(Stat::Made);
        let handle = owned.handle();
        let wrong = self.is_broken(Break::ShortCooldown);
        let cooldown = match place {
            WAVE => WAVE_COOLDOWN,
            // The planned break uses the longer cool-down, so that a swap within it is seen soon.
            SEESAW if wrong => WAVE_COOLDOWN,
            SEESAW => SEESAW_COOLDOWN,
            _ => settings::ALL.get(&settings::COOLDOWN),
        };
        let serial = self.serials.fetch_add(1, Ordering::Relaxed);
        let tracked = Arc::new(TrackedCounter::open(self, serial, handle, cooldown.as_micros() as u64));
        lock(&self.tracked_by_id).insert(Handle::id(handle), Arc::clone(&tracked));
        if place >= PLACES {
            let text = if wrong { "1ms".to_owned() } else { format!("{}us", cooldown.as_micros()) };
            let set = control::set_attribute(tracked.id(), "cooldown", &text);
            let set = set.and_then(|()| control::set_attribute(tracked.id(), "quiet", "100s"));
            if let Err(error) = set {
                self.run_state.fail(format!("an attribute of a new counter was refused: {error}"));
            }
        } else if rng.one_in(4) {
            self.set_load(place, Load::ALL[rng.below(Load::ALL.len() as u64) as usize]);
        }
        let before = lock(&self.places[place].shown).replace(Arc::clone(&tracked));
        // The place was empty, because one thread fills all places.
        let vault = lock(&self.places[place].vault).replace((owned, tracked));
        drop((before, vault));
    }

    /// Destroys the object of a place, if any. If `exactly`, drains the callers first and checks the sum.
    pub(super) fn destroy(&self, place: usize, exactly: bool) {
        let Some((owned, tracked)) = lock(&self.places[place].vault).take() else { return };
        if exactly {
            tracked.close();
        }
        if self.is_broken(Break::EarlyMark) {
            tracked.lifecycle.mark_destroyed();
            // Long enough for a call.
            std::thread::sleep(Duration::from_millis(1));
        }
        tracked.lifecycle.begin_destroy();
        Owned::destroy(owned);
        tracked.lifecycle.mark_destroyed();
        count(Stat::Destroyed);
    }

    /// Destroys all remaining objects.
    pub(super) fn end(&self) {
        for place in 0..self.places.len() {
            self.destroy(place, false);
            let shown = lock(&self.places[place].shown).take();
            drop(shown);
        }
    }
}

/// The name of the implementation outside the family.
pub(super) const PLAIN: &str = "plain";
