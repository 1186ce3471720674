//! `squall-central` in the cases of maps, as an application would use it.

use std::hash::RandomState;

use squall_table::Table;

use crate::cases::map::Key;
use crate::rivals::maps::{Family, Hashing, Mapping};

pub(crate) struct Central;

impl Family for Central {
    type Own = RandomState;
    type Map<K: Key, S: Hashing> = Table<K, u64, S>;
}

impl<K: Key, S: Hashing> Mapping<K> for Table<K, u64, S> {
    fn new() -> Self {
        Table::with_hasher(S::default())
    }

    #[inline(always)]
    fn get(&self, key: &K::Query) -> Option<u64> {
        self.get(key)
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
        self.update(key, |value| value + 1)
    }

    fn len(&self) -> usize {
        self.len()
    }

    fn sum(&self) -> u64 {
        let mut sum = 0;
        self.for_each(|_, value| sum += value);
        sum
    }

    fn settle() {
        squall_rcu::barrier().expect("outside every operation");
    }
}
