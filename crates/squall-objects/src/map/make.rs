//! Functions that make a map, one or two per form.

use squall_adapt::{engine, family};
use squall_core::{Handle, Root, set_part_of};
use squall_machine::{ClusterSize, machine};
use squall_parts::table::Table;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;

use super::cloners::Cloners;
use super::limited::{LimitedRoot, MapLimit};
use super::locked::Locked;
use super::partitioned::Partitioned;
use super::replacement::under_one_lock;
use super::replicated::ReplicatedRoot;
use super::single::Single;
use super::{ADAPTS, FIXED, OwnedMap, have_sizes, policy};
#[cfg(doc)]
use super::{Map, MapExt};

/// Makes an empty map in the shared form: one table with a lock per bucket, and readers without a lock.
/// Use it if several threads will use the map; if that is unknown, use [`adaptive`]. The hasher is `std`'s.
///
/// ```
/// use squall::objects::map::{self, MapExt};
///
/// let ports = map::shared::<&str, u16>();
/// ports.set("http", 80);
/// assert_eq!(ports.get("http"), Some(80));
/// ```
///
/// # Panics
/// If [`squall_core::try_shared`] returns an error: for example in a forked child, or if memory is
/// exhausted.
#[track_caller]
pub fn shared<K: Eq + Hash + Send + Sync + 'static, V: Send + Sync + 'static>() -> OwnedMap<K, V> {
    shared_with(0, RandomState::new())
}

/// Makes a map like [`shared`], with room for `capacity` entries and any hasher.
///
/// ```
/// use squall::objects::map::{self, MapExt};
/// use std::hash::RandomState;
///
/// let map = map::shared_with::<u64, u64, _>(1000, RandomState::new());
/// assert!(map.capacity() >= 1000);
/// ```
///
/// # Panics
/// Under the conditions of [`shared`], and if there is no memory for `capacity` entries.
#[track_caller]
pub fn shared_with<K, V, S>(capacity: usize, hasher: S) -> OwnedMap<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    let table = Table::with_capacity_and_hasher(capacity, hasher);
    OwnedMap(Single::<K, V, S, Table<K, V, S>, FIXED>::new(table, ()).create(ClusterSize::Machine))
}

/// Makes an empty map in the locked form: a hash table under one biased lock. Use it if one
/// thread makes nearly all calls. With two threads, its calls already take several times as long as those of
/// [`shared`]. A read clones the value.
///
/// ```
/// use squall::objects::map::{self, MapExt};
///
/// let map = map::locked::<u64, u64>();
/// map.set(1, 2);
/// assert_eq!(map.remove(&1), Some(2));
/// ```
///
/// # Panics
/// If [`squall_core::try_shared`] returns an error.
#[track_caller]
pub fn locked<K: Eq + Hash + Clone + Send + Sync + 'static, V: Clone + Send + Sync + 'static>()
-> OwnedMap<K, V> {
    locked_with(0, RandomState::new())
}

/// Makes a map like [`locked`], with room for `capacity` entries and any hasher. A clone of the hasher must
/// make the same hashes.
///
/// # Panics
/// Under the conditions of [`locked`], and if there is no memory for `capacity` entries.
#[track_caller]
pub fn locked_with<K, V, S>(capacity: usize, hasher: S) -> OwnedMap<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    let terms = under_one_lock();
    let map = Locked::new(capacity, hasher, terms.most, terms.cloners);
    OwnedMap(Single::<K, V, S, Locked<K, V, S>, FIXED>::new(map, terms).create(ClusterSize::Machine))
}

