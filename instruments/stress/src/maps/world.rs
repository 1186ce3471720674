//! What all threads of the torture share: places where maps live one after the other.
//!
//! - I1. What a place shows may be stale; who takes the owner out of it destroys the map, and nobody else does.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::tracked_map::TrackedMap;
use super::breaks::Break;
use super::any_map::{self, AnyOwnedMap};
use super::counts::{Counts, Stat, count};
use super::token::Token;
use crate::run::{Rng, lock};
use crate::skeleton;

/// Places with a map.
pub(super) const PLACES: usize = 8;

#[derive(Default)]
struct Place {
    shown: Mutex<Option<Arc<TrackedMap>>>,
    vault: Mutex<Option<(AnyOwnedMap, Arc<TrackedMap>)>>,
}

pub(crate) struct State {
    /// Those of them that call.
    pub(super) callers: usize,
    places: Vec<Place>,
    alive: AtomicI64,
    serials: AtomicU64,
}

pub(super) type World = skeleton::world::World<Break, Counts, State>;

impl World {
    pub(super) fn make(broken: Option<Break>, callers: usize, others: usize) -> &'static World {
        World::leaked(broken, callers + others, |_| State {
            callers,
            places: (0..PLACES).map(|_| Place::default()).collect(),
            alive: AtomicI64::new(0),
            serials: AtomicU64::new(1),
        })
    }

    pub(super) fn token(&'static self, key: u64, event: u64) -> Token {
        Token::new(key, event, &self.alive)
    }

    /// Values that are alive.
    pub(super) fn alive(&self) -> i64 {
        // Acquire: pairs with the release of each drop.
        self.alive.load(Ordering::Acquire)
    }

    pub(super) fn any(&self, rng: &mut Rng) -> Option<Arc<TrackedMap>> {
        lock(&self.places[rng.below(PLACES as u64) as usize].shown).clone()
    }

    /// Puts a map into each place that has none.
    pub(super) fn fill(&'static self, rng: &mut Rng) {
        for place in &self.places {
            if lock(&place.vault).is_some() {
                continue;
            }
            let (map, is_adaptive) = any_map::any(rng);
            let serial = self.serials.fetch_add(1, Ordering::Relaxed);
            let tracked = Arc::new(TrackedMap::open(self, serial, map.handle(), is_adaptive));
            count(Stat::Made);
            if let AnyOwnedMap::Cached(_) = map {
                count(Stat::Cached);
            }
            let before = lock(&place.shown).replace(Arc::clone(&tracked));
            // There was none: maps are put here by one thread.
            let vault = lock(&place.vault).replace((map, tracked));
            drop((before, vault));
        }
    }

    /// Destroys the map of a place, if it has one; if `exactly`, when nobody writes, and compared with its book.
    pub(super) fn destroy(&self, place: usize, exactly: bool) {
        let Some((map, tracked)) = lock(&self.places[place].vault).take() else { return };
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

    /// Ends all that is left.
    pub(super) fn end(&self) {
        for place in 0..PLACES {
            self.destroy(place, true);
            let shown = lock(&self.places[place].shown).take();
            drop(shown);
        }
    }
}
