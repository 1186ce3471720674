//! Pools of ids: small numbers for connections, sessions, jobs or slots. An id that comes back is given out
//! again as late as possible.
//!
//! | form | taking and returning an id | memory |
//! |---|---|---|
//! | [`shared`] | one lock; plain instructions on its home VP | four bytes per free id |
//! | [`distributed`] | a lock of the caller's VP, by plain instructions | and 512 bytes per calling VP |
//! | [`adaptive`] | as its present form | as its present form |
//!
//! A VP is a processor, as Squall numbers it. The home VP of a shared pool is the one that created it, or
//! after a swap the first that called it. Ids that were never given out take no memory.
//!
//! Ids are given out in rounds. In a round no id is given out twice. A round ends when no other id is left to
//! give out; then the ids that came back are next, on each VP in the order of their return. Once
//! 512 ids or more per VP came back, a round also ends if at most half that number is left. These are next,
//! before those that came back. So a late message for an id seldom meets a new owner. It still can, if nearly
//! all ids are in use, or if an id comes back on a VP that has few. A program that must exclude that adds a
//! generation.
//!
//! An [`adaptive`] pool starts as [`shared`]. It becomes [`distributed`] while several VPs use it, and goes
//! back afterwards.
//!
//! All forms have one interface, [`IdPool`], and are called through a `Handle<dyn IdPool>`. [`IdPoolExt`] has
//! the methods for users.
//!
//! ```
//! use squall::objects::ids::{self, IdPoolExt};
//!
//! let streams = ids::adaptive(1_000_000);
//! let first = streams.get().expect("fewer than a million streams are open");
//! let second = streams.get().unwrap();
//! assert_eq!((first.value(), second.value()), (0, 1));
//! drop(first); // returns the id
//! assert_eq!(streams.get().unwrap().value(), 2); // not 0 again
//! ```
//!
//! # When not
//! - The ids may be used again at once, and a processor takes back its own: a `slab` is a few instructions.
//! - The ids need no limit and no reuse: an atomic counter never repeats.
//! - Nearly all ids are in use all the time: then each call searches all shards under one lock. Raise the
//!   limit.
//! - The limit is below some thousand ids per VP: in the distributed form each VP then often goes to the
//!   lock that all share, since a round has so many ids only.
//!
//! # Guarantees
//! - No id has two owners, also across hot-swaps. [`IdPool::put_raw`] and [`IdPool::give`] must be called
//!   once for each id that left as a number.
//! - [`get`](IdPoolExt::get) returns `None` only if at one moment of the call all ids were in use.
//! - A swap moves no id. Ids that are in use stay valid.
//! - A dropped [`PoolId`] returns to its pool also while an arbiter refuses the calls. It is lost in a signal
//!   handler, in the child of a fork, and if the pool is of an implementation of your own.
//!
//! # Limits
//! Signal handlers must not use a pool. In the child of a fork, calls return an error or panic: see
//! [forked children](squall_core#forked-children).
//!
//! [`squall::parts::ids`](squall_parts::ids) has the ids without an object, for an object of your own.

mod policy;
mod pool;

use squall_adapt::{engine, family};
use squall_core::__macro::{Action, Answer, Hit};
use squall_core::swap::Replacement;
use squall_core::{CallError, CreateError, Handle, Owned, Root};
use squall_machine::{ClusterSize, Vp};
use squall_macros::interface;
use std::fmt;
use std::mem;
use std::sync::Once;

use crate::answers::{panics_in, returns_in};
pub use policy::{DISTRIBUTED, SHARED};
use pool::{Known, Pool};
use squall_parts::ids::Client;
pub use squall_parts::ids::NotLent;
use squall_rcu::Guard;

