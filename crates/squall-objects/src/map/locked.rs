//! The locked form: `hashbrown`'s hash table, which is also `std`'s, under one biased lock. In an adaptive
//! map a concurrent table replaces it when it has too many entries.
//!
//! Problem: no user closure may run under the lock, but its decision must apply to the value that it saw.
//! Idea: each stored value has a number. The closure gets a copy of the value. Its decision is applied if
//! the key's value still has the same number; otherwise the closure runs again. If no entry moved
//! meanwhile, the value is found by its index in the hash table, without a second search.
//!
//! - I1. The lock is held only for operations of the hash table, and for clones of its contents. Drops of
//!   user types run without the lock, even if a clone panics. One exception: if `Eq` or `Hash` panics,
//!   which they must not, the hash table may drop its arguments under the lock.
//! - I2. A number is used once, for one value of one key. A value with a given number was neither changed
//!   nor removed since its insertion.
//! - I3. `spilled` is set under the lock, when the table has all entries. From then on the hash table stays
//!   empty. An operation that finds `spilled` set runs on the table.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use squall_lock::{BiasedGuard, BiasedLock};
use squall_rcu::Guard;
use squall_parts::table::{Compute, Computed, Table, position};
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use super::policy::is_cheap;

/// Functions that clone a map's contents. They are known where the map is made, so the interface need not
/// require `Clone`.
pub(super) struct Copies<K, V, S> {
    pub(super) key: fn(&K) -> K,
    pub(super) value: fn(&V) -> V,
    pub(super) hasher: fn(&S) -> S,
}

impl<K, V, S> Clone for Copies<K, V, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V, S> Copy for Copies<K, V, S> {}

impl<K: Clone, V: Clone, S: Clone> Copies<K, V, S> {
    pub(super) fn new() -> Copies<K, V, S> {
        Copies { key: K::clone, value: V::clone, hasher: S::clone }
    }
}

impl<K, V: 'static, S> Copies<K, V, S> {
    /// Returns a copy of a value, without a call if the type is plain data.
    #[inline(always)]
    fn of(&self, value: &V) -> V {
        squall_parts::table::__copied(value).unwrap_or_else(|| (self.value)(value))
    }

    /// Returns a copy of an entry. If the clone of the value panics, the cloned key stays in `half`.
    fn entry(&self, key: &K, value: &V, half: &mut Option<K>) -> (K, V) {
        *half = Some((self.key)(key));
        let value = self.of(value);
        (half.take().expect("put there just now"), value)
    }
}

/// A hash table under a biased lock.
pub struct Locked<K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    inner: BiasedLock<Inner<K, V>>,
    hasher: S,
    /// Number of entries in the hash table. Written under the lock, read without it: a thread that asks for
    /// the length must not take the lock from its owner.
    entries: AtomicUsize,
    /// Number of entries for which the hash table has room. Written under the lock, read without it.
    room: AtomicUsize,
    /// The table with the entries, once there were too many (I3).
    spilled: OnceLock<Arc<Table<K, V, S>>>,
    copies: Copies<K, V, S>,
}

struct Inner<K, V> {
    map: HashTable<(K, Held<V>)>,
    /// Maximum number of entries under the lock.
    most: usize,
    /// The number given last (I2).
    numbers: u64,
}

/// A stored value and its number (I2).
struct Held<V> {
    number: u64,
    value: V,
}

/// Whether keys have no drop and values are plain data. Then no user code runs when an entry is dropped, so
/// the lock's owner may write by the view (`view/I1`).
const fn drops_nothing<K, V: 'static>() -> bool {
    is_cheap::<V>() && !mem::needs_drop::<K>()
}

/// Place of a value: the key's hash, the index in the hash table, and the value's number.
#[derive(Clone, Copy)]
struct Found {
    hash: u64,
    place: usize,
    number: u64,
}

/// Result of a lookup: the place and a copy of the value; or, if the key is absent, its hash.
type Told<V> = Result<(Found, V), u64>;

impl<K, V> Inner<K, V> {
    /// Returns the number of a value that is about to be stored.
    #[inline]
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }
}

type LockGuard<'a, K, V> = BiasedGuard<'a, Inner<K, V>>;
/// The table that has replaced the hash table.
type Spilled<'a, K, V, S> = &'a Table<K, V, S>;
/// The table that has replaced the hash table, and the entry that is to be inserted there.
type Elsewhere<'a, K, V, S> = (Spilled<'a, K, V, S>, K, V);

