//! Reads of a locked map.

use squall_parts::table::position;
use squall_rcu::Guard;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

use super::{Locked, Lookup, Place, Spilled};

impl<K, V, S> Locked<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    #[inline]
    pub(in crate::map) fn read_in<Q: Eq + Hash + ?Sized, R>(
        &self,
        guard: &Guard,
        key: &Q,
        f: impl FnOnce(&V) -> R,
    ) -> Option<R>
    where
        K: Borrow<Q>,
    {
        match self.cloned(key) {
            Ok(value) => value.map(|value| f(&value)),
            Err(table) => table.read_in(guard, key, f),
        }
    }

    pub(in crate::map) fn contains_in<Q: Eq + Hash + ?Sized>(&self, guard: &Guard, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        let hash = self.hash(key);
        match self.lock() {
            Ok(inner) => inner.map.find(hash, |(there, _)| there.borrow() == key).is_some(),
            Err(table) => table.read_in(guard, key, |_| ()).is_some(),
        }
    }

    /// Visits all entries from there on in one step, so all that an iteration has not seen. They are cloned
    /// under the lock, and `f` gets the clones.
    pub(in crate::map) fn visit_from(&self, from: u64, mut f: impl FnMut(&K, &V)) -> Option<u64> {
        let mut half = None;
        let copy = |key: &K, value: &V| self.cloners.copy_entry(key, value, &mut half);
        match self.collect_from(from, copy) {
            Ok(entries) => entries.iter().for_each(|(key, value)| f(key, value)),
            Err(table) => return table.visit_from(from, f),
        }
        None
    }

    /// Collects the results of `make` for each entry from there on.
    pub(super) fn collect_from<T>(
        &self,
        from: u64,
        mut make: impl FnMut(&K, &V) -> T,
    ) -> Result<Vec<T>, Spilled<'_, K, V, S>> {
        // Declared before the guard, so that it is dropped after it if a clone panics.
        let mut made = Vec::new();
        let inner = self.lock()?;
        let wanted = inner.map.iter().filter(|(key, _)| from == 0 || position(&self.hasher, key) >= from);
        made.extend(wanted.map(|(key, held)| make(key, &held.value)));
        drop(inner);
        Ok(made)
    }

    /// Returns a copy of the key's value and its place.
    #[inline(always)]
    pub(super) fn lookup<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Result<Lookup<V>, Spilled<'_, K, V, S>>
    where
        K: Borrow<Q>,
    {
        let hash = self.hash(key);
        let inner = self.lock()?;
        let there = inner.map.find_bucket_index(hash, |(there, _)| there.borrow() == key);
        let Some((index, (_, held))) = there.and_then(|index| Some((index, inner.map.get_bucket(index)?)))
        else {
            return Ok(Err(hash));
        };
        Ok(Ok((Place { hash, index, number: held.number }, self.cloners.copy(&held.value))))
    }

    #[inline(always)]
    fn cloned<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Result<Option<V>, Spilled<'_, K, V, S>>
    where
        K: Borrow<Q>,
    {
        let hash = self.hash(key);
        let inner = self.lock()?;
        let there = inner.map.find(hash, |(there, _)| there.borrow() == key);
        Ok(there.map(|(_, held)| self.cloners.copy(&held.value)))
    }
}
