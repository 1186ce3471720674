//! Removals, listeners and iteration.

use squall_cache::{Cache, Expiry, RemovalCause, policy};
use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

type Told = Arc<Mutex<Vec<(u64, u64, RemovalCause)>>>;

fn listening(bound: u64) -> (Cache<u64, u64>, Told) {
    let told: Told = Arc::default();
    let listener = told.clone();
    let cache = Cache::builder()
        .max_capacity(bound)
        .eviction_listener(move |key: Arc<u64>, value, cause| {
            listener.lock().unwrap().push((*key, value, cause));
        })
        .build();
    (cache, told)
}

#[test]
fn the_listener_gets_each_entry_once_with_its_cause() {
    let (cache, told) = listening(2);
    cache.insert(1, 10);
    cache.insert(1, 11);
    assert_eq!(cache.remove(&1), Some(11));
    assert_eq!((cache.remove(&1), cache.get(&1)), (None, None));
    cache.insert(2, 20);
    cache.insert(3, 30);
    cache.insert(4, 40);
    use RemovalCause::{Explicit, Replaced, Size};
    let list = told.lock().unwrap().clone();
    assert_eq!(list[..2], [(1, 10, Replaced), (1, 11, Explicit)]);
    assert_eq!((list.len(), list[2].2, list[2].0 * 10), (3, Size, list[2].1));
    assert!(Size.was_evicted() && !Explicit.was_evicted());
    cache.invalidate_all();
    assert_eq!(told.lock().unwrap()[3..].iter().filter(|told| told.2 == Explicit).count(), 2);
}

#[test]
fn every_entry_that_came_is_there_or_was_told_once_under_contention() {
    let (cache, told) = listening(50);
    thread::scope(|scope| {
        for worker in 0..4_u64 {
            let cache = &cache;
            scope.spawn(move || {
                for n in 0..2000 {
                    let key = n * 31 % 101;
                    if n % 7 == 0 {
                        cache.remove(&key);
                    } else {
                        cache.insert(key, worker << 32 | n);
                    }
                }
            });
        }
    });
    let mut seen: HashMap<(u64, u64), usize> = HashMap::new();
    for (key, value, _) in told.lock().unwrap().iter() {
        *seen.entry((*key, *value)).or_default() += 1;
    }
    for (key, value) in cache.iter() {
        *seen.entry((*key, value)).or_default() += 1;
    }
    let inserted = 4 * (0..2000).filter(|n| n % 7 != 0).count();
    assert_eq!((seen.len(), seen.values().filter(|times| **times != 1).count()), (inserted, 0));
}

#[test]
fn invalid_entries_go_and_the_others_stay() {
    let cache: Cache<u64, u64> = Cache::new(1000);
    (0..500).for_each(|n| cache.insert(n, n % 3));
    cache.invalidate_entries_if(|_, value| *value == 0);
    let left: BTreeMap<u64, u64> = cache.iter().map(|(key, value)| (*key, value)).collect();
    assert_eq!((left.len(), left.values().all(|value| *value != 0)), (333, true));
    assert_eq!((&cache).into_iter().count(), 333);
    cache.invalidate(&1);
    assert!(!cache.contains_key(&1) && cache.contains_key(&2));
    cache.invalidate_all();
    assert_eq!((cache.iter().count(), cache.entry_count()), (0, 0));
    cache.insert(1, 1);
    assert_eq!(cache.get(&1), Some(1));
    for _ in 0..300 {
        cache.invalidate_all();
        assert_eq!(cache.get(&1), None);
        cache.insert(1, 1);
        assert_eq!(cache.get(&1), Some(1));
    }
}

#[test]
fn a_listener_may_use_the_cache_and_its_panic_is_the_callers() {
    let cache: Arc<Mutex<Option<Cache<u64, u64>>>> = Arc::default();
    let of_listener = cache.clone();
    let made: Cache<u64, u64> = Cache::builder()
        .max_capacity(1)
        .eviction_listener(move |key: Arc<u64>, value, _| {
            if *key == 9 {
                panic!("a listener");
            }
            let cache = of_listener.lock().unwrap().clone();
            if let Some(cache) = cache
                && *key < 5
            {
                cache.insert(*key + 100, value);
            }
        })
        .build();
    *cache.lock().unwrap() = Some(made.clone());
    made.insert(1, 1);
    made.insert(2, 2);
    assert!(made.entry_count() <= 1);
    *cache.lock().unwrap() = None;
    made.invalidate_all();
    made.insert(9, 9);
    let removed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| made.remove(&9)));
    assert!(removed.is_err() && made.get(&9).is_none(), "the entry is gone, though its listener panicked");
}

#[test]
fn a_listener_invalidates_all() {
    let own: Arc<std::sync::OnceLock<Cache<u64, u64>>> = Arc::default();
    let (inner, told) = (own.clone(), Arc::new(Mutex::new(Vec::new())));
    let telling = told.clone();
    let listener = move |key: Arc<u64>, _, cause| {
        telling.lock().unwrap().push((*key, cause));
        inner.get().unwrap().invalidate_all();
    };
    let cache = Cache::builder().max_capacity(100).eviction_listener(listener).build();
    own.set(cache.clone()).unwrap();
    (0..100).for_each(|n| cache.insert(n, n));
    cache.invalidate_all();
    let mut told = told.lock().unwrap().clone();
    told.sort_unstable_by_key(|(key, _)| *key);
    assert_eq!(told, (0..100).map(|n| (n, RemovalCause::Explicit)).collect::<Vec<_>>());
    assert_eq!(cache.weighted_size(), 0);
}

struct Refuses;

impl Expiry<u64, u64> for Refuses {
    fn expire_after_create(&self, key: &u64, _: &u64) -> Option<Duration> {
        assert!(*key < 100, "an expiry that panics");
        None
    }
}

#[test]
fn a_panic_loses_no_call_of_the_listener() {
    let told: Arc<Mutex<Vec<u64>>> = Arc::default();
    let telling = told.clone();
    let cache: Cache<u64, u64> = Cache::builder()
        .max_capacity(10)
        .expire_after(Refuses)
        .eviction_policy(policy::lru())
        .eviction_listener(move |key, _, _| telling.lock().unwrap().push(*key))
        .build();
    (0..10).for_each(|n| cache.insert(n, n));
    assert!(catch_unwind(AssertUnwindSafe(|| cache.insert(100, 0))).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| cache.get_with(101, || 0))).is_err());
    let left = cache.iter().count();
    assert_eq!(left + told.lock().unwrap().len(), 10, "each entry is in the cache, or was told");
}

#[test]
fn a_listener_that_panics_ends_no_sweep() {
    let cache: Cache<u64, u64> =
        Cache::builder().max_capacity(1000).eviction_listener(|_, _, _| panic!("a planned panic")).build();
    (0..500).for_each(|key| cache.insert(key, key));
    let swept = catch_unwind(AssertUnwindSafe(|| cache.invalidate_entries_if(|key, _| key % 2 == 0)));
    assert!(swept.is_err());
    assert_eq!((0..500).filter(|key| cache.contains_key(key)).count(), 250);
}
