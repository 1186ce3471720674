//! Bounds that change, and reserved parts of them.

use squall_cache::ops::compute::{Computed, Op};
use squall_cache::{Cache, RemovalCause};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

fn weighed(bound: u64) -> Cache<u64, u32> {
    Cache::builder().max_capacity(bound).weigher(|_, weight| *weight).build()
}

#[test]
fn a_lower_bound_evicts_at_once_and_a_higher_one_takes_more() {
    let told: Arc<Mutex<Vec<_>>> = Arc::default();
    let listener = told.clone();
    let cache: Cache<u64, u32> = Cache::builder()
        .max_capacity(1000)
        .weigher(|_, weight| *weight)
        .eviction_listener(move |_: Arc<u64>, _, cause| listener.lock().unwrap().push(cause))
        .build();
    (0..100).for_each(|n| cache.insert(n, 10));
    assert!(cache.set_max_capacity(305));
    assert_eq!((cache.max_capacity(), cache.weighted_size(), cache.entry_count()), (Some(305), 300, 30));
    assert_eq!(*told.lock().unwrap(), [RemovalCause::Size; 70]);
    assert_eq!(cache.compute(1000, |_| Op::Put(306)), Computed::Refused);
    assert!(cache.set_max_capacity(100_000));
    (0..5000).for_each(|n| cache.insert(n, 10));
    assert_eq!((cache.entry_count(), cache.weighted_size()), (5000, 50_000));
    assert!(cache.set_max_capacity(0));
    assert_eq!((cache.entry_count(), cache.weighted_size()), (0, 0));
    let unbounded: Cache<u64, u32> = Cache::builder().build();
    unbounded.insert(1, 1);
    assert!(!unbounded.set_max_capacity(0));
    assert_eq!((unbounded.max_capacity(), unbounded.get(&1)), (None, Some(1)));
}

#[test]
fn entries_cannot_use_a_reserved_part() {
    let cache = weighed(1000);
    (0..100).for_each(|n| cache.insert(n, 10));
    let mut part = cache.reserve(600).expect("it fits");
    assert_eq!((cache.weighted_size(), cache.reserved(), part.weight()), (400, 600, 600));
    (0..100).for_each(|n| cache.insert(n, 10));
    assert!(cache.weighted_size() <= 400);
    // An entry for which there is no room beside the part evicts no other.
    let there = cache.entry_count();
    assert_eq!(cache.compute(1000, |_| Op::Put(401)), Computed::Refused);
    assert_eq!(cache.entry_count(), there);
    // A part that does not fit beside the first evicts no entry either.
    assert!(cache.reserve(401).is_none() && !part.resize(1001));
    assert_eq!((cache.entry_count(), cache.reserved(), part.weight()), (there, 600, 600));
    let other = cache.reserve(400).expect("it fits");
    assert_eq!((cache.entry_count(), cache.reserved()), (0, 1000));
    drop(other);
    assert!(part.resize(100));
    assert_eq!(cache.compute(1, |_| Op::Put(900)), Computed::Inserted);
    assert!(part.resize(101));
    assert_eq!(cache.get(&1), None);
    drop(part);
    assert_eq!(cache.reserved(), 0);
    // A bound below the reserved parts leaves nothing for entries.
    let part = cache.reserve(500).expect("it fits");
    assert!(cache.set_max_capacity(400));
    assert_eq!(cache.compute(1, |_| Op::Put(1)), Computed::Refused);
    assert!(cache.reserve(1).is_none());
    drop(part);
    assert_eq!(cache.compute(1, |_| Op::Put(1)), Computed::Inserted);
    let unbounded: Cache<u64, u32> = Cache::builder().build();
    let mut part = unbounded.reserve(u64::MAX).expect("there is no bound");
    assert!(part.resize(5) && unbounded.reserved() == 0);
}

#[test]
fn a_panic_of_the_listener_gives_the_part_back() {
    let panics = Arc::new(AtomicBool::new(true));
    let listener = panics.clone();
    let cache: Cache<u64, u32> = Cache::builder()
        .max_capacity(100)
        .eviction_listener(move |_, _, _| assert!(!listener.load(Ordering::Relaxed), "as planned"))
        .build();
    (0..100).for_each(|n| cache.insert(n, 0));
    let reserved = catch_unwind(AssertUnwindSafe(|| cache.reserve(50).is_some()));
    panics.store(false, Ordering::Relaxed);
    assert_eq!((reserved.is_err(), cache.reserved()), (true, 0));
    (0..200).for_each(|n| cache.insert(n, 0));
    assert!(cache.weighted_size() <= 100);
}

#[test]
fn threads_that_reserve_and_insert_keep_the_bound() {
    const BOUND: u64 = 1000;
    let (cache, reserved_max) = (weighed(BOUND), AtomicU64::new(0));
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (cache, reserved_max) = (&cache, &reserved_max);
            scope.spawn(move || {
                for n in 0..500 {
                    if let Some(mut part) = cache.reserve(100 + n % 300) {
                        let reserved = cache.reserved();
                        assert!((part.weight()..=BOUND).contains(&reserved));
                        reserved_max.fetch_max(reserved, Ordering::Relaxed);
                        let _ = part.resize(n);
                    }
                    cache.insert(thread * 1000 + n, 1 + (n % 50) as u32);
                }
            });
        }
    });
    assert!(reserved_max.load(Ordering::Relaxed) >= 100);
    assert_eq!(cache.reserved(), 0);
    cache.insert(0, 1);
    let mut sum = 0;
    let mut from = Some(0);
    while let Some(at) = from {
        from = cache.visit_from(at, |_, weight| sum += u64::from(*weight));
    }
    assert_eq!(cache.weighted_size(), sum);
    assert!(sum <= BOUND);
}
