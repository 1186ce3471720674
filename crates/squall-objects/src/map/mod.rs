//! Maps: many threads look up, insert and remove entries through one handle.
//!
//! A map is a shared object with one interface, [`Map`], and five forms. The form decides the cost of a
//! read and of a write. A caller never sees the form: all operations are methods of [`MapExt`] on a `Copy`
//! handle. [`OwnedMap`] owns a map and destroys it when dropped.
//!
//! ```
//! use squall_objects::map::{self, MapExt};
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
//! map begins as a locked one. It becomes a shared one when several threads use it or when it is large. On
//! a machine with several nodes it becomes a replicated one if these nodes read more than their caches
//! hold. It goes back when the load does.
//!
//! | form | memory |
//! |---|---|
//! | locked | a hash table like `std`'s, and 8 bytes per entry |
//! | shared | 27 to 46 bytes per entry of two words; two tables while it resizes |
//! | partitioned | a shared map's for each part; 256 bytes per VP that calls |
//! | replicated | a shared map's, once more for each cluster that reads an entry |
//!
//! # Growth
//!
//! A map grows and shrinks with its entries. A locked map moves all entries at once, under its lock. A
//! shared map resizes gradually: each writer moves a few buckets. An adaptive map beyond 16,384 entries
//! becomes a table at once, or beyond 131,072 entries of plain data. [`limited`] adds a limit of entries or
//! bytes to a map of any form. Replaced and removed memory waits for its readers, within the bounds of
//! [`squall_rcu::retire`].
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
//!
//! # Duties of the caller
//!
//! - A clone of a key or value must be as good as the original. All forms except the shared one hand out
//!   clones, or clone entries when their form changes. State that changes in place belongs behind an `Arc`.
//! - `Eq` and `Hash` of keys run under a lock, and `Clone` does in a locked map: they must not call any
//!   object. `Eq` and `Hash` must not panic. If they do, a locked map may lose entries and `len` may count
//!   them for a while.
//! - Closures must be short and must not sleep: they run in an operation, which delays the release of
//!   memory. A closure that changes its own key each time runs forever.
//! - Drops of keys and values must not sleep. They run under no lock: in the call itself for a locked map,
//!   otherwise after a grace period, perhaps on another thread.
//! - A signal handler must not use a map. Calls in a forked child return an error or panic.

mod acts;
mod direct;
mod entries;
mod forms;
mod limited;
mod locked;
mod owner;
mod partitioned;
mod parts;
mod policy;
mod replicated;
mod store;

use squall_adapt::{engine, family};
use squall_core::swap::Replacement;
use squall_core::{Handle, Root};
use squall_machine::ClusterSize;
use squall_macros::interface;
use squall_rcu::Guard;
use squall_parts::table::Table;
pub use squall_parts::table::{Budget, Compute, Computed, Exhausted};
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;

use crate::sizes;
pub use entries::{MapExt, Entry, Iter, ResizeError};
use forms::{One, Terms};
pub use limited::{Full, MapLimit};
use locked::{Copies, Locked};
pub use owner::OwnedMap;
use partitioned::Partitioned;
pub use policy::{SHARED, REPLICATED, SMALL};
pub use store::Store;

/// The interface of a map. [`MapExt`] has the methods for callers; these are the ones of an implementation.
///
/// # Source
/// CO-54 to CO-64 (K42's hash tables), HU-15 (Hurricane).
#[interface(crate = squall_core, lends)]
pub trait Map<
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
>: Send + Sync
{
    /// Returns the store of the entries, for reads in the rest of the operation.
    fn look<'o>(&self, guard: &'o Guard) -> Store<'o, K, V, S>;

    /// Returns the store for one write. The write must end before this call of the object does; only
    /// [`MapExt`] can write. An implementation that does not distinguish reads from writes keeps the
    /// default.
    #[inline]
    fn lend<'o>(&self, guard: &'o Guard) -> Store<'o, K, V, S> {
        self.look(guard)
    }

    /// Reports a sampled write (1 in 64) that bypassed the virtual call, so that the policy can estimate
    /// the write rate.
    fn written(&self) {}

    /// Reports that a locked map has just outgrown its lock and moved to a table. [`MapExt`] calls it
    /// within the write.
    fn spilled(&self) {}

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
    fn within(&self) -> Option<Handle<dyn Map<K, V, S>>> {
        None
    }

    /// Returns the budget of a [`limited`] map: its limit, which may be changed at any time, and the amount
    /// in use.
    ///
    /// ```
    /// use squall_objects::map::{self, Map, MapExt, MapLimit};
    ///
    /// let map = map::limited(map::shared::<u64, u64>(), MapLimit::entries(10));
    /// map.set(1, 1);
    /// let budget = map.budget().unwrap();
    /// assert_eq!((budget.taken(), budget.most()), (1, 10));
    /// assert!(map::shared::<u64, u64>().budget().is_none());
    /// ```
    fn budget(&self) -> Option<Arc<Budget>> {
        None
    }
}

