//! Changes by closures, and entry selectors.

use squall_cache::ops::compute::{CompResult, Computed, Op};
use squall_cache::{Cache, ManualClock, RemovalCause};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

#[test]
fn a_closure_inserts_replaces_keeps_and_removes() {
    let cache: Cache<u64, u64> = Cache::new(10);
    assert_eq!(cache.compute(1, |old| old.map_or(Op::Nop, |_| Op::Remove)), Computed::Kept);
    assert_eq!(cache.compute(1, |_| Op::Remove), Computed::Kept);
    assert_eq!(cache.compute(1, |old| Op::Put(old.map_or(5, |n| n + 1))), Computed::Inserted);
    assert_eq!(cache.compute(1, |old| Op::Put(old.map_or(5, |n| n + 1))), Computed::Replaced);
    assert_eq!(cache.compute(1, |_| Op::Nop), Computed::Kept);
    assert_eq!((cache.get(&1), cache.weighted_size()), (Some(6), 1));
    assert_eq!(cache.compute(1, |old| old.map_or(Op::Nop, |_| Op::Remove)), Computed::Removed);
    assert_eq!((cache.get(&1), cache.weighted_size()), (None, 0));
}

#[test]
fn a_value_that_is_too_heavy_is_refused_and_takes_the_old_one_with_it() {
    let told: Arc<Mutex<Vec<_>>> = Arc::default();
    let listener = told.clone();
    let cache: Cache<u64, u32> = Cache::builder()
        .max_capacity(100)
        .weigher(|_, weight| *weight)
        .eviction_listener(move |key: Arc<u64>, value, cause| {
            listener.lock().unwrap().push((*key, value, cause))
        })
        .build();
    assert_eq!(cache.compute(1, |_| Op::Put(101)), Computed::Refused);
    assert_eq!(cache.compute(2, |_| Op::Put(60)), Computed::Inserted);
    assert_eq!(cache.compute(2, |_| Op::Put(100)), Computed::Replaced);
    assert_eq!(cache.weighted_size(), 100);
    assert_eq!(cache.compute(2, |_| Op::Put(200)), Computed::Refused);
    assert_eq!((cache.get(&2), cache.weighted_size()), (None, 0));
    use RemovalCause::{Replaced, Size};
    let list = told.lock().unwrap().clone();
    assert_eq!(list, [(1, 101, Size), (2, 60, Replaced), (2, 100, Replaced), (2, 200, Size)]);
}

#[test]
fn a_dead_entry_is_absent_to_closures() {
    let clock = ManualClock::default();
    let cache: Cache<u64, u64> =
        Cache::builder().max_capacity(10).time_to_live(Duration::from_secs(1)).clock(clock.clone()).build();
    cache.insert(1, 1);
    clock.advance(Duration::from_secs(2));
    assert_eq!(cache.compute(1, |old| old.map_or(Op::Nop, |_| Op::Remove)), Computed::Kept);
    assert_eq!(cache.compute(1, |old| Op::Put(old.copied().unwrap_or(7))), Computed::Inserted);
    assert_eq!((cache.get(&1), cache.weighted_size(), cache.entry_count()), (Some(7), 1, 1));
}

#[test]
fn an_entry_is_as_it_was_after_a_panic() {
    let cache: Cache<u64, u64> =
        Cache::builder().max_capacity(10).weigher(|_, value| u32::try_from(*value).unwrap()).build();
    cache.insert(1, 3);
    let panics = |f: &mut dyn FnMut()| catch_unwind(AssertUnwindSafe(f)).is_err();
    assert!(panics(&mut || _ = cache.compute(1, |_| panic!("a planned panic"))));
    assert!(panics(&mut || _ = cache.compute(1, |_| Op::Put(u64::MAX))));
    assert!(panics(&mut || _ = cache.compute(2, |_| Op::Put(u64::MAX))));
    assert_eq!((cache.get(&1), cache.get(&2), cache.weighted_size()), (Some(3), None, 3));
}

#[test]
fn no_change_is_lost_between_threads() {
    let cache: Cache<u64, u64> = Cache::new(100);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for n in 0..2000_u64 {
                    cache.compute(n % 10, |old| Op::Put(old.map_or(1, |n| n + 1)));
                }
            });
        }
    });
    assert_eq!((0..10).filter_map(|key| cache.get(&key)).sum::<u64>(), 8000);
    assert_eq!(cache.weighted_size(), 10);
}

