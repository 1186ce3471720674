//! Functions that return an implementation to replace a map's present one, one per form.

use squall_core::swap::Replacement;
use squall_machine::ClusterSize;
use squall_parts::table::Table;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use super::cloners::Cloners;
use super::locked::Locked;
use super::partitioned::Partitioned;
#[cfg(doc)]
use super::partitioned_with;
use super::replicated::ReplicatedRoot;
use super::single::Single;
use super::structure::LockedTerms;
use super::{FIXED, Map, have_sizes};

/// Returns a shared implementation to replace a map's present one in a [`Swap`](squall_core::swap::Swap).
/// It takes over the entries. If a swap moves no state into it, every call of the map fails.
///
/// ```
/// use squall::objects::map::{self, MapExt};
///
/// let map = map::locked::<u64, u64>();
/// map.set(1, 1);
/// map.swap_to(map::new_shared()).unwrap();
/// assert_eq!(map.get(&1), Some(1));
/// ```
pub fn new_shared<K, V, S>() -> Replacement<dyn Map<K, V, S>>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    Single::<K, V, S, Table<K, V, S>, FIXED>::replacement(())
}

/// Returns a locked implementation to replace a map's present one in a [`Swap`](squall_core::swap::Swap).
/// It clones the entries. If a swap moves no state into it, every call of the map fails.
pub fn new_locked<K, V, S>() -> Replacement<dyn Map<K, V, S>>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    Single::<K, V, S, Locked<K, V, S>, FIXED>::replacement(under_one_lock())
}

/// Returns a replicated implementation, with copies for clusters of this size, to replace a map's present
/// one in a [`Swap`](squall_core::swap::Swap). It takes over the entries, without their copies. If a swap
/// moves no state into it, every call of the map fails.
pub fn new_replicated<K, V, S>(size: ClusterSize) -> Replacement<dyn Map<K, V, S>>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    have_sizes::<K, V, S>();
    ReplicatedRoot::replacement(size, Cloners::new())
}

/// Returns a partitioned implementation, as of [`partitioned_with`], to replace a map's present one in a
/// [`Swap`](squall_core::swap::Swap). It clones the entries. If a swap moves no state into it, every call
/// of the map fails.
///
/// # Panics
/// If `parts` is zero.
pub fn new_partitioned<K, V, S>(
    parts: usize,
    home: impl Fn(u64) -> usize + Send + Sync + 'static,
    size: ClusterSize,
) -> Replacement<dyn Map<K, V, S>>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    have_sizes::<K, V, S>();
    Partitioned::replacement(parts, Arc::new(home), size, Cloners::new())
}

/// Terms of a map that stays under its lock at any number of entries.
pub(super) fn under_one_lock<K: Clone, V: Clone, S: Clone>() -> LockedTerms<K, V, S> {
    LockedTerms { cloners: Cloners::new(), most: usize::MAX }
}
