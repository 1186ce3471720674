//! Keys, values and closures that panic, or use the cache again.

use squall_cache::ops::compute::Op;
use squall_cache::policy::{Candidate, Eviction, Mark, Now, Turn, Verdict};
use squall_cache::{Cache, RemovalCause};
use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex, OnceLock};
use std::thread;

thread_local! {
    /// The clones of a [`Fragile`] until one panics.
    static CLONES: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// A value with a clone that panics on demand.
#[derive(Debug, PartialEq)]
struct Fragile(u64);

impl Clone for Fragile {
    fn clone(&self) -> Fragile {
        let left = CLONES.get();
        assert!(left > 0, "a clone that panics");
        CLONES.set(left - 1);
        Fragile(self.0)
    }
}

fn panics<R>(f: impl FnOnce() -> R) -> bool {
    let caught = catch_unwind(AssertUnwindSafe(f)).is_err();
    CLONES.set(usize::MAX);
    caught
}

/// Checks that the bound counts each entry, once.
fn assert_counted<K, V>(cache: &Cache<K, V>)
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    assert_eq!(cache.iter().count() as u64, cache.weighted_size());
}

#[test]
fn a_predicate_that_panics_keeps_the_count_of_the_bound() {
    for good in 1..20 {
        let cache: Cache<u64, u64> = Cache::new(100);
        (0..100).for_each(|n| cache.insert(n, n));
        let mut looked = 0;
        let invalid = |_: &u64, _: &u64| {
            looked += 1;
            assert!(looked <= good, "a predicate that panics");
            true
        };
        assert!(panics(|| cache.invalidate_entries_if(invalid)));
        assert_counted(&cache);
    }
}

#[test]
fn a_clone_that_panics_keeps_the_count_of_the_bound() {
    for listens in [false, true] {
        let told: Arc<Mutex<Vec<u64>>> = Arc::default();
        let mut builder = Cache::<u64, Fragile>::builder().max_capacity(10);
        if listens {
            let told = told.clone();
            builder = builder.eviction_listener(move |key, _, _| told.lock().unwrap().push(*key));
        }
        let cache = builder.build();
        (0..10).for_each(|n| cache.insert(n, Fragile(n)));
        for clones in 0..3 {
            CLONES.set(clones);
            panics(|| cache.remove(&clones.try_into().unwrap()));
            assert_counted(&cache);
            CLONES.set(clones);
            panics(|| cache.insert(5, Fragile(50)));
            assert_counted(&cache);
            CLONES.set(clones);
            panics(|| (10..20).for_each(|n| cache.insert(n + 10 * clones as u64, Fragile(n))));
            assert_counted(&cache);
            CLONES.set(clones);
            panics(|| cache.invalidate_all());
            cache.run_pending_tasks();
            assert_eq!(cache.weighted_size(), 0);
            (0..10).for_each(|n| cache.insert(n, Fragile(n)));
        }
    }
}

static CACHE: OnceLock<Cache<Meddler, u64>> = OnceLock::new();

thread_local! {
    static MEDDLES: Cell<bool> = const { Cell::new(false) };
}

/// A key with a clone that replaces its value.
#[derive(Debug, PartialEq, Eq)]
struct Meddler(u64);

impl Hash for Meddler {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Clone for Meddler {
    fn clone(&self) -> Meddler {
        if MEDDLES.take() {
            CACHE.get().unwrap().insert(Meddler(self.0), 2);
        }
        Meddler(self.0)
    }
}

#[test]
fn a_removal_counts_each_value_that_it_takes() {
    let told: Arc<Mutex<Vec<(u64, RemovalCause)>>> = Arc::default();
    let telling = told.clone();
    let cache = Cache::builder()
        .max_capacity(10)
        .eviction_listener(move |_: Arc<Meddler>, value, cause| telling.lock().unwrap().push((value, cause)))
        .build();
    let cache = CACHE.get_or_init(|| cache);
    cache.insert(Meddler(1), 1);
    MEDDLES.set(true);
    // The value 1 is replaced after the removal has found it.
    cache.remove(&Meddler(1));
    assert_eq!((cache.entry_count(), cache.weighted_size()), (0, 0));
    let told = told.lock().unwrap();
    assert_eq!(*told, [(1, RemovalCause::Replaced), (2, RemovalCause::Explicit)]);
}

#[test]
fn an_entry_of_before_an_invalidation_is_told_as_removed() {
    static CACHE: OnceLock<Cache<Remover, u64>> = OnceLock::new();

    /// A key with a clone that uses the other entries.
    #[derive(Debug, PartialEq, Eq, Hash)]
    struct Remover(u64);

    impl Clone for Remover {
        fn clone(&self) -> Remover {
            if MEDDLES.take() {
                // All entries are absent already, and most of them are still in the table.
                let cache = CACHE.get().unwrap();
                assert!((0..50).all(|n| cache.remove(&Remover(n)).is_none()));
                (50..100).for_each(|n| cache.insert(Remover(n), 1));
                (100..200).for_each(|n| cache.insert(Remover(n), 1));
            }
            Remover(self.0)
        }
    }

    let told: Arc<Mutex<Vec<RemovalCause>>> = Arc::default();
    let telling = told.clone();
    let listener = move |_: Arc<Remover>, value, cause| {
        if value == 0 {
            telling.lock().unwrap().push(cause);
        }
    };
    let cache = Cache::builder().max_capacity(100).eviction_listener(listener).build();
    let cache = CACHE.get_or_init(|| cache);
    (0..100).for_each(|n| cache.insert(Remover(n), 0));
    MEDDLES.set(true);
    cache.invalidate_all();
    assert_eq!(*told.lock().unwrap(), [RemovalCause::Explicit; 100]);
}

thread_local! {
    static POLICY_PANICS: Cell<bool> = const { Cell::new(false) };
}

/// A policy that panics on demand.
struct Panics;

impl Eviction for Panics {
    fn resize(&self, _: u64) {}

