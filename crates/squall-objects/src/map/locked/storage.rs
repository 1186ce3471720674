//! The operations of a locked map, each on the hash table or on the table that has replaced it.

use squall_parts::table::{Compute, Computed};
use squall_parts::{__DropEach, __DropQuietly, __Drops};
use squall_rcu::Guard;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::Ordering;

use super::Locked;
use crate::map::key::{Borrowed, KeyForm};
use crate::map::storage::{Old, Storage, retain_keys};

impl<K, V, S> Storage<K, V, S> for Locked<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// `f` gets a copy, so that it runs without the lock.
    fn read(&self, guard: &Guard, key: &dyn KeyForm<K, S>, f: &mut dyn FnMut(&V)) -> bool {
        match self.lookup(key) {
            Ok(Ok((_, value))) => {
                f(&value);
                true
            }
            Ok(Err(_)) => false,
            Err(table) => Storage::read(table, guard, key, f),
        }
    }

    fn contains(&self, guard: &Guard, key: &dyn KeyForm<K, S>) -> bool {
        self.contains_key(key).unwrap_or_else(|table| Storage::contains(table, guard, key))
    }

    /// `f` gets a copy, so that it runs without the lock.
    fn find_key(&self, guard: &Guard, key: &dyn KeyForm<K, S>, f: &mut dyn FnMut(&K)) -> bool {
        match self.copy_key(key) {
            Ok(copy) => copy.inspect(f).is_some(),
            Err(table) => Storage::find_key(table, guard, key, f),
        }
    }

    fn put(&self, guard: &Guard, entry: &mut Option<(K, V)>, old: &mut Old<V>) -> bool {
        match self.insert_or_replace(entry) {
            Ok(was_present) => {
                // The unused key and the old value are dropped here, without the lock (locked/I1).
                if let Some((_key, value)) = entry.take() {
                    old.keep(value);
                }
                was_present
            }
            Err(table) => Storage::put(table, guard, entry, old),
        }
    }

    fn get(&self, guard: &Guard, key: &dyn KeyForm<K, S>, value: &mut Old<V>) -> bool {
        match self.lookup(key) {
            Ok(Ok((_, there))) => {
                value.keep(there);
                true
            }
            Ok(Err(_)) => false,
            Err(table) => Storage::get(table, guard, key, value),
        }
    }

    fn try_insert(&self, guard: &Guard, entry: &mut Option<(K, V)>, present: &mut Old<V>) -> bool {
        let Some((key, _)) = entry else { unreachable!("an insertion without an entry") };
        let hash = self.hash(key);
        match self.insert_or_copy(hash, entry, present) {
            Ok(is_inserted) => is_inserted,
            Err(table) => Storage::try_insert(table, guard, entry, present),
        }
    }

    fn take(&self, guard: &Guard, key: &dyn KeyForm<K, S>, old: &mut Old<V>) -> bool {
        match self.take_entry(key) {
            Ok(None) => false,
            Ok(Some((_key, held))) => {
                old.keep(held.value);
                true
            }
            Err(table) => Storage::take(table, guard, key, old),
        }
    }

    fn change(
        &self,
        guard: &Guard,
        key: &dyn KeyForm<K, S>,
        f: &mut dyn FnMut(&V) -> Compute<V>,
        drops: &mut __Drops,
    ) -> Computed {
        loop {
            let (place, value) = match self.lookup(key) {
                // The closure may panic, and then the drop of the copy, too.
                Ok(Ok((place, value))) => (place, __DropQuietly::new(value)),
                Ok(Err(_)) => return Computed::Kept,
                Err(table) => return Storage::change(table, guard, key, f, drops),
            };
            let wanted = f(&value);
            if let Some(computed) = self.apply_and_drop(key, place, wanted, value, drops) {
                return computed;
            }
        }
    }

    fn compute(
        &self,
        guard: &Guard,
        key: &mut Option<K>,
        f: &mut dyn FnMut(Option<&V>) -> Compute<V>,
        drops: &mut __Drops,
    ) -> Computed {
        loop {
            let Some(wanted) = &*key else { unreachable!("a computation without a key") };
            let (place, value) = match self.lookup(&Borrowed(wanted)) {
                Ok(Ok((place, value))) => (place, __DropQuietly::new(value)),
                Ok(Err(hash)) => {
                    let Compute::Put(value) = f(None) else { return Computed::Kept };
                    let mut entry = key.take().map(|key| (key, value));
                    if let Err(table) = self.insert_or_copy(hash, &mut entry, &mut Old::unwanted()) {
                        Storage::try_insert(table, guard, &mut entry, &mut Old::unwanted());
                    }
                    match entry {
                        None => return Computed::Inserted,
                        Some((back, _)) => *key = Some(back),
                    }
                    continue;
                }
                Err(table) => return Storage::compute(table, guard, key, f, drops),
            };
            let decision = f(Some(&value));
            if let Some(computed) = self.apply_and_drop(&Borrowed(wanted), place, decision, value, drops) {
                return computed;
            }
        }
    }

    /// Visits all entries from there on in one step, so all that an iteration has not seen. They are cloned
    /// under the lock, and `f` gets the clones.
    fn visit_from(&self, from: u64, f: &mut dyn FnMut(&K, &V)) -> Option<u64> {
        // If a clone panics, these are dropped without the lock (locked/I1).
        let (mut entries, mut half) = (__DropEach(Vec::new()), None);
        let mut copy = |key: &K, value: &V| entries.0.push(self.cloners.copy_entry(key, value, &mut half));
        match self.each_from(from, &mut copy) {
            Ok(()) => entries.0.iter().for_each(|(key, value)| f(key, value)),
            Err(table) => return table.visit_from(from, f),
        }
        None
    }

    fn retain_from(&self, from: u64, f: &mut dyn FnMut(&K, &V) -> bool) -> Option<u64> {
        let mut keys = Vec::new();
        if let Err(table) = self.each_from(from, &mut |key, _| keys.push((self.cloners.key)(key))) {
            return table.retain_from(from, f);
        }
        retain_keys(self, keys, f);
        None
    }

    fn len(&self) -> usize {
        self.spilled().map_or_else(|| self.entries.load(Ordering::Relaxed), |table| table.len())
    }

    fn capacity(&self) -> usize {
        self.spilled().map_or_else(|| self.room.load(Ordering::Relaxed), |table| table.capacity())
    }

    fn try_reserve(&self, more: usize) -> bool {
        self.reserve(more)
    }

    fn shrink_to_fit(&self) {
        self.shrink();
    }

    fn has_spilled(&self) -> bool {
        self.spilled().is_some()
    }
}