/// A pool of ids, as implementations provide it. [`IdPoolExt`] has the methods for users.
///
/// The pool trusts callers of [`give`](IdPool::give): an id that is given twice has two owners later.
///
/// Progress: a call waits for another thread that holds the lock of the same VP. Once per batch of new ids,
/// and near the end of a round, it waits for one lock of the pool.
///
/// ```
/// use squall::objects::ids::{self, IdPool};
///
/// let jobs = ids::shared(10);
/// let some = jobs.take_batch(3);
/// assert_eq!((some.len(), jobs.free(), jobs.limit()), (3, 7, 10));
/// jobs.give_batch(some);
/// assert_eq!(jobs.take(), Some(3));
/// ```
///
/// # Source
/// Wentzlaff 2012, §5.2 (DP-19): process ids by a distributed pool, with the delayed reuse that it leaves as
/// future work.
#[interface(crate = squall_core, view = IdPoolView)]
pub trait IdPool: Send + Sync {
    /// Takes a free id. The caller gives it back by [`give`](IdPool::give).
    fn take(&self) -> Option<u32>;

    /// Takes up to `max` free ids at once. Fewer are returned only if all others are in use.
    fn take_batch(&self, max: usize) -> Vec<u32>;

    /// Takes an id back from the caller who took it.
    ///
    /// # Panics
    /// If the id is not below the limit.
    fn give(&self, id: u32);

    /// Takes ids back, like [`give`](IdPool::give).
    ///
    /// # Panics
    /// If an id is not below the limit: then none is taken back.
    fn give_batch(&self, ids: Vec<u32>);

    /// Notes that an id in use has left as a bare number. [`PoolId::into_raw`] calls it.
    fn lend(&self, id: u32);

    /// Takes back an id that left as a bare number, by [`PoolId::into_raw`].
    ///
    /// ```
    /// use squall::objects::ids::{self, IdPool, IdPoolExt, NotLent};
    ///
    /// let jobs = ids::shared(10);
    /// let raw = jobs.get().unwrap().into_raw();
    /// assert_eq!(jobs.put_raw(raw), Ok(()));
    /// assert_eq!(jobs.put_raw(raw), Err(NotLent::NotLent)); // it is free already
    /// assert_eq!(jobs.put_raw(10), Err(NotLent::OutOfRange));
    /// ```
    ///
    /// # Errors
    /// [`NotLent`]: the pool is unchanged.
    fn put_raw(&self, id: u32) -> Result<(), NotLent>;

    /// Returns the limit: all ids are below it.
    fn limit(&self) -> u32;

    /// Returns the number of free ids: an estimate while threads use the pool.
    ///
    /// # Cost
    /// The lock of each VP that used the pool.
    fn free(&self) -> usize;

    /// Returns the number of the present round, from 0.
    fn round(&self) -> u64;

    /// Returns the number of new ids that a VP reserves at once. By default it is the limit divided by the
    /// number of VPs, from 1 to 16,384.
    fn batch(&self) -> u32;

    /// Sets the number of new ids that a VP reserves at once; 0 counts as 1. It may change at any time.
    fn set_batch(&self, batch: u32);
}

/// The view of a pool of ids: the ids, seen from the place of the representative.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdPoolView<'rep> {
    client: Option<Client<'rep>>,
}

/// A call of `take`, without a virtual call if there is a view. `F` makes its result from the id.
struct Take<F>(F);

impl<R, F: FnOnce(Option<u32>) -> R> Action<dyn IdPool, R> for Take<F> {
    #[inline(always)]
    fn try_fast<'o>(self, _: &'o Guard, hit: Hit<'o, dyn IdPool>) -> Result<R, Self> {
        match hit.view().client {
            Some(client) => Ok((self.0)(client.get())),
            None => Err(self),
        }
    }

    fn run_slow<'o>(self, _: &'o Guard, hit: Hit<'o, dyn IdPool>) -> R {
        (self.0)(hit.target().take())
    }
}

/// A call of `give` with this id.
struct Give(u32);

impl Action<dyn IdPool, Result<(), CallError>> for Give {
    #[inline(always)]
    fn try_fast<'o>(self, _: &'o Guard, hit: Hit<'o, dyn IdPool>) -> Result<Result<(), CallError>, Self> {
        match hit.view().client {
            Some(client) => {
                client.put(self.0);
                Ok(Ok(()))
            }
            None => Err(self),
        }
    }

    fn run_slow<'o>(self, _: &'o Guard, hit: Hit<'o, dyn IdPool>) -> Result<(), CallError> {
        hit.target().give(self.0);
        Ok(())
    }
}

