//! Maps: many threads look keys up, insert and remove.
//!
//! Not for a map that is filled once and read from then on: put std's into a read-mostly value ([`cell`](crate::read_mostly)). Not for two
//! entries that must change together: each operation is about one key, and nothing locks two. And where values are large and change
//! often, put something into them that changes in place, a lock or an atomic, behind an `Arc`: another value for a key is another
//! allocation.
//!
//! | made by | reading | writing | memory |
//! |---|---|---|---|
//! | [`locked`] | takes the one lock, copies the value | takes the one lock, which costs a thread that alone uses it no atomic operation | a hash table as std's, and eight bytes for each entry |
//! | [`central`] | writes nothing that is shared, waits for nobody | locks one bucket of sixteen slots | 27 to 46 bytes for an entry of two words; while it grows, both tables |
//! | [`partitioned`] | as central, and finds the part first | the same; who keeps to a part meets nobody | as central, for each part; 256 bytes for each VP that calls |
//! | [`replicated`] | of what was read here before writes nothing and reads memory of its cluster; else as central, and makes a copy | as central, and first takes the copies out of every cluster's table | as central, once more for each cluster that reads an entry |
//! | [`adaptive`] | begins as locked, is central where several use it, and beyond some ten thousand entries, replicated where several nodes read what their caches do not keep; goes back | as the form that it has | as the form that it has |
//!
//! All are the same to those who call them, a `Handle<dyn Map<K, V, S>>`, on which [`MapExt`] has what people do with a map; and of
//! all it is true that each operation on one key takes effect at one moment, hot-swaps included. [`Map`] owns one.
//!
//! All but the central form copy what they hold, when they are read or when they take another's place. So a clone of a key or value must
//! be as good as the original: what changes in place belongs behind an `Arc`, or each copy goes its own way.
//!
//! ```
//! use squall_objects::map::{self, MapExt};
//!
//! let hits = map::central::<String, u64>();
//! let co = hits.co(); // `Copy`, for any thread or task
//! co.insert("home".into(), 1);
//! co.update("home", |n| n + 1); // any borrowed form of a key
//! assert_eq!(co.get("home"), Some(2));
//! assert_eq!(co.entry("about".into()).or_insert(0), 0);
//! assert_eq!(co.len(), 2);
//! ```
//!
//! Memory: a map grows and shrinks with its entries; [`limited`] gives one of any form a limit of entries or of bytes. What was replaced or taken out
//! waits for its readers, within the bounds that [`squall_rcu::retire`] keeps.
//!
//! No poisoning: closures run under no lock and may use the map; one that panics has changed nothing. One that changes its own key each
//! time it is asked is asked for ever. `Eq` and `Hash` of keys, and in the form of one lock `Clone`, run under a lock: they must not call
//! any object. `Eq` and `Hash` must not panic: in the form of one lock that may lose entries, and have `len` count them for a while. Closures run in an
//! operation: keep them short, for nothing that was replaced is freed meanwhile, and they must not sleep. Keys and values that were replaced
//! or taken out are dropped under no lock, by the form of one lock at once, within the call, by the others after a grace period, by whoever
//! comes to it: their drops must not sleep either. Signal handlers shall not use a map. In the child of a fork calls err.

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
pub use policy::{CENTRAL, REPLICATED, SMALL};
pub use store::Store;

