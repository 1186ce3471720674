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
    pub(super) map: Handle<dyn Map<K, V, S>>,
    pub(super) keys: Keys<K, V, S>,
    /// Whether the thread was panicking when this was made.
    pub(super) made_in_panic: bool,
}

/// An iterator over the keys of a map.
pub(super) type Keys<K, V, S> = Iter<Handle<dyn Map<K, V, S>>, K, V, S, K>;

impl<K, V, S> Drain<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    pub(super) fn new(map: Handle<dyn Map<K, V, S>>, keys: Keys<K, V, S>) -> Drain<K, V, S> {
        Drain { map, keys, made_in_panic: std::thread::panicking() }
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
