//! The data that all threads of the stress share: places for maps.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::any_map::{self, AnyOwnedMap};
use super::breaks::Break;
use super::counts::{Counts, Stat, count};
use super::token::Token;
use super::tracked_map::TrackedMap;
use crate::run::Rng;
use crate::skeleton::{self, places::Places};

/// Number of places.
pub(super) const PLACES: usize = 8;

pub(crate) struct State {
    /// Number of calling workers.
    pub(super) callers: usize,
    places: Places<AnyOwnedMap, TrackedMap>,
    alive: AtomicI64,
    serials: AtomicU64,
}

pub(super) type World = skeleton::world::World<Break, Counts, State>;

impl World {
    pub(super) fn make(broken: Option<Break>, callers: usize, others: usize) -> &'static World {
        World::leaked(broken, callers + others, |_| State {
            callers,
            places: Places::new(PLACES),
            alive: AtomicI64::new(0),
            serials: AtomicU64::new(1),
        })
    }

    pub(super) fn token(&'static self, key: u64, event: u64) -> Token {
        Token::new(key, event, &self.alive)
    }

    /// Returns the number of live values.
    pub(super) fn alive(&self) -> i64 {
        // Acquire: pairs with the release in each drop.
        self.alive.load(Ordering::Acquire)
    }

    pub(super) fn any(&self, rng: &mut Rng) -> Option<Arc<TrackedMap>> {
        self.places.any(rng)
    }

    /// Puts a map into each place without one.
    pub(super) fn fill(&'static self, rng: &mut Rng) {
        self.places.fill(|| {
            let (map, is_adaptive) = any_map::any(rng);
            let serial = self.serials.fetch_add(1, Ordering::Relaxed);
            let tracked = TrackedMap::open(self, serial, map.handle(), is_adaptive);
            count(Stat::Made);
            if let AnyOwnedMap::Cached(_) = map {
                count(Stat::Cached);
            }
            (map, tracked)
        });
    }

    /// Destroys the map of a place, if any. If `exactly`, drains the writers first and checks the map.
    pub(super) fn destroy(&self, place: usize, exactly: bool) {
        let Some((map, tracked)) = self.places.take(place) else { return };
        if exactly {
            tracked.close();
        }
        if self.is_broken(Break::EarlyMark) {
            tracked.lifecycle.mark_destroyed();
            // Long enough for a call.
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        tracked.lifecycle.begin_destroy();
        map.destroy();
        tracked.lifecycle.mark_destroyed();
        count(Stat::Destroyed);
    }

    /// Destroys all remaining maps.
    pub(super) fn end(&self) {
        for place in 0..PLACES {
            self.destroy(place, true);
        }
        self.places.hide_all();
    }
}
