//! Creates the objects of the places and of the factory, and the objects that a method uses for a moment.
//!
//! The functions are methods of the world. They stand in a file of their own because they build
//! implementations, and implementations import the world.

use squall::Owned;

use super::counts::{Stat, count};
use super::faults::Fault;
use super::interfaces::Relay;
use super::record::Entry;
use super::swaps;
use super::variants::{Candidate, Kind};
use super::world::{FACTORY, World};
use crate::run::Rng;

impl World {
    /// Gives the factory its first maker, and fills every place.
    pub(super) fn begin(&'static self, rng: &mut Rng) {
        swaps::upgrade(self, rng);
        (0..self.places.len()).for_each(|place| self.fill(place, rng));
    }

    /// Puts an object into a place without one.
    pub(super) fn fill(&'static self, place: usize, rng: &mut Rng) {
        if self.is_filled(place) {
            return;
        }
        if let Some((owned, entry)) = self.create(FACTORY.contains(&place), rng) {
            self.put(place, owned, entry);
        }
    }

    /// Creates an object that only its creator knows.
    pub(super) fn create_apart(&'static self, rng: &mut Rng) -> Option<(Owned<dyn Relay>, Entry)> {
        self.create(false, rng)
    }

    /// Creates an object of any kind. Fails if the factory fails, or after a violation.
    fn create(&'static self, of_factory: bool, rng: &mut Rng) -> Option<(Owned<dyn Relay>, Entry)> {
        let record = self.open();
        let owned = if of_factory {
            swaps::make(self, &record)?
        } else {
            let kind = [Kind::Central, Kind::Text, Kind::Spread, Kind::Spread][rng.below(4) as usize];
            let candidate = Candidate::build(self, Some(&record), (kind, false), Fault::None, rng);
            match candidate.new.create() {
                Ok(owned) => owned,
                Err(error) => {
                    self.run_state.fail(format!("object #{} was not created: {error}", record.serial));
                    return None;
                }
            }
        };
        let handle = owned.handle();
        let _ = record.handle.set(handle);
        count(Stat::Created);
        Some((owned, Entry { record, handle, of_factory }))
    }
}