/// A map and the implementation that is to replace it: see [`Map::resized`].
pub type Resized<K, V, S> = (Handle<dyn Map<K, V, S>>, Replacement<dyn Map<K, V, S>>);

/// Readings of a map's sensors, from [`Map::sensors`].
///
/// ```
/// use squall_objects::map::{self, Map, MapExt};
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

/// Makes an empty map in the shared form: one table with a lock per bucket, and readers without a lock.
/// Begin with this form. The hasher is `std`'s.
///
/// ```
/// use squall_objects::map::{self, MapExt};
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
/// use squall_objects::map::{self, MapExt};
/// use std::hash::RandomState;
///
/// let map = map::shared_with::<u64, u64, _>(1000, RandomState::new());
/// assert!(map.capacity() >= 1000);
/// ```
///
/// # Panics
/// Like [`shared`], and if there is no memory for `capacity` entries.
#[track_caller]
pub fn shared_with<K, V, S>(capacity: usize, hasher: S) -> OwnedMap<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    let table = Table::with_capacity_and_hasher(capacity, hasher);
    OwnedMap(One::<K, V, S, Table<K, V, S>, FIXED>::new(table, ()).create(ClusterSize::Machine))
}

/// Makes an empty map in the locked form: a hash table under one biased lock. Use it for one thread, for
/// few entries, or where writes outnumber reads. A read clones the value.
///
/// ```
/// use squall_objects::map::{self, MapExt};
///
/// let map = map::locked::<u64, u64>();
/// map.set(1, 2);
/// assert_eq!(map.remove(&1), Some(2));
/// ```
///
/// # Panics
/// If [`squall_core::try_shared`] returns an error.
#[track_caller]
pub fn locked<K: Eq + Hash + Clone + Send + Sync + 'static, V: Clone + Send + Sync + 'static>() -> OwnedMap<K, V> {
    locked_with(0, RandomState::new())
}

/// Makes a map like [`locked`], with room for `capacity` entries and any hasher. A clone of the hasher must
/// make the same hashes.
///
/// # Panics
/// Like [`locked`], and if there is no memory for `capacity` entries.
#[track_caller]
pub fn locked_with<K, V, S>(capacity: usize, hasher: S) -> OwnedMap<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    let terms = under_one_lock();
    let map = Locked::new(capacity, hasher, terms.most, terms.copies);
    OwnedMap(One::<K, V, S, Locked<K, V, S>, FIXED>::new(map, terms).create(ClusterSize::Machine))
}

/// Terms of a map that stays under its lock at any number of entries.
fn under_one_lock<K: Clone, V: Clone, S: Clone>() -> Terms<K, V, S> {
    Terms { copies: Copies::new(), most: usize::MAX }
}

/// Makes an empty map in the partitioned form: `parts` tables, each for some of the keys. Use it if threads
/// work on separate groups of keys: threads of different groups share no memory of the tables.
///
/// `home` maps a key, as a number, to its part; the result is taken modulo `parts`. A key that is one
/// integer, or hashes like one, is that integer. For other keys the number is a mix of the hashed data.
/// Borrowed forms of a key have the same number. For pages in regions of 256, `home` is `|page| (page >> 8)
/// as usize`.
///
/// The first `parts` representatives hold one part each; the others lead to them. Entries have no copies.
///
/// If all threads use all keys, prefer [`shared`]: this form only adds the search for the part. Iteration
/// and [`len`](MapExt::len) visit every part. [`try_reserve`](MapExt::try_reserve) gives each part an equal
/// share of the room. [`capacity`](MapExt::capacity) is the sum over all parts, so one part may grow before
/// the sum is used.
///
/// A hot-swap clones the entries: see the [module](self) for the duties of clones.
///
/// ```
/// use squall_objects::map::{self, MapExt};
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
    partitioned_with(parts, home, ClusterSize::Cpu, RandomState::new())
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
    OwnedMap(Partitioned::new(parts, Arc::new(home), size, hasher, Copies::new()).create(size))
}