    fn epoch_length(&self) -> u64 {
        1 << 40
    }

    fn begin_epoch(&self) -> Turn {
        Turn::default()
    }

    fn arrived(&self, _: u64, now: Now) -> Mark {
        Mark::new(now, 0)
    }

    fn choose(&self, _: Option<Candidate>, _: &[Candidate], _: Now) -> Verdict {
        assert!(!POLICY_PANICS.get(), "a policy that panics");
        Verdict::Evict(0)
    }
}

#[test]
fn a_policy_that_panics_keeps_the_count_of_the_bound() {
    let grow: [fn(&Cache<u64, u64>); 2] = [
        |cache| cache.insert(1, 8),
        |cache| {
            cache.compute(1, |_| Op::Put(8));
        },
    ];
    for grow in grow {
        let told: Arc<Mutex<Vec<u64>>> = Arc::default();
        let telling = told.clone();
        let cache: Cache<u64, u64> = Cache::builder()
            .max_capacity(10)
            .weigher(|_, weight: &u64| *weight as u32)
            .eviction_policy(squall_core::shared(Panics))
            .eviction_listener(move |key, _, _| telling.lock().unwrap().push(*key))
            .build();
        cache.insert(1, 5);
        cache.insert(2, 5);
        POLICY_PANICS.set(true);
        assert!(panics(|| grow(&cache)));
        POLICY_PANICS.set(false);
        let left: Vec<u64> = cache.iter().map(|(key, _)| *key).collect();
        assert_eq!(cache.weighted_size(), 5 * left.len() as u64);
        // Each entry is there, or was told.
        let mut all = [left, told.lock().unwrap().clone()].concat();
        all.sort_unstable();
        assert_eq!(all, [1, 2]);
        // The rest can be evicted.
        cache.insert(3, 10);
        assert_eq!((cache.get(&3), cache.weighted_size()), (Some(10), 10));
    }
}

/// The drop of this value loads another one, but not within that load.
#[derive(Clone)]
struct Loading;

static LOADED: OnceLock<Cache<u64, Loading>> = OnceLock::new();

thread_local! {
    static IS_LOADING: Cell<bool> = const { Cell::new(false) };
}

impl Drop for Loading {
    fn drop(&mut self) {
        if let (Some(cache), false) = (LOADED.get(), IS_LOADING.replace(true)) {
            cache.get_with(1, || Loading);
            IS_LOADING.set(false);
        }
    }
}

#[test]
fn a_value_that_is_refused_may_load_while_it_is_dropped() {
    let cache = LOADED.get_or_init(|| Cache::new(0));
    cache.get_with(1, || Loading);
    assert_eq!(cache.entry_count(), 0);
}

/// A value with a planned panic in one of its clones.
struct Clones(Arc<AtomicUsize>);

impl Clone for Clones {
    fn clone(&self) -> Clones {
        assert!(self.0.fetch_add(1, Relaxed) != 1, "a planned panic");
        Clones(self.0.clone())
    }
}

#[test]
fn a_caller_that_waits_goes_on_after_a_clone_that_panicked() {
    for _ in 0..50 {
        let cache: Cache<u64, Clones> = Cache::new(10);
        let (clones, waits) = (Arc::new(AtomicUsize::new(0)), Barrier::new(2));
        thread::scope(|scope| {
            let load = || {
                waits.wait();
                // It waits for the other load, or comes after it.
                catch_unwind(AssertUnwindSafe(|| cache.get_with(1, || Clones(clones.clone())).0.clone()))
            };
            let waiter = scope.spawn(load);
            let init = || {
                waits.wait();
                Clones(clones.clone())
            };
            let _ = catch_unwind(AssertUnwindSafe(|| cache.get_with(1, init).0.clone()));
            let _ = waiter.join().unwrap();
        });
        assert!(cache.get(&1).is_some());
    }
}
