//! Tests of the deadlock detection, which only debug builds have. They need a process of their own for the
//! allocator.
#![cfg(all(debug_assertions, not(any(loom, miri))))]
#![cfg_attr(squall_global_alloc, allow(dead_code))]

use squall_lock::{Lock, LockGuard};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

/// `System`, with a counter per thread, each under a lock, like an allocator with arenas. No two threads want
/// the same lock. The crate requires that, because a thread that sleeps for a lock may allocate.
struct Counting;

// If all tests run on Squall's allocator, it is the global allocator here too, and it takes no such lock.
#[cfg_attr(not(squall_global_alloc), global_allocator)]
static COUNTING: Counting = Counting;

const ARENAS: usize = 4096;
static ALLOCATED: [Lock<usize>; ARENAS] = [const { Lock::new(0) }; ARENAS];
static IS_COUNTING: AtomicBool = AtomicBool::new(false);

/// Returns the calling thread's counter.
fn arena() -> &'static Lock<usize> {
    static LAST: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static NUMBER: Cell<usize> = const { Cell::new(0) });
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(LAST.fetch_add(1, Ordering::Relaxed) + 1);
        }
        &ALLOCATED[number.get()]
    })
}

impl Counting {
    fn count(&self) {
        if IS_COUNTING.load(Ordering::Relaxed) {
            *arena().lock() += 1;
        }
    }
}

// SAFETY: `System` manages the memory. The counter does not panic. No other thread wants its lock, so it does
// not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.count();
        // SAFETY: the caller's promise is the one required.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        self.count();
        // SAFETY: the caller's promise is the one required.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// From here on the allocator takes locks, in this thread and all others.
fn count_allocations() {
    // A lock's first releases query the kernel's features, and `std` may allocate for that.
    let warm = Lock::new(());
    (0..100).for_each(|_| drop(warm.lock()));
    IS_COUNTING.store(true, Ordering::Relaxed);
}

/// Each of `count` threads takes its own lock, then the next thread's. Returns the panic messages.
fn ring(count: usize, names: &[&'static str]) -> Vec<String> {
    let locks: Arc<Vec<Lock<()>>> = Arc::new((0..count).map(|_| Lock::new(())).collect());
    for (lock, name) in locks.iter().zip(names) {
        lock.set_name(name);
    }
    let together = Arc::new(Barrier::new(count));
    let threads: Vec<_> = (0..count)
        .map(|which| {
            let (locks, together) = (locks.clone(), together.clone());
            let body = move || {
                let _own = locks[which].lock();
                together.wait();
                let _next = locks[(which + 1) % locks.len()].lock();
            };
            thread::Builder::new().name(format!("ring-{which}")).spawn(body).unwrap()
        })
        .collect();
    let ends = threads.into_iter().map(|thread| thread.join());
    let said = |panic: Box<dyn std::any::Any + Send>| {
        *panic.downcast::<String>().expect("the panic is a deadlock report")
    };
    ends.filter_map(|end| end.err().map(said)).collect()
}

/// Returns the number of occurrences of `part` in `text`.
fn count(text: &str, part: &str) -> usize {
    text.matches(part).count()
}

#[test]
fn relocking_ones_own_lock_panics() {
    let said = ring(1, &["ledger"]);
    assert_eq!(said.len(), 1);
    assert!(said[0].starts_with("deadlock: a thread waits for a lock that it holds itself"), "{}", said[0]);
    assert!(said[0].contains("`ring-0`") && said[0].contains("lock `ledger`"), "{}", said[0]);
    // The line that waits, and the line that took the lock.
    assert_eq!(count(&said[0], "tests/deadlock.rs:"), 2, "{}", said[0]);
}

#[test]
fn try_lock_records_the_line_of_its_caller() {
    type Way = fn(&Lock<()>) -> Option<LockGuard<'_, ()>>;
    let ways: [(u32, Way); 3] = [
        (line!(), |lock| lock.try_lock()),
        (line!(), |lock| lock.try_lock_for(Duration::from_secs(1))),
        (line!(), |lock| lock.try_lock_until(Instant::now())),
    ];
    for (line, way) in ways {
        let relock = move || {
            let lock = Lock::new(());
            let _guard = way(&lock);
            let _again = lock.lock();
        };
        let panic = thread::spawn(relock).join().expect_err("the wait can never end");
        let said = panic.downcast::<String>().expect("the panic is a deadlock report");
        assert!(said.contains(&format!("holds since {}:{line}:", file!())), "{said}");
    }
}

#[test]
#[cfg_attr(squall_global_alloc, ignore = "Squall's allocator takes no such lock")]
fn an_allocator_may_use_uncontended_locks() {
    count_allocations();
    let before = *arena().lock();
    // First allocate under locks, then take locks in the allocator; then write reports, which allocate.
    let held = Lock::new(Vec::new());
    (0..100).for_each(|number| held.lock().push(Box::new(number)));
    drop(held);
    assert!(*arena().lock() - before >= 200, "a hundred boxes were allocated and freed");
    let said = ring(2, &["east", "west"]);
    assert!(
        said.len() == 1 && said[0].contains("lock `east`") && said[0].contains("lock `west`"),
        "{said:?}"
    );
}

#[test]
fn two_threads_that_wait_for_each_other_are_named() {
    // One thread panics and thereby releases its lock. The other then has both.
    let said = ring(2, &["left", "right"]);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].starts_with("deadlock: 2 threads wait for each other"), "{}", said[0]);
    for part in ["`ring-0`", "`ring-1`", "lock `left`", "lock `right`"] {
        assert!(said[0].contains(part), "{part} is missing: {}", said[0]);
    }
    assert_eq!(count(&said[0], "tests/deadlock.rs:"), 4, "{}", said[0]);
}

#[test]
fn three_in_a_ring_are_named() {
    let said = ring(3, &[]);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].starts_with("deadlock: 3 threads wait for each other"), "{}", said[0]);
    for which in 0..3 {
        // Once as a waiter, and once as a holder.
        assert_eq!(count(&said[0], &format!("`ring-{which}`")), 2, "{}", said[0]);
    }
}

#[test]
fn ordered_locks_report_no_cycle() {
    // All threads take their locks in one order: much waiting, in chains, and no deadlock.
    let locks: Vec<Lock<usize>> = (0..4).map(|_| Lock::new(0)).collect();
    thread::scope(|threads| {
        for which in 0..8 {
            let locks = &locks;
            threads.spawn(move || {
                for round in 0..400 {
                    let first = (which + round) % 3;
                    let mut one = locks[first].lock();
                    let mut two = locks[first + 1].lock();
                    *one += 1;
                    *two += 1;
                    if round % 8 == 0 {
                        thread::yield_now();
                    }
                }
            });
        }
    });
    assert_eq!(locks.into_iter().map(Lock::into_inner).sum::<usize>(), 8 * 400 * 2);
}

#[test]
fn a_wait_with_a_limit_is_no_deadlock() {
    let lock = Lock::new(());
    let _guard = lock.lock();
    assert!(lock.try_lock_for(Duration::from_millis(2)).is_none());
}
