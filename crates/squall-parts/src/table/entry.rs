//! What is done to one entry.

use crate::table::table::Table;
use std::hash::{BuildHasher, Hash};

/// What [`Table::compute`]'s function wants to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compute<V> {
    /// Nothing.
    Keep,
    /// This is the key's value.
    Put(V),
    /// The key goes, if it is there.
    Remove,
}

/// What [`Table::compute`] has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Computed {
    /// Nothing: the function wanted none, or there was nothing to remove.
    Kept,
    /// The key was not there, and is now.
    Inserted,
    /// The key has another value.
    Updated,
    /// The key is gone.
    Removed,
}

/// One key of a table, there or not: made by [`Table::entry`]. It holds nothing: each of its methods is one operation on the
/// table, and between two of them others may change the entry.
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
    /// The key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Changes the value by what `f` makes of it, if the key is there. As [`Table::update`].
    pub fn and_modify(self, f: impl FnMut(&V) -> V) -> Self {
        self.table.update(&self.key, f);
        self
    }

    /// The value; `value` if the key was not there.
    pub fn or_insert(self, value: V) -> V
    where
        V: Clone,
    {
        self.or_insert_with(|| value)
    }

    /// The value; if the key is not there, what `value` makes. As [`Table::get_or_insert_with`].
    pub fn or_insert_with(self, value: impl FnOnce() -> V) -> V
    where
        V: Clone,
    {
        self.table.get_or_insert_with(self.key, value)
    }

    /// The value; if the key was not there, the type's default.
    pub fn or_default(self) -> V
    where
        V: Clone + Default,
    {
        self.or_insert_with(V::default)
    }
}
