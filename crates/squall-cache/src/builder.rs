//! The builder of caches.

use squall_core::Owned;
use squall_parts::table::{Budget as Bound, Table};
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::DefaultHasher;
use crate::inner::{Config, Inner, Weigher};
use crate::listener::{Listener, RemovalCause};
use crate::policy::{self, Eviction};
use crate::stats::Counters;
use crate::stored::{Span, Stored};
use crate::sync::{Cache, Kind};
use crate::time::{Clock, Expiry, ManualClock, Times};

/// Bytes of the table for an entry, when the table is about two thirds full.
const TABLE_BYTES: usize = 20;

/// Builds a cache. [`Cache::builder`] returns a builder without a bound, times or listener.
///
/// ```
/// use squall::cache::Cache;
/// use std::time::Duration;
///
/// let pages: Cache<String, Vec<u8>> = Cache::builder()
///     .max_capacity(1 << 20)
///     .weigher(|_, page: &Vec<u8>| page.len() as u32)
///     .time_to_live(Duration::from_secs(60))
///     .build();
/// pages.insert("/".to_owned(), vec![0; 1000]);
/// assert_eq!(pages.weighted_size(), 1000);
/// ```
#[must_use = "call `build`"]
pub struct CacheBuilder<K, V> {
    name: Option<String>,
    max_capacity: Option<u64>,
    is_memory: bool,
    initial_capacity: usize,
    weigher: Option<Weigher<K, V>>,
    listener: Option<Listener<K, V>>,
    to_live: Option<Duration>,
    to_idle: Option<Duration>,
    expiry: Option<Arc<dyn Expiry<K, V>>>,
    clock: Option<ManualClock>,
    policy: Option<Owned<dyn Eviction>>,
    counts: bool,
    _types: PhantomData<fn() -> (K, V)>,
}

