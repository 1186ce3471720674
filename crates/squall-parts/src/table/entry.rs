//! Operations on one entry: `Compute`, `Computed` and `Entry`.

use crate::table::table::Table;
use std::hash::{BuildHasher, Hash};

/// The decision of [`Table::compute`]'s function about the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compute<V> {
    /// Leave the entry unchanged.
    Keep,
    /// Insert the key with this value, or replace its value.
    Put(V),
    /// Remove the key if it is present.
    Remove,
}

/// The effect of [`Table::compute`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Computed {
    /// No effect: the function returned `Keep`, or there was no entry to remove.
    Kept,
    /// The key was absent and has been inserted.
    Inserted,
    /// The key's value was replaced.
    Updated,
    /// The key was removed.
    Removed,
}

/// A view of one key of a table, present or absent, made by [`Table::entry`].
///
/// It holds no lock: each of its methods is one operation on the table. Other threads may change the entry
/// between two of them.
#[derive(Debug)]
pub struct Entry<'a, K: Eq + Hash + Send + Sync + 'static, V: Send + Sync + 'static, S: BuildHasher> {
    pub(crate) table: &'a Table<K, V, S>,
    pub(crate) key: K,
}

impl<K, V, S> Entry<'_, K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Returns the key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Replaces the value by `f`'s result if the key is present, like [`Table::update`].
    ///
    /// ```
    /// use squall_parts::table::Table;
    /// let hits: Table<&str, u64> = Table::new();
    /// let count = |page| hits.entry(page).and_modify(|n| n + 1).or_insert(1);
    /// assert_eq!((count("home"), count("home")), (1, 2));
    /// ```
    pub fn and_modify(self, f: impl FnMut(&V) -> V) -> Self {
        self.table.update(&self.key, f);
        self
    }

    /// Inserts `value` if the key is absent. Returns a clone of the key's value.
    pub fn or_insert(self, value: V) -> V
    where
        V: Clone,
    {
        self.or_insert_with(|| value)
    }

    /// Inserts the result of `value` if the key is absent, like [`Table::get_or_insert_with`]. Returns a
    /// clone of the key's value.
    pub fn or_insert_with(self, value: impl FnOnce() -> V) -> V
    where
        V: Clone,
    {
        self.table.get_or_insert_with(self.key, value)
    }

    /// Inserts the type's default value if the key is absent. Returns a clone of the key's value.
    ///
    /// ```
    /// use squall_parts::table::Table;
    /// let hits: Table<&str, u64> = Table::new();
    /// assert_eq!(hits.entry("home").or_default(), 0);
    /// ```
    pub fn or_default(self) -> V
    where
        V: Clone + Default,
    {
        self.or_insert_with(V::default)
    }
}
