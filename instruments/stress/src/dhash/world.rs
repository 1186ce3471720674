//! The data that all threads of the stress share: places for directories, and the handed reservations.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use squall::objects::directory::{self, OwnedDirectory};
use squall::{ClusterSize, Owned};

use super::breaks::Break;
use super::contents::{Entry, Part};
use super::counts::{Counts, Stat, count};
use super::handed::Handed;
use super::tracked::Tracked;
use crate::run::Rng;
use crate::skeleton::{self, places::Places};

/// Number of places.
pub(super) const PLACES: usize = 4;
/// Cluster sizes of the directories.
pub(super) const SIZES: [ClusterSize; 5] =
    [ClusterSize::Cpu, ClusterSize::Core, ClusterSize::Cache, ClusterSize::Node, ClusterSize::Machine];

type Owner = OwnedDirectory<u64, Entry, Part>;

pub(crate) struct State {
    /// Number of calling workers.
    pub(super) callers: usize,
    places: Places<Owner, Tracked>,
    pub(super) handed: Handed,
    alive: AtomicI64,
    serials: AtomicU64,
}

pub(super) type World = skeleton::world::World<Break, Counts, State>;

impl World {
    pub(super) fn make(broken: Option<Break>, callers: usize, others: usize) -> &'static World {
        World::leaked(broken, callers + others, |_| State {
            callers,
            places: Places::new(PLACES),
            handed: Handed::default(),
            alive: AtomicI64::new(0),
            serials: AtomicU64::new(1),
        })
    }

    pub(super) fn entry(&'static self, key: u64, life: u64) -> Entry {
        Entry::new(key, life, &self.alive)
    }

    /// Returns the number of live entries and parts.
    pub(super) fn alive(&self) -> i64 {
        // Acquire: pairs with the release in each drop.
        self.alive.load(Ordering::Acquire)
    }

    pub(super) fn any(&self, rng: &mut Rng) -> Option<Arc<Tracked>> {
        self.places.any(rng)
    }

    /// Puts a directory into each place without one.
    pub(super) fn fill(&'static self, rng: &mut Rng) {
        self.places.fill(|| {
            let size = SIZES[rng.below(SIZES.len() as u64) as usize];
            let owner: Owner = directory::distributed(size, Part::of);
            let serial = self.serials.fetch_add(1, Ordering::Relaxed);
            let tracked = Tracked::open(self, serial, owner.handle());
            count(Stat::Opened);
            (owner, tracked)
        });
    }

    /// Destroys the directory of a place, if any. If `exactly`, drains the callers first and checks the sums.
    pub(super) fn destroy(&self, place: usize, exactly: bool) {
        let Some((owner, tracked)) = self.places.take(place) else { return };
        if exactly {
            tracked.close();
        }
        if self.is_broken(Break::EarlyMark) {
            tracked.lifecycle.mark_destroyed();
            // Long enough for a call, which the drained callers then make.
            tracked.reopen();
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        tracked.lifecycle.begin_destroy();
        let _ = Owned::destroy(owner.into_owned());
        tracked.lifecycle.mark_destroyed();
        // Later calls must fail.
        tracked.reopen();
        count(Stat::Destroyed);
    }

    /// Destroys all remaining directories.
    pub(super) fn end(&self) {
        self.handed.drop_all();
        for place in 0..PLACES {
            self.destroy(place, true);
        }
        self.places.hide_all();
    }
}
