//! A directory: for each key one entry that is the same for all, and in each cluster that uses it a part of its own.
//!
//! Not for values that are only looked up: a [`map`](mod@crate::map) needs no lock for that, and has each key once. Nor for keys that are used
//! once: each use makes a part that nobody finds again. And not where an entry's own value changes as often as it is used: then its
//! parts are not what is dear. For sums that no key goes with, take a [`counter`](crate::counter).
//!
//! It is for what has much traffic that is local, and now and then a question to all: sessions and the requests that each made, files and
//! who has read them, tenants and what they used. Whoever uses a key locks its cluster's part of it, and nothing that another cluster
//! writes; of all that ask for a key which is not there one makes it; a question goes to the parts of all clusters at one
//! moment; and what is removed is gone everywhere at one moment, with its last sums.
//!
//! ```
//! use squall_machine::ClusterSize;
//! use squall_objects::directory::{self, Entered, Parts};
//!
//! // For each user: since when, one for all, and the requests that each core served.
//! let sessions = directory::distributed::<String, u64, u64>(ClusterSize::Core, |_since| 0);
//! std::thread::scope(|threads| {
//!     for _ in 0..4 {
//!         threads.spawn(|| sessions.get_or_make("ann", || 1970, |_since, requests| *requests += 1));
//!     }
//! });
//! assert_eq!(sessions.read("ann", |since| *since), Some(1970)); // no lock
//! assert_eq!(sessions.gather("ann", 0, |sum, _, requests| *sum += *requests), Some(4));
//! assert_eq!(sessions.remove_with("ann", 0, |sum, _, requests| *sum += *requests), Some(4)); // the very last sum
//! assert_eq!((sessions.len(), sessions.remove("ann")), (0, false));
//! ```
//!
//! | made by | using a key that was used there before | another | a question to all parts, a removal |
//! |---|---|---|---|
//! | [`shared`] | a look into a table, and a lock, of all | the same, and an entry | a lock more |
//! | [`distributed`] | the same, of the cluster's own | the same, the entry's lock, and a part of its own | a look into each cluster's table that calls, and a lock of each part |
//!
//! A call that locks also counts itself in and out of its cluster's representative, for it may block.
//!
//! There is no adaptive form: [`set_cluster_size`](Parts::set_cluster_size) changes one into the other, and to any size, while it is used; what
//! the parts hold stays.
//!
//! Closures run under the locks of the key that they are given, and must not use the directory but to [`read`](Parts::read): in debug builds that
//! panics. They, and what makes an entry, may block; then others who want the same key wait. No poisoning: a closure that panics
//! has done to its parts what it did, and one that makes an entry leaves none. Drops of entries and parts may use it. Calls that lock are
//! no operation, and may be made where one may block; signal handlers shall not use it; in the child of a fork calls err. To have one
//! among others in an object of your own, see `squall_dhash`, of which these are made.

mod owner;
mod distributed;

use squall_core::swap::{Replacement, Swap, SwapError, SwapReport};
use squall_core::{Handle, Root};
use squall_parts::dhash::{Local, Locking, Master};
use squall_machine::ClusterSize;
use squall_macros::interface;
use squall_rcu::{Guard, pin};
use std::borrow::Borrow;
use std::convert::Infallible;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};

use crate::sizes;
pub use crate::walk::Walk;
pub use owner::OwnedDirectory;
use distributed::Distributed;

/// A directory. [`Parts`] has what people do with one; this is what an implementation has.
///
/// Progress: reads are lock-free. All else blocks: a thread that stalls in a closure holds up its key in its cluster, and whoever asks
/// all parts of that key; while it makes an entry, the key everywhere. Whoever meets a swap waits for that, as in every call; a call
/// that stays holds it up.
/// # Source
/// CO-54 to CO-62, CO-73.
#[interface(crate = squall_core)]
pub trait Directory<K, G, L, S>: Send + Sync
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    /// Lends the tables, for one read in the rest of the operation.
    fn look<'o>(&self, guard: &'o Guard, found: &mut Option<Tables<'o, K, G, L, S>>);

    /// Calls `act` once with the tables: when this returns, nothing is done to them any more.
    #[blocking]
    fn with(&self, act: &mut Act<'_, K, G, L, S>);

    /// How large the clusters are of which each has parts of its own.
    fn cluster_size(&self) -> ClusterSize;

    /// What its sensors read.
    fn sensors(&self) -> Sensors {
        Sensors::default()
    }
}

