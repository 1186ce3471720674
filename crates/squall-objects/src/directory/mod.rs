//! Directories: each key has one entry for all, and a part of its own in each cluster that uses it.
//! Feature: `directories`.
//!
//! A directory suits local use of keys with an occasional *question*, which reads the parts of all clusters.
//! Examples are sessions and their requests, files and their readers, tenants and their usage.
//!
//! - A use of a key locks the part of the caller's cluster, and writes no memory of other clusters.
//! - If several threads ask for a missing key at once, one of them makes it.
//! - A question reads the parts of all clusters at one moment.
//! - A removal takes effect everywhere at one moment, and can return the final sums.
//! - An entry can be made later, by another thread or by a task: [`get_or_reserve`](Parts::get_or_reserve)
//!   returns a [`Reservation`] of an absent key.
//!
//! ```
//! use squall::ClusterSize;
//! use squall::objects::directory::{self, Parts};
//!
//! // For each user: the first year, one for all, and the requests that each core served.
//! let sessions = directory::distributed::<String, u64, u64>(ClusterSize::Core, |_since| 0);
//! std::thread::scope(|threads| {
//!     for _ in 0..4 {
//!         threads.spawn(|| sessions.get_or_make("ann", || 1970, |_since, requests| *requests += 1));
//!     }
//! });
//! assert_eq!(sessions.read("ann", |since| *since), Some(1970)); // without a lock
//! assert_eq!(sessions.gather("ann", 0, |sum, _, requests| *sum += *requests), Some(4));
//! // The final sum, since no request can come after it:
//! assert_eq!(sessions.remove_with("ann", 0, |sum, _, requests| *sum += *requests), Some(4));
//! assert_eq!((sessions.len(), sessions.remove("ann")), (0, false));
//! ```
//!
//! | form | using a key again | using a new key | a question, a removal |
//! |---|---|---|---|
//! | [`shared`] | a lookup and a lock, shared by all | and a new entry | one more lock |
//! | [`distributed`] | a lookup and a lock of the cluster | and its lock and a part | a lock per cluster |
//!
//! A call that locks also counts itself in and out of its representative, since it may block.
//!
//! There is no adaptive form. [`set_cluster_size`](Parts::set_cluster_size) changes the form to any cluster
//! size while the directory is used. The parts keep their contents.
//!
//! # When not
//! - Entries are only looked up: a [`map`](mod@crate::map) needs no lock, and stores each key once.
//! - Keys are used once: each use makes a part that no later use finds.
//! - The entry itself changes as often as it is used. Its parts then save little.
//! - Sums without keys: use a [`counter`](crate::counter).
//!
//! # Limits
//! - Closures run under the locks of their key, and may only [`read`](Parts::read) the directory. In debug
//!   builds other uses panic.
//! - Closures may block. Then other users of the key wait.
//! - There is no poisoning. A closure that panics keeps its changes of the parts. If a closure that
//!   makes an entry panics, the key stays absent.
//! - Drops of entries and parts may use the directory.
//! - Methods that lock are not operations, and may be called where blocking is allowed.
//! - Signal handlers must not use a directory. In the child of a fork, calls return an error or panic: see
//!   [forked children](squall_core#forked-children).
//!
//! [`squall::parts::dhash`](squall_parts::dhash) has the tables of these objects, for an object of your own.

mod calls;
mod distributed;
mod owner;
mod reservation;

use squall_core::swap::{Replacement, Swap, SwapError, SwapReport};
use squall_core::{Handle, Root};
use squall_machine::ClusterSize;
use squall_macros::interface;
pub use squall_parts::dhash::{Busy, FillError, Lookup, Revoked};
use squall_parts::dhash::{LocalTable, Locking, MasterTable};
use squall_rcu::Guard;
use std::borrow::Borrow;
use std::convert::Infallible;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};

use crate::answers::panics_in;
use crate::sizes;
pub use crate::walk::Walk;
use calls::{act, look, reserve, walk};
use distributed::Distributed;
pub use owner::OwnedDirectory;
pub use reservation::Reservation;

