//! `Entry`: chains of operations on one key.

use crate::table::hash_table::Table;
use std::hash::{BuildHasher, Hash};

/// A view of one key of a table, present or absent, made by [`Table::entry`].
///
/// It holds no lock: each of its methods is one operation on the table. Other threads may change the entry
/// between two of them.
#[derive(Debug)]
pub struct Entry<'a, K: Eq + Hash + Send + Sync + 'static, V: Send + Sync + 'static, S: BuildHasher> {
    table: &'a Table<K, V, S>,
    key: K,
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
    /// use squall::parts::table::Table;
    /// let hits: Table<&str, u64> = Table::new();
    /// let count = |page| hits.entry(page).and_modify(|n| n + 1).or_insert(1);
    /// assert_eq!((count("home"), count("home")), (1, 2));
    /// ```
    pub fn and_modify(self, f: impl FnMut(&V) -> V) -> Self {
        self.table.update(&self.key, f);
        self
    }

    /// Inserts `value` if the key is absent. Returns a clone of the key's value.
    ///
    /// ```
    /// use squall::parts::table::Table;
    /// let hits: Table<&str, u64> = Table::new();
    /// assert_eq!((hits.entry("home").or_insert(1), hits.entry("home").or_insert(2)), (1, 1));
    /// ```
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
    /// use squall::parts::table::Table;
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

impl<K, V, S> Table<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Returns a view of the key's entry, for chains of operations on it.
    ///
    /// ```
    /// use squall::parts::table::Table;
    /// let hits: Table<&str, u64> = Table::new();
    /// hits.entry("home").and_modify(|n| n + 1).or_insert(1);
    /// assert_eq!(hits.get("home"), Some(1));
    /// ```
    pub fn entry(&self, key: K) -> Entry<'_, K, V, S> {
        Entry { table: self, key }
    }
}
