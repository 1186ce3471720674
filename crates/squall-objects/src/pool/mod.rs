//! Object pools: objects that are dear to make, lent to one user at a time. Feature: `bags`.
//!
//! An [`ObjectPool`] makes an object by a function if all others are in use, and keeps the objects that come
//! back. Its idle objects are in a [`bag`](crate::bag), so it has the forms of a bag:
//!
//! | form | getting and returning an object |
//! |---|---|
//! | [`shared`](PoolBuilder::shared) | a lock that is biased to the VP that created the pool |
//! | [`distributed`](PoolBuilder::distributed) | a lock that is biased to the caller's VP |
//! | [`adaptive`](PoolBuilder::adaptive) | as its present form; the default |
//!
//! In the form `distributed`, a VP without idle objects takes those of other VPs, but not the last one of a
//! VP. It makes an object instead, unless the pool is at its maximum size.
//!
//! ```
//! use squall::objects::pool::ObjectPool;
//!
//! let buffers = ObjectPool::new(|| Vec::<u8>::with_capacity(4096));
//! let mut buffer = buffers.get();
//! buffer.extend(b"hello");
//! drop(buffer); // goes back
//! assert_eq!(buffers.idle_len(), 1);
//! assert_eq!(*buffers.get(), b"hello"); // see `PoolBuilder::reset`
//! ```
//!
//! # When not
//! Use a plain allocation for small objects: `malloc` is faster than any pool that threads share. Use a
//! `thread_local!` if each thread needs one object all the time.
//!
//! # Guarantees
//! - With [`max_size`](PoolBuilder::max_size), at most so many objects exist. Threads and tasks that wait for
//!   one get it in the order in which they began to wait. Callers that come later do not overtake them.
//! - An object is made only if no idle one is found. In the form `distributed` it is made if no other VP has
//!   two, except by [`get_or_try_make`](ObjectPool::get_or_try_make). So a pool has at most as many objects
//!   as were in use at once, and one for each VP that used it. Callers that search while objects come back
//!   may miss some, and make a few more.
//! - A panic in one of the pool's functions, or in the drop of an object, ends the call that ran it. The
//!   object is discarded, and its room goes to the next caller.
//! - Objects come back from any thread, and after the pool was dropped. They are dropped then.
//!   In the child of a fork they are not dropped.
//!
//! # Limits
//! - A pool never shrinks: objects leave it only when they are found too old or unfit. The shards lend the
//!   object that came back last, so an object below others may stay idle and old for ever.
//! - A distributed pool at its maximum size may have fewer objects than VPs that use it. They then take the
//!   idle ones from each other for ever, with cache misses. Set the maximum to at least the number of VPs.
//! - An object goes back as its user left it, even if the user panicked. Until it is lent again it is neither
//!   checked nor reset, and keeps its memory and its contents.
//! - An arbiter that panics when an object comes back loses it, and its room.
//! - Those of [bags](crate::bag). An adaptive pool starts their policy's thread.

mod builder;
mod pooled;

use squall_core::{Handle, Interface, Owned};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::bag::{Bag, BagExt, get_in_turn};

pub use builder::PoolBuilder;
use builder::Rules;
use pooled::Object;
pub use pooled::Pooled;

/// A pool of objects. See the [module](self).
///
/// Dropping it destroys the bag of the idle objects. They are dropped later, once no call can use them: by a
/// later call of this thread or by a thread of Squall. Those in use are dropped when their users return them.
///
/// ```
/// use squall::objects::pool::ObjectPool;
/// use std::time::Duration;
///
/// # struct Connection; impl Connection { fn open() -> Connection { Connection } fn is_alive(&self) -> bool { true } }
/// let connections = ObjectPool::builder(Connection::open)
///     .max_size(8)
///     .max_age(Duration::from_secs(600))
///     .check(|connection| connection.is_alive())
///     .build()
///     .named("database connections");
/// let connection = connections.get(); // waits while all eight are in use
/// ```
pub struct ObjectPool<T: Send + 'static> {
    /// Idle objects. With a maximum size also rooms: see `made`.
    bag: Owned<dyn Bag<Idle<T>>>,
    rules: Rules<T>,
    /// Number of objects and rooms, if there is a maximum size. It never decreases: a discarded object leaves
    /// a room, which goes through the bag to the next caller, who makes an object for it. So a caller that
    /// waits at the bag gets either.
    made: AtomicUsize,
    created: Instant,
}