/// A directory, as implementations provide it. [`Parts`] has the methods for users.
///
/// Progress: reads are lock-free. All other methods block. A thread that stalls in a closure delays its key
/// in its cluster, and questions to all parts of that key. While it makes an entry, it delays the key
/// everywhere. A call that meets a swap waits for it, and a call that stalls delays the swap.
///
/// # Source
/// Appavoo 2005, §4.1.4 (CO-54 to CO-62, CO-73).
#[interface(crate = squall_core)]
pub trait Directory<K, G, L, S>: Send + Sync
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    /// Stores a view of the tables in `found`, for one read in the rest of the operation.
    fn look<'o>(&self, guard: &'o Guard, found: &mut Option<Tables<'o, K, G, L, S>>);

    /// Calls `act` once with the tables. All changes are complete when this returns.
    #[blocking]
    fn with(&self, act: &mut Act<'_, K, G, L, S>);

    /// Returns the size of the clusters that have parts of their own.
    fn cluster_size(&self) -> ClusterSize;

    /// Reads the sensors.
    fn sensors(&self) -> Sensors {
        Sensors::default()
    }
}

/// The answer to a caller that reserves an absent key.
type Answer<R, K, G, L, S, E> = Result<Lookup<R, Reservation<K, G, L, S>>, E>;

/// A use of the tables of a directory, called once.
pub type Act<'f, K, G, L, S> = dyn FnMut(Tables<'_, K, G, L, S>) + 'f;

/// Readings of the sensors of a directory.
///
/// ```
/// use squall::ClusterSize;
/// use squall::objects::directory::{self, Directory, Parts};
///
/// let uses = directory::distributed::<u32, (), u64>(ClusterSize::Core, |_| 0);
/// uses.get_or_make(&1, || (), |_, uses| *uses += 1);
/// let sensors = uses.sensors();
/// assert_eq!((sensors.keys, sensors.parts), (1, 1));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sensors {
    /// Number of keys.
    pub keys: usize,
    /// Number of representatives.
    pub reps: usize,
    /// Number of parts of all keys, including unused ones from a time of smaller clusters.
    pub parts: usize,
}

