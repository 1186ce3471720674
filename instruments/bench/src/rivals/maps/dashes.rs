//! `dashmap`: tables of hashbrown, each under a lock of its own, four for each processor.

use std::hash::RandomState;

use dashmap::DashMap;

use super::{Family, Hashing, Mapping};
use crate::cases::map::Key;

pub(crate) struct Dash;

impl Family for Dash {
    type Own = RandomState;
    type Map<K: Key, S: Hashing> = DashMap<K, u64, S>;
}

impl<K: Key, S: Hashing> Mapping<K> for DashMap<K, u64, S> {
    fn new() -> Self {
        DashMap::with_hasher(S::default())
    }

    #[inline(always)]
    fn get(&self, key: &K::Query) -> Option<u64> {
        self.get(key).map(|value| *value)
    }

    #[inline(always)]
    fn insert(&self, key: K, value: u64) -> bool {
        self.insert(key, value).is_none()
    }

    #[inline(always)]
    fn remove(&self, key: &K::Query) -> bool {
        self.remove(key).is_some()
    }

    #[inline(always)]
    fn increment(&self, key: &K::Query) -> bool {
        self.get_mut(key).map(|mut value| *value += 1).is_some()
    }

    fn len(&self) -> usize {
        self.len()
    }

    fn sum(&self) -> u64 {
        self.iter().map(|entry| *entry.value()).sum()
    }
}
