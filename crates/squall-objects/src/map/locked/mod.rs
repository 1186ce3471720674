//! The locked form: `hashbrown`'s hash table, which is also `std`'s, under one biased lock. In an adaptive
//! map a concurrent table replaces it when it has too many entries.
//!
//! Problem: no user closure may run under the lock, but its decision must apply to the value that it saw.
//! Idea: each stored value has a number. The closure gets a copy of the value. Its decision is applied if
//! the key's value still has the same number; otherwise the closure runs again. If no entry moved
//! meanwhile, the value is found by its index in the hash table, without a second search.
//!
//! - I1. The lock is held only for operations of the hash table, and for clones of its contents. Of users'
//!   code, `Eq`, `Hash`, `Clone` and the hasher run under it. Drops run without the lock, even if such code
//!   panics.
//! - I2. A number is used once, for one value of one key. A value with a given number was neither changed
//!   nor removed since its insertion.
//! - I3. `spilled` is set under the lock, when the table has all entries. From then on the hash table stays
//!   empty. An operation that finds `spilled` set runs on the table.
//! - I4. User code that panics under the lock leaves the hash table unchanged. Before that table grows or
//!   shrinks, all hashes are computed.
//! - I5. A thread that calls the map from code that runs under the lock gets a panic that names the map.
mod biased;
mod read;
mod spill;
mod storage;
#[cfg(test)]
mod tests;
mod write;

use hashbrown::HashTable;
use squall_core::Id;
use squall_lock::{BiasedGuard, BiasedLock};
use squall_parts::__Drops;
use squall_parts::table::Table;
use std::hash::{BuildHasher, Hash};
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::cloners::Cloners;
use super::key::KeyForm;

/// A hash table under a biased lock.
pub(super) struct Locked<K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    inner: BiasedLock<Inner<K, V>>,
    hasher: S,
    /// Number of entries in the hash table. Written under the lock, read without it: a thread that asks for
    /// the length must not take the lock from its owner.
    entries: AtomicUsize,
    /// Number of entries for which the hash table has room. Written under the lock, read without it.
    room: AtomicUsize,
    /// The table with the entries, once there were too many (I3).
    spilled: OnceLock<Arc<Table<K, V, S>>>,
    cloners: Cloners<K, V, S>,
    /// Id of the map, for error messages. Set when a representative is made.
    id: OnceLock<Id>,
}

struct Inner<K, V> {
    map: HashTable<Stored<K, V>>,
    /// Maximum number of entries under the lock.
    most: usize,
    /// The number given last (I2).
    numbers: u64,
}

/// A stored value and its number (I2).
struct Numbered<V> {
    number: u64,
    value: V,
}

/// An entry of the hash table.
type Stored<K, V> = (K, Numbered<V>);

/// Place of a value: the key's hash, the index in the hash table, and the value's number.
#[derive(Clone, Copy)]
struct Place {
    hash: u64,
    index: usize,
    number: u64,
}

/// Result of a lookup: the place and a copy of the value; or, if the key is absent, its hash.
type Lookup<V> = Result<(Place, V), u64>;

impl<K, V> Inner<K, V> {
    /// Returns the index of a key in the hash table.
    fn index_of<S>(&self, hash: u64, key: &dyn KeyForm<K, S>) -> Option<usize> {
        self.map.find_bucket_index(hash, |(there, _)| key.is(there))
    }

    /// Returns the number of a value that is about to be stored.
    #[inline]
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }
}

/// Stands for the function by which the hash table would hash its entries again, in insertions for which it
/// has room (I4).
fn never_rehash<K, V>(_: &Stored<K, V>) -> u64 {
    unreachable!("the hash table of a locked map has no room for an insertion")
}

/// Drops a hash table, each entry even if the drop of another one panics.
fn drop_entries<K, V>(mut map: HashTable<Stored<K, V>>) {
    if mem::needs_drop::<Stored<K, V>>() {
        __Drops::default().each(map.drain(), drop);
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Drop for Locked<K, V, S> {
    fn drop(&mut self) {
        drop_entries(mem::take(&mut self.inner.get_mut().map));
    }
}

type LockGuard<'a, K, V> = BiasedGuard<'a, Inner<K, V>>;

/// The table that has replaced the hash table.
type Spilled<'a, K, V, S> = &'a Table<K, V, S>;

impl<K, V, S> Locked<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + 'static,
{
    pub(super) fn new(capacity: usize, hasher: S, most: usize, cloners: Cloners<K, V, S>) -> Locked<K, V, S> {
        let map = HashTable::with_capacity(capacity.min(most));
        let (entries, room) = (AtomicUsize::new(0), AtomicUsize::new(map.capacity()));
        let inner = BiasedLock::new(Inner { map, most, numbers: 0 });
        Locked { inner, hasher, entries, room, spilled: OnceLock::new(), cloners, id: OnceLock::new() }
    }

    /// Sets the id of the map, for error messages.
    pub(super) fn set_id(&self, id: Id) {
        self.id.get_or_init(|| id);
    }

    #[inline(always)]
    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Returns the table that has replaced the hash table, if there were too many entries.
    #[inline]
    pub(super) fn spilled(&self) -> Option<&Arc<Table<K, V, S>>> {
        self.spilled.get()
    }

    /// Locks the hash table, or returns the table that has replaced it.
    ///
    /// # Panics
    /// If the calling thread holds the lock (I5).
    #[inline(always)]
    fn lock(&self) -> Result<LockGuard<'_, K, V>, Spilled<'_, K, V, S>> {
        let Some(inner) = self.inner.lock_unless_held() else { self.refuse_reentry() };
        match self.spilled() {
            None => Ok(inner),
            Some(table) => Err(table),
        }
    }

    /// Panics for a call from code that runs under the lock.
    #[cold]
    #[inline(never)]
    fn refuse_reentry(&self) -> ! {
        let id = self.id.get().map_or_else(String::new, Id::to_string);
        panic!(
            "map {id} was called by `Eq`, `Hash` or `Clone` of its own keys or values, which runs under its lock; \
             call no map there, or use a shared map, which clones under no lock"
        )
    }

    /// Whether the lock is biased to the calling thread, so far as the thread knows. Then no other thread
    /// used the map since this one used it much.
    #[inline(always)]
    pub(super) fn is_biased_to_me(&self) -> bool {
        self.inner.is_mine()
    }

    /// Whether the lock may ever be biased to a thread.
    pub(super) fn can_be_owned(&self) -> bool {
        self.inner.can_be_owned()
    }

    /// Publishes the number of entries and the room.
    #[inline(always)]
    fn publish_counts(&self, inner: &Inner<K, V>) {
        // Relaxed, both: the lock protects the entries themselves.
        self.entries.store(inner.map.len(), Ordering::Relaxed);
        self.room.store(inner.map.capacity(), Ordering::Relaxed);
    }

    /// Ends an insertion. Moves to a table if there are too many entries. If they cannot be cloned, the
    /// limit is doubled. The insertion is complete, so a panic in the clone or drop of an entry ends here.
    #[inline]
    fn end_insertion(&self, inner: LockGuard<'_, K, V>) {
        self.publish_counts(&inner);
        if inner.map.len() > inner.most {
            let _ = self.spill(inner, 0);
        }
    }
}