/// Makes an empty map in the partitioned form: `parts` tables, each for some of the keys. Use it if threads
/// work on separate groups of keys: threads of different groups share no memory of the tables. Each processor
/// has a representative, unless a [default cluster size](squall_machine::Machine::set_default_cluster_size)
/// was set.
///
/// `home` maps a key, as a number, to its part; the result is taken modulo `parts`. A key that is one
/// integer, or hashes like one, is that integer. For other keys the number is a mix of the hashed data.
/// Borrowed forms of a key have the same number. For pages in regions of 256, `home` is `|page| (page >> 8)
/// as usize`.
///
/// The first `parts` representatives hold one part each; the others have pointers to all parts. Entries have
/// no copies.
///
/// If all threads use all keys, prefer [`shared`]: this form only adds the search for the part. Iteration
/// and [`len`](MapExt::len) visit every part. [`try_reserve`](MapExt::try_reserve) gives each part an equal
/// share of the room. [`capacity`](MapExt::capacity) is the sum over all parts, so one part may grow before
/// the sum is used.
///
/// A hot-swap clones the entries: see the [module](super) for the duties of clones.
///
/// ```
/// use squall::objects::map::{self, MapExt};
///
/// let pages = map::partitioned::<u64, &str>(4, |page| (page >> 8) as usize);
/// pages.set(0x3ff, "the last page of part three");
/// assert_eq!(pages.len(), 1);
/// ```
///
/// # Panics
/// If `parts` is zero, or if [`squall_core::try_shared`] returns an error.
/// # Source
/// CO-64 (K42's partitioned hash table).
#[track_caller]
pub fn partitioned<K, V>(parts: usize, home: impl Fn(u64) -> usize + Send + Sync + 'static) -> OwnedMap<K, V>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    let size = machine().cluster_size_or(ClusterSize::Cpu);
    partitioned_with(parts, home, size, RandomState::new())
}

/// Makes a map like [`partitioned`], with representatives for clusters of this size and any hasher. A clone
/// of the hasher must make the same hashes.
///
/// # Panics
/// Like [`partitioned`].
#[track_caller]
pub fn partitioned_with<K, V, S>(
    parts: usize,
    home: impl Fn(u64) -> usize + Send + Sync + 'static,
    size: ClusterSize,
    hasher: S,
) -> OwnedMap<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    have_sizes::<K, V, S>();
    OwnedMap(Partitioned::new(parts, Arc::new(home), size, hasher, Cloners::new()).create(size))
}

/// Makes an empty map in the replicated form: one table, and copies of its entries in each cluster of this
/// size that reads them. Use it for keys that all clusters read again and again, and hardly ever change.
///
/// A write first removes all copies of its key, then takes effect. The next reader in a cluster makes a
/// copy again. A read may return a copy: see the [module](super) for the duties of clones.
///
/// Do not use it for keys that are read once or change about as often as they are read. On a machine with
/// one node it pays only if the clusters are small, since a copy is no nearer than the original. A copy
/// stays until its key changes or [`shrink_to_fit`](MapExt::shrink_to_fit) removes it. While a closure
/// decides about a key, a sixty-fourth of all keys cannot be copied.
///
/// ```
/// use squall::ClusterSize;
/// use squall::objects::map::{self, MapExt};
///
/// let routes = map::replicated::<&str, u32>(ClusterSize::Node);
/// routes.set("/", 80);
/// assert_eq!(routes.get("/"), Some(80)); // makes a copy
/// assert_eq!(routes.get("/"), Some(80)); // reads the copy
/// ```
///
/// # Panics
/// If [`squall_core::try_shared`] returns an error.
/// # Source
/// CO-54 (K42), HU-16 (Hurricane), TO-04 (Tornado).
#[track_caller]
pub fn replicated<K, V>(size: ClusterSize) -> OwnedMap<K, V>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    replicated_with(0, size, RandomState::new())
}

/// Makes a map like [`replicated`], with room for `capacity` entries and any hasher. A clone of the hasher
/// must make the same hashes.
///
/// # Panics
/// Under the conditions of [`replicated`], and if there is no memory for `capacity` entries.
#[track_caller]
pub fn replicated_with<K, V, S>(capacity: usize, size: ClusterSize, hasher: S) -> OwnedMap<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    have_sizes::<K, V, S>();
    let table = Table::with_capacity_and_hasher(capacity, hasher);
    OwnedMap(ReplicatedRoot::new(table, Cloners::new()).create(size))
}

/// Makes an empty map that changes its form with its load. It begins like [`locked`]. It becomes like
/// [`shared`] when it is large or several threads use it. On a machine with several nodes it may become
/// like [`replicated`], with a copy per node.
///
/// The locked form clones values for readers, and a change of form clones entries: see the [module](super)
/// for the duties of clones. The first call starts the policy's thread, `squall-adapt`: see
/// [`squall::adapt::engine`](squall_adapt::engine).
///
/// ```
/// use squall::objects::map::{self, MapExt};
///
/// let map = map::adaptive::<u64, String>();
/// map.set(1, "one".into());
/// assert_eq!(map.get_cloned(&1).as_deref(), Some("one"));
/// ```
///
/// # Panics
/// If [`squall_core::try_shared`] returns an error.
/// # Cost
/// Making one costs as much as [`locked`], and a search in the list of families. The change to a table
/// clones at most 16,384 entries while callers wait, or 131,072 entries of plain data up to 32 bytes. The
/// change back clones at most half as many. Changes between the shared and the replicated form clone no
/// entry.
///
/// A call of the locked form costs about a nanosecond for its sensor, unless the thread owns the lock. A
/// write of a table costs about as much, and on machines with several nodes a read does too.
#[track_caller]
pub fn adaptive<K, V>() -> OwnedMap<K, V>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    adaptive_with(0, RandomState::new())
}

