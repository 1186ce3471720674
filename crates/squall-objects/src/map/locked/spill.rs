//! Growth of a locked map to a table, conversions from and to a table, and changes of its room.

use squall_parts::table::{__clones_without_user_code, Table};
use squall_rcu::__pin as pin;
use std::any::TypeId;
use std::collections::TryReserveError;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash, RandomState};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};
use std::thread;

use super::{Inner, LockGuard, Locked, Numbered, Stored, drop_entries};
use crate::map::cloners::Cloners;

/// Whether a hash of such a key by such a hasher runs no user code.
fn hashes_without_user_code<K: 'static, S: 'static>() -> bool {
    let known = [TypeId::of::<RandomState>(), TypeId::of::<BuildHasherDefault<DefaultHasher>>()];
    __clones_without_user_code::<K>() && known.contains(&TypeId::of::<S>())
}

impl<K, V, S> Locked<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + 'static,
{
    /// Makes a locked form with clones of a table's entries. A table with more than `most` entries is not
    /// cloned: the new form shares it, as if it had spilled into that table.
    pub(in crate::map) fn of_table(
        table: Arc<Table<K, V, S>>,
        most: usize,
        cloners: Cloners<K, V, S>,
    ) -> Locked<K, V, S> {
        let (hasher, entries) = ((cloners.hasher)(table.hasher()), table.len());
        if entries > most {
            let mut locked = Locked::new(0, hasher, most, cloners);
            locked.spilled = OnceLock::from(table);
            return locked;
        }
        let mut locked = Locked::new(entries, hasher, most, cloners);
        let Locked { inner, hasher, .. } = &mut locked;
        let inner = inner.get_mut();
        table.for_each(|key, value| {
            let held = Numbered { number: inner.number(), value: cloners.copy(value) };
            let (key, hash) = ((cloners.key)(key), hasher.hash_one(key));
            // The hashes are of a new map, which is lost if one of them panics.
            inner.map.insert_unique(hash, (key, held), |(key, _)| hasher.hash_one(key));
        });
        let (entries, room) = (inner.map.len(), inner.map.capacity());
        (locked.entries, locked.room) = (AtomicUsize::new(entries), AtomicUsize::new(room));
        locked
    }

    /// Returns a table with clones of the entries, or the table that has them already.
    pub(in crate::map) fn to_table(&self) -> Arc<Table<K, V, S>> {
        // Declared before the guard, so that they are dropped after it, as in `spill`.
        let (mut made, mut half) = (None, None);
        match self.lock() {
            Ok(inner) => _ = self.clone_into_table(&inner, 0, &mut made, &mut half),
            Err(_) => {
                return self
                    .spilled()
                    .expect("the locked map has no table, although its lock reported one")
                    .clone();
            }
        }
        Arc::new(made.expect("no table was made for the clones of the entries"))
    }

