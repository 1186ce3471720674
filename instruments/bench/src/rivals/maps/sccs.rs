//! `scc`: a hash map with a lock in each bucket, and a hash index with lock-free readers.

use std::hash::RandomState;

use super::{Family, Hashing, Mapping};
use crate::cases::map::Key;

pub(crate) struct SccHashMap;

impl Family for SccHashMap {
    type Own = RandomState;
    type Map<K: Key, S: Hashing> = scc::HashMap<K, u64, S>;
}

impl<K: Key, S: Hashing> Mapping<K> for scc::HashMap<K, u64, S> {
    fn new() -> Self {
        scc::HashMap::with_hasher(S::default())
    }

    #[inline(always)]
    fn get(&self, key: &K::Query) -> Option<u64> {
        self.read_sync(key, |_, value| *value)
    }

    #[inline(always)]
    fn insert(&self, key: K, value: u64) -> bool {
        self.insert_sync(key, value).is_ok()
    }

    #[inline(always)]
    fn remove(&self, key: &K::Query) -> bool {
        self.remove_sync(key).is_some()
    }

    #[inline(always)]
    fn increment(&self, key: &K::Query) -> bool {
        self.update_sync(key, |_, value| *value += 1).is_some()
    }

    fn len(&self) -> usize {
        self.len()
    }

    fn sum(&self) -> u64 {
        let mut sum = 0;
        self.iter_sync(|_, value| {
            sum += value;
            true
        });
        sum
    }
}

pub(crate) struct SccHashIndex;

impl Family for SccHashIndex {
    type Own = RandomState;
    type Map<K: Key, S: Hashing> = scc::HashIndex<K, u64, S>;
}

impl<K: Key, S: Hashing> Mapping<K> for scc::HashIndex<K, u64, S> {
    fn new() -> Self {
        scc::HashIndex::with_hasher(S::default())
    }

    #[inline(always)]
    fn get(&self, key: &K::Query) -> Option<u64> {
        self.peek_with(key, |_, value| *value)
    }

    #[inline(always)]
    fn insert(&self, key: K, value: u64) -> bool {
        self.insert_sync(key, value).is_ok()
    }

    #[inline(always)]
    fn remove(&self, key: &K::Query) -> bool {
        self.remove_sync(key)
    }

    #[inline(always)]
    fn increment(&self, key: &K::Query) -> bool {
        // The safe way: another entry beside the old one, which is marked as removed.
        let Some(mut entry) = self.get_sync(key) else { return false };
        let value = *entry.get() + 1;
        entry.update(value);
        true
    }

    fn len(&self) -> usize {
        self.len()
    }

    fn sum(&self) -> u64 {
        let guard = scc::Guard::new();
        self.iter(&guard).map(|(_, value)| *value).sum()
    }
}
