//! Bounded caches behind one interface, each with its defaults but for the hasher.

use std::convert::Infallible;
use std::num::NonZeroUsize;

use mini_moka::sync::ConcurrentCacheExt;
use parking_lot::Mutex;
use quick_cache::UnitWeighter;
use quick_cache::sync::DefaultLifecycle;

/// The common hasher: fast, and without a seed, so that a run can be repeated.
pub(crate) type CommonHasher = foldhash::fast::FixedState;

/// A cache of words, bounded by the number of its entries.
pub(crate) trait BoundedCache: Send + Sync + 'static {
    /// A cache of at most about so many entries.
    fn new(capacity: usize) -> Self;

    /// Returns the value of a key. Counts as a use.
    fn get(&self, key: u64) -> Option<u64>;

    fn insert(&self, key: u64, value: u64);

    /// The number of entries, after [`settle`](Self::settle).
    fn len(&self) -> usize;

    /// Does the work that the cache has put off.
    fn settle(&self) {}
}

/// A cache that runs one loader for each absent key, while other callers wait.
pub(crate) trait SingleFlight: BoundedCache {
    /// Returns the value of a key. If it is absent, `load` makes it.
    fn get_with(&self, key: u64, load: impl FnOnce() -> u64) -> u64;
}

/// `quick-cache`.
pub(crate) struct QuickCache(
    quick_cache::sync::Cache<u64, u64, UnitWeighter, CommonHasher, DefaultLifecycle<u64, u64>>,
);

impl BoundedCache for QuickCache {
    fn new(capacity: usize) -> QuickCache {
        QuickCache(quick_cache::sync::Cache::with(
            capacity,
            capacity as u64,
            UnitWeighter,
            CommonHasher::default(),
            DefaultLifecycle::default(),
        ))
    }

    #[inline(always)]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key)
    }

    #[inline(always)]
    fn insert(&self, key: u64, value: u64) {
        self.0.insert(key, value);
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

impl SingleFlight for QuickCache {
    #[inline(always)]
    fn get_with(&self, key: u64, load: impl FnOnce() -> u64) -> u64 {
        let loaded: Result<u64, Infallible> = self.0.get_or_insert_with(&key, || Ok(load()));
        match loaded {
            Ok(value) => value,
        }
    }
}

/// `moka`.
pub(crate) struct Moka(moka::sync::Cache<u64, u64, CommonHasher>);

impl BoundedCache for Moka {
    fn new(capacity: usize) -> Moka {
        let builder = moka::sync::Cache::builder().max_capacity(capacity as u64);
        Moka(builder.build_with_hasher(CommonHasher::default()))
    }

    #[inline(always)]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key)
    }

    #[inline(always)]
    fn insert(&self, key: u64, value: u64) {
        self.0.insert(key, value);
    }

    fn len(&self) -> usize {
        self.0.entry_count() as usize
    }

    fn settle(&self) {
        self.0.run_pending_tasks();
    }
}

impl SingleFlight for Moka {
    #[inline(always)]
    fn get_with(&self, key: u64, load: impl FnOnce() -> u64) -> u64 {
        self.0.get_with(key, load)
    }
}

/// `mini-moka`.
pub(crate) struct MiniMoka(mini_moka::sync::Cache<u64, u64, CommonHasher>);

impl BoundedCache for MiniMoka {
    fn new(capacity: usize) -> MiniMoka {
        let builder = mini_moka::sync::Cache::builder().max_capacity(capacity as u64);
        MiniMoka(builder.build_with_hasher(CommonHasher::default()))
    }

    #[inline(always)]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key)
    }

    #[inline(always)]
    fn insert(&self, key: u64, value: u64) {
        self.0.insert(key, value);
    }

    fn len(&self) -> usize {
        self.0.entry_count() as usize
    }

    fn settle(&self) {
        self.0.sync();
    }
}

/// `lru-mutex`: a lock of `parking_lot` around the crate `lru`.
pub(crate) struct LockedLru(Mutex<lru::LruCache<u64, u64, CommonHasher>>);

impl BoundedCache for LockedLru {
    fn new(capacity: usize) -> LockedLru {
        let capacity = NonZeroUsize::new(capacity).expect("a cache holds an entry");
        LockedLru(Mutex::new(lru::LruCache::with_hasher(capacity, CommonHasher::default())))
    }

    #[inline(always)]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.lock().get(&key).copied()
    }

    #[inline(always)]
    fn insert(&self, key: u64, value: u64) {
        self.0.lock().put(key, value);
    }

    fn len(&self) -> usize {
        self.0.lock().len()
    }
}

/// `foyer-s3fifo`: the crate `foyer-memory`, with the fastest of its policies.
#[cfg(feature = "rivals")]
pub(crate) struct Foyer(foyer_memory::Cache<u64, u64, CommonHasher>);

#[cfg(feature = "rivals")]
impl BoundedCache for Foyer {
    fn new(capacity: usize) -> Foyer {
        let builder = foyer_memory::CacheBuilder::new(capacity)
            .with_eviction_config(foyer_memory::S3FifoConfig::default())
            .with_hash_builder(CommonHasher::default());
        Foyer(builder.build())
    }

    #[inline(always)]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key).map(|entry| *entry.value())
    }

    #[inline(always)]
    fn insert(&self, key: u64, value: u64) {
        self.0.insert(key, value);
    }

    fn len(&self) -> usize {
        self.0.entries()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    use super::*;
    use crate::ours_cache::{Frequency, SampledLru};

    /// Entries beyond the bound, for a cache that rounds up the share of each of its parts.
    const ROUNDED: usize = 64;

    fn keeps_the_contract<C: BoundedCache>() {
        let cache = C::new(1_000);
        assert_eq!(cache.get(7), None);
        cache.insert(7, 70);
        assert_eq!(cache.get(7), Some(70));
        cache.insert(7, 71);
        assert_eq!(cache.get(7), Some(71));
        (0..10_000).for_each(|key| cache.insert(key, !key));
        cache.settle();
        let present: Vec<u64> = (0..10_000).filter(|key| cache.get(*key).is_some()).collect();
        assert!((500..=1_000 + ROUNDED).contains(&present.len()), "{}", present.len());
        assert!(present.iter().all(|key| cache.get(*key) == Some(!key)));
        assert_eq!(cache.len(), present.len());
    }

    fn loads_once<C: SingleFlight>() {
        let (cache, loads, start) = (C::new(1_000), AtomicU32::new(0), Barrier::new(4));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for key in 0..100 {
                        start.wait();
                        let value = cache.get_with(key, || {
                            loads.fetch_add(1, Ordering::Relaxed);
                            !key
                        });
                        assert_eq!(value, !key);
                    }
                });
            }
        });
        assert_eq!(loads.into_inner(), 100);
    }

    #[test]
    fn every_cache_keeps_its_bound_and_the_values() {
        keeps_the_contract::<Frequency>();
        keeps_the_contract::<SampledLru>();
        keeps_the_contract::<QuickCache>();
        keeps_the_contract::<Moka>();
        keeps_the_contract::<MiniMoka>();
        keeps_the_contract::<LockedLru>();
        #[cfg(feature = "rivals")]
        keeps_the_contract::<Foyer>();
    }

    #[test]
    fn of_several_callers_of_a_key_one_loads() {
        loads_once::<Frequency>();
        loads_once::<SampledLru>();
        loads_once::<QuickCache>();
        loads_once::<Moka>();
    }
}
