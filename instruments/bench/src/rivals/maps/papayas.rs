//! `papaya`: open addressing over pointers to entries, reclaimed by `seize`, with its default incremental
//! resizing.

use std::hash::RandomState;

use super::{Family, Hashing, Mapping};
use crate::cases::map::Key;

pub(crate) struct Papaya;

impl Family for Papaya {
    type Own = RandomState;
    type Map<K: Key, S: Hashing> = papaya::HashMap<K, u64, S>;
}

impl<K: Key, S: Hashing> Mapping<K> for papaya::HashMap<K, u64, S> {
    fn new() -> Self {
        papaya::HashMap::with_hasher(S::default())
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
        // An update makes a new entry, and so needs a key of its own.
        self.pin().update(key.to_owned(), |value| value + 1).is_some()
    }

    fn len(&self) -> usize {
        self.len()
    }

    fn sum(&self) -> u64 {
        self.pin().values().sum()
    }
}
