//! Writes to a locked map.

use hashbrown::hash_table::Entry;
use squall_parts::table::{Compute, Computed};
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::mem;

use super::{Locked, Numbered, Place, Redirected, Spilled};

impl<K, V, S> Locked<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    #[inline]
    pub(in crate::map) fn insert(&self, key: K, value: V) -> Option<V>
    where
        V: Clone,
    {
        self.put(key, value).unwrap_or_else(|(table, key, value)| table.insert(key, value))
    }

    #[inline]
    pub(in crate::map) fn set(&self, key: K, value: V) -> bool {
        match self.put(key, value) {
            Ok(old) => old.is_some(),
            Err((table, key, value)) => table.set(key, value),
        }
    }

    #[inline]
    fn put(&self, key: K, value: V) -> Result<Option<V>, Redirected<'_, K, V, S>> {
        let hash = self.hash(&key);
        let mut inner = match self.lock() {
            Ok(inner) => inner,
            Err(table) => return Err((table, key, value)),
        };
        let number = inner.number();
        match inner.map.entry(hash, |(there, _)| *there == key, |(there, _)| self.hash(there)) {
            Entry::Occupied(mut there) => {
                let old = mem::replace(&mut there.get_mut().1, Numbered { number, value });
                // Before the key is dropped (locked/I1).
                drop(inner);
                Ok(Some(old.value))
            }
            Entry::Vacant(place) => {
                place.insert((key, Numbered { number, value }));
                self.end_insertion(inner);
                Ok(None)
            }
        }
    }

    pub(in crate::map) fn try_insert(&self, key: K, value: V) -> Result<(), (K, V)> {
        let hash = self.hash(&key);
        self.try_insert_hashed(hash, key, value)
    }

    /// Inserts the key, which has this hash, if it is absent.
    fn try_insert_hashed(&self, hash: u64, key: K, value: V) -> Result<(), (K, V)> {
        let mut inner = match self.lock() {
            Ok(inner) => inner,
            Err(table) => return table.try_insert(key, value),
        };
        // A lookup first: `entry` would reserve room even for a key that is present.
        if inner.map.find(hash, |(there, _)| *there == key).is_some() {
            return Err((key, value));
        }
        let number = inner.number();
        inner.map.insert_unique(hash, (key, Numbered { number, value }), |(there, _)| self.hash(there));
        self.end_insertion(inner);
        Ok(())
    }

    pub(in crate::map) fn get_or_insert_with(&self, key: K, value: impl FnOnce() -> V) -> V
    where
        V: Clone,
    {
        let hash = match self.lookup(&key) {
            Ok(Ok((_, there))) => return there,
            Ok(Err(hash)) => hash,
            Err(table) => return table.get_or_insert_with(key, value),
        };
        let value = value();
        let inserted = self.cloners.copy(&value);
        let mut inner = match self.lock() {
            Ok(inner) => inner,
            Err(table) => return table.get_or_insert_with(key, || value),
        };
        let number = inner.number();
        match inner.map.entry(hash, |(there, _)| *there == key, |(there, _)| self.hash(there)) {
            Entry::Occupied(there) => {
                let there = self.cloners.copy(&there.get().1.value);
                // Before the unused value is dropped (locked/I1).
                drop(inner);
                there
            }
            Entry::Vacant(place) => {
                place.insert((key, Numbered { number, value }));
                self.end_insertion(inner);
                inserted
            }
        }
    }

    #[inline]
    pub(in crate::map) fn remove<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        match self.take(key) {
            Ok(taken) => taken.map(|(_, value)| value),
            Err(table) => table.remove(key),
        }
    }

    #[inline]
    pub(in crate::map) fn discard<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        match self.take(key) {
            Ok(taken) => taken.is_some(),
            Err(table) => table.delete(key),
        }
    }

    #[inline]
    fn take<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Result<Option<(K, V)>, Spilled<'_, K, V, S>>
    where
        K: Borrow<Q>,
    {
        let hash = self.hash(key);
        let mut inner = self.lock()?;
        let taken = inner.map.find_entry(hash, |(there, _)| there.borrow() == key);
        let taken = taken.ok().map(|there| there.remove().0);
        self.publish_counts(&inner);
        Ok(taken.map(|(key, held)| (key, held.value)))
    }

    pub(in crate::map) fn change<Q: Eq + Hash + ?Sized>(
        &self,
        key: &Q,
        mut f: impl FnMut(&V) -> Compute<V>,
    ) -> Computed
    where
        K: Borrow<Q>,
    {
        loop {
            let (place, value) = match self.lookup(key) {
                Ok(Ok(told)) => told,
                Ok(Err(_)) => return Computed::Kept,
                Err(table) => return table.compute_if_present(key, f),
            };
            if let Some(computed) = self.apply(key, place, f(&value)) {
                return computed;
            }
        }
    }

    pub(in crate::map) fn compute(
        &self,
        mut key: K,
        mut f: impl FnMut(Option<&V>) -> Compute<V>,
    ) -> Computed {
        loop {
            let (place, value) = match self.lookup(&key) {
                Ok(Ok(told)) => told,
                Ok(Err(hash)) => {
                    let Compute::Put(value) = f(None) else { return Computed::Kept };
                    match self.try_insert_hashed(hash, key, value) {
                        Ok(()) => return Computed::Inserted,
                        Err((back, _)) => key = back,
                    }
                    continue;
                }
                Err(table) => return table.compute(key, f),
            };
            if let Some(computed) = self.apply(&key, place, f(Some(&value))) {
                return computed;
            }
        }
    }

    /// Applies a closure's decision about a value if the key still has the value of that number. Returns
    /// empty otherwise.
    #[inline]
    pub(super) fn apply<Q: Eq + Hash + ?Sized>(
        &self,
        key: &Q,
        place: Place,
        wanted: Compute<V>,
    ) -> Option<Computed>
    where
        K: Borrow<Q>,
    {
        // Declared before the guard, so that an unused value is dropped after it.
        let value = match wanted {
            Compute::Keep => return Some(Computed::Kept),
            Compute::Put(value) => Some(value),
            Compute::Remove => None,
        };
        let Place { hash, index, number } = place;
        let mut inner = self.lock().ok()?;
        let next = inner.number();
        // At its old index if no entry moved since. The number proves it (locked/I2).
        let is_there = |(_, there): &(K, Numbered<V>)| there.number == number;
        let index = if inner.map.get_bucket(index).is_some_and(is_there) {
            index
        } else {
            let index = inner.map.find_bucket_index(hash, |(there, _)| there.borrow() == key)?;
            inner.map.get_bucket(index).filter(|there| is_there(there))?;
            index
        };
        match value {
            Some(value) => {
                let (_, there) = inner.map.get_bucket_mut(index)?;
                let old = mem::replace(there, Numbered { number: next, value });
                drop(inner);
                drop(old);
                Some(Computed::Updated)
            }
            None => {
                let old = inner.map.get_bucket_entry(index).ok()?.remove().0;
                self.publish_counts(&inner);
                drop(inner);
                drop(old);
                Some(Computed::Removed)
            }
        }
    }

    pub(in crate::map) fn retain_from(&self, from: u64, mut f: impl FnMut(&K, &V) -> bool) -> Option<u64> {
        let keys = match self.collect_from(from, |key, _| (self.cloners.key)(key)) {
            Ok(keys) => keys,
            Err(table) => return table.retain_from(from, f),
        };
        for key in keys {
            let _ = self.change(&key, |value| if f(&key, value) { Compute::Keep } else { Compute::Remove });
        }
        None
    }
}
