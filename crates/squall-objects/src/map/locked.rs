//! The form of one lock: std's map under it. Where it may have so many entries only, a table takes its place within it.
//!
//! Problem: no closure may run under the lock, and what it says must be done to the value that it was told of. Idea: it is told a copy, and
//! while it thinks its key's hash stands in a list; whoever changes a key strikes its hash out, and the closure is asked again.
//!
//! - I1. The lock is held for what std's map does, and for clones of what it holds. Whatever the user's code drops, it drops without.
//! - I2. `asked` has a row for each closure that is being asked. A row that is fresh has the hash of a key that nobody has changed since
//!   the closure's copy was made.
//! - I3. When `spilled` is set, under the lock, the table has all entries, and every row is struck out. From then on nothing is done to the
//!   map, and all that finds the table there does to the table what it came for.

use squall_lock::{Lock, LockGuard};
use squall_rcu::Op;
use squall_table::{Compute, Computed, Table, position};
use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::mem::{self, ManuallyDrop, needs_drop};
use std::sync::{Arc, OnceLock};

/// How to copy what a map holds: known where the map is made, so that its interface need not ask for it.
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

/// A map under a lock.
pub(super) struct Locked<K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    inner: Lock<Inner<K, V, S>>,
    /// Where the entries are since there were too many (I3).
    spilled: OnceLock<Arc<Table<K, V, S>>>,
    /// More entries than this are too many.
    most: usize,
    copies: Copies<K, V, S>,
}

struct Inner<K, V, S> {
    map: HashMap<K, V, S>,
    asked: Vec<Row>,
    /// Rows that are fresh.
    fresh: usize,
}

/// A closure that is being asked what becomes of a key (I2).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Row {
    /// None.
    Free,
    /// Of the key of this hash.
    Fresh(u64),
    /// The key was changed since.
    Struck,
}

impl<K: Eq + Hash, V, S: BuildHasher> Inner<K, V, S> {
    /// A key is about to be changed.
    #[inline]
    fn strike<Q: Hash + ?Sized>(&mut self, key: &Q) {
        if self.fresh > 0 {
            self.strike_hash(self.map.hasher().hash_one(key));
        }
    }

    #[cold]
    fn strike_hash(&mut self, hash: u64) {
        for row in self.asked.iter_mut().filter(|row| **row == Row::Fresh(hash)) {
            *row = Row::Struck;
            self.fresh -= 1;
        }
    }

    fn enter(&mut self, hash: u64) -> usize {
        let free = self.asked.iter().position(|row| *row == Row::Free);
        let row = free.unwrap_or_else(|| {
            self.asked.push(Row::Free);
            self.asked.len() - 1
        });
        self.asked[row] = Row::Fresh(hash);
        self.fresh += 1;
        row
    }

    /// Gives a row up; whether it was fresh.
    fn leave(&mut self, row: usize) -> bool {
        let fresh = mem::replace(&mut self.asked[row], Row::Free) != Row::Struck;
        self.fresh -= usize::from(fresh);
        fresh
    }
}

type Guard<'a, K, V, S> = LockGuard<'a, Inner<K, V, S>>;
/// The table that has taken a map's place.
type Spilled<'a, K, V, S> = &'a Table<K, V, S>;
/// The same, with what was to be put into the map.
type Elsewhere<'a, K, V, S> = (Spilled<'a, K, V, S>, K, V);