/// A map. [`MapExt`] has what people do with one; this is what an implementation has.
///
/// # Source
/// CO-54 to CO-64, HU-15.
#[interface(crate = squall_core, lends)]
pub trait Map<
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
>: Send + Sync
{
    /// Lends the structure that holds the entries, for reads in the rest of the operation.
    fn look<'o>(&self, guard: &'o Guard) -> Store<'o, K, V, S>;

    /// Lends it for a change, which is done before the call that lends it is over. Only [`MapExt`] can do that: for others, as
    /// [`look`](Map::look), which it is unless an implementation tells the two apart.
    #[inline]
    fn lend<'o>(&self, guard: &'o Guard) -> Store<'o, K, V, S> {
        self.look(guard)
    }

    /// Told of one of many writes to what it lent to all of them without being asked, whose calls it would count else.
    fn written(&self) {}

    /// Told in the same call, if after a change a form of one lock has a table in its place.
    fn spilled(&self) {}

    /// What its sensors read. For policies; of an implementation that has none, zeros.
    fn sensors(&self) -> Sensors {
        Sensors::default()
    }

    /// Has its sensor trip after about so many calls that it sees; zero: never. For policies.
    fn arm(&self, after: u32) {
        let _ = after;
    }

    /// How large the clusters are of which each has a representative of its own.
    fn cluster_size(&self) -> ClusterSize {
        ClusterSize::Machine
    }

    /// For clusters of this size: which map to swap, and for what; nothing, if the implementation has no clusters whose size is to be
    /// chosen. [`MapExt::set_cluster_size`] is the handy form.
    fn resized(&self, size: ClusterSize) -> Option<Resized<K, V, S>> {
        let _ = size;
        None
    }

    /// The map within, if this is one that is around it: what a swap is of. [`MapExt::swap_to`] is the handy form.
    fn within(&self) -> Option<Handle<dyn Map<K, V, S>>> {
        None
    }

    /// The limit, if there is one: what it is, and what is taken of it. It can be changed at any time.
    fn budget(&self) -> Option<Arc<Budget>> {
        None
    }
}

/// A map, and what is to take its place: see [`Map::resized`].
pub type Resized<K, V, S> = (Handle<dyn Map<K, V, S>>, Replacement<dyn Map<K, V, S>>);

/// What the sensors of a map read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sensors {
    /// Entries.
    pub entries: usize,
    /// Copies of entries, in a form that makes some.
    pub copies: usize,
    /// Whether it is in the form of one lock, and has a table in its place.
    pub spilled: bool,
    /// Whether it is in the form of one lock, and one thread has that to itself or may come to have it.
    pub can_be_owned: bool,
    /// Representatives.
    pub reps: usize,
    /// Of adaptive maps, calls that the sensors saw: those of the VP that had called before, and those of others. A thread that has
    /// the form of one lock to itself is not seen.
    pub here: u64,
    /// See `here`.
    pub elsewhere: u64,
}

/// Makes a map whose entries are in one table, of which each bucket has a lock of its own and no reader writes anything: the one to
/// begin with. Its hasher is std's.
///
/// # Panics
/// As [`squall_core::try_shared`] errs.
#[track_caller]
pub fn central<K: Eq + Hash + Send + Sync + 'static, V: Send + Sync + 'static>() -> OwnedMap<K, V> {
    central_with(0, RandomState::new())
}

/// The same with room for so many entries, and any hasher.
///
/// # Panics
/// As [`central`], and if there is no memory for so many.
#[track_caller]
pub fn central_with<K, V, S>(capacity: usize, hasher: S) -> OwnedMap<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    let table = Table::with_capacity_and_hasher(capacity, hasher);
    OwnedMap(One::<K, V, S, Table<K, V, S>, FIXED>::new(table, ()).create(ClusterSize::Machine))
}

/// Makes a map under one lock: for few entries that few threads use, and where entries are written more often than read. What reads
/// it copies the value, so that a clone must be as good as it: see the [module](self).
///
/// # Panics
/// As [`squall_core::try_shared`] errs.
#[track_caller]
pub fn locked<K: Eq + Hash + Clone + Send + Sync + 'static, V: Clone + Send + Sync + 'static>() -> OwnedMap<K, V> {
    locked_with(0, RandomState::new())
}

/// The same with room for so many entries, and any hasher. A clone of the hasher makes the same hashes.
///
/// # Panics
/// As [`locked`], and if there is no memory for so many.
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

/// However many entries there are.
fn under_one_lock<K: Clone, V: Clone, S: Clone>() -> Terms<K, V, S> {
    Terms { copies: Copies::new(), most: usize::MAX }
}

