//! Maps: many threads look up, insert and remove entries through one handle.
//!
//! A map is a shared object with one interface, [`Map`], and five forms. The form decides the cost of a
//! read and of a write. A caller never sees the form: all operations are methods of [`MapExt`] on a `Copy`
//! handle. [`OwnedMap`] owns a map and destroys it when dropped.
//!
//! ```
//! use squall::objects::map::{self, MapExt};
//!
//! let hits = map::shared::<String, u64>();
//! hits.insert("home".into(), 1);
//! hits.update("home", |n| n + 1); // a lookup takes any borrowed form of the key
//! assert_eq!(hits.get("home"), Some(2));
//! std::thread::scope(|threads| {
//!     let hits = hits.handle(); // the handle: `Copy`, for any thread
//!     threads.spawn(move || hits.entry("about".into()).or_insert(0));
//! });
//! assert_eq!(hits.len(), 2);
//! ```
//!
//! # Forms
//!
//! | made by | for | a read costs | a write costs |
//! |---|---|---|---|
//! | [`locked`] | one thread, or few entries | one lock, one clone | one lock |
//! | [`shared`] | many threads | no lock, no write to shared memory | the lock of one bucket |
//! | [`partitioned`] | threads with keys of their own | like shared, after finding the part | like shared |
//! | [`replicated`] | keys read everywhere, rarely written | no lock, memory nearby | removes all copies |
//! | [`adaptive`] | a load that is unknown or changes | like its present form | like its present form |
//!
//! The lock of a locked map is biased: a thread that is its only user pays no atomic operation. An adaptive
//! map begins as a locked one, in the form named `small`. It becomes a shared one when several threads use it
//! or when it is large. On a machine with several nodes it becomes a replicated one if these nodes read more
//! than their caches hold. When the load ends, the map returns to the earlier form.
//!
//! | form | memory |
//! |---|---|
//! | locked | a hash table like `std`'s, and 8 bytes per entry |
//! | shared | 27 to 46 bytes per entry of two words; two tables while it resizes |
//! | partitioned | a shared map's for each part; 256 bytes per VP (processor) that calls |
//! | replicated | a shared map's, once more for each cluster that reads an entry |
//!
//! # Growth
//!
//! A map grows and shrinks with its entries. A locked map moves all entries at once, under its lock. A
//! shared map resizes gradually: each writer moves a few buckets. An adaptive map beyond 16,384 entries
//! becomes a table at once, or beyond 131,072 entries of plain data. [`limited`] adds a limit of entries or
//! bytes to a map of any form. Replaced and removed memory waits for its readers, within the bounds of
//! [`squall::rcu::retire`](squall_rcu::retire).
//!
//! # When not to use a map
//!
//! - A map is filled once and then only read: put a `std` map into a [read-mostly
//!   value](crate::read_mostly).
//! - Two entries must change together: each operation concerns one key, and no operation locks two.
//! - Values are large and change often: a new value is a new allocation. Store an `Arc` of a lock or an
//!   atomic.
//!
//! # Guarantees
//!
//! - Each operation on one key takes effect at one moment, even during a hot-swap.
//! - User closures run under no lock, and may use the map. A closure that decides about an entry may run
//!   several times. If it panics, the entry is unchanged.
//! - A panic poisons no map.
//! - A `Clone` that panics leaves the map as it was before the call.
//! - After a panic in one `Drop`, all other values are dropped: `clear`, `retain` and the drop of the map
//!   complete their work.
//!   The first panic then goes on to the caller. A panic on the reclaimer's thread is counted
//!   ([`squall::rcu::stats`](squall_rcu::stats)).
//!
//! # Duties of the caller
//!
//! - A clone of a key or value must be as good as the original. All forms except the shared one hand out
//!   clones, or clone entries when their form changes. State that changes in place belongs behind an `Arc`.
//! - `Eq` and `Hash` of keys run under a lock, and in a locked map `Clone` does, too: they must not call any
//!   object. Such a call of the same map may work; otherwise it panics and names the map. Two maps can
//!   deadlock if the code of each calls the other. `Drop` and all closures run under no lock.
//! - A hasher must spread the keys. Keys with one hash are compared one after the other: to insert n of them
//!   takes n² steps. `std`'s hasher, the default, has random keys, so that no client can choose such keys.
//! - Closures must be short and must not sleep: they run in an operation, which delays the release of
//!   memory. Builds with debug assertions report one that slept
//!   ([`squall::rcu::on_stall`](squall_rcu::on_stall)). A closure that changes its own key each time runs
//!   forever.
//! - Drops of keys and values must not sleep. They run under no lock: in the call itself for a locked map,
//!   otherwise after a grace period, perhaps on another thread.
//! - A signal handler must not use a map. In the child of a fork, calls return an error or panic: see
//!   [forked children](squall_core#forked-children).
mod classes;
mod cloners;
mod construct;
mod drain;
mod entry;
mod entry_methods;
mod ext;
mod format;
mod full;
mod in_place;
mod iter;
mod key;
mod limited;
mod locked;
mod make;
mod methods;
mod operations;
mod owned;
mod partitioned;
mod parts;
mod policy;
mod replacement;
mod replicated;
mod resize_error;
mod sensor;
mod single;
mod storage;
mod store;
mod structure;
#[cfg(test)]
mod typed;
mod view;

use squall_core::Handle;
use squall_core::swap::Replacement;
use squall_machine::ClusterSize;
use squall_macros::interface;
pub use squall_parts::table::{Budget, Compute, Computed, Exhausted};
use squall_rcu::Guard;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;