impl<K, V, S> Locked<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    pub(super) fn new(capacity: usize, hasher: S, most: usize, copies: Copies<K, V, S>) -> Locked<K, V, S> {
        let map = HashMap::with_capacity_and_hasher(capacity.min(most), hasher);
        let inner = Lock::new(Inner { map, asked: Vec::new(), fresh: 0 });
        Locked { inner, spilled: OnceLock::new(), most, copies }
    }

    /// Of copies of a table's entries; of the table itself, if it has too many.
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
        let map = &mut locked.inner.get_mut().map;
        table.for_each(|key, value| _ = map.insert((copies.key)(key), (copies.value)(value)));
        locked
    }

    /// A table of copies of the entries, or the one that has them.
    pub(super) fn to_table(&self) -> Arc<Table<K, V, S>> {
        match self.lock() {
            Ok(inner) => Arc::new(self.copied(&inner)),
            Err(_) => self.spilled().expect("found just now").clone(),
        }
    }

    fn copied(&self, inner: &Inner<K, V, S>) -> Table<K, V, S> {
        let table =
            Table::with_capacity_and_hasher(inner.map.len(), (self.copies.hasher)(inner.map.hasher()));
        for (key, value) in &inner.map {
            table.set((self.copies.key)(key), (self.copies.value)(value));
        }
        table
    }

    /// The table that has taken the map's place, if it was too large.
    #[inline]
    pub(super) fn spilled(&self) -> Option<&Arc<Table<K, V, S>>> {
        self.spilled.get()
    }

    /// The map, unless the table has its entries.
    #[inline]
    fn lock(&self) -> Result<Guard<'_, K, V, S>, Spilled<'_, K, V, S>> {
        let inner = self.inner.lock();
        match self.spilled() {
            None => Ok(inner),
            Some(table) => Err(table),
        }
    }

    /// Something was put in.
    #[inline]
    fn has_grown(&self, inner: Guard<'_, K, V, S>) {
        if inner.map.len() > self.most {
            self.spill(inner);
        }
    }

    /// Has a table take the map's place. If a copy panics, nothing has changed.
    #[cold]
    fn spill(&self, mut inner: Guard<'_, K, V, S>) {
        let table = self.copied(&inner);
        let empty = HashMap::with_hasher((self.copies.hasher)(inner.map.hasher()));
        let set = self.spilled.set(Arc::new(table));
        debug_assert!(set.is_ok(), "who has the lock has found none (I3)");
        let old = mem::replace(&mut inner.map, empty);
        inner.asked.iter_mut().filter(|row| **row != Row::Free).for_each(|row| *row = Row::Struck);
        inner.fresh = 0;
        drop(inner);
        drop(old);
    }

    // --- reading ---

    #[inline]
    fn cloned<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Result<Option<V>, Spilled<'_, K, V, S>>
    where
        K: Borrow<Q>,
    {
        self.lock().map(|inner| inner.map.get(key).map(self.copies.value))
    }

    #[inline]
    pub(super) fn read_in<Q: Eq + Hash + ?Sized, R>(
        &self,
        op: &Op,
        key: &Q,
        f: impl FnOnce(&V) -> R,
    ) -> Option<R>
    where
        K: Borrow<Q>,
    {
        match self.cloned(key) {
            Ok(value) => value.map(|value| f(&value)),
            Err(table) => table.read_in(op, key, f),
        }
    }

    /// In one step: copies of all from there on, that is, all that a walk has not seen.
    pub(super) fn visit_from(&self, from: u64, mut f: impl FnMut(&K, &V)) -> Option<u64> {
        let copy = |key: &K, value: &V| ((self.copies.key)(key), (self.copies.value)(value));
        match self.made_from(from, copy) {
            Ok(entries) => entries.iter().for_each(|(key, value)| f(key, value)),
            Err(table) => return table.visit_from(from, f),
        }
        None
    }

    /// What is made of each entry from there on.
    fn made_from<T>(&self, from: u64, make: impl Fn(&K, &V) -> T) -> Result<Vec<T>, Spilled<'_, K, V, S>> {
        // Before the guard, so that it is dropped after it if a copy panics.
        let mut made = Vec::new();
        let inner = self.lock()?;
        let hasher = inner.map.hasher();
        let wanted = inner.map.iter().filter(|(key, _)| from == 0 || position(hasher, *key) >= from);
        made.extend(wanted.map(|(key, value)| make(key, value)));
        drop(inner);
        Ok(made)
    }

    pub(super) fn len(&self) -> usize {
        self.lock().map_or_else(Table::len, |inner| inner.map.len())
    }

    pub(super) fn capacity(&self) -> usize {
        self.lock().map_or_else(Table::capacity, |inner| inner.map.capacity())
    }

    // --- writing ---

    #[inline]
    fn put(&self, key: K, value: V) -> Result<Option<V>, Elsewhere<'_, K, V, S>> {
        let mut inner = match self.lock() {
            Ok(inner) => inner,
            Err(table) => return Err((table, key, value)),
        };
        inner.strike(&key);
        // A key that is there already would be dropped by std's map, under the lock (I1).
        if needs_drop::<K>()
            && let Some(there) = inner.map.get_mut(&key)
        {
            let old = mem::replace(there, value);
            drop(inner);
            return Ok(Some(old));
        }
        let old = inner.map.insert(key, value);
        self.has_grown(inner);
        Ok(old)
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
        let mut inner = match self.lock() {
            Ok(inner) => inner,
            Err(table) => return table.try_insert(key, value),
        };
        if inner.map.contains_key(&key) {
            return Err((key, value));
        }
        inner.map.insert(key, value);
        self.has_grown(inner);
        Ok(())
    }

    pub(super) fn get_or_insert_with(&self, key: K, value: impl FnOnce() -> V) -> V
    where
        V: Clone,
    {
        match self.cloned(&key) {
            Ok(Some(there)) => return there,
            Ok(None) => {}
            Err(table) => return table.get_or_insert_with(key, value),
        }
        let value = value();
        let inserted = (self.copies.value)(&value);
        let mut inner = match self.lock() {
            Ok(inner) => inner,
            Err(table) => return table.get_or_insert_with(key, || value),
        };
        if let Some(there) = inner.map.get(&key).map(self.copies.value) {
            drop(inner);
            return there;
        }
        inner.map.insert(key, value);
        self.has_grown(inner);
        inserted
    }

    #[inline]
    fn take<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Result<Option<(K, V)>, Spilled<'_, K, V, S>>
    where
        K: Borrow<Q>,
    {
        let mut inner = self.lock()?;
        inner.strike(key);
        Ok(inner.map.remove_entry(key))
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
            let (asked, value) = match self.ask(key) {
                Ok(Some(asked)) => asked,
                Ok(None) => return Computed::Kept,
                Err(table) => return table.change(key, f),
            };
            if let Some(computed) = asked.done(key, f(&value)) {
                return computed;
            }
        }
    }

    pub(super) fn compute(&self, mut key: K, mut f: impl FnMut(Option<&V>) -> Compute<V>) -> Computed {
        loop {
            let (asked, value) = match self.ask(&key) {
                Ok(Some(asked)) => asked,
                Ok(None) => {
                    let Compute::Put(value) = f(None) else { return Computed::Kept };
                    match self.try_insert(key, value) {
                        Ok(()) => return Computed::Inserted,
                        Err((back, _)) => key = back,
                    }
                    continue;
                }
                Err(table) => return table.compute(key, f),
            };
            if let Some(computed) = asked.done(&key, f(Some(&value))) {
                return computed;
            }
        }
    }

    /// A copy of the value, for a closure, and its row.
    #[expect(clippy::type_complexity, reason = "said once")]
    fn ask<Q: Eq + Hash + ?Sized>(
        &self,
        key: &Q,
    ) -> Result<Option<(Asked<'_, K, V, S>, V)>, Spilled<'_, K, V, S>>
    where
        K: Borrow<Q>,
    {
        let mut inner = self.lock()?;
        let hash = inner.map.hasher().hash_one(key);
        let Some(value) = inner.map.get(key).map(self.copies.value) else { return Ok(None) };
        let row = inner.enter(hash);
        Ok(Some((Asked { map: self, row }, value)))
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
        if inner.map.len().saturating_add(more) <= self.most {
            return inner.map.try_reserve(more).is_ok();
        }
        self.spill(inner);
        self.spilled().is_some_and(|table| table.try_reserve(more))
    }

    pub(super) fn shrink_to_fit(&self) {
        match self.lock() {
            Ok(mut inner) => inner.map.shrink_to_fit(),
            Err(table) => table.shrink_to_fit(),
        }
    }
}

