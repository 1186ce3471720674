//! The cache for threads.

use squall_core::Handle;
use squall_core::swap::{Replacement, Swap, SwapError, SwapReport};
use squall_parts::loads::{Joined, Turn, Waited};
use squall_parts::table::Budget as Bound;
use std::borrow::Borrow;
use std::collections::VecDeque;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::Duration;

use crate::DefaultHasher;
use crate::builder::CacheBuilder;
use crate::inner::Inner;
use crate::ops::compute::{Computed, Op};
use crate::policy::Eviction;
use crate::selector::EntrySelector;
use crate::stats::Statistics;
use crate::stored::{Ending, Endless};

/// A bounded cache that threads share. A clone is the same cache, like a clone of an `Arc`.
///
/// [`future::Cache`](crate::future::Cache) is its form for tasks.
///
/// ```
/// use squall::cache::Cache;
///
/// let squares: Cache<u64, u64> = Cache::new(1000);
/// assert_eq!(squares.get_with(7, || 49), 49); // of several callers, one computes
/// assert_eq!(squares.get(&7), Some(49));
/// for n in 0..100_000 {
///     squares.insert(n, n * n);
/// }
/// assert!(squares.entry_count() <= 1000);
/// ```
///
/// # Cost
/// A hit clones the value. It takes no lock. The first hit of an entry in an epoch writes a mark into it, and
/// later ones write no memory. An epoch is a number of insertions that the policy sets. With times, a hit
/// reads the clock. An idle time or an [`Expiry`](crate::Expiry) also lets hits write the entry's times. An
/// insertion into a full cache compares about five entries.
pub struct Cache<K: Send + Sync + 'static, V: Send + Sync + 'static, S = DefaultHasher>(
    pub(crate) Kind<K, V, S>,
);

/// The cache in two forms: entries that never end need no times.
pub(crate) enum Kind<K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    Endless(Arc<Inner<K, V, S, Endless>>),
    Ending(Arc<Inner<K, V, S, Ending>>),
}

