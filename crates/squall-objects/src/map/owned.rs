//! `OwnedMap`: the owner of a map, and its implementations of `std`'s and serde's traits. `IntoIter`: its
//! iterator.

use squall_core::{Handle, Interface, Owned};
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::ops::Deref;
use std::sync::Arc;

use super::ext::MapExt;
use super::iter::Iter;
use super::{Map, shared_with};

/// The owner of a map. Its drop destroys the map. It dereferences to the handle, so all methods of
/// [`MapExt`] work on it.
///
/// ```
/// use squall::objects::map::{MapExt, OwnedMap};
///
/// let map: OwnedMap<&str, u64> = [("a", 1), ("b", 2)].into_iter().collect();
/// assert_eq!(map.get("b"), Some(2));
/// let handle = map.handle();
/// drop(map);
/// assert!(handle.try_get("b").is_err());
/// ```
pub struct OwnedMap<K, V, S = RandomState>(pub(super) Owned<dyn Map<K, V, S>>)
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static;

impl<K, V, S> OwnedMap<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Gives the object a name for people, and returns its owner: see [`Owned::named`].
    pub fn named(self, name: impl Into<Arc<str>>) -> OwnedMap<K, V, S> {
        OwnedMap(self.0.named(name))
    }

    /// Declares the object to be a part of another one, for people, and returns its owner: see
    /// [`Owned::part_of`].
    pub fn part_of<W: ?Sized + Interface>(self, whole: Handle<W>) -> OwnedMap<K, V, S> {
        OwnedMap(self.0.part_of(whole))
    }

    /// Converts into the owner of any object.
    pub fn into_owned(self) -> Owned<dyn Map<K, V, S>> {
        self.0
    }
}

impl<K, V, S> Deref for OwnedMap<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    type Target = Owned<dyn Map<K, V, S>>;

    #[inline(always)]
    fn deref(&self) -> &Owned<dyn Map<K, V, S>> {
        &self.0
    }
}

impl<K, V, S> fmt::Debug for OwnedMap<K, V, S>
where
    K: Eq + Hash + Send + Sync + fmt::Debug + 'static,
    V: Send + Sync + fmt::Debug + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let handle = self.0.handle();
        // A map that a swap moved no entries into refuses every call.
        if let Err(error) = handle.try_sensors() {
            return write!(f, "Map({error})");
        }
        let mut map = f.debug_map();
        handle.for_each(|key, value| _ = map.entry(key, value));
        map.finish()
    }
}

impl<K, V, S> Default for OwnedMap<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Default + Send + Sync + 'static,
{
    /// Makes an empty map in the [`shared`](super::shared) form.
    #[track_caller]
    fn default() -> OwnedMap<K, V, S> {
        shared_with(0, S::default())
    }
}

impl<K, V, S> Extend<(K, V)> for OwnedMap<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn extend<T: IntoIterator<Item = (K, V)>>(&mut self, entries: T) {
        (&*self).extend(entries);
    }
}

impl<K, V, S> Extend<(K, V)> for &OwnedMap<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn extend<T: IntoIterator<Item = (K, V)>>(&mut self, entries: T) {
        let handle = self.0.handle();
        entries.into_iter().for_each(|(key, value)| _ = handle.set(key, value));
    }
}

impl<K, V, S> FromIterator<(K, V)> for OwnedMap<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Default + Send + Sync + 'static,
{
    /// Makes a map in the [`shared`](super::shared) form.
    fn from_iter<T: IntoIterator<Item = (K, V)>>(entries: T) -> OwnedMap<K, V, S> {
        let entries = entries.into_iter();
        let mut map = shared_with(entries.size_hint().0, S::default());
        map.extend(entries);
        map
    }
}

impl<K, V, const N: usize> From<[(K, V); N]> for OwnedMap<K, V>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Makes a map in the [`shared`](super::shared) form.
    fn from(entries: [(K, V); N]) -> OwnedMap<K, V> {
        entries.into_iter().collect()
    }
}

impl<K, V, S> IntoIterator for &OwnedMap<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    type Item = (K, V);
    type IntoIter = Iter<Handle<dyn Map<K, V, S>>, K, V, S>;

    /// Returns an iterator over clones of the entries, like [`MapExt::iter`].
    fn into_iter(self) -> Self::IntoIter {
        self.0.handle().iter()
    }
}

/// An iterator over clones of a map's entries that owns the map. Dropping the iterator destroys the map.
pub struct IntoIter<K, V, S = RandomState>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    entries: Iter<Handle<dyn Map<K, V, S>>, K, V, S>,
    /// Keeps the map until the iterator is dropped.
    _map: OwnedMap<K, V, S>,
}

impl<K, V, S> IntoIterator for OwnedMap<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    type Item = (K, V);
    type IntoIter = IntoIter<K, V, S>;

    /// Returns an iterator over clones of the entries. Dropping the iterator destroys the map.
    fn into_iter(self) -> IntoIter<K, V, S> {
        IntoIter { entries: self.handle().iter(), _map: self }
    }
}

impl<K, V, S> Iterator for IntoIter<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        self.entries.next()
    }
}

impl<K, V, S> fmt::Debug for IntoIter<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IntoIter").finish_non_exhaustive()
    }
}

#[cfg(feature = "serde")]
impl<K, V, S> serde::Serialize for OwnedMap<K, V, S>
where
    K: Eq + Hash + Send + Sync + serde::Serialize + Clone + 'static,
    V: Send + Sync + serde::Serialize + Clone + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Serializes clones of the entries as a map.
    fn serialize<T: serde::Serializer>(&self, serializer: T) -> Result<T::Ok, T::Error> {
        serializer.collect_map(self.0.handle().iter().collect::<Vec<_>>())
    }
}

#[cfg(feature = "serde")]
impl<'de, K, V, S> serde::Deserialize<'de> for OwnedMap<K, V, S>
where
    K: Eq + Hash + Send + Sync + serde::Deserialize<'de> + 'static,
    V: Send + Sync + serde::Deserialize<'de> + 'static,
    S: BuildHasher + Default + Send + Sync + 'static,
{
    /// Makes a map in the [`shared`](super::shared) form from the entries.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<OwnedMap<K, V, S>, D::Error> {
        let entries = std::collections::HashMap::<K, V, S>::deserialize(deserializer)?;
        Ok(entries.into_iter().collect())
    }
}
