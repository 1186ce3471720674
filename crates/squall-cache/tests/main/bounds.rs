//! The bound of a cache.

use squall_cache::Cache;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

#[test]
fn a_cache_holds_at_most_its_entries_and_keeps_them_while_there_is_room() {
    let cache: Cache<u64, u64> = Cache::new(100);
    for n in 0..100 {
        cache.insert(n, n * n);
    }
    assert!((0..100).all(|n| cache.get(&n) == Some(n * n)));
    assert_eq!((cache.entry_count(), cache.weighted_size()), (100, 100));
    for n in 0..10_000 {
        cache.insert(n, n);
        assert!(cache.weighted_size() <= 100 && cache.entry_count() <= 100);
        assert!(cache.get(&n).is_none_or(|found| found == n || found == n * n));
    }
    assert!(cache.entry_count() >= 99);
}

#[test]
fn weights_are_bounded_and_an_entry_that_weighs_too_much_takes_its_old_value_with_it() {
    let cache: Cache<u64, String> =
        Cache::builder().max_capacity(1000).weigher(|_, value: &String| value.len() as u32).build();
    cache.insert(1, "x".repeat(600));
    cache.insert(2, "y".repeat(300));
    assert_eq!(cache.weighted_size(), 900);
    cache.insert(1, "x".repeat(700));
    assert_eq!((cache.weighted_size(), cache.get(&1).map(|value| value.len())), (1000, Some(700)));
    cache.insert(1, "x".repeat(1001));
    assert_eq!((cache.get(&1), cache.weighted_size(), cache.entry_count()), (None, 300, 1));
    cache.insert(2, String::new());
    assert_eq!((cache.get(&2).as_deref(), cache.weighted_size()), (Some(""), 0));
}

#[test]
fn the_bound_of_memory_counts_what_an_entry_needs() {
    let cache: Cache<u64, u64> = Cache::builder().max_memory(64 << 10).build();
    for n in 0..10_000 {
        cache.insert(n, n);
    }
    // 16 bytes for key and value, 16 for metadata, 20 for the table.
    assert_eq!(cache.entry_count(), (64 << 10) / 52);
    let cache: Cache<u64, Vec<u8>> =
        Cache::builder().max_memory(64 << 10).weigher(|_, value: &Vec<u8>| value.capacity() as u32).build();
    for n in 0..1000 {
        cache.insert(n, vec![0; 1000]);
    }
    assert_eq!(cache.entry_count(), (64 << 10) / (1000 + 8 + 24 + 16 + 20));
}

#[test]
fn no_bound_is_exceeded_while_threads_insert_replace_and_remove() {
    const BOUND: u64 = 500;
    let cache: Cache<u64, Vec<u8>> =
        Cache::builder().max_capacity(BOUND).weigher(|_, value: &Vec<u8>| value.len() as u32).build();
    let (stop, most) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                let stored: u64 = cache.iter().map(|(_, value)| value.len() as u64).sum();
                most.fetch_max(stored, Relaxed);
                thread::yield_now();
            }
        });
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                let cache = &cache;
                scope.spawn(move || {
                    for n in 0..5000_u64 {
                        let key = (n * 7 + worker * 13) % 97;
                        match n % 5 {
                            0 => drop(cache.remove(&key)),
                            1 => drop(cache.get(&key)),
                            _ => cache.insert(key, vec![0; (n * 11 % 40) as usize]),
                        }
                    }
                })
            })
            .collect();
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        stop.store(true, Relaxed);
        results.into_iter().for_each(|result| result.unwrap());
    });
    let stored: u64 = cache.iter().map(|(_, value)| value.len() as u64).sum();
    assert_eq!(stored, cache.weighted_size(), "each entry was counted, and each removal once");
    assert!(stored <= BOUND);
    cache.invalidate_all();
    assert_eq!((cache.weighted_size(), cache.entry_count()), (0, 0));
}

#[test]
fn a_weigher_that_panics_changes_nothing() {
    let cache: Cache<u64, u64> =
        Cache::builder().max_capacity(10).weigher(|_, value: &u64| u32::try_from(*value).unwrap()).build();
    cache.insert(1, 3);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| cache.insert(1, u64::MAX)));
    assert!(panicked.is_err());
    assert_eq!((cache.get(&1), cache.weighted_size()), (Some(3), 3));
    cache.insert(2, 7);
    assert_eq!(cache.weighted_size(), 10);
}

#[test]
fn a_cache_without_room_holds_nothing_and_loads_each_time() {
    let cache: Cache<u64, u64> = Cache::new(0);
    cache.insert(1, 1);
    assert_eq!((cache.get(&1), cache.get_with(1, || 5), cache.get_with(1, || 6)), (None, 5, 6));
    assert_eq!(cache.entry_count(), 0);
}

#[test]
fn few_entries_of_a_large_table_are_replaced_and_evicted() {
    // Few entries in many places.
    let cache: Cache<u64, u64> = Cache::builder()
        .max_capacity(100)
        .initial_capacity(100_000)
        .weigher(|_, value: &u64| u32::try_from(*value).unwrap())
        .build();
    (0..10).for_each(|n| cache.insert(n, 10));
    for n in 0..10 {
        cache.insert(n, 20 + n);
        assert!(cache.get(&n).is_none_or(|value| value == 20 + n), "an old value was left");
    }
    for n in 0..100 {
        cache.insert(100 + n, 30);
        cache.insert(100 + n, 40);
    }
    assert!((1..=100).contains(&cache.weighted_size()));
}

#[test]
fn a_bound_beyond_all_memory_costs_nothing() {
    let cache: Cache<u64, u64> = Cache::new(u64::MAX);
    (0..1000).for_each(|n| cache.insert(n, n));
    assert!((0..1000).all(|n| cache.get(&n) == Some(n)));
    let cache: Cache<u64, u64> = Cache::builder().max_memory(1 << 60).build();
    cache.insert(1, 1);
    assert_eq!(cache.get(&1), Some(1));
    let cache: Cache<u64, u64> = Cache::builder().max_capacity(u64::MAX).weigher(|_, _| u32::MAX).build();
    (0..1000).for_each(|n| cache.insert(n, n));
    assert_eq!((cache.entry_count(), cache.weighted_size()), (1000, 1000 * u64::from(u32::MAX)));
}

#[test]
fn a_key_whose_value_is_replaced_is_never_missed() {
    let cache: Cache<u64, u64> = Cache::new(100);
    (0..4).for_each(|key| cache.insert(key, key));
    thread::scope(|scope| {
        for worker in 0..4 {
            let cache = &cache;
            scope.spawn(move || {
                for n in 0..20_000 {
                    let key = n % 4;
                    if worker == 0 {
                        cache.insert(key, n);
                    } else {
                        assert_eq!(cache.get(&key).map(|value| value % 4), Some(key));
                    }
                }
            });
        }
    });
}
