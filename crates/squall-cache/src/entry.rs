//! Copies of entries, for callers.

use std::sync::Arc;

/// A copy of an entry, from an [`EntrySelector`](crate::EntrySelector).
#[derive(Clone, Debug)]
pub struct Entry<K, V> {
    key: Arc<K>,
    value: V,
    is_fresh: bool,
    is_old_value_replaced: bool,
}

impl<K, V> Entry<K, V> {
    pub(crate) fn new(key: Arc<K>, value: V, is_fresh: bool, is_old_value_replaced: bool) -> Entry<K, V> {
        Entry { key, value, is_fresh, is_old_value_replaced }
    }

    /// Returns the key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Returns a reference to the value.
    pub fn value(&self) -> &V {
        &self.value
    }

    /// Returns the value.
    pub fn into_value(self) -> V {
        self.value
    }

    /// Returns true if this call made the value, and false if it was in the cache already.
    pub fn is_fresh(&self) -> bool {
        self.is_fresh
    }

    /// Returns whether this call replaced an older value.
    pub fn is_old_value_replaced(&self) -> bool {
        self.is_old_value_replaced
    }
}