/// Runs code on the cache of either form.
macro_rules! on {
    ($cache:expr, $inner:ident => $act:expr) => {
        match &$cache.0 {
            $crate::sync::Kind::Endless($inner) => $act,
            $crate::sync::Kind::Ending($inner) => $act,
        }
    };
}
pub(crate) use on;

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Clone for Cache<K, V, S> {
    fn clone(&self) -> Cache<K, V, S> {
        Cache(match &self.0 {
            Kind::Endless(inner) => Kind::Endless(inner.clone()),
            Kind::Ending(inner) => Kind::Ending(inner.clone()),
        })
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
        CacheBuilder::new(max_capacity).build()
    }

    /// Returns a builder, for a cache with other settings than a number of entries.
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
    /// Returns a clone of the value of a key, or `None` if it is absent or has expired. A hit is a use of the
    /// entry.
    #[inline]
    pub fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        on!(self, inner => inner.get(key))
    }

    /// Calls `f` with the value of a key, and returns its result, without a clone. A hit is a use of the
    /// entry.
    ///
    /// `f` runs within an operation, on the caller's thread and without a lock. Freed memory waits until it
    /// returns. So it must be short, and must not use the cache.
    ///
    /// ```
    /// use squall::cache::Cache;
    ///
    /// let pages: Cache<u64, Vec<u8>> = Cache::new(100);
    /// pages.insert(1, vec![0; 4096]);
    /// assert_eq!(pages.with(&1, |page| page.len()), Some(4096));
    /// ```
    #[inline]
    pub fn with<Q: Eq + Hash + ?Sized, R>(&self, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        on!(self, inner => inner.with(key, f))
    }

    /// Whether the key is present. Does not count as a use of its entry.
    pub fn contains_key<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        on!(self, inner => inner.contains(key))
    }

    /// Inserts an entry, or replaces the value of its key.
    ///
    /// An entry is refused in three cases:
    ///
    /// - The cache is full, the key is absent, and the policy prefers the entries that it has.
    /// - It needs more than the whole bound.
    /// - Insertions of other threads that are in progress take all the room.
    ///
    /// A lookup then misses, and an older value of the key is gone. The listener gets the refused entry, with
    /// the cause [`Size`](crate::RemovalCause::Size). To learn the outcome, use [`compute`](Self::compute).
    ///
    /// # Panics
    /// If the weigher, the listener or the times panic.
    pub fn insert(&self, key: K, value: V) {
        on!(self, inner => inner.insert(key, value));
    }

    /// Inserts, replaces, removes or keeps the entry of a key, as `f` decides from its value, in one atomic
    /// step. `f` gets no value if the key is absent. A new value counts as a use of the entry.
    ///
    /// `f` runs within an operation, without a lock: it must not use the cache. If another thread changes the
    /// entry meanwhile, `f` runs again.
    ///
    /// ```
    /// use squall::cache::{Cache, ops::compute::{Computed, Op}};
    ///
    /// let visits: Cache<&str, u64> = Cache::new(100);
    /// let count = |n: Option<&u64>| Op::Put(n.map_or(1, |n| n + 1));
    /// assert_eq!(visits.compute("home", count), Computed::Inserted);
    /// assert_eq!(visits.compute("home", count), Computed::Replaced);
    /// assert_eq!(visits.get("home"), Some(2));
    /// ```
    ///
    /// # Panics
    /// If `f` panics, or the weigher, the listener or the times. After a panic of `f` or of the weigher, the
    /// entry is as it was.
    pub fn compute(&self, key: K, mut f: impl FnMut(Option<&V>) -> Op<V>) -> Computed {
        on!(self, inner => inner.compute(key, &mut f))
    }

    /// Selects the entry of a key, for one operation on it, such as
    /// [`or_insert_with`](EntrySelector::or_insert_with).
    ///
    /// ```
    /// use squall::cache::Cache;
    ///
    /// let pages: Cache<u64, String> = Cache::new(100);
    /// assert!(pages.entry(1).or_insert("first".to_owned()).is_fresh());
    /// assert_eq!(pages.entry(1).or_insert("second".to_owned()).into_value(), "first");
    /// ```
    pub fn entry(&self, key: K) -> EntrySelector<'_, K, V, S>
    where
        K: Clone,
    {
        EntrySelector::new(self, key)
    }

    /// Like [`entry`](Self::entry), for a borrowed key.
    pub fn entry_by_ref<Q: ToOwned<Owned = K> + ?Sized>(&self, key: &Q) -> EntrySelector<'_, K, V, S>
    where
        K: Borrow<Q> + Clone,
    {
        EntrySelector::new(self, key.to_owned())
    }

    /// Removes a key and returns its value, or `None` if it was absent or expired. The listener gets the
    /// entry too, with the cause [`Explicit`](crate::RemovalCause::Explicit).
    pub fn remove<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        on!(self, inner => inner.remove(key))
    }

    /// Removes a key. A load of the key that has begun still inserts its value.
    pub fn invalidate<Q: Eq + Hash + ?Sized>(&self, key: &Q)
    where
        K: Borrow<Q>,
    {
        self.remove(key);
    }

    /// Removes all entries. Lookups miss all of them from one moment on, while the call is still freeing
    /// them. A load that has begun still inserts its value.
    ///
    /// # Cost
    /// Visits all entries, on the caller's thread.
    pub fn invalidate_all(&self) {
        on!(self, inner => inner.invalidate_all());
    }

    /// Removes the entries for which `is_invalid` returns true, and the expired ones.
    ///
    /// `is_invalid` runs within an operation: it must be short, and must not use the cache.
    ///
    /// # Cost
    /// Visits all entries, on the caller's thread.
    pub fn invalidate_entries_if(&self, mut is_invalid: impl FnMut(&K, &V) -> bool) {
        on!(self, inner => inner.sweep_all(&mut is_invalid));
    }

    /// Removes expired entries.
    ///
    /// Lookups never see them. They leave when an insertion into the full cache needs their place. Call this
    /// from time to time if their memory, or the listener, should not wait for that. A cache without a bound
    /// keeps expired entries until this call, since no other thread does such work.
    ///
    /// # Cost
    /// Visits all entries, on the caller's thread.
    pub fn run_pending_tasks(&self) {
        on!(self, inner => inner.sweep_all(&mut |_, _| false));
    }

    /// Returns the value of a key. If it is absent, `init` makes it.
    ///
    /// Of several callers of an absent key, one runs its `init` on its own thread. The others block until the
    /// value is there. If `init` panics, the next caller runs its own. The caller gets the value even if the
    /// cache refuses it.
    ///
    /// `init` runs outside all locks, and may use the cache. It must not load this key, or wait for a load
    /// that does: it would wait for itself.
    ///
    /// # Panics
    /// If `init` panics, or the weigher, the listener or the times.
    pub fn get_with(&self, key: K, init: impl FnOnce() -> V) -> V {
        let made: Result<V, std::convert::Infallible> = self.load(key, || Ok(init()));
        match made {
            Ok(value) => value,
        }
    }

    /// Like [`get_with`](Self::get_with), for a borrowed key.
    pub fn get_with_by_ref<Q: Eq + Hash + ToOwned<Owned = K> + ?Sized>(
        &self,
        key: &Q,
        init: impl FnOnce() -> V,
    ) -> V
    where
        K: Borrow<Q>,
    {
        // A miss is counted by the load.
        let found = on!(self, inner => inner.hit(key));
        found.unwrap_or_else(|| self.get_with(key.to_owned(), init))
    }

    /// Like [`get_with`](Self::get_with), for an `init` that may have no value. If it returns `None`, so does
    /// this call, and the next caller runs its own `init`.
    pub fn optionally_get_with(&self, key: K, init: impl FnOnce() -> Option<V>) -> Option<V> {
        self.load(key, || init().ok_or(())).ok()
    }

    /// Like [`get_with`](Self::get_with), for an `init` that may fail. The callers that wait do not get the
    /// error: the next one runs its own `init`.
    ///
    /// ```
    /// use squall::cache::Cache;
    ///
    /// let pages: Cache<u64, String> = Cache::new(100);
    /// let failed = pages.try_get_with(1, || Err("no connection"));
    /// assert_eq!(*failed.unwrap_err(), "no connection");
    /// assert_eq!(pages.get(&1), None);
    /// ```
    ///
    /// # Errors
    /// The error of this caller's own `init`.
    pub fn try_get_with<E>(&self, key: K, init: impl FnOnce() -> Result<V, E>) -> Result<V, Arc<E>> {
        self.load(key, init).map_err(Arc::new)
    }

    fn load<E>(&self, key: K, init: impl FnOnce() -> Result<V, E>) -> Result<V, E> {
        if let Some(value) = self.get(&key) {
            return Ok(value);
        }
        on!(self, inner => {
            let turn = match inner.join(key) {
                Joined::Found(value) => return Ok(value),
                Joined::Turn(turn) => turn,
                Joined::Wait(wait) => match wait.block() {
                    Waited::Value(value) => return Ok(value),
                    Waited::Turn(turn) => turn,
                },
            };
            let mut loading = Loading { turn: Some(turn), failed: || inner.failed() };
            let value = init()?;
            let turn = loading.turn.take().expect("a load ends once");
            Ok(inner.finish(turn, value))
        })
    }

    /// Returns an iterator over clones of the entries. An entry that comes or goes meanwhile may be missing.
    /// One that stays may come twice if the table grows. Does not count as a use.
    pub fn iter(&self) -> Iter<'_, K, V, S>
    where
        K: Clone,
    {
        Iter { cache: self, from: Some(0), ready: VecDeque::new() }
    }

    /// Calls `f` with the entries of one part of the table, from a position on, without clones. Returns the
    /// position of the next part, if there is one. The first position is 0, and any number is a position.
    ///
    /// An entry that is present during a whole walk is visited, and perhaps again if the table grows
    /// meanwhile. `f` runs within an operation: it must be short, and must not use the cache.
    ///
    /// ```
    /// use squall::cache::Cache;
    ///
    /// let squares: Cache<u64, u64> = Cache::new(1000);
    /// (0..100).for_each(|n| squares.insert(n, n * n));
    /// let (mut sum, mut from) = (0, Some(0));
    /// while let Some(at) = from {
    ///     from = squares.visit_from(at, |_, square| sum += square);
    /// }
    /// assert_eq!(sum, 328_350);
    /// ```
    pub fn visit_from(&self, from: u64, mut f: impl FnMut(&K, &V)) -> Option<u64> {
        on!(self, inner => inner.visit(from, &mut f))
    }

    /// Returns the approximate number of entries. Expired ones count until they are removed.
    pub fn entry_count(&self) -> u64 {
        on!(self, inner => inner.table.len() as u64)
    }

    /// Returns the part of the bound in use: the number of entries, the sum of their weights, or bytes. Room
    /// for insertions in progress counts, too. Without a bound, this is the number of entries.
    pub fn weighted_size(&self) -> u64 {
        on!(self, inner => if inner.config.bound.is_some() { inner.taken() } else { inner.table.len() as u64 })
    }

    /// Returns the bound, in entries, weights or bytes.
    pub fn max_capacity(&self) -> Option<u64> {
        on!(self, inner => inner.config.bound.as_ref().map(Bound::limit))
    }

    /// Returns the time to live and the time to idle.
    pub fn times(&self) -> (Option<Duration>, Option<Duration>) {
        on!(self, inner => inner.config.times.limits())
    }

    /// Returns the name that the builder was given.
    pub fn name(&self) -> Option<&str> {
        on!(self, inner => inner.config.name.as_deref())
    }

    /// Replaces the policy of evictions, while other threads use the cache. The entries stay, with their
    /// marks. The new policy begins without the state of the old one, such as its counts of absent keys. The
    /// name of the policy stays.
    ///
    /// ```
    /// use squall::cache::{Cache, policy};
    ///
    /// let cache: Cache<u64, u64> = Cache::new(100);
    /// cache.swap_policy(policy::new_lru())?;
    /// # Ok::<(), squall::swap::SwapError>(())
    /// ```
    ///
    /// # Errors
    /// [`SwapError`]: for example, another swap runs, or the calling thread is inside an operation. The old
    /// policy stays.
    ///
    /// # Cost
    /// Blocks the caller until the calls of the old policy have ended: a task uses a blocking thread. Hits go
    /// on. Insertions may wait meanwhile, usually for 20 ms at most.
    pub fn swap_policy(&self, new: Replacement<dyn Eviction>) -> Result<SwapReport, SwapError> {
        let report = Swap::new(self.policy()).without_state().run(new)?;
        on!(self, inner => inner.begin_epoch());
        Ok(report)
    }

    /// Returns the policy of evictions, for its id and name. [`swap_policy`](Self::swap_policy) replaces it.
    pub fn policy(&self) -> Handle<dyn Eviction> {
        on!(self, inner => inner.policy())
    }

    /// Returns the statistics. All are zero without
    /// [`record_statistics`](CacheBuilder::record_statistics).
    ///
    /// ```
    /// use squall::cache::Cache;
    ///
    /// let squares: Cache<u64, u64> = Cache::builder().max_capacity(100).record_statistics().build();
    /// squares.get_with(7, || 49); // a miss
    /// squares.get(&7);
    /// assert_eq!(squares.statistics().hit_ratio(), 0.5);
    /// ```
    pub fn statistics(&self) -> Statistics {
        on!(self, inner => inner.counters.as_ref().map(|counters| counters.read()).unwrap_or_default())
    }
}