use crate::sizes;
pub use drain::Drain;
pub use entry::{Entry, Snapshot};
pub use ext::MapExt;
pub use full::Full;
pub use iter::Iter;
pub use limited::MapLimit;
pub use make::{
    adaptive, adaptive_with, limited, locked, locked_with, partitioned, partitioned_with, replicated,
    replicated_with, shared, shared_with,
};
pub use owned::{IntoIter, OwnedMap};
pub use policy::{REPLICATED, SHARED, SMALL};
pub use replacement::{new_locked, new_partitioned, new_replicated, new_shared};
pub use resize_error::ResizeError;
pub use store::Store;

/// The interface of a map. [`MapExt`] has the methods for callers; these are the ones of an implementation.
///
/// # Source
/// CO-54 to CO-64 (K42's hash tables), HU-15 (Hurricane) in `docs/mechanisms.md`.
#[interface(crate = squall_core, view = view::MapView)]
pub trait Map<
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static = RandomState,
>: Send + Sync
{
    /// Returns the store of the entries, for reads in the rest of the operation.
    fn read<'o>(&self, guard: &'o Guard) -> Store<'o, K, V, S>;

    /// Returns the store for one write. [`MapExt`] calls this within a call of the map, and finishes the
    /// write before that call ends. An implementation that does not distinguish reads from writes keeps the
    /// default.
    #[inline]
    fn write<'o>(&self, guard: &'o Guard) -> Store<'o, K, V, S> {
        self.read(guard)
    }

    /// Reports a sampled write (1 in 64) that bypassed the virtual call, so that the policy can estimate
    /// the write rate.
    fn note_writes(&self) {}

    /// Reports that a locked map has just outgrown its lock and moved to a table. [`MapExt`] calls it
    /// within the write.
    fn note_spill(&self) {}

    /// Returns the readings of the map's sensors, for policies. An implementation without sensors returns
    /// zeros.
    fn sensors(&self) -> Sensors {
        Sensors::default()
    }

    /// Sets the sensors to post to the policy after about `after` calls that they see. Zero disables them.
    fn arm(&self, after: u32) {
        let _ = after;
    }

    /// Returns the size of the clusters that have a representative each.
    fn cluster_size(&self) -> ClusterSize {
        ClusterSize::Machine
    }

    /// Returns the map to swap and its replacement with clusters of this size, or `None` if this form has
    /// no choice of cluster size. Callers use [`MapExt::set_cluster_size`].
    fn resized(&self, size: ClusterSize) -> Option<Resized<K, V, S>> {
        let _ = size;
        None
    }

    /// Returns the map inside a [`limited`] map, or `None` for other maps. A swap concerns the map inside.
    /// Callers use [`MapExt::swap_to`].
    fn inner(&self) -> Option<Handle<dyn Map<K, V, S>>> {
        None
    }

    /// Returns the budget of a [`limited`] map: its limit, which may be changed at any time, and the amount
    /// in use.
    ///
    /// ```
    /// use squall::objects::map::{self, Map, MapExt, MapLimit};
    ///
    /// let map = map::limited(map::shared::<u64, u64>(), MapLimit::entries(10));
    /// map.set(1, 1);
    /// let budget = map.budget().unwrap();
    /// assert_eq!((budget.taken(), budget.limit()), (1, 10));
    /// assert!(map::shared::<u64, u64>().budget().is_none());
    /// ```
    fn budget(&self) -> Option<Arc<Budget>> {
        None
    }
}

/// The handle of a map: `Copy`, for fields and arguments.
///
/// ```
/// use squall::objects::map::{self, MapExt, MapHandle};
///
/// struct Sessions {
///     by_name: MapHandle<String, u64>,
/// }
///
/// let map = map::shared();
/// let sessions = Sessions { by_name: map.handle() };
/// sessions.by_name.set("ann".into(), 1);
/// assert_eq!(map.get("ann"), Some(1));
/// ```
pub type MapHandle<K, V, S = RandomState> = Handle<dyn Map<K, V, S>>;

/// A map and the implementation that is to replace it: see [`Map::resized`].
pub type Resized<K, V, S> = (Handle<dyn Map<K, V, S>>, Replacement<dyn Map<K, V, S>>);

/// Readings of a map's sensors, from [`Map::sensors`].
///
/// ```
/// use squall::objects::map::{self, Map, MapExt};
///
/// let map = map::adaptive::<u64, u64>();
/// map.set(1, 1);
/// let sensors = map.sensors();
/// assert_eq!((sensors.entries, sensors.spilled), (1, false));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sensors {
    /// Number of entries.
    pub entries: usize,
    /// Number of copies of entries. Zero in forms without copies.
    pub copies: usize,
    /// Whether a locked map has outgrown its lock, so that a table holds its entries.
    pub spilled: bool,
    /// Whether the map's lock is biased to one thread, or may become so. `false` in forms without a lock.
    pub can_be_owned: bool,
    /// Number of representatives.
    pub reps: usize,
    /// Calls of an adaptive map from the VP that had also made the call before. A call by the owner of
    /// a biased lock is not counted.
    pub here: u64,
    /// Calls of an adaptive map from another VP than the call before.
    pub elsewhere: u64,
}

/// Registers the attribute of the cluster size for maps of these types that have clusters.
fn have_sizes<K, V, S>()
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    let make = |handle: Handle<dyn Map<K, V, S>>, size| handle.try_resized(size).ok().flatten();
    let read = |handle: Handle<dyn Map<K, V, S>>| {
        let size = handle.try_cluster_size().ok()?;
        handle.try_resized(size).ok().flatten().map(|_| size)
    };
    sizes::have::<dyn Map<K, V, S>>(read, make);
}

/// Whether an implementation posts to the policy. The forms of adaptive maps are classes of their own.
const FIXED: bool = false;
const ADAPTS: bool = true;