    /// Reserves room for further entries. Returns `false` if memory is exhausted.
    pub(super) fn reserve(&self, more: usize) -> bool {
        let mut inner = match self.lock() {
            Ok(inner) => inner,
            Err(table) => return table.try_reserve(more),
        };
        if inner.map.len().saturating_add(more) <= inner.most {
            let Ok(hashes) = self.hashes(&inner) else { return false };
            let reserved = inner.map.try_reserve(more, |entry| self.hash_again(&hashes, entry)).is_ok();
            self.publish_counts(&inner);
            return reserved;
        }
        self.spill(inner, more).unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Makes room for one entry more.
    pub(super) fn grow(&self, inner: &mut Inner<K, V>) {
        if inner.map.capacity() == inner.map.len() {
            let hashes =
                self.hashes(inner).expect("there is no memory for the hashes of a locked map's keys");
            inner.map.reserve(1, |entry| self.hash_again(&hashes, entry));
        }
    }

    /// Returns the hash of each entry by the number of its value. The hash table hashes its entries again
    /// while it moves them, and would lose some if a hash panicked then (locked/I4). If key and hasher are of
    /// known types, no user code runs, and the list is empty.
    ///
    /// # Errors
    /// There is no memory for the list.
    fn hashes(&self, inner: &Inner<K, V>) -> Result<Vec<(u64, u64)>, TryReserveError> {
        let mut hashes = Vec::new();
        if !hashes_without_user_code::<K, S>() {
            hashes.try_reserve_exact(inner.map.len())?;
            hashes.extend(inner.map.iter().map(|(key, held)| (held.number, self.hash(key))));
            hashes.sort_unstable();
        }
        Ok(hashes)
    }

    /// Returns the hash of an entry, from the list.
    fn hash_again(&self, hashes: &[(u64, u64)], (key, held): &Stored<K, V>) -> u64 {
        if hashes_without_user_code::<K, S>() {
            return self.hash(key);
        }
        let place = hashes.binary_search_by_key(&held.number, |(number, _)| *number);
        hashes[place.expect("an entry was added between the hashes and their use")].1
    }

    pub(super) fn shrink(&self) {
        match self.lock() {
            Ok(mut inner) => {
                let Ok(hashes) = self.hashes(&inner) else { return };
                inner.map.shrink_to_fit(|entry| self.hash_again(&hashes, entry));
                self.publish_counts(&inner);
            }
            Err(table) => table.shrink_to_fit(),
        }
    }

    /// Replaces the hash table by a table, with room for `more` further entries. Returns `false` if there
    /// is no memory. In that case, or if a clone panics, the entries stay, and their permitted number is
    /// doubled. Returns the panic of a clone, or of the drop of an entry.
    #[cold]
    pub(super) fn spill(&self, inner: LockGuard<'_, K, V>, more: usize) -> thread::Result<bool> {
        // Declared before the guard, so that they are dropped after it.
        let (mut made, mut half) = (None, None);
        let mut inner = inner;
        let mut copied =
            catch_unwind(AssertUnwindSafe(|| self.clone_into_table(&inner, more, &mut made, &mut half)));
        match (&copied, made.take()) {
            (Ok(true), Some(table)) => {
                let set = self.spilled.set(Arc::new(table));
                debug_assert!(set.is_ok(), "the locked map got a second table (locked/I3)");
                let old = mem::take(&mut inner.map);
                // The counts stay: a thread that saw no table just now reads the hash table's old counts.
                drop(inner);
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop_entries(old))) {
                    copied = Err(panic);
                }
            }
            (_, in_vain) => {
                inner.most = inner.most.max(inner.map.len().saturating_mul(2));
                drop(inner);
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(in_vain))) {
                    copied = Err(panic);
                }
            }
        }
        copied
    }

    /// Makes a table of clones, with room for `more` further entries. Returns `false` if there is no memory
    /// for that room. If a clone panics, the caller gets the clones in `made`, to drop them without the
    /// lock. `half` is a cloned key that has no cloned value yet.
    ///
    /// # Panics
    /// If there is no memory for the entries and `more` is zero.
    fn clone_into_table(
        &self,
        inner: &Inner<K, V>,
        more: usize,
        made: &mut Option<Table<K, V, S>>,
        half: &mut Option<K>,
    ) -> bool {
        let hasher = (self.cloners.hasher)(&self.hasher);
        let entries = inner.map.len();
        // A table that grows retires its old memory, which an operation delays. So no memory is reclaimed
        // under the lock.
        let table = made.insert(Table::with_capacity_and_hasher(if more == 0 { entries } else { 0 }, hasher));
        if more > 0 && !table.try_reserve(entries.saturating_add(more)) {
            return false;
        }
        for (key, held) in &inner.map {
            let mut entry = Some(self.cloners.copy_entry(key, &held.value, half));
            pin(|guard| table.__put(guard, &mut entry, &mut |_| ()));
        }
        true
    }
}
