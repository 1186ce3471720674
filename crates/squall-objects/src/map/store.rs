//! The store of a map: a borrowed reference to the structure that holds the entries, in one of the forms.
//!
//! A call of the object returns a [`Store`], and the operation runs on that. A read may use the store for the
//! rest of the operation, so it needs one call. A write ends within the call.
//!
//! - I1. A write to a store runs within a call of the object. So a swap waits for it or holds it up before
//!   the entries move.
//! - I2. Entries have moved from a store: it stays unchanged, and keeps its entries, while an operation
//!   that got it still runs. The exception is a next form that continues with its table. So a read that got
//!   a store before a swap finds a state the map had during that read.
//! - I3. User closures run under no lock.

use squall_parts::__Drops;
use squall_parts::table::{Compute, Computed, Table};
use squall_rcu::Guard;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

use super::Map;
use super::full::Full;
use super::key::Borrowed;
use super::storage::{Old, Storage};

/// A borrowed reference to the structure that holds a map's entries, returned by a call of the object.
///
/// Implementations of [`Map`] make one from a table of their own.
///
/// ```
/// use squall::objects::map::Store;
/// use squall::parts::table::Table;
///
/// let table: Table<u64, u64> = [(1, 10)].into_iter().collect();
/// let store = Store::table(&table);
/// squall::rcu::pin(|guard| assert_eq!(store.read(guard, &1, |value| *value), Some(10)));
/// assert_eq!(store.len(), 1);
/// ```
pub struct Store<'a, K, V, S>(pub(super) &'a dyn Storage<K, V, S>);

impl<K, V, S> Clone for Store<'_, K, V, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V, S> Copy for Store<'_, K, V, S> {}

impl<'a, K, V, S> Store<'a, K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Returns a store for a table, for an implementation of your own.
    pub fn table(table: &'a Table<K, V, S>) -> Store<'a, K, V, S> {
        Store(table)
    }

    // --- reading ---

    /// Calls `f` with the key's value and returns its result, or `None` if the key is absent.
    pub fn read<Q: Eq + Hash + ?Sized, R>(&self, guard: &Guard, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        let (mut f, mut read) = (Some(f), None);
        self.0.read(guard, &Borrowed(key), &mut |value| read = f.take().map(|f| f(value)));
        read
    }

    /// Calls `f` for some entries, from a position on. Returns the position after them: see
    /// [`Table::visit_from`].
    pub fn visit_from(&self, from: u64, mut f: impl FnMut(&K, &V)) -> Option<u64> {
        self.0.visit_from(from, &mut f)
    }

    /// Returns the number of entries: exact while no thread writes, approximate otherwise.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no entry, as accurate as [`len`](Store::len).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of entries for which there is room before the structure grows.
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    // --- writing: within a call of the object (I1) ---

    /// Runs `f` on the store that a call of `map` returned, within that call.
    pub(super) fn run_write<R>(self, map: &dyn Map<K, V, S>, f: impl FnOnce(Self) -> R) -> R {
        let result = f(self);
        // The map was under its lock when the call began, and has a table now.
        if self.0.has_spilled() {
            map.note_spill();
        }
        result
    }

    pub(super) fn insert(&self, guard: &Guard, entry: &mut Option<(K, V)>) -> Option<V>
    where
        V: Clone,
    {
        let mut old = Old::wanted();
        self.0.put(guard, entry, &mut old);
        old.into_value()
    }

    pub(super) fn set(&self, guard: &Guard, entry: &mut Option<(K, V)>) -> bool {
        self.0.put(guard, entry, &mut Old::unwanted())
    }

    pub(super) fn try_insert(&self, guard: &Guard, key: K, value: V) -> Result<(), (K, V)> {
        let mut entry = Some((key, value));
        self.0.try_insert(guard, &mut entry, &mut Old::unwanted());
        entry.map_or(Ok(()), Err)
    }

    pub(super) fn get_or_insert_with(&self, guard: &Guard, key: K, value: impl FnOnce() -> V) -> V
    where
        V: Clone,
    {
        let mut there = Old::wanted();
        self.0.get(guard, &Borrowed(&key), &mut there);
        if let Some(there) = there.into_value() {
            return there;
        }
        let value = value();
        let (inserted, mut there) = (value.clone(), Old::wanted());
        self.0.try_insert(guard, &mut Some((key, value)), &mut there);
        there.into_value().unwrap_or(inserted)
    }

    pub(super) fn remove<Q: Eq + Hash + ?Sized>(&self, guard: &Guard, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        let mut old = Old::wanted();
        self.0.take(guard, &Borrowed(key), &mut old);
        old.into_value()
    }

    pub(super) fn remove_entry<Q: Eq + Hash + ?Sized>(&self, guard: &Guard, key: &Q) -> Option<(K, V)>
    where
        K: Borrow<Q> + Clone,
        V: Clone,
    {
        let mut stored = None;
        self.0.find_key(guard, &Borrowed(key), &mut |there| stored = Some(there.clone()));
        Some((stored?, self.remove(guard, key)?))
    }

    pub(super) fn delete<Q: Eq + Hash + ?Sized>(&self, guard: &Guard, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.0.take(guard, &Borrowed(key), &mut Old::unwanted())
    }

    /// Replaces, removes or keeps the entry of a key that is present, as `f` decides.
    pub(super) fn change<Q: Eq + Hash + ?Sized>(
        &self,
        guard: &Guard,
        key: &Q,
        mut f: impl FnMut(&V) -> Compute<V>,
    ) -> Computed
    where
        K: Borrow<Q>,
    {
        self.0.change(guard, &Borrowed(key), &mut f, &mut __Drops::default())
    }

    /// Inserts, replaces, removes or keeps the entry, as `f` decides.
    pub(super) fn compute(
        &self,
        guard: &Guard,
        key: K,
        mut f: impl FnMut(Option<&V>) -> Compute<V>,
    ) -> Computed {
        self.0.compute(guard, &mut Some(key), &mut f, &mut __Drops::default())
    }

    /// Like [`compute`](Store::compute), or returns an error if the map is limited and full.
    pub(super) fn compute_or_full(
        &self,
        guard: &Guard,
        key: K,
        mut f: impl FnMut(Option<&V>) -> Compute<V>,
    ) -> Result<Computed, Full<()>> {
        self.0.compute_or_full(guard, &mut Some(key), &mut f, &mut __Drops::default())
    }

    /// Sets the key's value, or returns an error if the map is limited and full.
    pub(super) fn set_or_full(&self, guard: &Guard, key: K, value: V) -> Result<bool, Full<(K, V)>> {
        let mut entry = Some((key, value));
        let put = self.0.put_or_full(guard, &mut entry, &mut Old::unwanted());
        put.map_err(|full| full.map(|()| entry.expect("a full map kept the entry that it rejected")))
    }
}

impl<K, V, S> std::fmt::Debug for Store<'_, K, V, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}