/// Makes a map of so many parts, each a table of its own: for keys of which it is known which go together, so that threads that keep to a
/// part of them each meet nobody. The parts are held by the representatives of the first VPs, as many as there are parts; those of
/// others only lead there. There are no copies of entries: what one part's table has, nobody else has. Only a swap copies them: a clone
/// must be as good as the original, see the [module](self).
///
/// `home` says in which part a key is: its result is taken modulo `parts`. It is given the key as a number: a key that is one integer, or
/// hashes as one, is that integer; of all others, what they hash is mixed. Borrowed forms of a key have the same number. With pages as
/// keys and regions of 256 of them: `|page| (page >> 8) as usize`.
///
/// Not where all look for all: then it is a central map that takes longer to find the table. What walks through it, or asks for its
/// length, visits every part. Room is each part's own: [`try_reserve`](MapExt::try_reserve) makes room for an equal share in each, and of
/// the sum that [`capacity`](MapExt::capacity) is a part that has more than others can use no more than its own.
///
/// ```
/// use squall_objects::map::{self, MapExt};
/// let pages = map::partitioned::<u64, &str>(4, |page| (page >> 8) as usize);
/// pages.set(0x3ff, "the last page of part three");
/// assert_eq!(pages.len(), 1);
/// ```
///
/// # Panics
/// If there shall be no part; as [`squall_core::try_shared`] errs.
/// # Source
/// CO-64.
#[track_caller]
pub fn partitioned<K, V>(parts: usize, home: impl Fn(u64) -> usize + Send + Sync + 'static) -> OwnedMap<K, V>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    partitioned_with(parts, home, ClusterSize::Cpu, RandomState::new())
}

/// The same with representatives for clusters of this size, and any hasher. A clone of the hasher makes the same hashes.
///
/// # Panics
/// As [`partitioned`].
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

/// Makes a map with copies of its entries in each cluster of this size that reads them: for what is read everywhere, again and again, and hardly
/// ever changed. A change takes the copies of its key out everywhere, then takes place; who reads the key next copies it again. What is
/// read may be such a copy: a clone must be as good as the original, see the [module](self).
///
/// Not for keys that are looked up once, or change about as often as they are read: then it is a central map that makes copies for nobody. Not
/// on a machine with one node, unless the clusters are small: there a copy is no nearer than the original. What is read once is
/// copied, and stays until its key changes or [`shrink_to_fit`](MapExt::shrink_to_fit). A closure that says what becomes of a key keeps a
/// sixty-fourth of all keys from being copied while it runs.
///
/// ```
/// use squall_machine::ClusterSize;
/// use squall_objects::map::{self, MapExt};
/// let routes = map::replicated::<&str, u32>(ClusterSize::Node);
/// routes.set("/", 80);
/// assert_eq!(routes.get("/"), Some(80)); // and copies it
/// assert_eq!(routes.get("/"), Some(80)); // finds the copy
/// ```
///
/// # Panics
/// As [`squall_core::try_shared`] errs.
/// # Source
/// CO-54, HU-16, TO-04.
#[track_caller]
pub fn replicated<K, V>(size: ClusterSize) -> OwnedMap<K, V>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    replicated_with(0, size, RandomState::new())
}

/// The same with room for so many entries, and any hasher. A clone of the hasher makes the same hashes.
///
/// # Panics
/// As [`replicated`], and if there is no memory for so many.
#[track_caller]
pub fn replicated_with<K, V, S>(capacity: usize, size: ClusterSize, hasher: S) -> OwnedMap<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    have_sizes::<K, V, S>();
    let table = Table::with_capacity_and_hasher(capacity, hasher);
    OwnedMap(replicated::Spread::new(table, Copies::new()).create(size))
}

/// Makes a map that is under one lock while it is small and little used, and else as [`central`] makes it; on machines with several nodes,
/// where these read what is larger than their caches and hardly ever written, as [`replicated`] makes it, for nodes. The small form copies what is
/// read, and what changes its form copies entries: a clone must be as good as the original, see the [module](self).
///
/// Makes the policy known and starts its thread, `squall-adapt`, with the first: see [`squall_adapt::engine`].
///
/// # Panics
/// As [`squall_core::try_shared`] errs.
/// # Cost
/// As [`locked`], and a look at the list of families. The change to a table copies 16,384 entries at most, or 131,072 of which a clone copies
/// bytes, 32 at most, while callers wait; that back, half as many; from a table to copies and back nothing is copied. A call of the small form by
/// a thread that does not have it to itself, and a write of the other, costs about a nanosecond more than one of a map that does not adapt; on machines
/// with several nodes a look into a table, too.
#[track_caller]
pub fn adaptive<K, V>() -> OwnedMap<K, V>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    adaptive_with(0, RandomState::new())
}

/// The same with room for so many entries, and any hasher. A clone of the hasher makes the same hashes.
///
/// # Panics
/// As [`adaptive`], and if there is no memory for so many.
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

