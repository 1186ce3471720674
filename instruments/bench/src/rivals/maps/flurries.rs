//! `flurry`: Java's concurrent hash map.

use super::{Family, Hashing, Mapping};
use crate::cases::map::Key;

pub(crate) struct Flurry;

impl Family for Flurry {
    type Own = flurry::DefaultHashBuilder;
    type Map<K: Key, S: Hashing> = flurry::HashMap<K, u64, S>;
}

impl<K: Key, S: Hashing> Mapping<K> for flurry::HashMap<K, u64, S> {
    fn new() -> Self {
        flurry::HashMap::with_hasher(S::default())
    }

    #[inline(always)]
    fn get(&self, key: &K::Query) -> Option<u64> {
        self.pin().get(key).copied()
    }

    #[inline(always)]
    fn insert(&self, key: K, value: u64) -> bool {
        self.pin().insert(key, value).is_none()
    }

    #[inline(always)]
    fn remove(&self, key: &K::Query) -> bool {
        self.pin().remove(key).is_some()
    }

    #[inline(always)]
    fn increment(&self, key: &K::Query) -> bool {
        self.pin().compute_if_present(key, |_, value| Some(value + 1)).is_some()
    }

    fn len(&self) -> usize {
        self.len()
    }

    fn sum(&self) -> u64 {
        self.pin().values().sum()
    }
}