/// What is done with the tables of a directory, once.
pub type Act<'f, K, G, L, S> = dyn FnMut(Tables<'_, K, G, L, S>) + 'f;

/// What the sensors of a directory read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sensors {
    /// Keys.
    pub keys: usize,
    /// Representatives.
    pub reps: usize,
    /// Parts of all keys together, those included that nobody has used since the clusters were smaller.
    pub parts: usize,
}

/// The tables of a directory within a call: what the methods of [`Parts`] are made of.
pub struct Tables<'a, K, G, L, S>
where
    K: Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: Send + Sync + 'static,
{
    here: &'a Local<K, G, L, S>,
    master: &'a Master<K, G, L, S>,
}

impl<K, G, L, S> fmt::Debug for Tables<'_, K, G, L, S>
where
    K: Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tables").finish_non_exhaustive()
    }
}

/// What people do with a directory. Comes with the reference.
///
/// Each method panics as every call does if the object was destroyed.
pub trait Parts<K, G, L, S>: Copy
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    /// Locks this cluster's part of the key and calls `f` with it. If the key is not there `make` makes its entry first: of all that ask at once,
    /// anywhere, one does, and the others wait for it. One that panics leaves the key as it was, and the next one makes it.
    ///
    /// # Cost
    /// A look into the cluster's own table, a lock, and two counts of the cluster's, where the cluster has used the key.
    fn get_or_make<Q, R>(self, key: &Q, make: impl FnOnce() -> G, f: impl FnOnce(&G, &mut L) -> R) -> R
    where
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
        K: Borrow<Q>,
    {
        let made: Result<R, Infallible> = self.try_get_or_make(key, || Ok(make()), f);
        made.unwrap_or_else(|never| match never {})
    }

    /// The same with a `make` that may fail: then the key is as it was.
    ///
    /// # Errors
    /// Those of `make`.
    fn try_get_or_make<Q, R, E>(
        self,
        key: &Q,
        make: impl FnOnce() -> Result<G, E>,
        f: impl FnOnce(&G, &mut L) -> R,
    ) -> Result<R, E>
    where
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
        K: Borrow<Q>;

    /// Locks this cluster's part of the key and calls `f` with it, if the key is there. A cluster that has not used the key has a part made.
    fn update<Q, R>(self, key: &Q, f: impl FnOnce(&G, &mut L) -> R) -> Option<R>
    where
        Q: Eq + Hash + ?Sized,
        K: Borrow<Q>;

    /// What `f` makes of the key's entry. It takes no lock and writes nothing, makes no part, and runs in an operation: keep it short.
    fn read<Q, R>(self, key: &Q, f: impl FnOnce(&G) -> R) -> Option<R>
    where
        Q: Eq + Hash + ?Sized,
        K: Borrow<Q>;

    /// Whether the key is there.
    fn contains_key<Q>(self, key: &Q) -> bool
    where
        Q: Eq + Hash + ?Sized,
        K: Borrow<Q>,
    {
        self.read(key, |_| ()).is_some()
    }

    /// Locks all parts of a key, and calls `f` with what was gathered so far and each of them: to sum them up, or to tell all
    /// something. Nobody sees it half done. Returns what was gathered, if the key is there.
    fn gather<Q, A>(self, key: &Q, gathered: A, f: impl FnMut(&mut A, &G, &mut L)) -> Option<A>
    where
        Q: Eq + Hash + ?Sized,
        K: Borrow<Q>;

    /// The same of all keys, one after the other. Keys that come or go meanwhile may be met or not.
    fn gather_all<A>(self, gathered: A, f: impl FnMut(&mut A, &K, &G, &mut L)) -> A;

    /// Calls `f` with each key and its entry, without locks; in operations of some keys each. Keys that come or go meanwhile may be met or not.
    fn for_each(self, f: impl FnMut(&K, &G));

    /// Clones of the keys and their entries, as [`for_each`](Parts::for_each) sees them.
    fn iter(self) -> Walk<(K, G)>
    where
        G: Clone;

    /// Clones of the keys.
    fn keys(self) -> Walk<K>;

    /// Removes a key, everywhere at one moment. Returns whether it was there; of several who remove it at once, one is told so.
    fn remove<Q>(self, key: &Q) -> bool
    where
        Q: Eq + Hash + ?Sized,
        K: Borrow<Q>,
    {
        self.remove_with(key, (), |(), _, _| ()).is_some()
    }

    /// The same, and gathers what the parts are at that moment: nothing is done to them after it.
    fn remove_with<Q, A>(self, key: &Q, gathered: A, f: impl FnMut(&mut A, &G, &mut L)) -> Option<A>
    where
        Q: Eq + Hash + ?Sized,
        K: Borrow<Q>;

    /// Removes each key to which `keep` says no, one after the other. It runs under the entry's lock.
    fn retain(self, keep: impl FnMut(&K, &G) -> bool);

    /// Removes all that is there from the beginning to the end, one key after the other.
    fn clear(self) {
        self.retain(|_, _| false);
    }

    /// How many keys there are, about: one that is being made or removed counts.
    fn len(self) -> usize;

    /// Whether there is none, about.
    fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Changes how large the clusters are of which each has parts of its own, by a hot-swap; parts that there are stay, and are counted in.
    ///
    /// # Errors
    /// As every swap; the size is what it was then.
    fn set_cluster_size(self, size: ClusterSize) -> Result<SwapReport, SwapError>;
}

