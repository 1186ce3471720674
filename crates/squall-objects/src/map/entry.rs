//! `Entry`: one key of a map, with the changes for its value. `Snapshot`: the value that it returns.

use squall_core::Handle;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::ops::Deref;

use super::Map;

/// One key of a map, present or absent, made by [`MapExt::entry`](super::MapExt::entry).
///
/// [`and_modify`](Entry::and_modify) collects changes. An `or_` method then changes a present value, or
/// inserts an absent one, in one atomic step. Without such a method, the drop of the entry changes a present
/// value.
///
/// The entry holds no lock, so other threads may use the key meanwhile. The results are [`Snapshot`]s:
/// read-only clones, where `std`'s entries return references.
///
/// # Panics
/// If the map was destroyed: the methods that use the map, and the drop of an entry with changes.
///
/// ```
/// use squall::objects::map::{self, MapExt};
///
/// let hits = map::shared::<&str, u64>();
/// assert_eq!(*hits.entry("home").or_default(), 0);
/// assert_eq!(*hits.entry("home").and_modify(|n| *n += 1).or_insert(1), 1);
/// hits.entry("home").and_modify(|n| *n += 1);
/// assert_eq!(hits.get("home"), Some(2));
/// ```
///
/// A result cannot be changed:
/// ```compile_fail,E0596
/// use squall::objects::map::{self, MapExt};
///
/// let lists = map::shared::<&str, Vec<u64>>();
/// lists.entry("home").or_default().push(1);
/// ```
/// Write `and_modify` instead:
/// ```
/// # use squall::objects::map::{self, MapExt};
/// # let lists = map::shared::<&str, Vec<u64>>();
/// lists.entry("home").and_modify(|list| list.push(1)).or_insert_with(|| vec![1]);
/// ```
pub struct Entry<K, V, S = RandomState, F = fn(&mut V)>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
    F: FnMut(&mut V),
{
    pub(super) map: Handle<dyn Map<K, V, S>>,
    /// The key and the changes. Empty after the entry was used.
    pub(super) parts: Option<(K, Option<F>)>,
    /// Whether the thread was panicking when the entry was made.
    pub(super) made_in_panic: bool,
}

impl<K, V, S> Entry<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    pub(super) fn new(map: Handle<dyn Map<K, V, S>>, key: K) -> Entry<K, V, S> {
        Entry { map, parts: Some((key, None)), made_in_panic: std::thread::panicking() }
    }
}

impl<K, V, S, F> Entry<K, V, S, F>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
    F: FnMut(&mut V),
{
    /// Takes out the key and the changes.
    pub(super) fn take(&mut self) -> (K, Option<F>) {
        self.parts.take().expect("an entry is used once")
    }

    /// Returns the key.
    pub fn key(&self) -> &K {
        &self.parts.as_ref().expect("an entry keeps its key until it is used").0
    }

    /// Adds `f` to the changes that a present value will get, from the next `or_` method or the drop of the
    /// entry. They are applied to a clone of the value, which then replaces it.
    ///
    /// `f` runs under no lock, and again if another writer was faster.
    pub fn and_modify<G: FnMut(&mut V)>(mut self, mut f: G) -> Entry<K, V, S, impl FnMut(&mut V)> {
        let (key, mut earlier) = self.take();
        let both = move |value: &mut V| {
            if let Some(earlier) = &mut earlier {
                earlier(value);
            }
            f(value);
        };
        Entry { map: self.map, parts: Some((key, Some(both))), made_in_panic: self.made_in_panic }
    }
}

impl<K, V, S, F> fmt::Debug for Entry<K, V, S, F>
where
    K: Eq + Hash + Send + Sync + fmt::Debug + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
    F: FnMut(&mut V),
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("key", self.key()).finish_non_exhaustive()
    }
}

/// A read-only clone of an entry's value, made at the moment of the call.
///
/// To change the value in the map, use [`Entry::and_modify`] or
/// [`MapExt::update_in_place`](super::MapExt::update_in_place). To own the clone, use
/// [`into_inner`](Snapshot::into_inner).
///
/// ```
/// use squall::objects::map::{self, MapExt, Snapshot};
///
/// let names = map::shared::<u64, String>();
/// let name = names.entry(1).or_insert("ada".into());
/// assert_eq!((name.len(), name.as_str()), (3, "ada"));
/// names.set(1, "grace".into());
/// assert_eq!(Snapshot::into_inner(name), "ada");
/// ```
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Snapshot<V>(pub(super) V);

impl<V> Snapshot<V> {
    /// Returns the clone itself.
    pub fn into_inner(this: Snapshot<V>) -> V {
        this.0
    }
}

impl<V> Deref for Snapshot<V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.0
    }
}

impl<V: fmt::Display> fmt::Display for Snapshot<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