impl<T: Send + 'static> ObjectPool<T> {
    /// Creates an adaptive pool without limits. `make` makes an object if all others are in use. Like
    /// [`bag::adaptive`](crate::bag::adaptive), it may start the thread `squall-adapt`.
    ///
    /// ```
    /// use squall::objects::pool::ObjectPool;
    ///
    /// let buffers = ObjectPool::new(Vec::<u8>::new);
    /// buffers.get().push(1);
    /// ```
    ///
    /// # Panics
    /// If the object of the bag cannot be created: see [`CreateError`](squall_core::CreateError).
    #[track_caller]
    pub fn new(make: impl Fn() -> T + Send + Sync + 'static) -> ObjectPool<T> {
        ObjectPool::builder(make).build()
    }

    /// Begins a pool with other properties.
    ///
    /// ```
    /// use squall::objects::pool::ObjectPool;
    ///
    /// let ids = ObjectPool::builder(|| 0_u64).distributed().max_size(2).build();
    /// let (one, two) = (ids.get(), ids.get());
    /// assert!(ids.try_get().is_none());
    /// ```
    pub fn builder(make: impl Fn() -> T + Send + Sync + 'static) -> PoolBuilder<T> {
        PoolBuilder::new(make)
    }

    fn with(bag: Owned<dyn Bag<Idle<T>>>, rules: Rules<T>) -> ObjectPool<T> {
        ObjectPool { bag, rules, made: AtomicUsize::new(0), created: Instant::now() }
    }

    /// Gives the pool a name for people, and returns it: see [`Owned::named`].
    pub fn named(self, name: impl Into<Arc<str>>) -> ObjectPool<T> {
        ObjectPool { bag: self.bag.named(name), ..self }
    }

    /// Declares the pool to be a part of another object, for people, and returns it: see [`Owned::part_of`].
    pub fn part_of<W: ?Sized + Interface>(self, whole: Handle<W>) -> ObjectPool<T> {
        ObjectPool { bag: self.bag.part_of(whole), ..self }
    }

    /// Returns an idle object, or makes one. Blocks the thread while the pool is at its maximum size and no
    /// object is idle; a task uses [`get_async`](ObjectPool::get_async).
    ///
    /// # Panics
    /// If a function of the pool panics. If it must wait within an operation.
    /// # Cost
    /// With an idle object: [`BagExt::get`], and [`BagExt::put`] when it is returned. A new object is
    /// allocated, in blocks of 64 bytes.
    #[inline]
    pub fn get(&self) -> Pooled<T> {
        match get_in_turn(self.handle(), || self.may_grow()) {
            Some(Idle(Some(object))) if self.rules.is_plain() => self.lend(Some(object)),
            found => self.get_slow(found),
        }
    }

    #[cold]
    #[inline(never)]
    fn get_slow(&self, found: Option<Idle<T>>) -> Pooled<T> {
        let found = self
            .prefer(found)
            .unwrap_or_else(|| self.handle().get_wait().unwrap_or_else(|error| panic!("{error}")));
        self.admit(found)
    }

    /// Like [`get`](ObjectPool::get), but returns `None` instead of waiting. Also while others wait, and if
    /// other calls search for an idle object at the same time.
    ///
    /// ```
    /// use squall::objects::pool::ObjectPool;
    ///
    /// let pool = ObjectPool::builder(String::new).max_size(1).build();
    /// let one = pool.try_get().unwrap();
    /// assert!(pool.try_get().is_none());
    /// drop(one);
    /// assert!(pool.try_get().is_some());
    /// ```
    ///
    /// # Panics
    /// If a function of the pool panics.
    pub fn try_get(&self) -> Option<Pooled<T>> {
        Some(self.admit(self.find()?))
    }

    /// Like [`get`](ObjectPool::get), but returns `None` after waiting for `limit`. The time in which the
    /// pool's functions run is not limited.
    ///
    /// ```
    /// use squall::objects::pool::ObjectPool;
    /// use std::time::Duration;
    ///
    /// let pool = ObjectPool::builder(String::new).max_size(1).build();
    /// let one = pool.get();
    /// assert!(pool.get_for(Duration::from_millis(1)).is_none());
    /// ```
    ///
    /// # Panics
    /// Like [`get`](ObjectPool::get).
    pub fn get_for(&self, limit: Duration) -> Option<Pooled<T>> {
        let found = match self.find() {
            Some(found) => found,
            None => self.handle().get_for(limit).unwrap_or_else(|error| panic!("{error}"))?,
        };
        Some(self.admit(found))
    }

    /// Like [`get`](ObjectPool::get), for a task. The future needs no particular runtime. If it is dropped,
    /// the object that it was given goes back. The pool's functions run in a poll.
    ///
    /// ```
    /// use squall::objects::pool::ObjectPool;
    /// use std::pin::pin;
    /// use std::task::{Context, Poll, Waker};
    ///
    /// let pool = ObjectPool::builder(String::new).max_size(1).build();
    /// let one = pool.get();
    /// let mut two = pin!(pool.get_async());
    /// let mut context = Context::from_waker(Waker::noop());
    /// assert!(two.as_mut().poll(&mut context).is_pending());
    /// drop(one);
    /// assert!(two.poll(&mut context).is_ready());
    /// ```
    ///
    /// # Panics
    /// A poll, if a function of the pool panics.
    pub async fn get_async(&self) -> Pooled<T> {
        let found = match self.find() {
            Some(found) => found,
            None => self.handle().get_async().await.unwrap_or_else(|error| panic!("{error}")),
        };
        self.admit(found)
    }

    /// Like [`get`](ObjectPool::get), but makes an object by `make`, which may fail. In each form, it makes
    /// one only if none is idle.
    ///
    /// If all callers use this method, the function of the pool itself is never called. It may be
    /// `|| unreachable!()`.
    ///
    /// ```
    /// use squall::objects::pool::ObjectPool;
    ///
    /// let pool = ObjectPool::builder(|| 0).max_size(1).build();
    /// assert_eq!(pool.get_or_try_make(|| "x".parse()).ok().as_deref(), None);
    /// assert_eq!(pool.get_or_try_make(|| "7".parse()).ok().as_deref(), Some(&7));
    /// assert_eq!(*pool.get(), 7);
    /// ```
    ///
    /// # Errors
    /// The error of `make`. The room of the object goes to the next caller.
    /// # Panics
    /// Like [`get`](ObjectPool::get).
    pub fn get_or_try_make<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<Pooled<T>, E> {
        let found = match self.find_idle() {
            Some(found) => found,
            None => self.handle().get_wait().unwrap_or_else(|error| panic!("{error}")),
        };
        match self.check(found) {
            Ok(pooled) => Ok(pooled),
            // If `make` fails, the drop of the empty guard puts the room into the bag.
            Err(room) => make().map(|value| self.fill(room, value)),
        }
    }

    /// Like [`get_or_try_make`](ObjectPool::get_or_try_make), for a task: `make` returns a future. If the
    /// future of this method is dropped, the object or its room goes back.
    ///
    /// ```
    /// use squall::objects::pool::{ObjectPool, Pooled};
    ///
    /// async fn connection(pool: &ObjectPool<String>) -> std::io::Result<Pooled<String>> {
    ///     pool.get_or_try_make_async(|| async { Ok("connected".to_owned()) }).await
    /// }
    /// ```
    ///
    /// # Errors
    /// The error of `make`. The room of the object goes to the next caller.
    /// # Panics
    /// A poll, if a function of the pool panics.
    pub async fn get_or_try_make_async<E, F>(&self, make: impl FnOnce() -> F) -> Result<Pooled<T>, E>
    where
        F: Future<Output = Result<T, E>>,
    {
        let found = match self.find_idle() {
            Some(found) => found,
            None => self.handle().get_async().await.unwrap_or_else(|error| panic!("{error}")),
        };
        match self.check(found) {
            Ok(pooled) => Ok(pooled),
            Err(room) => make().await.map(|value| self.fill(room, value)),
        }
    }

    /// Returns the number of idle objects: an estimate. It includes the rooms of discarded objects.
    ///
    /// ```
    /// use squall::objects::pool::ObjectPool;
    ///
    /// let pool = ObjectPool::new(String::new);
    /// let (one, two) = (pool.get(), pool.get());
    /// drop(one);
    /// assert_eq!(pool.idle_len(), 1);
    /// ```
    pub fn idle_len(&self) -> usize {
        self.bag.len()
    }

    /// Returns the bag of the idle objects: for its name and counts, and to swap it.
    ///
    /// A pool with a maximum size loses each [`Idle`] that is taken out of the bag and dropped. A swap
    /// without state loses all of them.
    ///
    /// ```
    /// use squall::objects::bag::{self, Bag};
    /// use squall::objects::pool::ObjectPool;
    /// use squall::swap::swap;
    ///
    /// let pool = ObjectPool::builder(String::new).shared().build();
    /// drop(pool.get());
    /// swap(pool.handle(), bag::new_distributed()).unwrap();
    /// assert_eq!(pool.handle().len(), 1);
    /// ```
    #[inline]
    pub fn handle(&self) -> Handle<dyn Bag<Idle<T>>> {
        self.bag.handle()
    }

    /// Returns an idle object or a room, without waiting.
    fn find(&self) -> Option<Idle<T>> {
        let spare = self.may_grow().then(|| self.prefer(get_in_turn(self.handle(), || true)));
        // Also if another call made the last object of the pool meanwhile.
        spare.flatten().or_else(|| self.find_idle())
    }

    /// Like [`find`](ObjectPool::find), but returns a room only if no object is idle.
    fn find_idle(&self) -> Option<Idle<T>> {
        self.prefer(get_in_turn(self.handle(), || false))
    }

    /// Returns whether the pool is below its maximum size.
    fn may_grow(&self) -> bool {
        // Relaxed: see `room`.
        self.rules.max_size.is_none_or(|max| self.made.load(Ordering::Relaxed) < max)
    }

    /// Returns an idle object, or else a room: the one that was found, or a new one.
    fn prefer(&self, found: Option<Idle<T>>) -> Option<Idle<T>> {
        let mut rooms = Vec::new();
        let mut found = found;
        // Rooms may lie above objects.
        while let Some(Idle(None)) = found {
            rooms.push(self.lend(None));
            found = get_in_turn(self.handle(), || false);
        }
        match found {
            // The drop puts the rooms back.
            Some(object) => Some(object),
            None => match rooms.pop() {
                Some(room) => {
                    // No drop: the caller gets the room.
                    std::mem::forget(room);
                    Some(Idle(None))
                }
                None => self.room(),
            },
        }
    }

    /// Returns a new room, unless the pool is at its maximum size.
    fn room(&self) -> Option<Idle<T>> {
        if let Some(max) = self.rules.max_size {
            // Relaxed: the number guards no data.
            let next = |made| (made < max).then(|| made + 1);
            self.made.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        }
        Some(Idle(None))
    }

    #[inline(always)]
    fn lend(&self, object: Option<Box<Object<T>>>) -> Pooled<T> {
        Pooled::new(object, self.handle(), self.rules.max_size.is_some())
    }

    /// Checks an idle object, or makes one for a room.
    fn admit(&self, found: Idle<T>) -> Pooled<T> {
        self.check(found).unwrap_or_else(|room| self.fill(room, (self.rules.make)()))
    }

    /// Returns the guard of an idle object that may be lent, or an empty guard. If a function of the program
    /// panics, the drop of the empty guard puts the room into the bag.
    fn check(&self, Idle(object): Idle<T>) -> Result<Pooled<T>, Pooled<T>> {
        let mut pooled = self.lend(None);
        match object.and_then(|object| self.rules.fit(object, self.created)) {
            Some(object) => {
                pooled.fill(object);
                Ok(pooled)
            }
            None => Err(pooled),
        }
    }

    /// Fills an empty guard with a new object.
    fn fill(&self, mut room: Pooled<T>, value: T) -> Pooled<T> {
        room.fill(Box::new(Object { value, made: self.rules.now(self.created) }));
        room
    }
}

/// An entry of a pool's bag: an idle object, or the room of a discarded one.
pub struct Idle<T>(Option<Box<Object<T>>>);

impl<T> fmt::Debug for Idle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "an idle object" } else { "room for an object" })
    }
}

impl<T: Send + 'static> fmt::Debug for ObjectPool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectPool")
            .field("bag", &self.handle())
            .field("idle", &self.idle_len())
            .field("max_size", &self.rules.max_size)
            .finish_non_exhaustive()
    }
}