/// Methods for users of a pool of ids, on a handle or an owner.
pub trait IdPoolExt: Copy {
    /// Takes an id, or returns `None` if all are in use. Dropping the guard returns the id.
    ///
    /// ```
    /// use squall::objects::ids::{self, IdPoolExt};
    ///
    /// let slots = ids::shared(1);
    /// let slot = slots.get().unwrap();
    /// assert!(slots.get().is_none());
    /// drop(slot);
    /// assert!(slots.get().is_some());
    /// ```
    ///
    /// # Panics
    /// If the pool was destroyed.
    fn get(self) -> Option<PoolId>;

    /// Like [`get`](IdPoolExt::get), but returns an error if the pool was destroyed.
    ///
    /// ```
    /// use squall::objects::ids::{self, IdPoolExt};
    ///
    /// let slots = ids::shared(1);
    /// let handle = slots.handle();
    /// assert!(handle.try_get().unwrap().is_some());
    /// drop(slots);
    /// assert!(handle.try_get().is_err());
    /// ```
    ///
    /// # Errors
    /// [`CallError`] if the pool was destroyed.
    fn try_get(self) -> Result<Option<PoolId>, CallError>;

    /// Takes up to `max` ids at once. Fewer are returned only if all others are in use.
    ///
    /// ```
    /// use squall::objects::ids::{self, IdPoolExt};
    ///
    /// let slots = ids::shared(5);
    /// assert_eq!(slots.get_batch(9).len(), 5);
    /// ```
    ///
    /// # Panics
    /// If the pool was destroyed.
    fn get_batch(self, max: usize) -> Vec<PoolId>;
}

impl IdPoolExt for Handle<dyn IdPool> {
    #[inline]
    #[track_caller]
    fn get(self) -> Option<PoolId> {
        let take = Take(|id: Option<u32>| id.map(|id| PoolId { pool: self, id }));
        self.__call_action("take", take, panics_in!("get"))
    }

    #[inline]
    fn try_get(self) -> Result<Option<PoolId>, CallError> {
        let take = Take(|id: Option<u32>| Ok(id.map(|id| PoolId { pool: self, id })));
        self.__call_action("take", take, returns_in!("try_get"))
    }

    #[track_caller]
    fn get_batch(self, max: usize) -> Vec<PoolId> {
        match self.try_take_batch(max) {
            Ok(ids) => ids.into_iter().map(|id| PoolId { pool: self, id }).collect(),
            Err(error) => panics_in!("get_batch").answer(error),
        }
    }
}

/// An id in use. Dropping it returns the id to its pool, on any thread.
///
/// The drop returns the id also if the pool refuses calls. If the pool was destroyed, it has no effect.
#[must_use = "the id returns to its pool when this is dropped"]
pub struct PoolId {
    pool: Handle<dyn IdPool>,
    id: u32,
}

impl PoolId {
    /// Returns the number, which is below the limit of the pool.
    #[inline]
    pub fn value(&self) -> u32 {
        self.id
    }

    /// Returns the pool of the id.
    pub fn pool(&self) -> Handle<dyn IdPool> {
        self.pool
    }

    /// Returns the number, and keeps the id in use until [`IdPool::put_raw`]. For ids that leave the program,
    /// as in a message.
    ///
    /// The pool notes such ids, so `put_raw` detects a number that is wrong or comes twice. But once the id
    /// was lent again, a number that comes twice ends the new loan.
    ///
    /// # Cost
    /// An atomic operation. The first call of a pool allocates a bit for each id.
    pub fn into_raw(self) -> u32 {
        let id = self.id;
        if let Err(error) = self.pool.try_lend(id) {
            // A destroyed pool has no loans.
            if let Some(ids) = pool::behind(self.pool, &error) {
                ids.lend(id);
            }
        }
        mem::forget(self);
        id
    }
}

impl Drop for PoolId {
    #[inline]
    fn drop(&mut self) {
        if let Err(error) = self.pool.__call_action("give", Give(self.id), returns_in!("drop")) {
            self.return_behind(&error);
        }
    }
}

impl PoolId {
    /// Returns the id to a pool that refused it.
    #[cold]
    #[inline(never)]
    fn return_behind(&self, error: &CallError) {
        // A destroyed pool needs no ids.
        if let Some(ids) = pool::behind(self.pool, error) {
            ids.put(Vp::current().index(), self.id);
        }
    }
}

