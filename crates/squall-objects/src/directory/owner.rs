//! The owner of a directory, and its implementations of std's traits.

use squall_core::{Handle, Interface, Owned};
use squall_machine::ClusterSize;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::ops::Deref;
use std::sync::Arc;

use super::calls::act;
use super::{Directory, Parts, Walk, with_hasher};
use crate::answers::panics_in;

/// Owner of a directory. Dropping it destroys the object. It dereferences to the handle.
///
/// ```
/// use squall::objects::directory::{OwnedDirectory, Parts};
///
/// let users: OwnedDirectory<u32, char, u64> = [(1, 'a')].into_iter().collect();
/// users.update(&1, |_name, uses| *uses += 1);
/// assert_eq!(users.read(&1, |name| *name), Some('a'));
/// ```
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
    /// Gives the object a name for people, and returns its owner: see [`Owned::named`].
    pub fn named(self, name: impl Into<Arc<str>>) -> OwnedDirectory<K, G, L, S> {
        OwnedDirectory(self.0.named(name))
    }

    /// Declares the object to be a part of another one, for people, and returns its owner: see
    /// [`Owned::part_of`].
    pub fn part_of<W: ?Sized + Interface>(self, whole: Handle<W>) -> OwnedDirectory<K, G, L, S> {
        OwnedDirectory(self.0.part_of(whole))
    }

    /// Converts to the general owner type.
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

/// Shows the keys with their entries, without locking parts.
impl<K, G, L, S> fmt::Debug for OwnedDirectory<K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + fmt::Debug + 'static,
    G: Send + Sync + fmt::Debug + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let handle = self.0.handle();
        // A directory without state, after a swap without state.
        if let Err(error) = handle.try_sensors() {
            return write!(f, "Directory({error})");
        }
        let mut map = f.debug_map();
        handle.for_each(|key, entry| _ = map.entry(key, entry));
        map.finish()
    }
}

/// Makes entries for absent keys. An entry of a present key is kept, and the new one is dropped.
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

/// Makes entries for absent keys, through a shared reference. An entry of a present key is kept.
impl<K, G, L, S> Extend<(K, G)> for &OwnedDirectory<K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    fn extend<T: IntoIterator<Item = (K, G)>>(&mut self, entries: T) {
        for (key, entry) in entries {
            act(self.0.handle(), panics_in!("extend"), |tables| {
                tables.master.find_or_allocate_and_lock(&key, || entry, |_, _| ());
            });
        }
    }
}

/// Creates an empty directory in the form of [`shared`](super::shared). Parts start as the default of their
/// type.
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

/// Creates a directory in the form of [`shared`](super::shared). Parts start as the default of their type.
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

/// Iterates over clones of the keys and entries. See [`Parts::iter`].
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

/// Serializes a map with copies of the keys and entries, without the parts.
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

/// Deserializes into the form of [`shared`](super::shared). Parts start as the default of their type.
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
