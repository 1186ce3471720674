//! A table with a maximum number of entries.
//!
//! - I1. Each entry has taken one from the budget. A change that may insert a key takes one before, and gives
//!   it back if the key was present. A removal gives one back afterwards.

use crate::table::compute::{Compute, Computed};
use crate::table::hash_table::Table;
use crate::table::limit::{Budget, Exhausted, Reservation};
use squall_rcu::__pin as pin;
use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};

/// A [`Table`] with a maximum number of entries. A new key beyond it is rejected with an error.
///
/// Drawback: each new key and each removal writes to one shared word. Reads, and changes of present keys by
/// [`update`](Limited::update), cost the same as in the table.
///
/// # Progress
/// Like the table. There are never more entries than the limit. While no thread changes the table, the count
/// is exact, provided that `Eq` and `Hash` of the keys do not panic. If one of them panics, the table may
/// have completed the change, and the count stays wrong by one. A key may be rejected below the limit, by at
/// most the number of changes under way, while those give back unneeded room.
///
/// ```
/// use squall::parts::table::Limited;
/// let sessions: Limited<u64, &str> = Limited::new(2);
/// assert_eq!(sessions.set(1, "one"), Ok(false));
/// assert_eq!(sessions.set(2, "two"), Ok(false));
/// let full = sessions.set(3, "three").unwrap_err();
/// assert_eq!(
///     full.to_string(),
///     "the table is full: 1 more requested, 2 of 2 in use; remove entries or raise the limit"
/// );
/// assert_eq!(full.back, (3, "three"));
/// assert_eq!(sessions.set(2, "other"), Ok(true), "the key is present");
/// assert!(sessions.delete(&1) && sessions.set(3, "three").is_ok());
/// ```
pub struct Limited<K: Send + Sync + 'static, V: Send + Sync + 'static, S = RandomState> {
    table: Table<K, V, S>,
    budget: Budget,
}

/// The error for a new key in a full table. Returns the rejected entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Full<T> {
    /// The rejected entry.
    pub back: T,
    /// The limit that was reached.
    pub exhausted: Exhausted,
}

impl<T> fmt::Debug for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Full").field("exhausted", &self.exhausted).finish_non_exhaustive()
    }
}

impl<T> fmt::Display for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the table is full: {}; remove entries or raise the limit", self.exhausted)
    }
}

impl<T> std::error::Error for Full<T> {}

impl<K: Eq + Hash + Send + Sync + 'static, V: Send + Sync + 'static> Limited<K, V> {
    /// Returns an empty table for at most `limit` entries, with `std`'s hasher.
    ///
    /// ```
    /// use squall::parts::table::Limited;
    /// let limited: Limited<u64, u64> = Limited::new(1);
    /// assert!(limited.set(1, 1).is_ok() && limited.set(2, 2).is_err());
    /// ```
    pub fn new(limit: u64) -> Limited<K, V> {
        Limited::with_table(Table::new(), limit)
    }
}

impl<K: Eq + Hash + Send + Sync + 'static, V: Send + Sync + 'static, S: BuildHasher> Limited<K, V, S> {
    /// Limits an existing table. Entries beyond the limit stay, and new keys are rejected until there are
    /// fewer.
    ///
    /// ```
    /// use squall::parts::table::{Limited, Table};
    /// let table: Table<u64, u64> = [(1, 1), (2, 2)].into_iter().collect();
    /// let limited = Limited::with_table(table, 1);
    /// assert!(limited.set(3, 3).is_err());
    /// ```
    pub fn with_table(table: Table<K, V, S>, limit: u64) -> Limited<K, V, S> {
        let budget = Budget::new(limit);
        budget.take_unchecked(table.len() as u64);
        Limited { table, budget }
    }

    /// Returns the table without its limit.
    pub fn into_table(self) -> Table<K, V, S> {
        self.table
    }

    /// Returns the budget: the limit, and the number of entries taken.
    ///
    /// ```
    /// use squall::parts::table::Limited;
    /// let limited: Limited<u64, u64> = Limited::new(1);
    /// limited.set(1, 1).unwrap();
    /// limited.budget().set_limit(2);
    /// assert!(limited.set(2, 2).is_ok());
    /// ```
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Returns a copy of the key's value, like [`Table::get`].
    pub fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Copy,
    {
        self.table.get(key)
    }