/// Gives a map of any form a limit, of entries or of what values weigh. Where it has more already that stays, and nothing is added before
/// there is less.
///
/// A new key beyond the limit is refused, and so is a heavier value: [`set_within`](MapExt::set_or_full) and
/// [`compute_within`](MapExt::compute_or_full) return an error that names the map and the limit; methods that have no way to say so panic with
/// it, and have changed nothing. Reads, removals and lighter values are as ever.
///
/// How exact it is: what the entries weigh is at no moment more than the limit. What is refused would have made it more, together with the
/// changes that run at that moment, of which some may turn out not to need what they took: so with n threads a limit may be reached n - 1
/// entries, or changes, too soon. When no change runs, what is taken is what the entries weigh.
///
/// The limit is this object's: [`Map::budget`] has it, also to be changed. A swap is of the map within, and the limit stays:
/// [`MapExt::swap_to`] and [`MapExt::set_cluster_size`] do that; an adaptive map goes on to adapt. This object itself is not swapped: that errs.
/// What is put in through a reference to the map within is not counted.
///
/// ```
/// use squall_objects::map::{self, MapExt, Limit, Map};
/// let sessions = map::limited(map::central::<u64, String>(), Limit::entries(2));
/// assert!(sessions.set_within(1, "one".into()).is_ok() && !sessions.set(2, "two".into()));
/// let full = sessions.set_within(3, "three".into()).unwrap_err();
/// assert!(full.to_string().ends_with("is full: 2 entries of at most 2, and 1 more were to come"));
/// sessions.budget().unwrap().set_most(3);
/// assert_eq!(sessions.set_within(3, "three".into()), Ok(false));
/// let pages = map::limited(map::adaptive::<u64, Vec<u8>>(), Limit::weight(1 << 20, "bytes", |page: &Vec<u8>| page.len() as u64));
/// assert!(pages.set_within(0, vec![0; 2 << 20]).is_err());
/// ```
///
/// # Panics
/// As [`squall_core::try_shared`] errs.
/// # Cost
/// A walk over what is there. Each call is two: about as much as a call more. What puts in or takes out changes a word that all share,
/// and of a weighed map, or one that is full, clones the value. Maps without a limit pay nothing.
#[track_caller]
pub fn limited<K, V, S>(map: OwnedMap<K, V, S>, limit: MapLimit<V>) -> OwnedMap<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    OwnedMap(limited::Bounded::new(map.into_owned(), limit, Copies::new()).create(ClusterSize::Machine))
}

/// Has those maps of these types that have clusters have the attribute of their size.
fn have_sizes<K, V, S>()
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    let make = |co: Handle<dyn Map<K, V, S>>, size| co.try_resized(size).ok().flatten();
    let read = |co: Handle<dyn Map<K, V, S>>| {
        let size = co.try_cluster_size().ok()?;
        co.try_resized(size).ok().flatten().map(|_| size)
    };
    sizes::have::<dyn Map<K, V, S>>(read, make);
}

/// Whether an implementation posts to the policy: the forms of adaptive maps are classes of their own.
const FIXED: bool = false;
const ADAPTS: bool = true;

/// An implementation, to take the place of a map: as [`central`] makes it. It takes the entries over; swapped in without state it has
/// none, and every call errs.
pub fn new_central<K, V, S>() -> Replacement<dyn Map<K, V, S>>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    One::<K, V, S, Table<K, V, S>, FIXED>::to_come(())
}

/// An implementation, to take the place of a map: as [`locked`] makes it. It copies the entries; swapped in without state it has
/// none, and every call errs.
pub fn new_locked<K, V, S>() -> Replacement<dyn Map<K, V, S>>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    One::<K, V, S, Locked<K, V, S>, FIXED>::to_come(under_one_lock())
}

/// An implementation, to take the place of a map: as [`replicated`] makes it. It takes the entries over, without their copies; swapped in without
/// state it has none, and every call errs.
pub fn new_replicated<K, V, S>(size: ClusterSize) -> Replacement<dyn Map<K, V, S>>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    have_sizes::<K, V, S>();
    replicated::Spread::to_come(size, Copies::new())
}

/// An implementation, to take the place of a map: as [`partitioned_with`] makes it. It copies the entries; swapped in without state it has
/// none, and every call errs.
///
/// # Panics
/// If there shall be no part.
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
