//! `Entry`: a view of one key of a map.

/// A view of one key of a map, present or absent, made by [`MapExt::entry`](super::MapExt::entry).
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
