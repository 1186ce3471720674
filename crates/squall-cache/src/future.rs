//! The cache for tasks: a task that waits for a load does not block its thread. All else is like in
//! [`squall::cache::Cache`](crate::Cache).

use squall_core::Handle;
use squall_core::swap::{Replacement, SwapError, SwapReport};
use squall_parts::loads::{Joined, Wait, Waited};
use std::borrow::Borrow;
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::policy::Eviction;
use crate::sync::{Iter, Loading, on};
use crate::{CacheBuilder, DefaultHasher, Statistics};

/// A bounded cache that tasks share, on any runtime. A clone is the same cache.
///
/// Only methods that load wait. The other `async` methods end at the first poll; they are `async` like those
/// of `moka`. [`as_sync`](Cache::as_sync) has `compute`, `with`, the bound and the reservations. There, the
/// methods that load block the thread of the task, and so may those of `entry`: do not call them in a task.
///
/// ```
/// use squall::cache::future::Cache;
///
/// # fn main() { tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(run()) }
/// # async fn run() {
/// let squares: Cache<u64, u64> = Cache::new(1000);
/// assert_eq!(squares.get_with(7, async { 49 }).await, 49); // of several tasks, one computes
/// assert_eq!(squares.get(&7).await, Some(49));
/// # }
/// ```
pub struct Cache<K: Send + Sync + 'static, V: Send + Sync + 'static, S = DefaultHasher>(
    crate::Cache<K, V, S>,
);

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Clone for Cache<K, V, S> {
    fn clone(&self) -> Cache<K, V, S> {
        Cache(self.0.clone())
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> From<crate::Cache<K, V, S>> for Cache<K, V, S> {
    fn from(cache: crate::Cache<K, V, S>) -> Cache<K, V, S> {
        Cache(cache)
    }
}

impl<K, V> Cache<K, V>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Makes a cache of at most this many entries, with the default policy
    /// [`policy::frequency`](crate::policy::frequency).
    ///
    /// # Panics
    /// As [`CacheBuilder::build`].
    #[track_caller]
    pub fn new(max_capacity: u64) -> Cache<K, V> {
        Cache(crate::Cache::new(max_capacity))
    }

    /// Returns a builder. Its `build` makes a [`squall::cache::Cache`](crate::Cache); `Cache::from` turns it
    /// into one of this type.
    ///
    /// ```
    /// use squall::cache::{CacheBuilder, future::Cache};
    /// use std::time::Duration;
    ///
    /// let pages = CacheBuilder::<u64, String>::new(1000).time_to_live(Duration::from_secs(60)).build();
    /// let pages: Cache<u64, String> = Cache::from(pages);
    /// ```
    pub fn builder() -> CacheBuilder<K, V> {
        CacheBuilder::default()
    }
}

impl<K, V, S> Cache<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Returns this cache as a cache for threads. Its methods that load block the thread.
    pub fn as_sync(&self) -> &crate::Cache<K, V, S> {
        &self.0
    }

    /// Returns a clone of the value of a key: see [`crate::Cache::get`]. Never waits.
    pub async fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.0.get(key)
    }

    /// Whether the key is present. Does not count as a use of its entry.
    pub fn contains_key<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.0.contains_key(key)
    }

    /// Inserts an entry: see [`crate::Cache::insert`]. Never waits.
    pub async fn insert(&self, key: K, value: V) {
        self.0.insert(key, value);
    }

    /// Removes a key and returns its value: see [`crate::Cache::remove`]. Never waits.
    pub async fn remove<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.0.remove(key)
    }

    /// Removes a key: see [`crate::Cache::invalidate`]. Never waits.
    pub async fn invalidate<Q: Eq + Hash + ?Sized>(&self, key: &Q)
    where
        K: Borrow<Q>,
    {
        self.0.invalidate(key);
    }

    /// Removes all entries: see [`crate::Cache::invalidate_all`].
    pub fn invalidate_all(&self) {
        self.0.invalidate_all();
    }

    /// Removes some entries: see [`crate::Cache::invalidate_entries_if`].
    pub fn invalidate_entries_if(&self, is_invalid: impl FnMut(&K, &V) -> bool) {
        self.0.invalidate_entries_if(is_invalid);
    }

    /// Removes expired entries: see [`crate::Cache::run_pending_tasks`]. Visits all entries within one poll.
    pub async fn run_pending_tasks(&self) {
        self.0.run_pending_tasks();
    }

    /// Returns the value of a key. If it is absent, `init` makes it.
    ///
    /// Of several tasks that want an absent key, one awaits its `init`, and the others wait for the value. If
    /// that task panics or is dropped, the next one awaits its own. The caller gets the value even if the
    /// cache refuses it.
    ///
    /// `init` may use the cache. It must not load this key, or wait for a load that does: it would wait for
    /// itself.
    pub async fn get_with(&self, key: K, init: impl Future<Output = V>) -> V {
        let made: Result<V, Infallible> = self.load(key, async { Ok(init.await) }).await;
        match made {
            Ok(value) => value,
        }
    }

    /// Like [`get_with`](Self::get_with), for an `init` that may have no value. If it returns `None`, so does
    /// this call, and the next task awaits its own `init`.
    pub async fn optionally_get_with(&self, key: K, init: impl Future<Output = Option<V>>) -> Option<V> {
        self.load(key, async { init.await.ok_or(()) }).await.ok()
    }

    /// Like [`get_with`](Self::get_with), for an `init` that may fail. The tasks that wait do not get the
    /// error: the next one awaits its own `init`.
    ///
    /// # Errors
    /// The error of this caller's own `init`.
    pub async fn try_get_with<E>(
        &self,
        key: K,
        init: impl Future<Output = Result<V, E>>,
    ) -> Result<V, Arc<E>> {
        self.load(key, init).await.map_err(Arc::new)
    }

    async fn load<E>(&self, key: K, init: impl Future<Output = Result<V, E>>) -> Result<V, E> {
        if let Some(value) = self.0.get(&key) {
            return Ok(value);
        }
        on!(self.0, inner => {
            let turn = match inner.join(key) {
                Joined::Found(value) => return Ok(value),
                Joined::Turn(turn) => turn,
                Joined::Wait(wait) => match Waiting(wait).await {
                    Waited::Value(value) => return Ok(value),
                    Waited::Turn(turn) => turn,
                },
            };
            let mut loading = Loading { turn: Some(turn), failed: || inner.failed() };
            let value = init.await?;
            let turn = loading.turn.take().expect("a load ends once");
            Ok(inner.finish(turn, value))
        })
    }

    /// Returns an iterator over clones of the entries: see [`crate::Cache::iter`].
    pub fn iter(&self) -> Iter<'_, K, V, S>
    where
        K: Clone,
    {
        self.0.iter()
    }

    /// Returns the approximate number of entries: see [`crate::Cache::entry_count`].
    pub fn entry_count(&self) -> u64 {
        self.0.entry_count()
    }

    /// Returns the part of the bound in use: see [`crate::Cache::weighted_size`].
    pub fn weighted_size(&self) -> u64 {
        self.0.weighted_size()
    }

    /// Replaces the policy of evictions: see [`crate::Cache::swap_policy`]. Blocks its thread.
    ///
    /// # Errors
    /// Those of [`crate::Cache::swap_policy`].
    pub fn swap_policy(&self, new: Replacement<dyn Eviction>) -> Result<SwapReport, SwapError> {
        self.0.swap_policy(new)
    }

    /// Returns the policy of evictions.
    pub fn policy(&self) -> Handle<dyn Eviction> {
        self.0.policy()
    }

    /// Returns the statistics: see [`crate::Cache::statistics`].
    pub fn statistics(&self) -> Statistics {
        self.0.statistics()
    }
}

/// A task that waits for a load.
struct Waiting<'a, K, V>(Wait<'a, K, V>);

impl<K, V> Unpin for Waiting<'_, K, V> {}

impl<'a, K, V: Clone> Future for Waiting<'a, K, V> {
    type Output = Waited<'a, K, V>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Waited<'a, K, V>> {
        self.0.poll(context.waker())
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> fmt::Debug for Cache<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").finish_non_exhaustive()
    }
}