/// Makes a map like [`adaptive`], with room for `capacity` entries and any hasher. A clone of the hasher
/// must make the same hashes.
///
/// # Panics
/// Under the conditions of [`adaptive`], and if there is no memory for `capacity` entries.
#[track_caller]
pub fn adaptive_with<K, V, S>(capacity: usize, hasher: S) -> OwnedMap<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    family::register(policy::family::<K, V, S>());
    engine::start();
    if capacity > policy::small_max::<K, V>() {
        type Large<K, V, S> = Single<K, V, S, Table<K, V, S>, ADAPTS>;
        let table = Table::with_capacity_and_hasher(capacity, hasher);
        return OwnedMap(Large::new(table, ()).create(Large::<K, V, S>::SIZE));
    }
    type Small<K, V, S> = Single<K, V, S, Locked<K, V, S>, ADAPTS>;
    let terms = policy::small_terms();
    let map = Locked::new(capacity, hasher, terms.most, terms.cloners);
    OwnedMap(Small::new(map, terms).create(Small::<K, V, S>::SIZE))
}

/// Adds a limit to a map of any form: a maximum number of entries, or a maximum total weight of values. If
/// the map already exceeds the limit, its entries stay, and no entry is added until it is below.
///
/// A write that would exceed the limit is rejected. [`set_or_full`](MapExt::set_or_full) and
/// [`compute_or_full`](MapExt::compute_or_full) then return an error that names the map and the limit.
/// Methods without a way to return it panic. A rejected write leaves the map unchanged. Reads, removals and
/// lighter values are always accepted.
///
/// The total weight never exceeds the limit. A write may be rejected a little early: each running write
/// reserves its need first, and may turn out not to use it. With n threads that is at most n - 1 writes too
/// early. While no write runs, the used amount is the exact weight of the entries.
///
/// The limit belongs to the outer object; [`Map::budget`] reads and changes it. A swap concerns the map
/// inside, and an adaptive map inside goes on to adapt. [`MapExt::swap_to`] and
/// [`MapExt::set_cluster_size`] find the map inside. A [`Swap`](squall_core::swap::Swap) of the outer
/// object fails. Writes through a handle of the map inside are not counted. `squall top` and `squall browse`
/// show the map inside as a part of the outer one.
///
/// ```
/// use squall::objects::map::{self, Map, MapExt, MapLimit};
///
/// let sessions = map::limited(map::shared::<u64, String>(), MapLimit::entries(2));
/// assert!(sessions.set_or_full(1, "one".into()).is_ok() && !sessions.set(2, "two".into()));
/// let full = sessions.set_or_full(3, "three".into()).unwrap_err();
/// assert!(full.to_string().ends_with("2 of 2 entries in use; remove entries or raise the limit"));
/// sessions.budget().unwrap().set_limit(3);
/// assert_eq!(sessions.set_or_full(3, "three".into()), Ok(false));
///
/// let limit = MapLimit::weight(1 << 20, "bytes", |page: &Vec<u8>| page.len() as u64);
/// let pages = map::limited(map::adaptive::<u64, Vec<u8>>(), limit);
/// assert!(pages.set_or_full(0, vec![0; 2 << 20]).is_err());
/// ```
///
/// # Panics
/// If [`squall_core::try_shared`] returns an error.
/// # Cost
/// Visits each entry once. Afterwards each call costs about one call more. A write also changes a word that
/// all threads share. If the map is weighed or full, a write clones the value. Maps without a limit cost
/// the same as before.
#[track_caller]
pub fn limited<K, V, S>(map: OwnedMap<K, V, S>, limit: MapLimit<V>) -> OwnedMap<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    let inner = Handle::id(map.handle());
    let limited = LimitedRoot::new(map.into_owned(), limit, Cloners::new()).create(ClusterSize::Machine);
    // For people who look at the program. An error changes nothing else.
    let _ = set_part_of(inner, Handle::id(limited.handle()));
    OwnedMap(limited)
}