impl fmt::Debug for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PoolId({} of {})", self.id, self.pool)
    }
}

/// Creates a pool of the ids below `limit` with one list of free ids, at home on the calling thread's VP.
///
/// ```
/// use squall::objects::ids::{self, IdPoolExt};
///
/// let ports = ids::shared(1024);
/// assert_eq!(ports.get().unwrap().value(), 0);
/// ```
///
/// # Panics
/// If the object cannot be created: see [`CreateError`].
#[track_caller]
pub fn shared(limit: u32) -> Owned<dyn IdPool> {
    make::<FIXED, false>(limit)
}

/// Creates a pool of the ids below `limit` with free ids for each VP that uses it.
///
/// ```
/// use squall::objects::ids::{self, IdPool, IdPoolExt};
///
/// let ports = ids::distributed(1024);
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| drop(ports.get().unwrap()));
///     }
/// });
/// assert_eq!(ports.free(), 1024);
/// ```
///
/// # Panics
/// If the object cannot be created: see [`CreateError`].
#[track_caller]
pub fn distributed(limit: u32) -> Owned<dyn IdPool> {
    make::<FIXED, true>(limit)
}

/// Creates an adaptive pool of the ids below `limit`: it starts in the form of [`shared`] and changes form
/// with its load.
///
/// The first call registers the policy and starts its thread, `squall-adapt`. See
/// [`squall::adapt::engine`](squall_adapt::engine).
///
/// ```
/// use squall::Handle;
/// use squall::adapt::control;
/// use squall::objects::ids;
///
/// let ports = ids::adaptive(1024);
/// let status = control::status(Handle::id(ports.handle())).unwrap();
/// assert_eq!((status.family, status.form), ("id-pool", ids::SHARED));
/// ```
///
/// # Panics
/// If the object cannot be created: see [`CreateError`].
#[track_caller]
pub fn adaptive(limit: u32) -> Owned<dyn IdPool> {
    static KNOWN: Once = Once::new();
    KNOWN.call_once(|| family::register(&policy::POOLS));
    engine::start();
    make::<ADAPTS, false>(limit)
}

/// Values of the parameter `ADAPTS`: whether an implementation posts to the policy. Adaptive pools have
/// classes of their own.
const FIXED: bool = false;
const ADAPTS: bool = true;

/// Returns a replacement in the form of [`shared`], for a hot-swap of a pool. It takes over the ids.
///
/// If a swap moves no state into it, every call of the pool fails.
///
/// ```
/// use squall::objects::ids::{self, IdPool, IdPoolExt};
/// use squall::swap::swap;
///
/// let ports = ids::distributed(10);
/// let port = ports.get().unwrap();
/// swap(ports.handle(), ids::new_shared()).unwrap();
/// drop(port);
/// assert_eq!(ports.free(), 10);
/// ```
pub fn new_shared() -> Replacement<dyn IdPool> {
    Replacement::root(Pool::<FIXED, false>::vacant(), ClusterSize::Machine)
}

/// Returns a replacement in the form of [`distributed`], for a hot-swap of a pool. It takes over the ids.
///
/// If a swap moves no state into it, every call of the pool fails.
///
/// ```
/// use squall::objects::ids::{self, IdPool, IdPoolExt};
/// use squall::swap::swap;
///
/// let ports = ids::shared(10);
/// let port = ports.get().unwrap();
/// swap(ports.handle(), ids::new_distributed()).unwrap();
/// assert_ne!(ports.get().unwrap().value(), port.value());
/// ```
pub fn new_distributed() -> Replacement<dyn IdPool> {
    Replacement::root(Pool::<FIXED, true>::vacant(), ClusterSize::Cpu)
}

#[track_caller]
fn make<const ADAPTS: bool, const WIDE: bool>(limit: u32) -> Owned<dyn IdPool> {
    let size = if WIDE { ClusterSize::Cpu } else { ClusterSize::Machine };
    let ids = Known::new(limit);
    let made: Result<_, CreateError> = Pool::<ADAPTS, WIDE>::new(ids.clone()).try_create(size);
    let pool = made.unwrap_or_else(|error| panic!("cannot make a pool of ids: {error}"));
    ids.publish(pool.handle());
    pool
}
