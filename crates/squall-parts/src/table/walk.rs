//! Iteration over a `Table`: walks by position, and iterators.

use crate::table::hash::mix;
use crate::table::hash_table::{Table, either};
use squall_rcu::__pin as pin;
use std::fmt;
use std::hash::{BuildHasher, Hash};

impl<K: Eq + Hash + Send + Sync + 'static, V: Send + Sync + 'static, S: BuildHasher> Table<K, V, S> {
    /// Calls `f` for each entry. A key that is present all the time is visited exactly once; one that comes
    /// or goes meanwhile may be missed.
    ///
    /// `f` runs in one operation per home.
    ///
    /// ```
    /// use squall::parts::table::Table;
    /// let table: Table<u64, u64> = (0..10).map(|n| (n, n)).collect();
    /// let mut sum = 0;
    /// table.for_each(|_, value| sum += value);
    /// assert_eq!(sum, 45);
    /// ```
    pub fn for_each(&self, mut f: impl FnMut(&K, &V)) {
        let mut from = Some(0);
        while let Some(at) = from {
            from = self.visit_home(at, &mut f);
        }
    }

    /// Calls `f` for the entries of the home that contains the position `from`, starting there. Returns the
    /// position behind the home; `None` after the last. Walks start at position 0. Positions mean the same in
    /// all tables with an equal hasher, of any size. So a walk can continue in another table.
    ///
    /// ```
    /// use squall::parts::table::Table;
    /// let table: Table<u64, u64> = (0..100).map(|n| (n, n)).collect();
    /// let (mut from, mut count) = (Some(0), 0);
    /// while let Some(at) = from {
    ///     from = table.visit_from(at, |_, _| count += 1);
    /// }
    /// assert_eq!(count, 100);
    /// ```
    pub fn visit_from(&self, from: u64, mut f: impl FnMut(&K, &V)) -> Option<u64> {
        self.visit_home(from, &mut f)
    }

    /// The body of [`visit_from`](Table::visit_from), compiled once for all closures.
    fn visit_home(&self, from: u64, f: &mut dyn FnMut(&K, &V)) -> Option<u64> {
        // SAFETY: within the operation.
        pin(|_| either!(self, typed => unsafe { typed.visit(from, &self.hasher, f) }))
    }

    /// Like [`retain`](Table::retain), for one home at a time, with positions as in
    /// [`visit_from`](Table::visit_from).
    ///
    /// ```
    /// use squall::parts::table::Table;
    /// let table: Table<u64, u64> = (0..100).map(|n| (n, n)).collect();
    /// let mut from = Some(0);
    /// while let Some(at) = from {
    ///     // Other work may run between two steps.
    ///     from = table.retain_from(at, |_, value| *value < 50);
    /// }
    /// assert_eq!(table.len(), 50);
    /// ```
    pub fn retain_from(&self, from: u64, mut f: impl FnMut(&K, &V) -> bool) -> Option<u64> {
        self.retain_home(from, &mut f)
    }

    /// The body of [`retain_from`](Table::retain_from), compiled once for all closures.
    fn retain_home(&self, from: u64, f: &mut dyn FnMut(&K, &V) -> bool) -> Option<u64> {
        // SAFETY: within the operation.
        pin(|_| either!(self, typed => unsafe { typed.retain(from, &self.hasher, f) }))
    }

    /// Returns the position of a key in walks: see [`visit_from`](Table::visit_from).
    pub fn position<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        position(&self.hasher, key)
    }

    /// Removes all entries for which `f` returns `false`. It may miss entries that come meanwhile.
    ///
    /// ```
    /// use squall::parts::table::Table;
    /// let table: Table<u64, u64> = (0..10).map(|n| (n, n)).collect();
    /// table.retain(|_, value| value % 2 == 0);
    /// assert_eq!(table.len(), 5);
    /// ```
    pub fn retain(&self, mut f: impl FnMut(&K, &V) -> bool) {
        let mut from = Some(0);
        while let Some(at) = from {
            from = self.retain_home(at, &mut f);
        }
    }

    /// Removes all entries. It may miss entries that come meanwhile.
    ///
    /// ```
    /// use squall::parts::table::Table;
    /// let table: Table<u64, u64> = (0..10).map(|n| (n, n)).collect();
    /// table.clear();
    /// assert!(table.is_empty());
    /// ```
    pub fn clear(&self) {
        self.retain(|_, _| false);
    }

    /// Iterates over clones of the entries, home by home, with the guarantees of
    /// [`for_each`](Table::for_each).
    ///
    /// ```
    /// use squall::parts::table::Table;
    /// let table: Table<u64, u64> = [(1, 10), (2, 20)].into_iter().collect();
    /// let mut entries: Vec<_> = table.iter().collect();
    /// entries.sort_unstable();
    /// assert_eq!(entries, [(1, 10), (2, 20)]);
    /// ```
    pub fn iter(&self) -> Iter<'_, K, V, S>
    where
        K: Clone,
        V: Clone,
    {
        Iter::new(self, |key, value| (key.clone(), value.clone()))
    }

    /// Iterates over clones of the keys.
    ///
    /// ```
    /// use squall::parts::table::Table;
    /// let table: Table<u64, u64> = (0..10).map(|n| (n, 2 * n)).collect();
    /// assert_eq!(table.keys().sum::<u64>(), 45);
    /// ```
    pub fn keys(&self) -> Iter<'_, K, V, S, K>
    where
        K: Clone,
    {
        Iter::new(self, |key, _| key.clone())
    }

    /// Iterates over clones of the values.
    ///
    /// ```
    /// use squall::parts::table::Table;
    /// let table: Table<u64, u64> = (0..10).map(|n| (n, 2 * n)).collect();
    /// assert_eq!(table.values().sum::<u64>(), 90);
    /// ```
    pub fn values(&self) -> Iter<'_, K, V, S, V>
    where
        V: Clone,
    {
        Iter::new(self, |_, value| value.clone())
    }
}

/// Returns the position of a key in walks through tables with this hasher: see [`Table::visit_from`].
pub fn position<Q: Hash + ?Sized>(hasher: &impl BuildHasher, key: &Q) -> u64 {
    mix(hasher.hash_one(key))
}

/// The iterator of [`Table::iter`], [`keys`](Table::keys) and [`values`](Table::values). It clones one home's
/// entries at a time.
pub struct Iter<'a, K: Send + Sync + 'static, V: Send + Sync + 'static, S, T = (K, V)> {
    table: &'a Table<K, V, S>,
    make: fn(&K, &V) -> T,
    /// The position of the next home.
    from: Option<u64>,
    found: Vec<T>,
}

impl<'a, K: Send + Sync + 'static, V: Send + Sync + 'static, S, T> Iter<'a, K, V, S, T> {
    fn new(table: &'a Table<K, V, S>, make: fn(&K, &V) -> T) -> Self {
        Iter { table, make, from: Some(0), found: Vec::new() }
    }
}

impl<K, V, S, T> Iterator for Iter<'_, K, V, S, T>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    type Item = T;

    fn next(&mut self) -> Option<T> {
        while self.found.is_empty() {
            let at = self.from?;
            let (table, make) = (self.table, self.make);
            // Assigned only when complete: a clone may panic.
            let mut found = Vec::new();
            let next = table.visit_home(at, &mut |key, value| found.push(make(key, value)));
            (self.found, self.from) = (found, next);
        }
        self.found.pop()
    }
}

impl<K, V, S, T> fmt::Debug for Iter<'_, K, V, S, T>
where
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").finish_non_exhaustive()
    }
}
