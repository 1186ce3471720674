//! Concurrent maps behind one interface, each used as its documentation advises.
//!
//! Maps that read under a guard make one per operation, as a program with single operations does.

mod dashes;
#[cfg(feature = "rivals")]
mod flurries;
mod locked;
mod papayas;
mod sccs;

use std::hash::BuildHasher;

use crate::cases::map::{Hasher, Key, Keys, Shape};

pub(crate) use dashes::Dash;
#[cfg(feature = "rivals")]
pub(crate) use flurries::Flurry;
pub(crate) use locked::Locked;
pub(crate) use papayas::Papaya;
pub(crate) use sccs::{SccHashIndex, SccHashMap};

/// A hasher that a map can be made with.
pub(crate) trait Hashing: BuildHasher + Clone + Default + Send + Sync + 'static {}

impl<S: BuildHasher + Clone + Default + Send + Sync + 'static> Hashing for S {}

/// The common hasher: the fastest that is good for any key, without a seed, so that a run can be repeated.
type CommonHasher = foldhash::fast::FixedState;

/// Words by key.
pub(crate) trait Mapping<K: Key>: Send + Sync + 'static {
    /// Whether a first lookup of a key on each processor speeds up later ones. Each thread then looks up all
    /// keys before it is measured.
    const LEARNS: bool = false;

    fn new() -> Self;

    fn get(&self, key: &K::Query) -> Option<u64>;

    /// Inserts a key by the map's own `insert`. Returns whether the key was absent.
    fn insert(&self, key: K, value: u64) -> bool;

    /// Removes a key. Returns whether it was present.
    fn remove(&self, key: &K::Query) -> bool;

    /// Adds one to the key's value, atomically. Returns whether the key was present.
    fn increment(&self, key: &K::Query) -> bool;

    fn len(&self) -> usize;

    /// The sum of all values.
    fn sum(&self) -> u64;

    /// Id of the object, if the map is one.
    fn object(&self) -> Option<squall::Id> {
        None
    }

    /// Waits until removed entries are freed, if the map offers a way.
    fn settle() {}
}

/// A map over its keys and its hasher.
pub(crate) trait Family: 'static {
    /// The map's default hasher.
    type Own: Hashing;
    type Map<K: Key, S: Hashing>: Mapping<K>;
}

/// Work for a map of any kind.
pub(crate) trait Job {
    type Result;

    fn run<K: Key, M: Mapping<K>>(self) -> Self::Result;
}

/// Does `job` with the map of this family described by a shape.
pub(crate) fn with_map<F: Family, J: Job>(shape: &Shape, job: J) -> J::Result {
    match (shape.keys, shape.hasher) {
        (Keys::Words, Hasher::Common) => job.run::<u64, F::Map<u64, CommonHasher>>(),
        (Keys::Words, Hasher::Own) => job.run::<u64, F::Map<u64, F::Own>>(),
        (Keys::Strings, Hasher::Common) => job.run::<String, F::Map<String, CommonHasher>>(),
        (Keys::Strings, Hasher::Own) => job.run::<String, F::Map<String, F::Own>>(),
    }
}

/// Does `job` with word keys and the common hasher.
pub(crate) fn with_words<F: Family, J: Job>(job: J) -> J::Result {
    job.run::<u64, F::Map<u64, CommonHasher>>()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Contract;

    impl Job for Contract {
        type Result = ();

        fn run<K: Key, M: Mapping<K>>(self) {
            let map = M::new();
            let row = K::row(0..100);
            assert!((0..100).all(|number| map.insert(K::of(number), number)));
            assert_eq!((map.len(), map.sum()), (100, (0..100).sum()));
            assert!((0..100).all(|i| map.get(K::at(&row, i)) == Some(i as u64)));
            let absent = K::row(100..101);
            let nobody = K::at(&absent, 0);
            assert!(map.get(nobody).is_none() && !map.remove(nobody) && !map.increment(nobody));
            assert!(map.increment(K::at(&row, 7)) && map.get(K::at(&row, 7)) == Some(8));
            assert!(map.remove(K::at(&row, 7)) && !map.remove(K::at(&row, 7)));
            assert!(map.get(K::at(&row, 7)).is_none());
            assert_eq!((map.len(), map.sum()), (99, (0..100).sum::<u64>() - 7));
            M::settle();
        }
    }

    fn keeps_the_contract<F: Family>() {
        for variant in crate::cases::map::sizes() {
            for hasher in [Hasher::Common, Hasher::Own] {
                let mut shape = Shape::of(variant);
                shape.hasher = hasher;
                with_map::<F, _>(&shape, Contract);
            }
        }
    }

    #[test]
    fn every_map_does_each_measured_operation() {
        keeps_the_contract::<crate::ours_map::Constituent>();
        keeps_the_contract::<crate::ours_map::Shared>();
        keeps_the_contract::<crate::ours_map::OneLock>();
        keeps_the_contract::<crate::ours_map::Replicated>();
        keeps_the_contract::<crate::ours_map::Partitioned>();
        keeps_the_contract::<crate::ours_map::Adaptive>();
        keeps_the_contract::<Dash>();
        keeps_the_contract::<Papaya>();
        keeps_the_contract::<SccHashMap>();
        keeps_the_contract::<SccHashIndex>();
        #[cfg(feature = "rivals")]
        keeps_the_contract::<Flurry>();
        keeps_the_contract::<Locked>();
    }
}
