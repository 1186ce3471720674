//! The owner of a cached map, and its implementations of std's traits.

use squall_core::{Handle, Interface, Owned};
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::ops::Deref;
use std::sync::Arc;

use super::mapping::{CachedMap, CachedMapExt, map_with};
use super::{Form, Walk};

/// Owner of a cached map. Dropping it destroys the object. It dereferences to the handle.
///
/// ```
/// use squall::objects::cached::{CachedMapExt, OwnedCachedMap};
///
/// let map: OwnedCachedMap<u32, char> = [(1, 'a')].into_iter().collect();
/// assert_eq!(map.get(&1), Some('a'));
/// ```
pub struct OwnedCachedMap<K, V, S = RandomState>(pub(super) Owned<dyn CachedMap<K, V, S>>)
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static;

impl<K, V, S> OwnedCachedMap<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    /// Gives the object a name for people, and returns its owner: see [`Owned::named`].
    pub fn named(self, name: impl Into<Arc<str>>) -> OwnedCachedMap<K, V, S> {
        OwnedCachedMap(self.0.named(name))
    }

    /// Declares the object to be a part of another one, for people, and returns its owner: see
    /// [`Owned::part_of`].
    pub fn part_of<W: ?Sized + Interface>(self, whole: Handle<W>) -> OwnedCachedMap<K, V, S> {
        OwnedCachedMap(self.0.part_of(whole))
    }

    /// Converts to the general owner type.
    pub fn into_owned(self) -> Owned<dyn CachedMap<K, V, S>> {
        self.0
    }
}

impl<K, V, S> Deref for OwnedCachedMap<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    type Target = Owned<dyn CachedMap<K, V, S>>;

    #[inline(always)]
    fn deref(&self) -> &Owned<dyn CachedMap<K, V, S>> {
        &self.0
    }
}

impl<K, V, S> fmt::Debug for OwnedCachedMap<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + fmt::Debug + 'static,
    V: Clone + Send + Sync + fmt::Debug + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        self.0.handle().for_each(|key, value| _ = map.entry(key, value));
        map.finish()
    }
}

impl<K, V, S> Extend<(K, V)> for OwnedCachedMap<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    fn extend<T: IntoIterator<Item = (K, V)>>(&mut self, entries: T) {
        (&*self).extend(entries);
    }
}

impl<K, V, S> Default for OwnedCachedMap<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Default + Send + Sync + 'static,
{
    /// Creates an empty map in the form [`Form::shared`].
    #[track_caller]
    fn default() -> OwnedCachedMap<K, V, S> {
        map_with(Form::shared(), S::default())
    }
}

impl<K, V, S> FromIterator<(K, V)> for OwnedCachedMap<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Default + Send + Sync + 'static,
{
    /// Creates a map in the form [`Form::shared`].
    #[track_caller]
    fn from_iter<T: IntoIterator<Item = (K, V)>>(entries: T) -> OwnedCachedMap<K, V, S> {
        let map = OwnedCachedMap::default();
        (&map).extend(entries);
        map
    }
}

impl<K, V, S> IntoIterator for &OwnedCachedMap<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    type Item = (K, V);
    type IntoIter = Walk<(K, V)>;

    /// Returns an iterator over clones of the entries. See [`CachedMapExt::iter`].
    fn into_iter(self) -> Walk<(K, V)> {
        self.0.handle().iter()
    }
}

#[cfg(feature = "serde")]
impl<K, V, S> serde::Serialize for OwnedCachedMap<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + serde::Serialize + 'static,
    V: Clone + Send + Sync + serde::Serialize + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    /// Serializes a map with copies of the entries.
    fn serialize<T: serde::Serializer>(&self, serializer: T) -> Result<T::Ok, T::Error> {
        serializer.collect_map(self.0.handle().iter().collect::<Vec<_>>())
    }
}

#[cfg(feature = "serde")]
impl<'de, K, V, S> serde::Deserialize<'de> for OwnedCachedMap<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + serde::Deserialize<'de> + 'static,
    V: Clone + Send + Sync + serde::Deserialize<'de> + 'static,
    S: BuildHasher + Clone + Default + Send + Sync + 'static,
{
    /// Deserializes a map into the form [`Form::shared`].
    fn deserialize<D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> Result<OwnedCachedMap<K, V, S>, D::Error> {
        let entries = std::collections::HashMap::<K, V, S>::deserialize(deserializer)?;
        Ok(entries.into_iter().collect())
    }
}

impl<K, V, S> Extend<(K, V)> for &OwnedCachedMap<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    fn extend<T: IntoIterator<Item = (K, V)>>(&mut self, entries: T) {
        let handle = self.0.handle();
        entries.into_iter().for_each(|(key, value)| _ = handle.set(key, value));
    }
}