/// A row, while a closure thinks.
struct Asked<'a, K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    map: &'a Locked<K, V, S>,
    row: usize,
}

impl<K, V, S> Asked<'_, K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Does what the closure wants, if nobody has changed the key since.
    fn done<Q: Eq + Hash + ?Sized>(self, key: &Q, wanted: Compute<V>) -> Option<Computed>
    where
        K: Borrow<Q>,
    {
        let value = match wanted {
            Compute::Keep => return Some(Computed::Kept),
            Compute::Put(value) => Some(value),
            Compute::Remove => None,
        };
        let this = ManuallyDrop::new(self);
        let mut inner = this.map.inner.lock();
        // What was made in vain is dropped after the guard, which is declared later.
        if !inner.leave(this.row) {
            return None;
        }
        inner.strike(key);
        match value {
            Some(value) => {
                let old = inner.map.get_mut(key).map(|there| mem::replace(there, value));
                drop(inner);
                old.map(|_| Computed::Updated)
            }
            None => {
                let old = inner.map.remove_entry(key);
                drop(inner);
                old.map(|_| Computed::Removed)
            }
        }
    }
}

impl<K, V, S> Drop for Asked<'_, K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    fn drop(&mut self) {
        self.map.inner.lock().leave(self.row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::RandomState;

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
        squall_rcu::op(|op| map.read_in(op, &key, |value| *value))
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
        // Whatever was lent the map before goes to the table.
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
        assert_eq!(map.inner.lock().fresh, 0);
    }

    #[test]
    fn rows_are_used_again_and_one_is_struck_out_by_its_own_key_alone() {
        let map = filled(4);
        for _ in 0..3 {
            let (first, _) = map.ask(&1).ok().flatten().unwrap();
            let (second, _) = map.ask(&1).ok().flatten().unwrap();
            let (third, _) = map.ask(&2).ok().flatten().unwrap();
            {
                let rows = map.inner.lock();
                assert_eq!((rows.fresh, rows.asked.len()), (3, 3));
            }
            map.set(3, 0);
            assert_eq!(first.done(&1, Compute::Put(1)), Some(Computed::Updated));
            assert_eq!(second.done(&1, Compute::Put(1)), None, "the first was faster");
            assert_eq!(third.done(&2, Compute::Keep), Some(Computed::Kept));
            let rows = map.inner.lock();
            assert!(rows.fresh == 0 && rows.asked.iter().all(|row| *row == Row::Free));
        }
    }
}
