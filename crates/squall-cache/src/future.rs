//! The cache for tasks: methods that load values are asynchronous. All else is as in
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

/// A bounded cache that tasks share. Clones are the same cache.
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
    /// Returns a cache of at most this many entries.
    ///
    /// # Panics
    /// As [`CacheBuilder::build`].
    #[track_caller]
    pub fn new(max_capacity: u64) -> Cache<K, V> {
        Cache(crate::Cache::new(max_capacity))
    }

    /// Returns a builder. Its `build` makes a [`squall::cache::Cache`](crate::Cache); `Cache::from` makes
    /// that one of this type.
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
    /// Returns the cache for threads, which is the same cache.
    pub fn as_sync(&self) -> &crate::Cache<K, V, S> {
        &self.0
    }

    /// Returns the value of a key. Never waits.
    pub async fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.0.get(key)
    }

    /// Whether the key is there.
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

    /// Removes a key and returns its value. Never waits.
    pub async fn remove<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.0.remove(key)
    }

    /// Removes a key. Never waits.
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

    /// Removes expired entries. Never waits.
    pub async fn run_pending_tasks(&self) {
        self.0.run_pending_tasks();
    }

    /// Returns the value of a key. If it is absent, `init` makes it.
    ///
    /// Of several tasks that want an absent key one runs its `init`, and the others wait for its value. If
    /// that one panics or is dropped, the next one runs its own.
    pub async fn get_with(&self, key: K, init: impl Future<Output = V>) -> V {
        let made: Result<V, Infallible> = self.load(key, async { Ok(init.await) }).await;
        match made {
            Ok(value) => value,
        }
    }

    /// Returns the value of a key. If it is absent, `init` makes it, or returns `None`.
    pub async fn optionally_get_with(&self, key: K, init: impl Future<Output = Option<V>>) -> Option<V> {
        self.load(key, async { init.await.ok_or(()) }).await.ok()
    }

    /// Returns the value of a key. If it is absent, `init` makes it, or fails. The next task then runs its
    /// own `init`.
    ///
    /// # Errors
    /// That of `init`.
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

    /// Returns a walk over the entries.
    pub fn iter(&self) -> Iter<'_, K, V, S>
    where
        K: Clone,
    {
        self.0.iter()
    }

    /// Returns the approximate number of entries.
    pub fn entry_count(&self) -> u64 {
        self.0.entry_count()
    }

    /// Returns the sum of the weights.
    pub fn weighted_size(&self) -> u64 {
        self.0.weighted_size()
    }

    /// Replaces the policy of evictions: see [`crate::Cache::swap_policy`].
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

    /// Returns the statistics.
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
