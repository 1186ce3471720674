//! Entries with times.

use squall_cache::{Cache, Expiry, ManualClock, RemovalCause};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn an_entry_expires_after_its_insertion_and_after_its_last_use() {
    let clock = ManualClock::new();
    let builder = || Cache::<u64, u64>::builder().max_capacity(10).clock(clock.clone());
    let live = builder().time_to_live(s(10)).build();
    let idle = builder().time_to_idle(s(10)).build();
    let both = builder().time_to_live(s(15)).time_to_idle(s(10)).build();
    for cache in [&live, &idle, &both] {
        cache.insert(1, 1);
    }
    clock.advance(s(9));
    for cache in [&live, &idle, &both] {
        assert_eq!(cache.get(&1), Some(1));
    }
    clock.advance(s(1));
    assert_eq!((live.get(&1), idle.get(&1), both.get(&1)), (None, Some(1), Some(1)));
    clock.advance(s(5));
    assert_eq!((idle.get(&1), both.get(&1)), (Some(1), None));
    clock.advance(s(10));
    assert_eq!((idle.get(&1), idle.contains_key(&1), idle.iter().count()), (None, false, 0));
    assert_eq!(live.times(), (Some(s(10)), None));
    live.insert(1, 2);
    clock.advance(s(9));
    live.insert(1, 3);
    clock.advance(s(9));
    assert_eq!(live.get(&1), Some(3), "a new value begins anew");
    assert_eq!(live.get_with(2, || 5), 5);
    clock.advance(s(10));
    assert_eq!(live.get_with(2, || 6), 6);
}

/// Even values live for as many seconds as they say, and a read gives them one second more.
struct ByValue;

impl Expiry<u64, u64> for ByValue {
    fn expire_after_create(&self, _: &u64, value: &u64) -> Option<Duration> {
        value.is_multiple_of(2).then(|| s(*value))
    }

    fn expire_after_update(&self, _: &u64, value: &u64, _: Option<Duration>) -> Option<Duration> {
        Some(s(*value))
    }

    fn expire_after_read(&self, _: &u64, _: &u64, left: Option<Duration>) -> Option<Duration> {
        left.map(|left| left + s(1))
    }
}

#[test]
fn each_entry_has_its_own_time() {
    let clock = ManualClock::new();
    let cache: Cache<u64, u64> =
        Cache::builder().max_capacity(10).clock(clock.clone()).expire_after(ByValue).build();
    cache.insert(1, 4);
    cache.insert(2, 5);
    clock.advance(s(3));
    assert_eq!(cache.get(&1), Some(4));
    clock.advance(Duration::from_millis(1900));
    assert_eq!(cache.get(&1), Some(4));
    clock.advance(s(2));
    assert_eq!((cache.get(&1), cache.get(&2)), (None, Some(5)));
    cache.insert(2, 1);
    clock.advance(s(1));
    assert_eq!(cache.get(&2), None);
    clock.advance(Duration::MAX);
    assert_eq!(cache.get(&2), None, "a clock that jumps to its end");
}

#[test]
fn expired_entries_give_their_place_and_are_told_as_expired() {
    let clock = ManualClock::new();
    let told: Arc<Mutex<Vec<(u64, RemovalCause)>>> = Arc::default();
    let listener = told.clone();
    let cache: Cache<u64, u64> = Cache::builder()
        .max_capacity(100)
        .clock(clock.clone())
        .time_to_live(s(1))
        .eviction_listener(move |key: Arc<u64>, _, cause| listener.lock().unwrap().push((*key, cause)))
        .build();
    (0..100).for_each(|n| cache.insert(n, n));
    clock.advance(s(1));
    (100..150).for_each(|n| cache.insert(n, n));
    assert!((0..100).all(|n| cache.get(&n).is_none()));
    cache.run_pending_tasks();
    let left = cache.entry_count();
    assert_eq!((cache.weighted_size(), cache.iter().count() as u64), (left, left));
    let told = told.lock().unwrap();
    let expired = told.iter().filter(|(_, cause)| *cause == RemovalCause::Expired).count();
    assert!(told.iter().all(|(key, cause)| (*key < 100) == (*cause == RemovalCause::Expired)));
    assert_eq!((expired, told.len() as u64 + left), (100, 150));
}

/// Leaves all times to the cache.
struct Silent;

impl Expiry<u64, u64> for Silent {}

#[test]
fn the_times_of_a_cache_begin_anew_beside_times_of_entries() {
    let clock = ManualClock::new();
    let builder = || Cache::<u64, u64>::builder().max_capacity(10).clock(clock.clone()).expire_after(Silent);
    let caches = [builder().time_to_live(s(10)).build(), builder().time_to_idle(s(10)).build()];
    for cache in &caches {
        cache.insert(1, 1);
    }
    clock.advance(s(5));
    for cache in &caches {
        cache.insert(1, 2);
    }
    clock.advance(s(7));
    for cache in &caches {
        assert_eq!(cache.get(&1), Some(2));
    }
}
