//! `Drain`: an iterator that removes the entries of a map.

use squall_core::Handle;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};

use super::Map;
use super::iter::Iter;

/// An iterator that removes the entries of a map and returns them, made by
/// [`MapExt::drain`](super::MapExt::drain).
///
/// Its drop removes the entries that are left, unless a panic is the reason for the drop.
///
/// # Panics
/// If the map was destroyed.
pub struct Drain<K, V, S = RandomState>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    map: Handle<dyn Map<K, V, S>>,
    keys: Keys<K, V, S>,
    remove: Remove<K, V, S>,
    delete: Delete<K, V, S>,
    /// Whether the thread was panicking when this was made.
    made_in_panic: bool,
}

/// An iterator over the keys of a map.
pub(super) type Keys<K, V, S> = Iter<Handle<dyn Map<K, V, S>>, K, V, S, K>;

/// Removes a key, and returns whether it was present.
pub(super) type Delete<K, V, S> = fn(Handle<dyn Map<K, V, S>>, &K) -> bool;

/// Removes a key, and returns a clone of its value.
pub(super) type Remove<K, V, S> = fn(Handle<dyn Map<K, V, S>>, &K) -> Option<V>;

impl<K, V, S> Drain<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    pub(super) fn new(
        map: Handle<dyn Map<K, V, S>>,
        keys: Keys<K, V, S>,
        (remove, delete): (Remove<K, V, S>, Delete<K, V, S>),
    ) -> Drain<K, V, S> {
        Drain { map, keys, remove, delete, made_in_panic: std::thread::panicking() }
    }
}

impl<K, V, S> Iterator for Drain<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        // A key that another thread has removed meanwhile is skipped.
        self.keys.find_map(|key| (self.remove)(self.map, &key).map(|value| (key, value)))
    }
}

impl<K, V, S> Drop for Drain<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn drop(&mut self) {
        if std::thread::panicking() == self.made_in_panic {
            let (map, delete) = (self.map, self.delete);
            self.keys.by_ref().for_each(|key| _ = delete(map, &key));
        }
    }
}

impl<K, V, S> fmt::Debug for Drain<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drain").finish_non_exhaustive()
    }
}