impl<K, V, S> Locked<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    pub(super) fn new(capacity: usize, hasher: S, most: usize, copies: Copies<K, V, S>) -> Locked<K, V, S> {
        let map = HashTable::with_capacity(capacity.min(most));
        let (entries, room) = (AtomicUsize::new(0), AtomicUsize::new(map.capacity()));
        let inner = BiasedLock::new(Inner { map, most, numbers: 0 });
        Locked { inner, hasher, entries, room, spilled: OnceLock::new(), copies }
    }

    #[inline(always)]
    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Makes a locked form with clones of a table's entries. If the table has more than `most` entries, it
    /// is used itself.
    pub(super) fn of_table(
        table: Arc<Table<K, V, S>>,
        most: usize,
        copies: Copies<K, V, S>,
    ) -> Locked<K, V, S> {
        let (hasher, entries) = ((copies.hasher)(table.hasher()), table.len());
        if entries > most {
            let mut locked = Locked::new(0, hasher, most, copies);
            locked.spilled = OnceLock::from(table);
            return locked;
        }
        let mut locked = Locked::new(entries, hasher, most, copies);
        let Locked { inner, hasher, .. } = &mut locked;
        let inner = inner.get_mut();
        let hash = |key: &K| hasher.hash_one(key);
        table.for_each(|key, value| {
            let held = Held { number: inner.number(), value: copies.of(value) };
            inner.map.insert_unique(hash(key), ((copies.key)(key), held), |(key, _)| hash(key));
        });
        let (entries, room) = (inner.map.len(), inner.map.capacity());
        (locked.entries, locked.room) = (AtomicUsize::new(entries), AtomicUsize::new(room));
        locked
    }

    /// Returns a table with clones of the entries, or the table that has them already.
    pub(super) fn to_table(&self) -> Arc<Table<K, V, S>> {
        // Declared before the guard, so that they are dropped after it, as in `spill`.
        let (mut made, mut half) = (None, None);
        match self.lock() {
            Ok(inner) => _ = self.copy(&inner, 0, &mut made, &mut half),
            Err(_) => return self.spilled().expect("found just now").clone(),
        }
        Arc::new(made.expect("made just now"))
    }

    /// Makes a table of clones, with room for `more` further entries. Returns `false` if there is no memory
    /// for that room. If a clone panics, the caller gets the clones in `made`, to drop them without the
    /// lock. `half` is a cloned key that has no cloned value yet.
    ///
    /// # Panics
    /// If there is no memory for the entries and `more` is zero.
    fn copy(
        &self,
        inner: &Inner<K, V>,
        more: usize,
        made: &mut Option<Table<K, V, S>>,
        half: &mut Option<K>,
    ) -> bool {
        let hasher = (self.copies.hasher)(&self.hasher);
        let entries = inner.map.len();
        // A table that grows retires its old memory, which an operation delays. So no memory is reclaimed
        // under the lock.
        let table = made.insert(Table::with_capacity_and_hasher(if more == 0 { entries } else { 0 }, hasher));
        if more > 0 && !table.try_reserve(entries.saturating_add(more)) {
            return false;
        }
        for (key, held) in &inner.map {
            let (key, value) = self.copies.entry(key, &held.value, half);
            table.set(key, value);
        }
        true
    }

    /// Returns the table that has replaced the hash table, if there were too many entries.
    #[inline]
    pub(super) fn spilled(&self) -> Option<&Arc<Table<K, V, S>>> {
        self.spilled.get()
    }

    /// Locks the hash table, or returns the table that has replaced it.
    #[inline(always)]
    fn lock(&self) -> Result<LockGuard<'_, K, V>, Spilled<'_, K, V, S>> {
        let inner = self.inner.lock();
        match self.spilled() {
            None => Ok(inner),
            Some(table) => Err(table),
        }
    }

    /// Whether the lock is biased to the calling thread, so far as the thread knows. Then no other thread
    /// used the map since this one used it much.
    #[inline(always)]
    pub(super) fn is_mine(&self) -> bool {
        self.inner.is_mine()
    }

    /// Whether the lock is biased to the calling thread, and values are plain data. Then the thread's calls
    /// need no record.
    #[inline(always)]
    pub(super) fn is_mine_for_nothing(&self) -> bool {
        is_cheap::<V>() && self.is_mine()
    }

    /// Whether the lock may ever be biased to a thread.
    pub(super) fn can_be_owned(&self) -> bool {
        self.inner.can_be_owned()
    }

    /// Publishes the number of entries and the room.
    #[inline(always)]
    fn count(&self, inner: &Inner<K, V>) {
        // Relaxed, both: the lock protects the entries themselves.
        self.entries.store(inner.map.len(), Ordering::Relaxed);
        self.room.store(inner.map.capacity(), Ordering::Relaxed);
    }

    /// Ends an insertion. Moves to a table if there are too many entries. If they cannot be cloned, the
    /// limit is doubled.
    #[inline]
    fn has_grown(&self, inner: LockGuard<'_, K, V>) {
        self.count(&inner);
        if inner.map.len() > inner.most {
            let _ = self.spill(inner, 0);
        }
    }

    /// Replaces the hash table by a table, with room for `more` further entries. Returns `false` if there
    /// is no memory. In that case, or if a clone panics, the entries stay, and their permitted number is
    /// doubled.
    #[cold]
    fn spill(&self, inner: LockGuard<'_, K, V>, more: usize) -> thread::Result<bool> {
        // Declared before the guard, so that they are dropped after it.
        let (mut made, mut half) = (None, None);
        let mut inner = inner;
        let copied = catch_unwind(AssertUnwindSafe(|| self.copy(&inner, more, &mut made, &mut half)));
        match (&copied, made.take()) {
            (Ok(true), Some(table)) => {
                let set = self.spilled.set(Arc::new(table));
                debug_assert!(set.is_ok(), "who has the lock has found none (I3)");
                let old = mem::take(&mut inner.map);
                // The counts stay: a thread that saw no table just now reads the hash table's old counts.
                drop(inner);
                drop(old);
            }
            (_, in_vain) => {
                inner.most = inner.most.max(inner.map.len().saturating_mul(2));
                drop(inner);
                drop(in_vain);
            }
        }
        copied
    }

    // --- reading ---

    /// Returns a copy of the key's value and its place.
    #[inline(always)]
    fn told<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Result<Told<V>, Spilled<'_, K, V, S>>
    where
        K: Borrow<Q>,
    {
        let hash = self.hash(key);
        let inner = self.lock()?;
        let there = inner.map.find_bucket_index(hash, |(there, _)| there.borrow() == key);
        let Some((place, (_, held))) = there.and_then(|place| Some((place, inner.map.get_bucket(place)?)))
        else {
            return Ok(Err(hash));
        };
        Ok(Ok((Found { hash, place, number: held.number }, self.copies.of(&held.value))))
    }

    /// Fast path of the lock's owner: returns a copy of the key's value, or that the key is absent. Returns
    /// empty if the slow path is needed: another thread owns the lock, values are not plain data, or a
    /// table has replaced the hash table.
    #[inline(always)]
    pub(super) fn read_as_owner<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<Option<V>>
    where
        K: Borrow<Q>,
    {
        if !is_cheap::<V>() {
            return None;
        }
        let hash = self.hash(key);
        let inner = self.inner.lock_if_mine()?;
        match inner.map.find(hash, |(there, _)| there.borrow() == key) {
            // An entry that is found here is not in a table (I3).
            Some((_, held)) => Some(Some(self.copies.of(&held.value))),
            None => self.spilled().is_none().then_some(None),
        }
    }

    #[inline(always)]
    fn cloned<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Result<Option<V>, Spilled<'_, K, V, S>>
    where
        K: Borrow<Q>,
    {
        let hash = self.hash(key);
        let inner = self.lock()?;
        let there = inner.map.find(hash, |(there, _)| there.borrow() == key);
        Ok(there.map(|(_, held)| self.copies.of(&held.value)))
    }

    #[inline]
    pub(super) fn read_in<Q: Eq + Hash + ?Sized, R>(
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

    pub(super) fn contains_in<Q: Eq + Hash + ?Sized>(&self, guard: &Guard, key: &Q) -> bool
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
    pub(super) fn visit_from(&self, from: u64, mut f: impl FnMut(&K, &V)) -> Option<u64> {
        let mut half = None;
        let copy = |key: &K, value: &V| self.copies.entry(key, value, &mut half);
        match self.made_from(from, copy) {
            Ok(entries) => entries.iter().for_each(|(key, value)| f(key, value)),
            Err(table) => return table.visit_from(from, f),
        }
        None
    }

    /// Collects the results of `make` for each entry from there on.
    fn made_from<T>(
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

    pub(super) fn len(&self) -> usize {
        self.spilled().map_or_else(|| self.entries.load(Ordering::Relaxed), |table| table.len())
    }

    pub(super) fn capacity(&self) -> usize {
        self.spilled().map_or_else(|| self.room.load(Ordering::Relaxed), |table| table.capacity())
    }

    // --- writing ---

    #[inline]
    fn put(&self, key: K, value: V) -> Result<Option<V>, Elsewhere<'_, K, V, S>> {
        let hash = self.hash(&key);
        let mut inner = match self.lock() {
            Ok(inner) => inner,
            Err(table) => return Err((table, key, value)),
        };
        let number = inner.number();
        match inner.map.entry(hash, |(there, _)| *there == key, |(there, _)| self.hash(there)) {
            Entry::Occupied(mut there) => {
                let old = mem::replace(&mut there.get_mut().1, Held { number, value });
                // Before the key is dropped (I1).
                drop(inner);
                Ok(Some(old.value))
            }
            Entry::Vacant(place) => {
                place.insert((key, Held { number, value }));
                self.has_grown(inner);
                Ok(None)
            }
        }
    }

    /// Fast path of the lock's owner: sets the key's value, and returns the old one. Requires room, and
    /// types without user code in their drop (I1).
    ///
    /// # Errors
    /// The slow path is needed. The map is unchanged; key and value come back.
    #[inline(always)]
    pub(super) fn put_as_owner(&self, key: K, value: V) -> Result<Option<V>, (K, V)> {
        if !drops_nothing::<K, V>() {
            return Err((key, value));
        }
        let hash = self.hash(&key);
        let Some(mut guard) = self.inner.lock_if_mine() else { return Err((key, value)) };
        let inner = &mut *guard;
        if let Some((_, held)) = inner.map.find_mut(hash, |(there, _)| *there == key) {
            // An entry that is found here is not in a table (I3).
            inner.numbers += 1;
            return Ok(Some(mem::replace(held, Held { number: inner.numbers, value }).value));
        }
        self.add_as_owner(guard, hash, key, value).map(|()| None)
    }

    /// Inserts a key that is absent. Out of line: an owner's writes mostly replace values.
    #[inline(never)]
    fn add_as_owner(&self, mut guard: LockGuard<'_, K, V>, hash: u64, key: K, value: V) -> Result<(), (K, V)> {
        let inner = &mut *guard;
        let entries = inner.map.len();
        if entries >= inner.most || entries >= inner.map.capacity() || self.spilled().is_some() {
            return Err((key, value));
        }
        let number = inner.number();
        inner.map.insert_unique(hash, (key, Held { number, value }), |(there, _)| self.hash(there));
        self.count(inner);
        Ok(())
    }

    #[inline]
    pub(super) fn insert(&self, key: K, value: V) -> Option<V>
    where
        V: Clone,
    {
        self.put(key, value).unwrap_or_else(|(table, key, value)| table.insert(key, value))
    }

    #[inline]
    pub(super) fn set(&self, key: K, value: V) -> bool {
        match self.put(key, value) {
            Ok(old) => old.is_some(),
            Err((table, key, value)) => table.set(key, value),
        }
    }

    pub(super) fn try_insert(&self, key: K, value: V) -> Result<(), (K, V)> {
        let hash = self.hash(&key);
        self.try_insert_of(hash, key, value)
    }

    /// Inserts the key, which has this hash, if it is absent.
    fn try_insert_of(&self, hash: u64, key: K, value: V) -> Result<(), (K, V)> {
        let mut inner = match self.lock() {
            Ok(inner) => inner,
            Err(table) => return table.try_insert(key, value),
        };
        // A lookup first: `entry` would reserve room even for a key that is present.
        if inner.map.find(hash, |(there, _)| *there == key).is_some() {
            return Err((key, value));
        }
        let number = inner.number();
        inner.map.insert_unique(hash, (key, Held { number, value }), |(there, _)| self.hash(there));
        self.has_grown(inner);
        Ok(())
    }

    pub(super) fn get_or_insert_with(&self, key: K, value: impl FnOnce() -> V) -> V
    where
        V: Clone,
    {
        let hash = match self.told(&key) {
            Ok(Ok((_, there))) => return there,
            Ok(Err(hash)) => hash,
            Err(table) => return table.get_or_insert_with(key, value),
        };
        let value = value();
        let inserted = self.copies.of(&value);
        let mut inner = match self.lock() {
            Ok(inner) => inner,
            Err(table) => return table.get_or_insert_with(key, || value),
        };
        let number = inner.number();
        match inner.map.entry(hash, |(there, _)| *there == key, |(there, _)| self.hash(there)) {
            Entry::Occupied(there) => {
                let there = self.copies.of(&there.get().1.value);
                // Before the unused value is dropped (I1).
                drop(inner);
                there
            }
            Entry::Vacant(place) => {
                place.insert((key, Held { number, value }));
                self.has_grown(inner);
                inserted
            }
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
        self.count(&inner);
        Ok(taken.map(|(key, held)| (key, held.value)))
    }

    /// Fast path of the lock's owner: removes the key, and returns its value. Returns empty if the slow
    /// path is needed, on the conditions of [`biased_put`](Locked::biased_put).
    #[inline(always)]
    pub(super) fn take_as_owner<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<Option<V>>
    where
        K: Borrow<Q>,
    {
        if !drops_nothing::<K, V>() {
            return None;
        }
        let hash = self.hash(key);
        let mut inner = self.inner.lock_if_mine()?;
        let Ok(there) = inner.map.find_entry(hash, |(there, _)| there.borrow() == key) else {
            return self.spilled().is_none().then_some(None);
        };
        let ((_, held), _) = there.remove();
        self.count(&inner);
        Some(Some(held.value))
    }

    #[inline]
    pub(super) fn remove<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<V>
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
    pub(super) fn discard<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        match self.take(key) {
            Ok(taken) => taken.is_some(),
            Err(table) => table.discard(key),
        }
    }

    pub(super) fn change<Q: Eq + Hash + ?Sized>(
        &self,
        key: &Q,
        mut f: impl FnMut(&V) -> Compute<V>,
    ) -> Computed
    where
        K: Borrow<Q>,
    {
        loop {
            let (found, value) = match self.told(key) {
                Ok(Ok(told)) => told,
                Ok(Err(_)) => return Computed::Kept,
                Err(table) => return table.change(key, f),
            };
            if let Some(computed) = self.done(key, found, f(&value)) {
                return computed;
            }
        }
    }

    /// Fast path of the lock's owner for [`change`](Locked::change). The key must be present, its value
    /// plain data, and the value must not change while `f` runs. Returns empty, with the map unchanged, if
    /// the slow path is needed. That path calls `f` again.
    #[inline(always)]
    pub(super) fn change_as_owner<Q: Eq + Hash + ?Sized>(
        &self,
        key: &Q,
        f: &mut impl FnMut(&V) -> Compute<V>,
    ) -> Option<Computed>
    where
        K: Borrow<Q>,
    {
        if !is_cheap::<V>() {
            return None;
        }
        let hash = self.hash(key);
        let inner = self.inner.lock_if_mine()?;
        let place = inner.map.find_bucket_index(hash, |(there, _)| there.borrow() == key)?;
        let (_, held) = inner.map.get_bucket(place)?;
        let (number, value) = (held.number, self.copies.of(&held.value));
        drop(inner);
        match f(&value) {
            Compute::Keep => Some(Computed::Kept),
            Compute::Put(value) => {
                let mut inner = self.inner.lock_if_mine()?;
                let next = inner.number();
                // By its number, as in `apply`. The old value is plain data and needs no drop.
                let (_, there) =
                    inner.map.get_bucket_mut(place).filter(|(_, there)| there.number == number)?;
                *there = Held { number: next, value };
                Some(Computed::Updated)
            }
            Compute::Remove => self.done(key, Found { hash, place, number }, Compute::Remove),
        }
    }

    pub(super) fn compute(&self, mut key: K, mut f: impl FnMut(Option<&V>) -> Compute<V>) -> Computed {
        loop {
            let (found, value) = match self.told(&key) {
                Ok(Ok(told)) => told,
                Ok(Err(hash)) => {
                    let Compute::Put(value) = f(None) else { return Computed::Kept };
                    match self.try_insert_of(hash, key, value) {
                        Ok(()) => return Computed::Inserted,
                        Err((back, _)) => key = back,
                    }
                    continue;
                }
                Err(table) => return table.compute(key, f),
            };
            if let Some(computed) = self.done(&key, found, f(Some(&value))) {
                return computed;
            }
        }
    }

    /// Applies a closure's decision about a value if the key still has the value of that number. Returns
    /// empty otherwise.
    #[inline]
    fn done<Q: Eq + Hash + ?Sized>(&self, key: &Q, found: Found, wanted: Compute<V>) -> Option<Computed>
    where
        K: Borrow<Q>,
    {
        // Declared before the guard, so that an unused value is dropped after it.
        let value = match wanted {
            Compute::Keep => return Some(Computed::Kept),
            Compute::Put(value) => Some(value),
            Compute::Remove => None,
        };
        let Found { hash, place, number } = found;
        let mut inner = self.lock().ok()?;
        let next = inner.number();
        // At its old index if no entry moved since. The number proves it (I2).
        let is_there = |(_, there): &(K, Held<V>)| there.number == number;
        let place = if inner.map.get_bucket(place).is_some_and(is_there) {
            place
        } else {
            let place = inner.map.find_bucket_index(hash, |(there, _)| there.borrow() == key)?;
            inner.map.get_bucket(place).filter(|there| is_there(there))?;
            place
        };
        match value {
            Some(value) => {
                let (_, there) = inner.map.get_bucket_mut(place)?;
                let old = mem::replace(there, Held { number: next, value });
                drop(inner);
                drop(old);
                Some(Computed::Updated)
            }
            None => {
                let old = inner.map.get_bucket_entry(place).ok()?.remove().0;
                self.count(&inner);
                drop(inner);
                drop(old);
                Some(Computed::Removed)
            }
        }
    }

    pub(super) fn retain_from(&self, from: u64, mut f: impl FnMut(&K, &V) -> bool) -> Option<u64> {
        let keys = match self.made_from(from, |key, _| (self.copies.key)(key)) {
            Ok(keys) => keys,
            Err(table) => return table.retain_from(from, f),
        };
        for key in keys {
            let _ = self.change(&key, |value| if f(&key, value) { Compute::Keep } else { Compute::Remove });
        }
        None
    }

    pub(super) fn try_reserve(&self, more: usize) -> bool {
        let mut inner = match self.lock() {
            Ok(inner) => inner,
            Err(table) => return table.try_reserve(more),
        };
        if inner.map.len().saturating_add(more) <= inner.most {
            let reserved = inner.map.try_reserve(more, |(key, _)| self.hash(key)).is_ok();
            self.count(&inner);
            return reserved;
        }
        self.spill(inner, more).unwrap_or_else(|panic| resume_unwind(panic))
    }

    pub(super) fn shrink_to_fit(&self) {
        match self.lock() {
            Ok(mut inner) => {
                inner.map.shrink_to_fit(|(key, _)| self.hash(key));
                self.count(&inner);
            }
            Err(table) => table.shrink_to_fit(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::{Hasher, RandomState};
    use std::sync::Weak;
    use std::thread::ThreadId;

    const MOST: usize = 8;

    fn small() -> Locked<u64, u64, RandomState> {
        Locked::new(0, RandomState::new(), MOST, Copies::new())
    }

    fn filled(entries: u64) -> Locked<u64, u64, RandomState> {
        let map = small();
        (0..entries).for_each(|key| _ = map.set(key, key));
        map
    }

    fn get(map: &Locked<u64, u64, RandomState>, key: u64) -> Option<u64> {
        squall_rcu::pin(|guard| map.read_in(guard, &key, |value| *value))
    }

    #[test]
    fn one_more_than_it_may_have_and_a_table_has_them_all() {
        let map = filled(MOST as u64);
        assert!(map.spilled().is_none() && map.lock().is_ok());
        assert!(map.set(3, 3), "another value is no entry more");
        assert!(map.spilled().is_none());
        assert_eq!(map.insert(8, 8), None);
        let table = map.spilled().expect("there are nine");
        assert_eq!((table.len(), map.len(), map.inner.lock().map.len()), (9, 9, 0));
        assert!((0..9).all(|key| get(&map, key) == Some(key)));
        // Operations that got this form before go to the table.
        assert_eq!(
            (map.insert(1, 2), map.remove(&2), map.discard(&2), map.set(2, 5)),
            (Some(1), Some(2), false, false)
        );
        assert_eq!(map.try_insert(1, 9), Err((1, 9)));
        assert_eq!((map.get_or_insert_with(1, || 9), map.get_or_insert_with(20, || 9)), (2, 9));
        assert_eq!(map.change(&1, |value| Compute::Put(value + 1)), Computed::Updated);
        assert_eq!(map.compute(1, |_| Compute::Remove), Computed::Removed);
        let mut seen = 0;
        let mut at = Some(0);
        while let Some(from) = at {
            at = map.visit_from(from, |_, _| seen += 1);
        }
        assert_eq!((seen, table.len(), map.len()), (9, 9, 9));
        let mut at = Some(0);
        while let Some(from) = at {
            at = map.retain_from(from, |key, _| *key == 3);
        }
        map.shrink_to_fit();
        assert_eq!((table.len(), get(&map, 3)), (1, Some(3)));
        assert!(Arc::ptr_eq(&map.to_table(), map.spilled().unwrap()), "nothing is copied");
    }

    #[test]
    fn who_asks_for_more_room_than_it_may_have_gets_a_table() {
        let map = filled(3);
        assert!(map.try_reserve(5) && map.spilled().is_none());
        assert!(map.try_reserve(6) && map.spilled().is_some());
        assert!(map.capacity() >= 9 && map.len() == 3);
        assert!(map.try_reserve(100) && map.capacity() >= 103);
    }

    #[test]
    fn who_asks_how_large_it_is_leaves_the_lock_to_its_owner() {
        let map = filled(4);
        (0..100).for_each(|_| _ = map.set(1, 1));
        if !map.is_mine() {
            eprintln!("SKIP: a lock has no owner here");
            return;
        }
        let seen = thread::scope(|scope| scope.spawn(|| (map.len(), map.capacity())).join().unwrap());
        assert!(map.is_mine(), "who only asked took it away");
        assert_eq!(seen, (4, map.inner.lock().map.capacity()));
    }

    #[test]
    fn an_owner_puts_in_and_takes_out_what_others_do_at_length() {
        assert_eq!(filled(0).put_as_owner(1, 1), Err((1, 1)), "nobody owns it");
        assert_eq!(filled(0).take_as_owner(&1), None, "nobody owns it");
        let strings = Locked::<String, u64, _>::new(0, RandomState::new(), MOST, Copies::new());
        let map = filled(4);
        (0..100).for_each(|_| _ = (map.set(1, 1), strings.set("a".into(), 1)));
        if !map.is_mine() || !strings.is_mine() {
            eprintln!("SKIP: a lock has no owner here");
            return;
        }
        assert!(strings.put_as_owner("a".into(), 2).is_err(), "a key is dropped");
        assert_eq!(strings.take_as_owner("a"), None, "a key is dropped");
        assert_eq!((map.put_as_owner(1, 5), map.take_as_owner(&9)), (Ok(Some(1)), Some(None)));
        assert_eq!((map.take_as_owner(&1), map.take_as_owner(&1), map.len()), (Some(Some(5)), Some(None), 3));
        assert_eq!((map.put_as_owner(1, 6), map.len(), get(&map, 1)), (Ok(None), 4, Some(6)));
        // Until there is no room. The slow path then makes some.
        let full = (10..).find(|key| map.put_as_owner(*key, 0).is_err()).unwrap();
        let (room, len) = (map.inner.lock().map.capacity(), map.len());
        assert!(len == room || len == MOST, "{len} of {room}");
        assert_eq!(get(&map, full), None, "it was given back, and put in");
        (10..30).for_each(|key| _ = map.set(key, 0));
        assert!(map.spilled().is_some() && map.is_mine());
        assert_eq!((map.put_as_owner(1, 7), map.take_as_owner(&1)), (Err((1, 7)), None), "the table has it");
        assert!(map.inner.lock().map.is_empty());
        // While the lock is held.
        let held = map.inner.lock();
        let other = thread::scope(|scope| scope.spawn(|| map.take_as_owner(&1)).join().unwrap());
        assert_eq!(other, None, "another thread is not the owner");
        drop(held);
    }

    #[test]
    fn a_value_that_an_owner_put_in_is_another_than_a_closure_was_told_of() {
        let map = filled(4);
        (0..100).for_each(|_| _ = map.set(1, 1));
        let mut told = Vec::new();
        // The owner itself writes while its closure runs.
        let computed = map.change(&1, |value| {
            told.push(*value);
            if told.len() < 3 {
                let put = map.put_as_owner(1, value + 10).or_else(|(key, value)| Ok(map.insert(key, value)));
                assert_eq!(put, Ok::<_, ()>(Some(*value)));
            } else if told.len() == 3 {
                _ = map.take_as_owner(&1).or_else(|| Some(map.remove(&1)));
                _ = map.put_as_owner(1, 50).or_else(|(key, value)| Ok::<_, ()>(map.insert(key, value)));
            }
            Compute::Put(value + 1)
        });
        assert_eq!((computed, told, get(&map, 1)), (Computed::Updated, vec![1, 11, 21, 50], Some(51)));
    }

    #[test]
    fn what_it_says_that_it_has_room_for_is_what_the_hash_table_has() {
        let most = usize::MAX;
        let map = Locked::<u64, u64, _>::new(5, RandomState::new(), most, Copies::new());
        let is_so = |what| assert_eq!(map.capacity(), map.inner.lock().map.capacity(), "{what}");
        is_so("made");
        (0..100).for_each(|key| {
            map.set(key, key);
            is_so("set");
        });
        assert!(map.try_reserve(1000) && map.capacity() >= 1100);
        is_so("reserved");
        assert!(map.discard(&5) && map.try_insert(200, 0).is_ok());
        assert_eq!(map.change(&7, |_| Compute::Remove), Computed::Removed);
        assert_eq!(map.get_or_insert_with(300, || 1), 1);
        is_so("changed");
        (10..100).for_each(|key| _ = map.remove(&key));
        is_so("removed");
        map.shrink_to_fit();
        is_so("shrunk");
        assert!(map.capacity() < 1000);
        let table = map.to_table();
        let again = Locked::of_table(table, most, Copies::new());
        assert_eq!(again.capacity(), again.inner.lock().map.capacity());
    }

    #[test]
    fn a_table_that_is_too_large_is_taken_as_it_is_and_a_small_one_is_copied() {
        for (entries, taken) in [(MOST as u64, false), (MOST as u64 + 1, true)] {
            let table = Arc::new(Table::new());
            (0..entries).for_each(|key| _ = table.set(key, key));
            let map = Locked::of_table(table.clone(), MOST, Copies::new());
            assert_eq!((map.spilled().is_some_and(|spilled| Arc::ptr_eq(spilled, &table))), taken);
            assert!((0..entries).all(|key| get(&map, key) == Some(key)));
            assert_eq!(Arc::ptr_eq(&map.to_table(), &table), taken);
        }
    }

    #[test]
    fn a_closure_that_thinks_while_the_table_comes_is_asked_again() {
        let map = filled(3);
        let mut asked = 0;
        let done = map.change(&1, |value| {
            asked += 1;
            if asked == 1 {
                (10..20).for_each(|key| _ = map.set(key, key));
            }
            Compute::Put(value + 100)
        });
        assert_eq!((done, asked, get(&map, 1)), (Computed::Updated, 2, Some(101)));
        assert!(map.lock().is_err());
    }

    #[test]
    fn a_value_that_moved_is_found_again_and_one_in_its_place_is_not_taken_for_it() {
        let map = filled(2);
        let told = |key: u64| map.told(&key).ok().unwrap().unwrap().0;
        let first = told(1);
        let room = map.capacity();
        (2..MOST as u64).for_each(|key| _ = map.set(key, key));
        assert!(map.capacity() > room, "the hash table has grown, and all are elsewhere");
        assert_eq!(map.done(&1, first, Compute::Put(7)), Some(Computed::Updated));
        // The index of another key, with a number that matches no value there.
        let wrong = Found { place: told(2).place, ..first };
        assert_eq!(map.done(&1, wrong, Compute::Put(9)), None);
        let right = Found { place: told(2).place, ..told(1) };
        assert_eq!(map.done(&1, right, Compute::Remove), Some(Computed::Removed));
        assert_eq!((get(&map, 1), get(&map, 2), map.len()), (None, Some(2), MOST - 1));
        assert!(
            !squall_rcu::pin(|guard| map.contains_in(guard, &1)) && squall_rcu::pin(|guard| map.contains_in(guard, &2))
        );
    }

    #[test]
    fn an_owner_changes_without_another_search_and_asks_again_where_it_must() {
        let map = filled(4);
        let mut add = |value: &u64| Compute::Put(value + 100);
        assert_eq!(filled(0).change_as_owner(&1, &mut add), None);
        (0..100).for_each(|_| _ = map.set(1, 1));
        if !map.is_mine() {
            eprintln!("SKIP: a lock has no owner here");
            return;
        }
        assert_eq!((map.read_as_owner(&1), map.read_as_owner(&9)), (Some(Some(1)), Some(None)));
        assert_eq!(map.change_as_owner(&1, &mut add), Some(Computed::Updated));
        assert_eq!(map.change_as_owner(&9, &mut add), None, "it is not there");
        assert_eq!(map.change_as_owner(&1, &mut |_| Compute::Keep), Some(Computed::Kept));
        let meanwhile = map.change_as_owner(&1, &mut |value| {
            assert!(map.set(1, 7), "no lock is held");
            Compute::Put(value + 1)
        });
        assert_eq!((meanwhile, get(&map, 1)), (None, Some(7)));
        assert_eq!(map.change_as_owner(&2, &mut |_| Compute::Remove), Some(Computed::Removed));
        assert_eq!((get(&map, 2), map.len()), (None, 3));
        // Other threads are not owners. Even the owner has no fast path once a table has the entries.
        thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(
                    (map.read_as_owner(&1), map.change_as_owner(&1, &mut |_| unreachable!())),
                    (None, None)
                )
            });
        });
        (10..20).for_each(|key| _ = map.set(key, key));
        assert!(map.is_mine() && map.spilled().is_some());
        assert_eq!((map.read_as_owner(&1), map.read_as_owner(&9)), (None, None));
        assert_eq!(map.change_as_owner(&1, &mut |_| unreachable!()), None);
    }

    #[test]
    fn a_closure_is_asked_again_for_its_own_key_alone() {
        let map = filled(4);
        let told = |key: u64| map.told(&key).ok().unwrap().unwrap().0;
        let (first, second, third) = (told(1), told(1), told(2));
        map.set(3, 0);
        assert!(!map.discard(&9));
        assert_eq!(map.done(&1, first, Compute::Put(1)), Some(Computed::Updated));
        assert_eq!(map.done(&1, second, Compute::Put(1)), None, "the first was faster");
        assert_eq!(map.done(&2, third, Compute::Remove), Some(Computed::Removed));
        map.set(2, 2);
        assert_eq!(map.done(&2, third, Compute::Remove), None, "an equal value is another one");
    }

    #[test]
    #[cfg_attr(any(squall_asan, squall_tsan), ignore = "the sanitizer ends a process that asks for so much")]
    fn no_memory_for_more_room_leaves_the_map_under_its_lock() {
        let map = filled(3);
        assert!(!map.try_reserve(usize::MAX / 2) && map.spilled().is_none());
        assert!((0..3).all(|key| get(&map, key) == Some(key)));
        assert!(map.set(1, 7) && map.try_reserve(6) && map.spilled().is_some());
        assert_eq!((map.len(), get(&map, 1)), (3, Some(7)));
    }

    /// A key or value with a limited number of clones; a further clone panics. Its drop checks that the
    /// lock is free.
    struct Fragile(u64, Arc<Shaft>);

    struct Shaft {
        clones: AtomicUsize,
        map: OnceLock<Weak<Locked<Fragile, Fragile, RandomState>>>,
        /// The only thread that uses the map.
        user: ThreadId,
        went_under_lock: AtomicUsize,
    }

    impl Clone for Fragile {
        fn clone(&self) -> Fragile {
            let left = self.1.clones.load(Ordering::Relaxed);
            assert!(left > 0, "as asked");
            self.1.clones.store(left - 1, Ordering::Relaxed);
            Fragile(self.0, self.1.clone())
        }
    }

    impl PartialEq for Fragile {
        fn eq(&self, other: &Fragile) -> bool {
            self.0 == other.0
        }
    }

    impl Eq for Fragile {}

    impl Hash for Fragile {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }

    impl Drop for Fragile {
        fn drop(&mut self) {
            let map = self.1.map.get().and_then(Weak::upgrade);
            let by_user = thread::current().id() == self.1.user;
            let under_lock = by_user && map.is_some_and(|map| map.inner.try_lock().is_none());
            self.1.went_under_lock.fetch_add(usize::from(under_lock), Ordering::Relaxed);
        }
    }

    #[test]
    fn what_cannot_be_copied_stays_under_the_lock_and_inserts_go_on() {
        let shaft = Arc::new(Shaft {
            clones: AtomicUsize::new(0),
            map: OnceLock::new(),
            user: thread::current().id(),
            went_under_lock: AtomicUsize::new(0),
        });
        let map = Arc::new(Locked::<Fragile, Fragile, _>::new(0, RandomState::new(), MOST, Copies::new()));
        shaft.map.set(Arc::downgrade(&map)).ok().unwrap();
        let fragile = |number| Fragile(number, shaft.clone());
        let has_so_many = |entries: u64| {
            assert!(map.spilled().is_none() && map.len() == entries as usize);
        };
        for key in 0..2 * MOST as u64 {
            // The last clone panics: a value, after its key.
            shaft.clones.store(2 * MOST + 1, Ordering::Relaxed);
            match key % 2 {
                0 => assert!(!map.set(fragile(key), fragile(key))),
                _ => assert!(map.try_insert(fragile(key), fragile(key)).is_ok()),
            }
            has_so_many(key + 1);
            let left = shaft.clones.load(Ordering::Relaxed);
            assert_eq!(left == 0, key == MOST as u64, "tried again at twice the size only");
        }
        let fails = |clones, f: &dyn Fn()| {
            shaft.clones.store(clones, Ordering::Relaxed);
            assert!(catch_unwind(AssertUnwindSafe(f)).is_err());
        };
        for clones in [3, 4] {
            fails(clones, &|| _ = map.to_table());
            fails(clones, &|| _ = map.try_reserve(100));
            fails(clones, &|| _ = map.visit_from(0, |_, _| ()));
        }
        has_so_many(2 * MOST as u64);
        shaft.clones.store(1_000, Ordering::Relaxed);
        (100..200).for_each(|key| _ = map.get_or_insert_with(fragile(key), || fragile(key)));
        assert!(map.spilled().is_some() && map.len() == 2 * MOST + 100);
        assert_eq!(shaft.went_under_lock.load(Ordering::Relaxed), 0);
    }
}