/// Reads within an operation.
#[inline]
#[track_caller]
fn look<K, G, L, S, R>(handle: Handle<dyn Directory<K, G, L, S>>, f: impl FnOnce(Tables<'_, K, G, L, S>) -> R) -> R
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    pin(|guard| {
        let mut found = None;
        handle.look(guard, &mut found);
        f(found.expect("an implementation of a directory lends its tables"))
    })
}

/// What locks, within a call.
#[inline]
#[track_caller]
fn act<K, G, L, S, R>(handle: Handle<dyn Directory<K, G, L, S>>, f: impl FnOnce(Tables<'_, K, G, L, S>) -> R) -> R
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    let (mut f, mut done) = (Some(f), None);
    handle.with(&mut |tables| done = f.take().map(|f| f(tables)));
    done.expect("an implementation of a directory calls what it is given")
}

fn walk<K, G, L, S, T: 'static>(handle: Handle<dyn Directory<K, G, L, S>>, make: fn(&K, &G) -> T) -> Walk<T>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    Walk::new(move |from, found| {
        act(handle, |tables| tables.master.visit_from(from, |key, entry| found.push(make(key, entry))))
    })
}

impl<K, G, L, S> Parts<K, G, L, S> for Handle<dyn Directory<K, G, L, S>>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    #[track_caller]
    fn try_get_or_make<Q, R, E>(
        self,
        key: &Q,
        make: impl FnOnce() -> Result<G, E>,
        f: impl FnOnce(&G, &mut L) -> R,
    ) -> Result<R, E>
    where
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
        K: Borrow<Q>,
    {
        act(self, |tables| {
            tables.here.try_find_or_allocate_and_lock(key, make, |_, entry, part| f(entry, part))
        })
    }

    #[track_caller]
    fn update<Q, R>(self, key: &Q, f: impl FnOnce(&G, &mut L) -> R) -> Option<R>
    where
        Q: Eq + Hash + ?Sized,
        K: Borrow<Q>,
    {
        act(self, |tables| tables.here.find_and_lock(key, f))
    }

    #[inline]
    #[track_caller]
    fn read<Q, R>(self, key: &Q, f: impl FnOnce(&G) -> R) -> Option<R>
    where
        Q: Eq + Hash + ?Sized,
        K: Borrow<Q>,
    {
        look(self, |tables| tables.here.read(key, f))
    }

    #[track_caller]
    fn gather<Q, A>(self, key: &Q, gathered: A, f: impl FnMut(&mut A, &G, &mut L)) -> Option<A>
    where
        Q: Eq + Hash + ?Sized,
        K: Borrow<Q>,
    {
        act(self, |tables| tables.master.do_op(key, Locking::All, gathered, |_, _| (), f))
    }

    #[track_caller]
    fn gather_all<A>(self, gathered: A, f: impl FnMut(&mut A, &K, &G, &mut L)) -> A {
        act(self, |tables| tables.master.do_op_all(Locking::All, gathered, |_, _, _| (), f))
    }

    #[track_caller]
    fn for_each(self, f: impl FnMut(&K, &G)) {
        // It is no operation itself, so that a walk over many holds up no reclamation.
        act(self, |tables| tables.master.for_each(f));
    }

    fn iter(self) -> Walk<(K, G)>
    where
        G: Clone,
    {
        walk(self, |key, entry| (key.clone(), entry.clone()))
    }

    fn keys(self) -> Walk<K> {
        walk(self, |key, _| key.clone())
    }

    #[track_caller]
    fn remove_with<Q, A>(self, key: &Q, mut gathered: A, mut f: impl FnMut(&mut A, &G, &mut L)) -> Option<A>
    where
        Q: Eq + Hash + ?Sized,
        K: Borrow<Q>,
    {
        act(self, |tables| {
            tables.master.find_and_lock(key, |element| {
                let entry = element.global();
                element.start_empty(|mut emptying| {
                    emptying.replicas().iter().for_each(|part| f(&mut gathered, entry, part));
                    emptying.do_empty().finish_empty();
                });
                gathered
            })
        })
    }

    #[track_caller]
    fn retain(self, keep: impl FnMut(&K, &G) -> bool) {
        act(self, |tables| tables.master.retain(keep));
    }

    #[track_caller]
    fn len(self) -> usize {
        look(self, |tables| tables.master.len())
    }

    #[track_caller]
    fn set_cluster_size(self, size: ClusterSize) -> Result<SwapReport, SwapError> {
        Swap::new(self).run(new_directory(size))
    }
}