    /// Returns a clone of the key's value, like [`Table::get_cloned`].
    pub fn get_cloned<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        self.table.get_cloned(key)
    }

    /// Calls `f` with the key's value, like [`Table::read`].
    pub fn read<Q: Eq + Hash + ?Sized, R>(&self, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        self.table.read(key, f)
    }

    /// Sets the key's value. Returns whether the key was present. If the table is full, the value is cloned
    /// to replace that of a present key.
    ///
    /// # Errors
    /// The key is absent and the table is full.
    pub fn set(&self, key: K, value: V) -> Result<bool, Full<(K, V)>>
    where
        V: Clone,
    {
        let mut reservation = Reservation::new(&self.budget);
        if let Err(exhausted) = reservation.take(1) {
            let there = self.table.update(&key, |_| value.clone());
            return if there { Ok(true) } else { Err(Full { back: (key, value), exhausted }) };
        }
        let there = self.table.set(key, value);
        if !there {
            reservation.keep();
        }
        Ok(there)
    }

    /// Inserts the key if it is absent. Returns whether it did.
    ///
    /// # Errors
    /// The key is absent and the table is full.
    /// # Example
    /// ```
    /// use squall::parts::table::Limited;
    /// let limited: Limited<u64, u64> = Limited::new(1);
    /// assert_eq!((limited.try_insert(1, 1), limited.try_insert(1, 2)), (Ok(true), Ok(false)));
    /// assert!(limited.try_insert(2, 2).is_err());
    /// ```
    pub fn try_insert(&self, key: K, value: V) -> Result<bool, Full<(K, V)>> {
        let mut reservation = Reservation::new(&self.budget);
        if let Err(exhausted) = reservation.take(1) {
            let there = self.table.contains_key(&key);
            return if there { Ok(false) } else { Err(Full { back: (key, value), exhausted }) };
        }
        let inserted = self.table.try_insert(key, value).is_ok();
        if inserted {
            reservation.keep();
        }
        Ok(inserted)
    }

    /// Replaces a present key's value, like [`Table::update`].
    pub fn update<Q: Eq + Hash + ?Sized>(&self, key: &Q, f: impl FnMut(&V) -> V) -> bool
    where
        K: Borrow<Q>,
    {
        self.table.update(key, f)
    }

    /// Inserts, replaces, removes or keeps the key's entry, like [`Table::compute`].
    ///
    /// # Errors
    /// `f` asked for a new key and the table is full.
    /// # Example
    /// ```
    /// use squall::parts::table::{Compute, Computed, Limited};
    /// let limited: Limited<u64, u64> = Limited::new(1);
    /// assert_eq!(limited.compute(1, |_| Compute::Put(1)), Ok(Computed::Inserted));
    /// assert!(limited.compute(2, |_| Compute::Put(1)).is_err());
    /// ```
    pub fn compute(&self, key: K, mut f: impl FnMut(Option<&V>) -> Compute<V>) -> Result<Computed, Full<()>> {
        let (mut reservation, mut refused) = (Reservation::new(&self.budget), None);
        let computed = self.table.compute(key, |there| {
            refused = None;
            let wanted = f(there);
            if there.is_some() || !matches!(wanted, Compute::Put(_)) {
                return wanted;
            }
            match reservation.take(1) {
                Ok(()) => wanted,
                Err(exhausted) => {
                    refused = Some(exhausted);
                    Compute::Keep
                }
            }
        });
        match (computed, refused) {
            (_, Some(exhausted)) => return Err(Full { back: (), exhausted }),
            (Computed::Inserted, _) => reservation.keep(),
            (Computed::Removed, _) => self.budget.give(1),
            _ => {}
        }
        Ok(computed)
    }

    /// Removes the key, like [`Table::delete`].
    pub fn delete<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.take(key, |_| ()).is_some()
    }

    /// Removes the key and returns a clone of its value, like [`Table::remove`].
    pub fn remove<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        self.take(key, V::clone)
    }

    fn take<Q: Eq + Hash + ?Sized, R>(&self, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        // Gives back after the key is removed, and before `f`, which may panic.
        let taken = |value: &V| {
            self.budget.give(1);
            f(value)
        };
        pin(|guard| self.table.take_in(guard, key, taken))
    }

    /// Removes all entries for which `f` returns `false`, like [`Table::retain`].
    pub fn retain(&self, mut f: impl FnMut(&K, &V) -> bool)
    where
        K: Clone,
    {
        let mut from = Some(0);
        let mut keys = Vec::new();
        while let Some(at) = from {
            from = self.table.visit_from(at, |key, _| keys.push(key.clone()));
            for key in keys.drain(..) {
                if self.table.remove_if(&key, |value| !f(&key, value)) {
                    self.budget.give(1);
                }
            }
        }
    }

    /// Calls `f` for each entry, like [`Table::for_each`].
    pub fn for_each(&self, f: impl FnMut(&K, &V)) {
        self.table.for_each(f);
    }

    /// Returns the number of entries, like [`Table::len`].
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether the table is empty, like [`Table::is_empty`].
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }
}

impl<K, V, S> fmt::Debug for Limited<K, V, S>
where
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limited").field("budget", &self.budget).finish_non_exhaustive()
    }
}