/// Makes an empty map in the replicated form: one table, and copies of its entries in each cluster of this
/// size that reads them. Use it for keys that all clusters read again and again, and hardly ever change.
///
/// A write first removes all copies of its key, then takes effect. The next reader in a cluster makes a
/// copy again. A read may return a copy: see the [module](self) for the duties of clones.
///
/// Do not use it for keys that are read once or change about as often as they are read. On a machine with
/// one node it pays only if the clusters are small, since a copy is no nearer than the original. A copy
/// stays until its key changes or [`shrink_to_fit`](MapExt::shrink_to_fit) removes it. While a closure
/// decides about a key, a sixty-fourth of all keys cannot be copied.
///
/// ```
/// use squall_machine::ClusterSize;
/// use squall_objects::map::{self, MapExt};
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
/// Like [`replicated`], and if there is no memory for `capacity` entries.
#[track_caller]
pub fn replicated_with<K, V, S>(capacity: usize, size: ClusterSize, hasher: S) -> OwnedMap<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    have_sizes::<K, V, S>();
    let table = Table::with_capacity_and_hasher(capacity, hasher);
    OwnedMap(replicated::ReplicatedRoot::new(table, Copies::new()).create(size))
}

/// Makes an empty map that changes its form with its load. It begins like [`locked`]. It becomes like
/// [`shared`] when it is large or several threads use it. On a machine with several nodes it may become
/// like [`replicated`], with a copy per node.
///
/// The locked form clones values for readers, and a change of form clones entries: see the [module](self)
/// for the duties of clones. The first call starts the policy's thread, `squall-adapt`: see
/// [`squall_adapt::engine`].
///
/// ```
/// use squall_objects::map::{self, MapExt};
///
/// let map = map::adaptive::<u64, String>();
/// map.set(1, "one".into());
/// assert_eq!(map.get(&1).as_deref(), Some("one"));
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
/// Like [`adaptive`], and if there is no memory for `capacity` entries.
#[track_caller]
pub fn adaptive_with<K, V, S>(capacity: usize, hasher: S) -> OwnedMap<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    family::register(policy::family::<K, V, S>());
    engine::start();
    if capacity > policy::most::<K, V>() {
        type Large<K, V, S> = One<K, V, S, Table<K, V, S>, ADAPTS>;
        let table = Table::with_capacity_and_hasher(capacity, hasher);
        return OwnedMap(Large::new(table, ()).create(Large::<K, V, S>::SIZE));
    }
    type Small<K, V, S> = One<K, V, S, Locked<K, V, S>, ADAPTS>;
    let terms = policy::small();
    let map = Locked::new(capacity, hasher, terms.most, terms.copies);
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
/// object fails. Writes through a handle of the map inside are not counted.
///
/// ```
/// use squall_objects::map::{self, Map, MapExt, MapLimit};
///
/// let sessions = map::limited(map::shared::<u64, String>(), MapLimit::entries(2));
/// assert!(sessions.set_or_full(1, "one".into()).is_ok() && !sessions.set(2, "two".into()));
/// let full = sessions.set_or_full(3, "three".into()).unwrap_err();
/// assert!(full.to_string().ends_with("2 of 2 entries in use; remove entries or raise the limit"));
/// sessions.budget().unwrap().set_most(3);
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
    OwnedMap(limited::Bounded::new(map.into_owned(), limit, Copies::new()).create(ClusterSize::Machine))
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

/// Returns a shared implementation to replace a map's present one in a [`Swap`](squall_core::swap::Swap).
/// It takes over the entries. If a swap moves no state into it, every call of the map fails.
///
/// ```
/// use squall_objects::map::{self, MapExt};
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
    One::<K, V, S, Table<K, V, S>, FIXED>::to_come(())
}

/// Returns a locked implementation to replace a map's present one in a [`Swap`](squall_core::swap::Swap).
/// It clones the entries. If a swap moves no state into it, every call of the map fails.
pub fn new_locked<K, V, S>() -> Replacement<dyn Map<K, V, S>>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    One::<K, V, S, Locked<K, V, S>, FIXED>::to_come(under_one_lock())
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
    replicated::ReplicatedRoot::to_come(size, Copies::new())
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
    Partitioned::to_come(parts, Arc::new(home), size, Copies::new())
}
