//! Single flight.

use squall_cache::{Cache, future};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::thread;

#[test]
fn of_many_callers_one_loads() {
    let (cache, loads, barrier): (Cache<String, usize>, _, _) =
        (Cache::new(10), AtomicUsize::new(0), Barrier::new(8));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                barrier.wait();
                let value = cache.get_with("key".to_owned(), || {
                    thread::yield_now();
                    loads.fetch_add(1, Relaxed)
                });
                assert_eq!(value, 0);
            });
        }
    });
    assert_eq!((loads.load(Relaxed), cache.get("key")), (1, Some(0)));
}

#[test]
fn a_loader_that_fails_or_panics_leaves_the_turn_to_the_next_caller() {
    let cache: Cache<u64, u64> = Cache::builder().max_capacity(10).record_statistics().build();
    assert_eq!(*cache.try_get_with(1, || Err("down")).unwrap_err(), "down");
    assert_eq!(cache.optionally_get_with(1, || None), None);
    assert!(catch_unwind(AssertUnwindSafe(|| cache.get_with(1, || panic!("a loader")))).is_err());
    assert_eq!(cache.try_get_with::<()>(1, || Ok(2)), Ok(2));
    assert_eq!((cache.get_with(1, || 3), cache.get_with_by_ref(&1, || 4)), (2, 2));
    let statistics = cache.statistics();
    assert_eq!((statistics.loads, statistics.failed_loads), (1, 3));
    assert_eq!((statistics.hits, statistics.misses), (2, 4));
    assert!((statistics.hit_ratio() - 1.0 / 3.0).abs() < 1e-9);
}

#[test]
fn a_loader_may_use_the_cache() {
    let cache: Cache<u64, u64> = Cache::new(100);
    fn fibonacci(cache: &Cache<u64, u64>, n: u64) -> u64 {
        if n < 2 {
            return n;
        }
        cache.get_with(n, || fibonacci(cache, n - 1) + fibonacci(cache, n - 2))
    }
    assert_eq!((fibonacci(&cache, 50), cache.entry_count()), (12_586_269_025, 49));
}

fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_task_that_is_dropped_while_it_loads_leaves_the_turn_to_the_next_one() {
    let cache: future::Cache<u64, u64> = future::Cache::new(10);
    let mut second = pin!(cache.get_with(1, async { 2 }));
    {
        let mut first = pin!(cache.get_with(1, std::future::pending()));
        assert!(poll(first.as_mut()).is_pending());
        assert!(poll(second.as_mut()).is_pending());
    }
    assert_eq!(poll(second.as_mut()), Poll::Ready(2));
    assert_eq!(poll(pin!(cache.get(&1))), Poll::Ready(Some(2)));
    assert_eq!(poll(pin!(cache.try_get_with(3, async { Err(5) }))), Poll::Ready(Err(Arc::new(5))));
    assert_eq!(poll(pin!(cache.optionally_get_with(3, async { None }))), Poll::Ready(None));
    assert_eq!(poll(pin!(cache.get_with(3, async { 4 }))), Poll::Ready(4));
}

#[test]
fn tasks_and_threads_wait_for_one_load() {
    let cache: future::Cache<u64, u64> = future::Cache::new(10);
    let (begun, barrier) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            let value = cache.as_sync().get_with(1, || {
                begun.wait();
                barrier.wait();
                7
            });
            assert_eq!(value, 7);
        });
        begun.wait();
        let mut task = pin!(cache.get_with(1, async { unreachable!("it is being loaded") }));
        assert!(poll(task.as_mut()).is_pending());
        barrier.wait();
        let value = loop {
            if let Poll::Ready(value) = poll(task.as_mut()) {
                break value;
            }
            thread::yield_now();
        };
        assert_eq!(value, 7);
    });
}

#[test]
fn a_load_by_a_borrowed_key_counts_one_miss() {
    let cache: Cache<String, u64> = Cache::builder().max_capacity(10).record_statistics().build();
    assert_eq!(cache.get_with_by_ref("a", || 1), 1);
    assert_eq!(cache.get_with_by_ref("a", || 2), 1);
    let statistics = cache.statistics();
    assert_eq!((statistics.hits, statistics.misses, statistics.loads), (1, 1, 1));
}
