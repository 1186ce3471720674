//! Places for objects that live and die during a stress.
//!
//! - I1. The object shown by a place may be stale. The thread that takes the owner out of a place destroys
//!   the object.

use std::sync::{Arc, Mutex};

use crate::run::{Rng, lock};

struct Place<O, T> {
    shown: Mutex<Option<Arc<T>>>,
    vault: Mutex<Option<(O, Arc<T>)>>,
}

/// Places, each with the owner of an object and its record.
pub(crate) struct Places<O, T>(Vec<Place<O, T>>);

impl<O, T> Places<O, T> {
    pub(crate) fn new(count: usize) -> Places<O, T> {
        let place = |_| Place { shown: Mutex::new(None), vault: Mutex::new(None) };
        Places((0..count).map(place).collect())
    }

    /// Returns the object that a random place shows.
    pub(crate) fn any(&self, rng: &mut Rng) -> Option<Arc<T>> {
        lock(&self.0[rng.below(self.0.len() as u64) as usize].shown).clone()
    }

    /// Puts an object into each place without one. One thread at a time fills places.
    pub(crate) fn fill(&self, mut make: impl FnMut() -> (O, T)) {
        for place in &self.0 {
            if lock(&place.vault).is_some() {
                continue;
            }
            let (owner, record) = make();
            let record = Arc::new(record);
            let before = lock(&place.shown).replace(Arc::clone(&record));
            let vault = lock(&place.vault).replace((owner, record));
            drop((before, vault));
        }
    }

    /// Takes the owner out of a place, which still shows the object.
    pub(crate) fn take(&self, place: usize) -> Option<(O, Arc<T>)> {
        lock(&self.0[place].vault).take()
    }

    /// Removes the shown object of each place.
    pub(crate) fn hide_all(&self) {
        for place in &self.0 {
            let shown = lock(&place.shown).take();
            drop(shown);
        }
    }
}
