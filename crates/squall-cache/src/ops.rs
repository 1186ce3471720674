//! Decisions of closures about entries, and their effects.

/// For [`Cache::compute`](crate::Cache::compute) and
/// [`and_compute_with`](crate::EntrySelector::and_compute_with).
pub mod compute {
    use crate::Entry;
    use std::sync::Arc;

    /// The decision of a closure about an entry.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Op<V> {
        /// Leave the entry as it is, or absent.
        Nop,
        /// Insert the key with this value, or replace its value.
        Put(V),
        /// Remove the entry, if it is there.
        Remove,
    }

    /// The effect of [`Cache::compute`](crate::Cache::compute).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Computed {
        /// The entry is as it was, or still absent.
        Kept,
        /// The key was absent, and was inserted.
        Inserted,
        /// The value was replaced.
        Replaced,
        /// The entry was removed.
        Removed,
        /// There was no room for the value: see [`Cache::insert`](crate::Cache::insert). The key is absent.
        Refused,
    }

    /// The effect of [`and_compute_with`](crate::EntrySelector::and_compute_with), with the entry.
    #[derive(Clone, Debug)]
    pub enum CompResult<K, V> {
        /// The key was absent, and was inserted with this value. The cache may have refused it.
        Inserted(Entry<K, V>),
        /// The old value was replaced by this one. The cache may have refused it.
        ReplacedWith(Entry<K, V>),
        /// The entry was removed. Here it is.
        Removed(Entry<K, V>),
        /// The key is still absent.
        StillNone(Arc<K>),
        /// The entry is as it was.
        Unchanged(Entry<K, V>),
    }

    impl<K, V> CompResult<K, V> {
        /// Returns the inserted, new or unchanged entry, unless the key is absent.
        pub fn into_entry(self) -> Option<Entry<K, V>> {
            match self {
                CompResult::Inserted(entry)
                | CompResult::ReplacedWith(entry)
                | CompResult::Unchanged(entry) => Some(entry),
                CompResult::Removed(_) | CompResult::StillNone(_) => None,
            }
        }
    }
}