#[test]
fn the_listener_gets_each_value_once_while_closures_compete_for_a_full_cache() {
    static OUT: AtomicU64 = AtomicU64::new(0);
    let cache: Cache<u64, u64> = Cache::builder()
        .max_capacity(20)
        .eviction_listener(|_, value, _| _ = OUT.fetch_add(value, Ordering::Relaxed))
        .build();
    // The sum of the values that came in.
    let put = AtomicU64::new(0);
    thread::scope(|scope| {
        for worker in 0..4_u64 {
            let (cache, put) = (&cache, &put);
            scope.spawn(move || {
                for n in 0..2000 {
                    let key = n * 31 % 53;
                    let value = worker << 32 | n;
                    match (n + worker) % 3 {
                        0 => cache.insert(key, value),
                        _ if cache.compute(key, |_| Op::Put(value)) == Computed::Kept => unreachable!(),
                        _ => {}
                    }
                    put.fetch_add(value, Ordering::Relaxed);
                    if n % 7 == 0 {
                        cache.compute(n % 53, |_| Op::Remove);
                    }
                    assert!(cache.weighted_size() <= 24);
                }
            });
        }
    });
    let left: u64 = cache.iter().map(|(_, value)| value).sum();
    assert_eq!(put.load(Ordering::Relaxed), OUT.load(Ordering::Relaxed) + left);
    assert_eq!(cache.weighted_size(), cache.entry_count());
}

#[test]
fn entries_tell_what_was_done() {
    let cache: Cache<String, u64> = Cache::new(10);
    let first = cache.entry("a".to_owned()).or_insert(1);
    assert!(first.is_fresh() && !first.is_old_value_replaced());
    let second = cache.entry_by_ref("a").or_insert_with(|| 2);
    assert_eq!((second.is_fresh(), second.key().as_str(), *second.value()), (false, "a", 1));
    assert_eq!(cache.entry_by_ref("b").or_default().into_value(), 0);
    assert!(cache.entry_by_ref("c").or_optionally_insert_with(|| None).is_none());
    let failed = cache.entry_by_ref("c").or_try_insert_with(|| Err::<u64, _>("no"));
    assert_eq!(*failed.unwrap_err(), "no");
    let added = cache.entry_by_ref("a").and_upsert_with(|old| old.map_or(0, |old| old.into_value() + 10));
    assert!(added.is_old_value_replaced() && added.into_value() == 11);
    let compute = |key: &str, op: Op<u64>| cache.entry_by_ref(key).and_compute_with(|_| op);
    assert!(matches!(compute("d", Op::Nop), CompResult::StillNone(key) if *key == "d"));
    assert!(matches!(compute("d", Op::Put(4)), CompResult::Inserted(entry) if *entry.value() == 4));
    assert!(matches!(compute("d", Op::Put(5)), CompResult::ReplacedWith(entry) if *entry.value() == 5));
    assert!(matches!(compute("d", Op::Nop), CompResult::Unchanged(entry) if *entry.value() == 5));
    assert!(matches!(compute("d", Op::Remove), CompResult::Removed(entry) if *entry.value() == 5));
    assert!(compute("d", Op::Remove).into_entry().is_none());
}

#[test]
fn a_closure_reads_a_value_without_a_clone() {
    let cache: Cache<u64, Vec<u8>> = Cache::builder().max_capacity(10).record_statistics().build();
    cache.insert(1, vec![1, 2, 3]);
    assert_eq!((cache.with(&1, Vec::len), cache.with(&2, Vec::len)), (Some(3), None));
    assert_eq!((cache.statistics().hits, cache.statistics().misses), (1, 1));
}

#[test]
fn housekeeping_removes_no_entry_that_is_being_replaced() {
    let cache: Cache<u64, u64> = Cache::builder().build();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for n in 0..5000_u64 {
                    cache.compute(n % 3, |old| Op::Put(old.map_or(1, |n| n + 1)));
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..5000 {
                cache.run_pending_tasks();
                cache.invalidate_entries_if(|_, _| false);
            }
        });
    });
    assert_eq!((0..3).filter_map(|key| cache.get(&key)).sum::<u64>(), 10_000);
}

#[test]
fn a_closure_sees_a_value_that_came_after_an_invalidation() {
    let cache: Cache<u64, u64> = Cache::builder().build();
    cache.insert(1, 1);
    let mut is_first = true;
    let computed = cache.compute(1, |old| {
        if std::mem::take(&mut is_first) {
            let other = || {
                cache.invalidate_all();
                cache.insert(1, 5);
            };
            thread::scope(|scope| scope.spawn(other).join().unwrap());
        }
        Op::Put(old.map_or(100, |n| n + 1))
    });
    assert_eq!((computed, cache.get(&1)), (Computed::Replaced, Some(6)));
}

#[test]
fn a_heavy_newcomer_evicts_all_that_it_needs_or_no_entry() {
    let cache: Cache<u64, u32> = Cache::builder().max_capacity(1000).weigher(|_, weight| *weight).build();
    for _ in 0..20 {
        for key in 0..100 {
            cache.get_with(key, || 10);
            (0..10).for_each(|hot| _ = cache.get_with(hot, || 10));
        }
    }
    let before = cache.weighted_size();
    for _ in 0..3 {
        cache.insert(1000, 1000);
        assert!(cache.contains_key(&1000) || cache.weighted_size() == before);
    }
}
