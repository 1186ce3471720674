//! `std-rwlock`: std's map under std's reader-writer lock.

use std::collections::HashMap;
use std::hash::RandomState;
use std::sync::RwLock;

use super::{Family, Hashing, Mapping};
use crate::cases::map::Key;

pub(crate) struct Locked;

impl Family for Locked {
    type Own = RandomState;
    type Map<K: Key, S: Hashing> = RwLock<HashMap<K, u64, S>>;
}

const NO_PANIC: &str = "nobody panics holding it";

impl<K: Key, S: Hashing> Mapping<K> for RwLock<HashMap<K, u64, S>> {
    fn new() -> Self {
        RwLock::new(HashMap::with_hasher(S::default()))
    }

    #[inline(always)]
    fn get(&self, key: &K::Query) -> Option<u64> {
        self.read().expect(NO_PANIC).get(key).copied()
    }

    #[inline(always)]
    fn insert(&self, key: K, value: u64) -> bool {
        self.write().expect(NO_PANIC).insert(key, value).is_none()
    }

    #[inline(always)]
    fn remove(&self, key: &K::Query) -> bool {
        self.write().expect(NO_PANIC).remove(key).is_some()
    }

    #[inline(always)]
    fn increment(&self, key: &K::Query) -> bool {
        self.write().expect(NO_PANIC).get_mut(key).map(|value| *value += 1).is_some()
    }

    fn len(&self) -> usize {
        self.read().expect(NO_PANIC).len()
    }

    fn sum(&self) -> u64 {
        self.read().expect(NO_PANIC).values().sum()
    }
}
