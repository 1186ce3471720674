//! Who owns a directory, and what it is to std.

use squall_core::Owned;
use squall_machine::ClusterSize;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::ops::Deref;

use super::{Directory, Parts, Walk, act, with_hasher};

/// The owner of a directory: its drop ends the object. It derefs to the reference.
pub struct OwnedDirectory<K, G, L, S = RandomState>(pub(super) Owned<dyn Directory<K, G, L, S>>)
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static;

impl<K, G, L, S> OwnedDirectory<K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    /// As an owner of any object.
    pub fn into_owned(self) -> Owned<dyn Directory<K, G, L, S>> {
        self.0
    }
}

impl<K, G, L, S> Deref for OwnedDirectory<K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    type Target = Owned<dyn Directory<K, G, L, S>>;

    #[inline(always)]
    fn deref(&self) -> &Owned<dyn Directory<K, G, L, S>> {
        &self.0
    }
}

/// The keys with their entries; parts are not locked for it.
impl<K, G, L, S> fmt::Debug for OwnedDirectory<K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + fmt::Debug + 'static,
    G: Send + Sync + fmt::Debug + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let handle = self.0.handle();
        // One into which nothing moved.
        if let Err(error) = handle.try_sensors() {
            return write!(f, "Directory({error})");
        }
        let mut map = f.debug_map();
        handle.for_each(|key, entry| _ = map.entry(key, entry));
        map.finish()
    }
}

/// Makes entries for keys that are not there; where one is, it stays, and the new one is dropped.
impl<K, G, L, S> Extend<(K, G)> for OwnedDirectory<K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    fn extend<T: IntoIterator<Item = (K, G)>>(&mut self, entries: T) {
        (&*self).extend(entries);
    }
}

/// The same, through a reference.
impl<K, G, L, S> Extend<(K, G)> for &OwnedDirectory<K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    fn extend<T: IntoIterator<Item = (K, G)>>(&mut self, entries: T) {
        for (key, entry) in entries {
            act(self.0.handle(), |tables| {
                tables.master.find_or_allocate_and_lock(&key, || entry, |_, _| ());
            });
        }
    }
}

/// A [`shared`](super::shared) one, whose parts begin as the type's default.
impl<K, G, L, S> Default for OwnedDirectory<K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Default + Send + 'static,
    S: BuildHasher + Clone + Default + Send + Sync + 'static,
{
    #[track_caller]
    fn default() -> OwnedDirectory<K, G, L, S> {
        with_hasher(ClusterSize::Machine, S::default(), |_| L::default())
    }
}

/// A [`shared`](super::shared) one, whose parts begin as the type's default.
impl<K, G, L, S> FromIterator<(K, G)> for OwnedDirectory<K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Default + Send + 'static,
    S: BuildHasher + Clone + Default + Send + Sync + 'static,
{
    #[track_caller]
    fn from_iter<T: IntoIterator<Item = (K, G)>>(entries: T) -> OwnedDirectory<K, G, L, S> {
        let directory = OwnedDirectory::default();
        (&directory).extend(entries);
        directory
    }
}

/// As [`Parts::iter`].
impl<K, G, L, S> IntoIterator for &OwnedDirectory<K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Clone + Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    type Item = (K, G);
    type IntoIter = Walk<(K, G)>;

    fn into_iter(self) -> Walk<(K, G)> {
        self.0.handle().iter()
    }
}

/// As a map of copies of the keys and their entries; what the parts hold is not in it.
#[cfg(feature = "serde")]
impl<K, G, L, S> serde::Serialize for OwnedDirectory<K, G, L, S>
where
    K: serde::Serialize + Eq + Hash + Clone + Send + Sync + 'static,
    G: serde::Serialize + Clone + Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    fn serialize<T: serde::Serializer>(&self, serializer: T) -> Result<T::Ok, T::Error> {
        serializer.collect_map(self.0.handle().iter().collect::<Vec<_>>())
    }
}

/// A [`shared`](super::shared) one, whose parts begin as the type's default.
#[cfg(feature = "serde")]
impl<'de, K, G, L, S> serde::Deserialize<'de> for OwnedDirectory<K, G, L, S>
where
    K: serde::Deserialize<'de> + Eq + Hash + Clone + Send + Sync + 'static,
    G: serde::Deserialize<'de> + Send + Sync + 'static,
    L: Default + Send + 'static,
    S: BuildHasher + Clone + Default + Send + Sync + 'static,
{
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let entries = std::collections::HashMap::<K, G, S>::deserialize(deserializer)?;
        Ok(entries.into_iter().collect())
    }
}