/// A load, noted as failed unless its turn is taken out.
pub(crate) struct Loading<'a, K, V, F: Fn()> {
    pub(crate) turn: Option<Turn<'a, K, V>>,
    pub(crate) failed: F,
}

impl<K, V, F: Fn()> Drop for Loading<'_, K, V, F> {
    fn drop(&mut self) {
        if self.turn.is_some() {
            (self.failed)();
        }
    }
}

/// An iterator over clones of the entries of a cache: see [`Cache::iter`].
pub struct Iter<'a, K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    cache: &'a Cache<K, V, S>,
    from: Option<u64>,
    ready: VecDeque<(Arc<K>, V)>,
}

impl<K, V, S> Iterator for Iter<'_, K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    type Item = (Arc<K>, V);

    fn next(&mut self) -> Option<(Arc<K>, V)> {
        while self.ready.is_empty() {
            let at = self.from?;
            // Assigned only when complete: a clone may panic.
            let mut ready = VecDeque::new();
            let mut note = |key: &K, value: &V| ready.push_back((Arc::new(key.clone()), value.clone()));
            let next = on!(self.cache, inner => inner.visit(at, &mut note));
            (self.ready, self.from) = (ready, next);
        }
        self.ready.pop_front()
    }
}

impl<'a, K, V, S> IntoIterator for &'a Cache<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    type Item = (Arc<K>, V);
    type IntoIter = Iter<'a, K, V, S>;

    fn into_iter(self) -> Iter<'a, K, V, S> {
        self.iter()
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> fmt::Debug for Iter<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").finish_non_exhaustive()
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> fmt::Debug for Cache<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").finish_non_exhaustive()
    }
}
