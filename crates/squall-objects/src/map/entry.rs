//! `Entry`: a view of one key of a map.

use squall_core::Handle;
use std::hash::{BuildHasher, Hash};

use super::Map;
use super::ext::MapExt;

/// A view of one key of a map, present or absent, made by [`MapExt::entry`].
///
/// It holds no lock: each of its methods is one operation on the map. Other threads may change the entry
/// between two of them.
///
/// ```
/// use squall_objects::map::{self, MapExt};
///
/// let hits = map::shared::<&str, u64>();
/// assert_eq!(hits.entry("home").or_default(), 0);
/// assert_eq!(hits.entry("home").and_modify(|n| n + 1).or_default(), 1);
/// ```
#[derive(Debug)]
pub struct Entry<M, K> {
    pub(super) map: M,
    pub(super) key: K,
}

impl<M, K> Entry<M, K> {
    /// Returns the key.
    pub fn key(&self) -> &K {
        &self.key
    }
}

impl<K, V, S> Entry<Handle<dyn Map<K, V, S>>, K>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Replaces the value by the result of `f` if the key is present, like [`MapExt::update`].
    #[track_caller]
    pub fn and_modify(self, f: impl FnMut(&V) -> V) -> Self {
        self.map.update(&self.key, f);
        self
    }

    /// Inserts `value` if the key is absent. Returns a clone of the key's value.
    #[track_caller]
    pub fn or_insert(self, value: V) -> V
    where
        V: Clone,
    {
        self.or_insert_with(|| value)
    }

    /// Inserts the result of `value` if the key is absent, like [`MapExt::get_or_insert_with`]. Returns a
    /// clone of the key's value.
    #[track_caller]
    pub fn or_insert_with(self, value: impl FnOnce() -> V) -> V
    where
        V: Clone,
    {
        self.map.get_or_insert_with(self.key, value)
    }

    /// Inserts the type's default if the key is absent. Returns a clone of the key's value.
    #[track_caller]
    pub fn or_default(self) -> V
    where
        V: Clone + Default,
    {
        self.or_insert_with(V::default)
    }
}