/// Tables of a directory within a call, for the methods of [`Parts`].
pub struct Tables<'a, K, G, L, S>
where
    K: Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: Send + Sync + 'static,
{
    here: &'a LocalTable<K, G, L, S>,
    master: &'a MasterTable<K, G, L, S>,
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

/// Methods of a directory, on a handle or an owner.
///
/// Each method panics if the object was destroyed.
///
/// ```
/// use squall::ClusterSize;
/// use squall::objects::directory::{self, Parts};
///
/// // For each file: its size, and the reads from each core.
/// let files = directory::distributed::<String, u64, u64>(ClusterSize::Core, |_size| 0);
/// files.get_or_make("a.txt", || 100, |_size, reads| *reads += 1);
/// files.update("a.txt", |_size, reads| *reads += 1);
/// assert_eq!(files.gather("a.txt", 0, |sum, _, reads| *sum += *reads), Some(2));
/// ```
pub trait Parts<K, G, L, S>: Copy
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    /// Locks the key's part of this cluster and calls `f` with it. Calls `make` first if the key is absent.
    ///
    /// Of several threads that ask for an absent key at once, in any cluster, one calls `make` and the others
    /// wait. If `make` panics, the key stays absent, and the next thread calls its own `make`.
    ///
    /// # Cost
    /// If the cluster has used the key: a lookup in the cluster's table, a lock, and two counts of the
    /// cluster.
    fn get_or_make<Q, R>(self, key: &Q, make: impl FnOnce() -> G, f: impl FnOnce(&G, &mut L) -> R) -> R
    where
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
        K: Borrow<Q>,
    {
        let made: Result<R, Infallible> = self.try_get_or_make(key, || Ok(make()), f);
        made.unwrap_or_else(|never| match never {})
    }

    /// Like [`get_or_make`](Parts::get_or_make), but `make` may fail. Then the key stays absent.
    ///
    /// ```
    /// use squall::objects::directory::{self, Parts};
    ///
    /// let users = directory::shared::<String, u32, u64>(|_| 0);
    /// assert_eq!(users.try_get_or_make("ann", || "ten".parse(), |_, _| ()).is_err(), true);
    /// assert_eq!(users.try_get_or_make("ann", || "10".parse(), |id, _| *id), Ok(10));
    /// ```
    ///
    /// # Errors
    /// The errors of `make`.
    fn try_get_or_make<Q, R, E>(
        self,
        key: &Q,
        make: impl FnOnce() -> Result<G, E>,
        f: impl FnOnce(&G, &mut L) -> R,
    ) -> Result<R, E>
    where
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
        K: Borrow<Q>;

    /// Locks the key's part of this cluster and calls `f` with it, if the key is present. Otherwise reserves
    /// the key, for an entry that is made later, by any thread or task.
    ///
    /// Of all callers that ask for an absent key, in any cluster, exactly one gets a [`Reservation`]. The
    /// others wait until it ends. They wait outside the call: the directory may be swapped meanwhile.
    ///
    /// # Errors
    /// [`FillError`]: this call waited for a reservation, and its holder [failed](Reservation::fail).
    ///
    /// # Panics
    /// If the object was destroyed, also while the call waits. If the call must wait in the child of a fork.
    /// In debug builds, if it must wait inside an operation.
    ///
    /// # Cost
    /// As [`get_or_make`](Parts::get_or_make), and a second lock for a fill.
    ///
    /// # Example
    /// ```
    /// use squall::objects::directory::{self, Lookup, Parts};
    ///
    /// let pages = directory::shared::<u64, u64, u64>(|_| 0);
    /// let page = pages.get_or_reserve(&7, |_, _| ()).unwrap().empty().expect("the page is absent");
    /// std::thread::scope(|threads| {
    ///     let waits = threads.spawn(|| pages.get_or_reserve(&7, |frame, _| *frame));
    ///     page.fill(4096).unwrap();
    ///     assert_eq!(waits.join().unwrap().unwrap().found(), Some(4096));
    /// });
    /// ```
    fn get_or_reserve<Q, R>(
        self,
        key: &Q,
        f: impl FnOnce(&G, &mut L) -> R,
    ) -> Answer<R, K, G, L, S, FillError>
    where
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
        K: Borrow<Q>;

    /// Like [`get_or_reserve`](Parts::get_or_reserve), but does not wait for an entry that is being made.
    ///
    /// # Errors
    /// [`Busy`]: another caller makes the entry, or has reserved the key.
    fn try_get_or_reserve<Q, R>(
        self,
        key: &Q,
        f: impl FnOnce(&G, &mut L) -> R,
    ) -> Answer<R, K, G, L, S, Busy>
    where
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
        K: Borrow<Q>;

    /// Like [`get_or_reserve`](Parts::get_or_reserve), but the task waits, and not the thread. The thread
    /// waits only for closures that run under the key's locks. Dropping the future has no effect.
    ///
    /// # Errors
    /// As [`get_or_reserve`](Parts::get_or_reserve).
    ///
    /// # Panics
    /// A poll, if the object was destroyed.
    ///
    /// # Example
    /// ```
    /// use squall::Handle;
    /// use squall::objects::directory::{Directory, FillError, Lookup, Parts, Revoked};
    /// use std::hash::RandomState;
    ///
    /// # async fn load(_: u64) -> std::io::Result<Vec<u8>> { Ok(Vec::new()) }
    /// type Pages = Handle<dyn Directory<u64, Vec<u8>, u64, RandomState>>;
    ///
    /// /// Returns the length of a page. The first task that asks loads it, and the others wait.
    /// async fn page_len(pages: Pages, number: u64) -> Result<usize, FillError> {
    ///     match pages.get_or_reserve_async(&number, |page, uses| (*uses += 1, page.len()).1).await? {
    ///         Lookup::Found(len) => Ok(len),
    ///         Lookup::Empty(page) => match load(number).await {
    ///             Ok(bytes) => {
    ///                 let len = bytes.len();
    ///                 // The page was revoked if this fails: then only this task gets it.
    ///                 let _: Result<(), Revoked<Vec<u8>>> = page.fill(bytes);
    ///                 Ok(len)
    ///             }
    ///             Err(error) => {
    ///                 let error = FillError::from(error);
    ///                 page.fail(error.clone());
    ///                 Err(error)
    ///             }
    ///         },
    ///     }
    /// }
    /// ```
    fn get_or_reserve_async<Q, R>(
        self,
        key: &Q,
        f: impl FnOnce(&G, &mut L) -> R + Send,
    ) -> impl Future<Output = Answer<R, K, G, L, S, FillError>> + Send
    where
        Q: Eq + Hash + ToOwned<Owned = K> + Sync + ?Sized,
        K: Borrow<Q>;

    /// Ends the key's reservation, if it has one, without waiting for its holder. Returns whether it had one.
    /// The key is then absent, and a fill by the holder returns its entry. No other key is changed:
    /// [`remove`](Parts::remove) removes a key that is present.
    ///
    /// Callers that wait for the key within [`update`](Parts::update), [`gather`](Parts::gather),
    /// [`remove`](Parts::remove) or [`get_or_make`](Parts::get_or_make) go on. Until then each of them keeps
    /// the directory alive and delays a swap of it.
    ///
    /// ```
    /// use squall::objects::directory::{self, Parts, Revoked};
    ///
    /// let pages = directory::shared::<u64, u64, ()>(|_| ());
    /// let page = pages.get_or_reserve(&7, |_, _| ()).unwrap().empty().unwrap();
    /// assert!(pages.revoke(&7) && !pages.revoke(&7));
    /// assert_eq!(page.fill(4096), Err(Revoked(4096)));
    /// ```
    fn revoke<Q>(self, key: &Q) -> bool
    where
        Q: Eq + Hash + ?Sized,
        K: Borrow<Q>;

    /// Locks the key's part of this cluster and calls `f` with it. Returns `None` if the key is absent. Makes
    /// the part if the cluster has not used the key.
    fn update<Q, R>(self, key: &Q, f: impl FnOnce(&G, &mut L) -> R) -> Option<R>
    where
        Q: Eq + Hash + ?Sized,
        K: Borrow<Q>;

    /// Calls `f` with the key's entry and returns the result, or `None` if the key is absent.
    ///
    /// Takes no lock, writes no memory and makes no part. `f` runs in an operation, so keep it short.
    ///
    /// ```
    /// use squall::objects::directory::{self, Parts};
    ///
    /// let users = directory::shared::<String, u32, u64>(|_| 0);
    /// users.get_or_make("ann", || 10, |_, _| ());
    /// assert_eq!(users.read("ann", |id| *id), Some(10));
    /// ```
    fn read<Q, R>(self, key: &Q, f: impl FnOnce(&G) -> R) -> Option<R>
    where
        Q: Eq + Hash + ?Sized,
        K: Borrow<Q>;

    /// Returns whether the key is present.
    fn contains_key<Q>(self, key: &Q) -> bool
    where
        Q: Eq + Hash + ?Sized,
        K: Borrow<Q>,
    {
        self.read(key, |_| ()).is_some()
    }

    /// Locks all parts of a key and folds `f` over them, to sum them up or to change them all. Other threads
    /// see all or no changes. Returns the result, or `None` if the key is absent.
    ///
    /// ```
    /// use squall::objects::directory::{self, Parts};
    ///
    /// let users = directory::shared::<String, (), u64>(|_| 5);
    /// users.get_or_make("ann", || (), |_, _| ());
    /// assert_eq!(users.gather("ann", 0, |sum, (), part| *sum += std::mem::take(part)), Some(5));
    /// assert_eq!(users.gather("ann", 0, |sum, (), part| *sum += *part), Some(0));
    /// ```
    fn gather<Q, A>(self, key: &Q, gathered: A, f: impl FnMut(&mut A, &G, &mut L)) -> Option<A>
    where
        Q: Eq + Hash + ?Sized,
        K: Borrow<Q>;

    /// Folds `f` over the parts of all keys, one key at a time. A key that comes or goes during the walk may
    /// be skipped.
    ///
    /// ```
    /// use squall::objects::directory::{self, Parts};
    ///
    /// let users = directory::shared::<u32, (), u64>(|_| 1);
    /// (0..10).for_each(|key| users.get_or_make(&key, || (), |_, _| ()));
    /// assert_eq!(users.gather_all(0, |sum, _key, (), part| *sum += *part), 10);
    /// ```
    fn gather_all<A>(self, gathered: A, f: impl FnMut(&mut A, &K, &G, &mut L)) -> A;

    /// Calls `f` with each key and its entry, without locks. A key that comes or goes during the walk may be
    /// skipped.
    ///
    /// The walk consists of several short operations.
    fn for_each(self, f: impl FnMut(&K, &G));

    /// Returns an iterator over clones of the keys and entries that [`for_each`](Parts::for_each) visits.
    ///
    /// ```
    /// use squall::objects::directory::{self, Parts};
    ///
    /// let users = directory::shared::<u32, char, ()>(|_| ());
    /// users.get_or_make(&1, || 'a', |_, ()| ());
    /// assert_eq!(users.iter().collect::<Vec<_>>(), [(1, 'a')]);
    /// ```
    fn iter(self) -> Walk<(K, G)>
    where
        G: Clone;

    /// Returns an iterator over clones of the keys.
    fn keys(self) -> Walk<K>;

    /// Removes a key everywhere at one moment. Returns whether it was present. If several threads remove it
    /// at once, one of them gets true.
    fn remove<Q>(self, key: &Q) -> bool
    where
        Q: Eq + Hash + ?Sized,
        K: Borrow<Q>,
    {
        self.remove_with(key, (), |(), _, _| ()).is_some()
    }

    /// Like [`remove`](Parts::remove), but also folds `f` over the parts. The result is final: no thread
    /// changes the parts afterwards.
    ///
    /// ```
    /// use squall::objects::directory::{self, Parts};
    ///
    /// let users = directory::shared::<u32, (), u64>(|_| 7);
    /// users.get_or_make(&1, || (), |_, _| ());
    /// assert_eq!(users.remove_with(&1, 0, |sum, (), part| *sum += *part), Some(7));
    /// assert_eq!(users.remove_with(&1, 0, |sum, (), part| *sum += *part), None);
    /// ```
    fn remove_with<Q, A>(self, key: &Q, gathered: A, f: impl FnMut(&mut A, &G, &mut L)) -> Option<A>
    where
        Q: Eq + Hash + ?Sized,
        K: Borrow<Q>;

    /// Removes the keys for which `keep` returns false, one at a time. `keep` runs under the entry's lock.
    ///
    /// ```
    /// use squall::objects::directory::{self, Parts};
    ///
    /// let users = directory::shared::<u32, (), u64>(|_| 0);
    /// (0..10).for_each(|key| users.get_or_make(&key, || (), |_, _| ()));
    /// users.retain(|key, ()| key % 2 == 0);
    /// assert_eq!(users.len(), 5);
    /// ```
    fn retain(self, keep: impl FnMut(&K, &G) -> bool);

    /// Removes all keys that are present throughout, one at a time.
    fn clear(self) {
        self.retain(|_, _| false);
    }

    /// Returns the approximate number of keys. A key that is being made or removed counts.
    fn len(self) -> usize;

    /// Returns whether the directory is empty, approximately.
    fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Changes the size of the clusters that have parts of their own, by a hot-swap. Existing parts stay and
    /// are included in questions.
    ///
    /// ```
    /// use squall::ClusterSize;
    /// use squall::objects::directory::{self, Directory, Parts};
    ///
    /// let uses = directory::shared::<u32, (), u64>(|_| 0);
    /// uses.get_or_make(&1, || (), |_, uses| *uses += 1);
    /// uses.set_cluster_size(ClusterSize::Core).unwrap();
    /// uses.update(&1, |_, uses| *uses += 1);
    /// assert_eq!(uses.gather(&1, 0, |sum, _, uses| *sum += *uses), Some(2));
    /// assert_eq!(uses.cluster_size(), ClusterSize::Core);
    /// ```
    ///
    /// # Errors
    /// [`SwapError`]: the object is unchanged.
    fn set_cluster_size(self, size: ClusterSize) -> Result<SwapReport, SwapError>;
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
        act(self, panics_in!("try_get_or_make"), |tables| {
            tables.here.try_find_or_allocate_and_lock(key, make, |_, entry, part| f(entry, part))
        })
    }

    #[track_caller]
    fn get_or_reserve<Q, R>(
        self,
        key: &Q,
        f: impl FnOnce(&G, &mut L) -> R,
    ) -> Answer<R, K, G, L, S, FillError>
    where
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
        K: Borrow<Q>,
    {
        let mut f = Some(f);
        loop {
            match reserve(self, key, panics_in!("get_or_reserve"), &mut f) {
                Ok(lookup) => return Ok(lookup),
                Err(filling) => filling.wait()?,
            }
        }
    }

    #[track_caller]
    fn try_get_or_reserve<Q, R>(self, key: &Q, f: impl FnOnce(&G, &mut L) -> R) -> Answer<R, K, G, L, S, Busy>
    where
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
        K: Borrow<Q>,
    {
        reserve(self, key, panics_in!("try_get_or_reserve"), &mut Some(f)).map_err(|_| Busy)
    }

    async fn get_or_reserve_async<Q, R>(
        self,
        key: &Q,
        f: impl FnOnce(&G, &mut L) -> R + Send,
    ) -> Answer<R, K, G, L, S, FillError>
    where
        Q: Eq + Hash + ToOwned<Owned = K> + Sync + ?Sized,
        K: Borrow<Q>,
    {
        let mut f = Some(f);
        loop {
            // The answer is dropped before the task waits, since it need not be `Send`.
            let filling = match reserve(self, key, panics_in!("get_or_reserve_async"), &mut f) {
                Ok(lookup) => return Ok(lookup),
                Err(filling) => filling,
            };
            filling.filled().await?;
        }
    }

    #[track_caller]
    fn revoke<Q>(self, key: &Q) -> bool
    where
        Q: Eq + Hash + ?Sized,
        K: Borrow<Q>,
    {
        act(self, panics_in!("revoke"), |tables| tables.master.revoke(key))
    }

    #[track_caller]
    fn update<Q, R>(self, key: &Q, f: impl FnOnce(&G, &mut L) -> R) -> Option<R>
    where
        Q: Eq + Hash + ?Sized,
        K: Borrow<Q>,
    {
        act(self, panics_in!("update"), |tables| tables.here.find_and_lock(key, f))
    }

    #[inline]
    #[track_caller]
    fn read<Q, R>(self, key: &Q, f: impl FnOnce(&G) -> R) -> Option<R>
    where
        Q: Eq + Hash + ?Sized,
        K: Borrow<Q>,
    {
        look(self, panics_in!("read"), |tables| tables.here.read(key, f))
    }

    #[track_caller]
    fn gather<Q, A>(self, key: &Q, gathered: A, f: impl FnMut(&mut A, &G, &mut L)) -> Option<A>
    where
        Q: Eq + Hash + ?Sized,
        K: Borrow<Q>,
    {
        act(self, panics_in!("gather"), |tables| {
            tables.master.do_op(key, Locking::All, gathered, |_, _| (), f)
        })
    }

    #[track_caller]
    fn gather_all<A>(self, gathered: A, f: impl FnMut(&mut A, &K, &G, &mut L)) -> A {
        act(self, panics_in!("gather_all"), |tables| {
            tables.master.do_op_all(Locking::All, gathered, |_, _, _| (), f)
        })
    }

    #[track_caller]
    fn for_each(self, f: impl FnMut(&K, &G)) {
        // Not within one operation, so that a long walk does not delay reclamation.
        act(self, panics_in!("for_each"), |tables| tables.master.for_each(f));
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
        act(self, panics_in!("remove_with"), |tables| {
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
        act(self, panics_in!("retain"), |tables| tables.master.retain(keep));
    }

    #[track_caller]
    fn len(self) -> usize {
        look(self, panics_in!("len"), |tables| tables.master.len())
    }

    #[track_caller]
    fn set_cluster_size(self, size: ClusterSize) -> Result<SwapReport, SwapError> {
        Swap::new(self).run(new_directory(size))
    }
}

/// Creates a directory with one part for each key, for few threads or an unknown load. `part` makes the part
/// of an entry; it runs under a lock of the key.
///
/// ```
/// use squall::objects::directory::{self, Parts};
///
/// let visits = directory::shared::<String, (), u64>(|_| 0);
/// visits.get_or_make("home", || (), |_, visits| *visits += 1);
/// assert_eq!(visits.len(), 1);
/// ```
///
/// # Panics
/// If the object cannot be created: see [`CreateError`](squall_core::CreateError).
#[track_caller]
pub fn shared<K, G, L>(part: impl Fn(&G) -> L + Send + Sync + 'static) -> OwnedDirectory<K, G, L>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
{
    distributed(ClusterSize::Machine, part)
}

/// Creates a directory with a part for each key and each cluster of this size that uses it. `part` makes the
/// part of an entry when a cluster first uses the key; it runs under a lock of the key.
///
/// ```
/// use squall::ClusterSize;
/// use squall::objects::directory::{self, Parts};
///
/// let visits = directory::distributed::<String, (), u64>(ClusterSize::Core, |_| 0);
/// visits.get_or_make("home", || (), |_, visits| *visits += 1);
/// assert_eq!(visits.gather("home", 0, |sum, _, visits| *sum += *visits), Some(1));
/// ```
///
/// # Panics
/// If the object cannot be created: see [`CreateError`](squall_core::CreateError).
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

/// Like [`distributed`], with this hasher.
///
/// ```
/// use squall::ClusterSize;
/// use squall::objects::directory::{self, Parts};
/// use std::hash::RandomState;
///
/// let visits = directory::with_hasher(ClusterSize::Core, RandomState::new(), |_: &u32| 0_u64);
/// visits.get_or_make("home", || 1, |_, visits| *visits += 1);
/// # let _: &directory::OwnedDirectory<String, u32, u64> = &visits;
/// assert_eq!(visits.len(), 1);
/// ```
///
/// # Panics
/// If the object cannot be created: see [`CreateError`](squall_core::CreateError).
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
    OwnedDirectory(Distributed::of(MasterTable::with_hasher(hasher, part)).create(size))
}

/// Returns a replacement for a hot-swap of a directory, with this cluster size. It takes over entries and
/// parts.
///
/// If a swap moves no state into it, every call of the directory fails.
///
/// ```
/// use squall::ClusterSize;
/// use squall::objects::directory::{self, Parts};
/// use squall::swap::swap;
///
/// let uses = directory::shared::<u32, (), u64>(|_| 0);
/// uses.get_or_make(&1, || (), |_, uses| *uses += 1);
/// swap(uses.handle(), directory::new_directory(ClusterSize::Cpu)).unwrap();
/// assert_eq!(uses.len(), 1);
/// ```
pub fn new_directory<K, G, L, S>(size: ClusterSize) -> Replacement<dyn Directory<K, G, L, S>>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    Replacement::root(Distributed::<K, G, L, S>::vacant(), size)
}
