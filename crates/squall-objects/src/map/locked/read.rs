//! Reads of a locked map.

use squall_parts::table::position;
use std::hash::{BuildHasher, Hash};

use super::{Locked, Lookup, Place, Spilled};
use crate::map::key::KeyForm;

impl<K, V, S> Locked<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + 'static,
{
    /// Whether the hash table has the key.
    pub(super) fn contains_key(&self, key: &dyn KeyForm<K, S>) -> Result<bool, Spilled<'_, K, V, S>> {
        let hash = key.hash(&self.hasher);
        Ok(self.lock()?.index_of(hash, key).is_some())
    }

    /// Returns a copy of the stored key.
    pub(super) fn copy_key(&self, key: &dyn KeyForm<K, S>) -> Result<Option<K>, Spilled<'_, K, V, S>> {
        let hash = key.hash(&self.hasher);
        let inner = self.lock()?;
        let there = inner.index_of(hash, key).and_then(|index| inner.map.get_bucket(index));
        Ok(there.map(|(key, _)| (self.cloners.key)(key)))
    }

    /// Calls `f` under the lock for each entry from there on.
    pub(super) fn each_from(&self, from: u64, f: &mut dyn FnMut(&K, &V)) -> Result<(), Spilled<'_, K, V, S>> {
        let inner = self.lock()?;
        for (key, held) in &inner.map {
            if from == 0 || position(&self.hasher, key) >= from {
                f(key, &held.value);
            }
        }
        Ok(())
    }

    /// Returns a copy of the key's value and its place.
    pub(super) fn lookup(&self, key: &dyn KeyForm<K, S>) -> Result<Lookup<V>, Spilled<'_, K, V, S>> {
        let hash = key.hash(&self.hasher);
        let inner = self.lock()?;
        let there = inner.index_of(hash, key);
        let Some((index, (_, held))) = there.and_then(|index| Some((index, inner.map.get_bucket(index)?)))
        else {
            return Ok(Err(hash));
        };
        Ok(Ok((Place { hash, index, number: held.number }, self.cloners.copy(&held.value))))
    }
}
