//! Typed methods on a structure, for tests.

use squall_parts::table::{Compute, Computed};
use squall_rcu::__pin as pin;
use std::hash::{BuildHasher, Hash};

use super::key::Borrowed;
use super::storage::Storage;
use super::store::Store;

pub(super) trait Typed<K, V, S>: Storage<K, V, S> + Sized
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn find(&self, key: K) -> Option<V> {
        pin(|guard| Store(self).read(guard, &key, V::clone))
    }

    fn has(&self, key: K) -> bool {
        pin(|guard| self.contains(guard, &Borrowed(&key)))
    }

    fn set(&self, key: K, value: V) -> bool {
        pin(|guard| Store(self).set(guard, &mut Some((key, value))))
    }

    fn insert(&self, key: K, value: V) -> Option<V> {
        pin(|guard| Store(self).insert(guard, &mut Some((key, value))))
    }

    fn insert_if_absent(&self, key: K, value: V) -> Result<(), (K, V)> {
        pin(|guard| Store(self).try_insert(guard, key, value))
    }

    fn get_or_insert_with(&self, key: K, value: impl FnOnce() -> V) -> V {
        pin(|guard| Store(self).get_or_insert_with(guard, key, value))
    }

    fn remove(&self, key: &K) -> Option<V> {
        pin(|guard| Store(self).remove(guard, key))
    }

    fn delete(&self, key: &K) -> bool {
        pin(|guard| Store(self).delete(guard, key))
    }

    fn alter(&self, key: K, f: impl FnMut(&V) -> Compute<V>) -> Computed {
        pin(|guard| Store(self).change(guard, &key, f))
    }

    fn decide(&self, key: K, f: impl FnMut(Option<&V>) -> Compute<V>) -> Computed {
        pin(|guard| Store(self).compute(guard, key, f))
    }
}

impl<T, K, V, S> Typed<K, V, S> for T
where
    T: Storage<K, V, S>,
    K: Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
}