/// Makes a directory whose parts are all in one place: to begin with, and for few threads. `part` makes a part of a key's entry; it runs
/// under a lock of the key's.
///
/// # Panics
/// As [`squall_core::try_shared`] errs.
#[track_caller]
pub fn shared<K, G, L>(part: impl Fn(&G) -> L + Send + Sync + 'static) -> OwnedDirectory<K, G, L>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
{
    distributed(ClusterSize::Machine, part)
}

/// Makes a directory of which each cluster of this size has parts of its own. `part` makes a part of a key's entry, where a cluster uses
/// the key first; it runs under a lock of the key's.
///
/// # Panics
/// As [`shared`].
#[track_caller]
pub fn distributed<K, G, L>(
    size: ClusterSize,
    part: impl Fn(&G) -> L + Send + Sync + 'static,
) -> OwnedDirectory<K, G, L>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
{
    with_hasher(size, RandomState::new(), part)
}

/// The same, with any hasher.
///
/// # Panics
/// As [`shared`].
#[track_caller]
pub fn with_hasher<K, G, L, S>(
    size: ClusterSize,
    hasher: S,
    part: impl Fn(&G) -> L + Send + Sync + 'static,
) -> OwnedDirectory<K, G, L, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    sizes::have::<dyn Directory<K, G, L, S>>(
        |handle| handle.try_cluster_size().ok(),
        |handle, size| Some((handle, new_directory(size))),
    );
    OwnedDirectory(Distributed::of(Master::with_hasher(hasher, part)).create(size))
}

/// An implementation, to take the place of a directory: as [`distributed`] makes it. It takes entries and parts over; swapped in without
/// state it has none, and every call errs.
pub fn new_directory<K, G, L, S>(size: ClusterSize) -> Replacement<dyn Directory<K, G, L, S>>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    Replacement::root(Distributed::<K, G, L, S>::vacant(), size)
}