impl<K, V> CacheBuilder<K, V>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Returns a builder for a cache of at most this many entries.
    pub fn new(max_capacity: u64) -> CacheBuilder<K, V> {
        CacheBuilder::default().max_capacity(max_capacity)
    }

    /// Bounds the number of entries, or the sum of their weights if there is a weigher. By default there is
    /// no bound, and the cache never evicts. A cache with the bound 0 holds nothing. Replaces an earlier
    /// [`max_memory`](Self::max_memory).
    pub fn max_capacity(self, max_capacity: u64) -> CacheBuilder<K, V> {
        CacheBuilder { max_capacity: Some(max_capacity), is_memory: false, ..self }
    }

    /// Bounds the memory in bytes, in place of [`max_capacity`](Self::max_capacity). An entry counts with its
    /// key, value, metadata and part of the table: 52 bytes for two `u64`. Its weight is added. So the
    /// weigher returns the bytes that key and value own elsewhere; without a weigher they count as 0.
    ///
    /// The memory of the policy and of the allocator does not count. Nor do removed entries that a read which
    /// began before may still see.
    ///
    /// ```
    /// use squall::cache::Cache;
    ///
    /// let pages: Cache<u64, Vec<u8>> = Cache::builder()
    ///     .max_memory(64 << 20)
    ///     .weigher(|_, page: &Vec<u8>| page.capacity() as u32)
    ///     .build();
    /// pages.insert(1, vec![0; 4096]);
    /// assert!(pages.weighted_size() > 4096);
    /// ```
    pub fn max_memory(self, bytes: u64) -> CacheBuilder<K, V> {
        CacheBuilder { max_capacity: Some(bytes), is_memory: true, ..self }
    }

    /// Allocates a table for this many entries at once. By default, it is small and grows.
    pub fn initial_capacity(self, entries: usize) -> CacheBuilder<K, V> {
        CacheBuilder { initial_capacity: entries, ..self }
    }

    /// Sets the name. The policy is then named `NAME.policy`, and the counters of the statistics `NAME.hits`,
    /// `NAME.misses` and so on, for example in `squall top`.
    pub fn name(self, name: &str) -> CacheBuilder<K, V> {
        CacheBuilder { name: Some(name.to_owned()), ..self }
    }

    /// Sets the function that weighs an entry. By default each entry weighs 1. An entry of weight 0 takes no
    /// part of the bound of [`max_capacity`](Self::max_capacity).
    ///
    /// The thread that inserts calls it once for each value, perhaps within an operation or under the lock of
    /// a load. So it must be short, and must not use the cache.
    pub fn weigher(self, weigher: impl Fn(&K, &V) -> u32 + Send + Sync + 'static) -> CacheBuilder<K, V> {
        CacheBuilder { weigher: Some(Box::new(weigher)), ..self }
    }

    /// Lets entries expire this long after they were inserted, or after their value was last replaced.
    pub fn time_to_live(self, time: Duration) -> CacheBuilder<K, V> {
        CacheBuilder { to_live: Some(time), ..self }
    }

    /// Lets entries expire this long after their last use, or up to a sixty-fourth of the time earlier. An
    /// insertion or a new value also begins the time.
    pub fn time_to_idle(self, time: Duration) -> CacheBuilder<K, V> {
        CacheBuilder { to_idle: Some(time), ..self }
    }

    /// Sets a time of its own for each entry: see [`Expiry`]. An entry expires at the earliest of all its
    /// times.
    pub fn expire_after(self, expiry: impl Expiry<K, V> + 'static) -> CacheBuilder<K, V> {
        CacheBuilder { expiry: Some(Arc::new(expiry)), ..self }
    }

    /// Sets the clock of the entries' times, for tests: see [`ManualClock`].
    pub fn clock(self, clock: ManualClock) -> CacheBuilder<K, V> {
        CacheBuilder { clock: Some(clock), ..self }
    }

    /// Sets a listener, which gets each entry that leaves, with the reason.
    ///
    /// The thread whose operation removed the entry calls it, after that operation and outside all locks. So
    /// it may use the cache, and its time adds to that of the operation. In a task it must not block. Calls
    /// of several threads may come in another order than the removals. Entries that are left when the cache
    /// is dropped do not go to the listener.
    ///
    /// ```
    /// use squall::cache::{Cache, RemovalCause::Explicit, RemovalCause::Replaced};
    /// use std::sync::{Arc, Mutex};
    ///
    /// let left = Arc::new(Mutex::new(Vec::new()));
    /// let seen = left.clone();
    /// let pages: Cache<u64, &str> = Cache::builder()
    ///     .max_capacity(100)
    ///     .eviction_listener(move |key: Arc<u64>, page, why| seen.lock().unwrap().push((*key, page, why)))
    ///     .build();
    /// pages.insert(1, "old");
    /// pages.insert(1, "new");
    /// pages.invalidate(&1);
    /// assert_eq!(*left.lock().unwrap(), [(1, "old", Replaced), (1, "new", Explicit)]);
    /// ```
    ///
    /// # Panics
    /// A panic of the listener passes to the caller of the cache, after the operation was carried out. The
    /// calls for further entries of that operation are lost.
    ///
    /// # Cost
    /// A clone of the key and perhaps of the value for each removal.
    pub fn eviction_listener(
        self,
        listener: impl Fn(Arc<K>, V, RemovalCause) + Send + Sync + 'static,
    ) -> CacheBuilder<K, V>
    where
        K: Clone,
    {
        CacheBuilder { listener: Some(Listener { call: Box::new(listener), clone_key: K::clone }), ..self }
    }

    /// Sets the policy of evictions. It is [`policy::frequency`] by default.
    pub fn eviction_policy(self, policy: Owned<dyn Eviction>) -> CacheBuilder<K, V> {
        CacheBuilder { policy: Some(policy), ..self }
    }

    /// Counts hits, misses and more: see [`Cache::statistics`]. Each lookup then adds to a word of its
    /// processor. By default, nothing is counted.
    pub fn record_statistics(self) -> CacheBuilder<K, V> {
        CacheBuilder { counts: true, ..self }
    }

    /// Makes the cache.
    ///
    /// # Panics
    /// If no object can be created for the policy or the statistics: see
    /// [`CreateError`](squall_core::CreateError).
    #[track_caller]
    pub fn build(self) -> Cache<K, V> {
        self.build_with_hasher(DefaultHasher::default())
    }

    /// Makes the cache, with a hasher of keys in place of [`DefaultHasher`].
    ///
    /// # Panics
    /// As [`build`](Self::build).
    #[track_caller]
    pub fn build_with_hasher<S: BuildHasher>(self, hasher: S) -> Cache<K, V, S> {
        let can_end = self.to_live.is_some() || self.to_idle.is_some() || self.expiry.is_some();
        Cache(if can_end { Kind::Ending(self.inner(hasher)) } else { Kind::Endless(self.inner(hasher)) })
    }

    #[track_caller]
    fn inner<S: BuildHasher, T: Span>(self, hasher: S) -> Arc<Inner<K, V, S, T>> {
        let block = size_of::<(K, Stored<V, T>)>();
        let overhead = if self.is_memory { (block + TABLE_BYTES) as u32 } else { 0 };
        let (bound, is_weighed) =
            (self.max_capacity.map(Bound::new), self.weigher.is_some() || self.is_memory);
        let weigher = match self.weigher {
            None if self.is_memory => Some(Box::new(|_: &K, _: &V| 0_u32) as Weigher<K, V>),
            weigher => weigher,
        };
        let clock = self.clock.map_or_else(|| Clock::System(Instant::now()), Clock::Manual);
        let policy = self.policy.unwrap_or_else(policy::frequency);
        if let Some(name) = &self.name {
            // A name in use twice is no reason to fail.
            let _ = squall_core::set_name(squall_core::Handle::id(policy.handle()), format!("{name}.policy"));
        }
        let counters = self.counts.then(|| Counters::new(self.name.as_deref()));
        let config = Config {
            name: self.name,
            bound,
            is_weighed,
            overhead,
            weigher,
            listener: self.listener,
            times: Times::new(clock, self.to_live, self.to_idle, self.expiry),
        };
        let table = Table::with_capacity_and_hasher(self.initial_capacity, hasher);
        Arc::new(Inner::new(table, config, policy, counters))
    }
}

impl<K, V> Default for CacheBuilder<K, V> {
    fn default() -> CacheBuilder<K, V> {
        CacheBuilder {
            name: None,
            max_capacity: None,
            is_memory: false,
            initial_capacity: 0,
            weigher: None,
            listener: None,
            to_live: None,
            to_idle: None,
            expiry: None,
            clock: None,
            policy: None,
            counts: false,
            _types: PhantomData,
        }
    }
}

impl<K, V> fmt::Debug for CacheBuilder<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("CacheBuilder");
        debug.field("name", &self.name).field("max_capacity", &self.max_capacity).finish_non_exhaustive()
    }
}
