//! Tests of the configurable lock through its public interface.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use squall_lock::{
    Cancel, ConfigurableLock, LockError, Method, MonitorReading, Order, Release, Request, Scheduling, Waiting,
};

/// Waits until `condition` holds. If it never does, the test hangs and the harness reports it.
fn until(condition: impl Fn() -> bool) {
    while !condition() {
        thread::sleep(Duration::from_micros(200));
    }
}

const SPIN_A_LITTLE: Waiting = Waiting::new(&[Method::Spin(20), Method::Yield(2), Method::Block]);

const ROUNDS: u64 = if cfg!(miri) { 20 } else { 1_000 };

/// Threads add to two numbers that must agree.
fn add_together(lock: &ConfigurableLock<(u64, u64)>, threads: u64) {
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    let mut pair = lock.lock();
                    assert_eq!(pair.0, pair.1);
                    pair.0 += 1;
                    pair.1 += 1;
                }
            });
        }
    });
    assert_eq!(*lock.lock(), (threads * ROUNDS, threads * ROUNDS));
    assert_eq!((lock.monitor().waiters, lock.monitor().asleep), (0, 0));
}

#[test]
fn kt_15_each_way_to_wait_excludes() {
    let lists: [&[Method]; 6] = [
        &[Method::Spin(100)],
        &[Method::Backoff(100)],
        &[Method::Yield(10)],
        &[Method::Block],
        &[Method::Spin(10), Method::Backoff(30), Method::Yield(2), Method::Block],
        &[Method::Spin(0)],
    ];
    for list in lists {
        let threads = if Waiting::new(list).blocks() || list == [Method::Yield(10)] { 5 } else { 2 };
        let lock = ConfigurableLock::with((0, 0), Waiting::new(list), Scheduling::FREE_FOR_ALL);
        add_together(&lock, threads);
    }
}

#[test]
fn kt_16_each_scheduling_excludes() {
    for order in [Order::FirstCome, Order::Priority, Order::ClusterFirst] {
        for release in [Release::FreeForAll, Release::HandOff] {
            for registration in [false, true] {
                let scheduling = Scheduling::FREE_FOR_ALL.order(order).release(release);
                let scheduling = scheduling.registration(registration).patience(Duration::from_micros(20));
                add_together(&ConfigurableLock::with((0, 0), SPIN_A_LITTLE, scheduling), 4);
            }
        }
    }
}

#[test]
fn kt_16_attributes_change_while_threads_wait() {
    let lock = ConfigurableLock::new((0u64, 0u64));
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let waits = [Waiting::BLOCK, SPIN_A_LITTLE, Waiting::new(&[Method::Yield(3)])];
            let releases = [Scheduling::FREE_FOR_ALL, Scheduling::HAND_OFF];
            for at in 0usize.. {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                lock.set_waiting(waits[at % 3]);
                lock.set_scheduling(releases[at / 3 % 2].awake_max((at % 4) as u8));
                thread::yield_now();
            }
        });
        add_together(&lock, 4);
        over.store(true, Ordering::Relaxed);
    });
}

/// Holds the lock while `others` wait for it, each started when the previous one sleeps. Returns the order in
/// which they got it.
fn order_of(scheduling: Scheduling, others: &[i32]) -> Vec<usize> {
    let lock = ConfigurableLock::with((), Waiting::BLOCK, scheduling);
    let order = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let guard = lock.lock();
        for (at, priority) in others.iter().enumerate() {
            let (lock, order) = (&lock, &order);
            scope.spawn(move || {
                let _guard = lock.lock_with(&Request::new().priority(*priority)).unwrap();
                order.lock().unwrap().push(at);
            });
            until(|| lock.monitor().asleep as usize == at + 1);
        }
        drop(guard);
    });
    order.into_inner().unwrap()
}

#[test]
fn kt_16_first_come_first_served() {
    assert_eq!(order_of(Scheduling::HAND_OFF, &[1, 9, 5, 3]), [0, 1, 2, 3]);
}

#[test]
fn kt_16_the_most_important_first() {
    let scheduling = Scheduling::HAND_OFF.order(Order::Priority);
    assert_eq!(order_of(scheduling, &[1, 9, -5, 9]), [1, 3, 0, 2]);
}

#[test]
fn kt_16_the_order_changes_while_they_wait() {
    let lock = ConfigurableLock::with((), Waiting::BLOCK, Scheduling::HAND_OFF);
    let order = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let guard = lock.lock();
        for priority in 0..4 {
            let (lock, order) = (&lock, &order);
            scope.spawn(move || {
                let _guard = lock.lock_with(&Request::new().priority(priority)).unwrap();
                order.lock().unwrap().push(priority);
            });
            until(|| lock.monitor().asleep as i32 == priority + 1);
        }
        lock.set_scheduling(Scheduling::HAND_OFF.order(Order::Priority));
        drop(guard);
    });
    assert_eq!(order.into_inner().unwrap(), [3, 2, 1, 0]);
}

#[test]
fn the_previous_holder_cannot_take_a_handed_off_lock() {
    let lock = ConfigurableLock::with(0u32, Waiting::BLOCK, Scheduling::HAND_OFF);
    thread::scope(|scope| {
        let guard = lock.lock();
        scope.spawn(|| *lock.lock() += 1);
        until(|| lock.monitor().asleep == 1);
        drop(guard);
        assert_eq!(*lock.lock(), 1);
    });
    assert!(lock.monitor().handed >= 1);
}

#[test]
fn a_priority_needs_registration() {
    let lock = ConfigurableLock::new(());
    for request in [Request::new().priority(1), Request::new().waiting(Waiting::BLOCK)] {
        assert_eq!(lock.lock_with(&request).map(drop), Err(LockError::NotRegistered));
    }
    assert!(!lock.is_locked());
    lock.set_scheduling(Scheduling::HAND_OFF);
    assert!(lock.lock_with(&Request::new().priority(1).waiting(Waiting::BLOCK)).is_ok());
    assert!(!lock.is_locked());
}

#[test]
fn a_timed_out_wait_does_not_hold_the_lock() {
    for scheduling in [Scheduling::FREE_FOR_ALL, Scheduling::HAND_OFF] {
        for waiting in [Waiting::BLOCK, Waiting::SPIN, SPIN_A_LITTLE] {
            let lock = Arc::new(ConfigurableLock::with((), waiting, scheduling));
            let guard = lock.lock();
            let begun = Instant::now();
            thread::scope(|scope| {
                let limit = Duration::from_millis(3);
                let other = scope.spawn({
                    let lock = &lock;
                    move || lock.try_lock_for(limit).is_none()
                });
                assert!(other.join().unwrap());
                assert!(begun.elapsed() >= limit);
                let other = scope.spawn(|| lock.try_lock().is_none());
                assert!(other.join().unwrap());
            });
            drop(guard);
            assert_eq!(lock.monitor().waiters, 0);
            assert!(lock.try_lock_until(begun).is_some(), "a free lock is taken even after the deadline");
            assert!(!lock.is_locked());
        }
    }
}

#[test]
fn kt_15_the_timeout_is_an_attribute() {
    let lock = ConfigurableLock::new(());
    assert_eq!(lock.timeout(), None);
    lock.set_timeout(Some(Duration::from_millis(2)));
    assert_eq!(lock.timeout(), Some(Duration::from_millis(2)));
    let guard = lock.lock();
    thread::scope(|scope| {
        let other = scope.spawn(|| lock.lock_with(&Request::new()).map(drop));
        assert_eq!(other.join().unwrap(), Err(LockError::TimedOut));
    });
    drop(guard);
    assert!(lock.lock_with(&Request::new()).is_ok());
}

#[test]
fn a_wait_is_cancelled() {
    for scheduling in [Scheduling::FREE_FOR_ALL, Scheduling::HAND_OFF] {
        for waiting in [Waiting::BLOCK, Waiting::SPIN] {
            let lock = ConfigurableLock::with((), waiting, scheduling);
            let cancel = Cancel::new();
            let guard = lock.lock();
            thread::scope(|scope| {
                let wait = || lock.lock_with(&Request::new().cancel(&cancel)).map(drop);
                let others = [scope.spawn(wait), scope.spawn(wait)];
                until(|| lock.monitor().waiters == 2);
                assert!(!cancel.is_cancelled());
                cancel.cancel();
                for other in others {
                    assert_eq!(other.join().unwrap(), Err(LockError::Cancelled));
                }
            });
            drop(guard);
            assert!(cancel.is_cancelled());
            assert!(lock.try_lock().is_some());
        }
    }
}

#[test]
fn a_cancellation_of_one_leaves_the_others_waiting() {
    let lock = ConfigurableLock::with(0, Waiting::BLOCK, Scheduling::FREE_FOR_ALL);
    let cancel = Cancel::new();
    let guard = lock.lock();
    thread::scope(|scope| {
        scope.spawn(|| *lock.lock() += 1);
        let other = scope.spawn(|| lock.lock_with(&Request::new().cancel(&cancel)).map(drop));
        until(|| lock.monitor().asleep == 2);
        cancel.cancel();
        assert_eq!(other.join().unwrap(), Err(LockError::Cancelled));
        assert_eq!(lock.monitor().waiters, 1);
        drop(guard);
    });
    assert_eq!(*lock.lock(), 1);
}

/// Changes the attributes while a thread sleeps. Returns the number of hand-offs to it.
fn changes_wake() -> u64 {
    let lock = ConfigurableLock::with((), Waiting::BLOCK, Scheduling::FREE_FOR_ALL);
    let guard = lock.lock();
    thread::scope(|scope| {
        scope.spawn(|| drop(lock.lock()));
        until(|| lock.monitor().asleep == 1);
        lock.set_waiting(Waiting::new(&[Method::Yield(10)]));
        until(|| lock.monitor().asleep == 0);
        lock.set_waiting(Waiting::BLOCK);
        until(|| lock.monitor().asleep == 1);
        lock.set_scheduling(Scheduling::HAND_OFF);
        // Mostly the waiter is registered now, and sleeps in the list.
        until(|| lock.monitor().sleeps >= 3 && lock.monitor().asleep == 1);
        drop(guard);
    });
    lock.monitor().handed
}

#[test]
fn kt_15_who_sleeps_is_woken_by_a_change() {
    // The holder may leave before the waiter is registered: a change can wake the waiter more often than the
    // test counts. Then there is no hand-off.
    let handed = (0..1000).map(|_| changes_wake()).find(|handed| *handed != 0);
    assert_eq!(handed, Some(1), "the lock is handed to the waiter once");
}

#[test]
fn a_panic_frees_the_lock() {
    let lock = ConfigurableLock::new(1);
    let died = thread::scope(|scope| {
        scope
            .spawn(|| {
                let mut guard = lock.lock();
                *guard = 2;
                panic!("on purpose");
            })
            .join()
    });
    assert!(died.is_err());
    assert_eq!(*lock.lock(), 2);
}

/// Two threads take the lock again and again. This thread must get it too, or the test never ends.
#[test]
fn patience_ends_a_monopoly() {
    for waiting in [Waiting::BLOCK, SPIN_A_LITTLE] {
        for registration in [false, true] {
            let scheduling = Scheduling::FREE_FOR_ALL.patience(Duration::from_micros(100));
            let lock = ConfigurableLock::with((), waiting, scheduling.registration(registration));
            let over = AtomicBool::new(false);
            thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        while !over.load(Ordering::Relaxed) {
                            drop(lock.lock());
                        }
                    });
                }
                for _ in 0..if cfg!(miri) { 3 } else { 50 } {
                    drop(lock.lock());
                }
                over.store(true, Ordering::Relaxed);
            });
        }
    }
}

/// An urgent waiter comes first, even after a wake-up in vain: it returns to its place.
#[test]
fn kt_16_a_waiter_woken_in_vain_keeps_its_place() {
    let scheduling = Scheduling::FREE_FOR_ALL.order(Order::Priority).patience(Duration::from_micros(50));
    let lock = ConfigurableLock::with((), Waiting::BLOCK, scheduling);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    drop(lock.lock());
                }
            });
        }
        for _ in 0..if cfg!(miri) { 2 } else { 20 } {
            drop(lock.lock_with(&Request::new().priority(100)).unwrap());
        }
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn its_size_is_as_documented() {
    let size = size_of::<ConfigurableLock<()>>();
    assert!(size <= 192, "{size}");
}

#[test]
fn kt_17_the_monitor_counts_waiters_and_hold_times() {
    let lock = ConfigurableLock::with((), Waiting::BLOCK, Scheduling::FREE_FOR_ALL);
    assert_eq!(lock.monitor(), Default::default());
    let hold = Duration::from_micros(200);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let enough =
                    |seen: MonitorReading| seen.holds >= 3 && seen.contended >= 12 && seen.sleeps > 0;
                while !enough(lock.monitor()) {
                    let _guard = lock.lock();
                    thread::sleep(hold);
                }
            });
        }
    });
    let monitor = lock.monitor();
    assert!(monitor.hold >= hold && monitor.hold_max >= monitor.hold, "{monitor:?}");
    // One in four of the acquisitions that waited has its hold time sampled.
    assert!(monitor.contended >= 4 * monitor.holds, "{monitor:?}");
}

#[test]
fn debug_output_and_constructors() {
    let mut lock = ConfigurableLock::new(5);
    let shown = format!("{lock:?}");
    assert!(shown.contains("value: 5") && shown.contains("patience"), "{shown}");
    *lock.get_mut() += 1;
    let guard = lock.lock();
    assert!(format!("{lock:?}").contains("<locked>"));
    assert!(!guard.waited());
    assert_eq!(format!("{guard} {guard:?}"), "6 6");
    drop(guard);
    assert!(!lock.lock_with(&Request::new().deadline(Instant::now())).unwrap().waited());
    assert_eq!(lock.into_inner(), 6);
    assert_eq!(*ConfigurableLock::<u8>::default().lock(), 0);
    let unsized_one: &ConfigurableLock<[u8]> = &ConfigurableLock::from([1, 2]);
    assert_eq!(unsized_one.lock().len(), 2);
}

/// Threads wait with limits, are cancelled and end, while the attributes change. The numbers must agree, and
/// no waiter may be lost.
#[test]
fn everything_at_once() {
    let lock = Arc::new(ConfigurableLock::new((0u64, 0u64)));
    let added = AtomicU64::new(0);
    let (ended, ends) = mpsc::channel();
    thread::scope(|scope| {
        for thread in 0..6u64 {
            let (lock, added, ended) = (&lock, &added, ended.clone());
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let cancel = Cancel::new();
                    let limit = Instant::now() + Duration::from_micros(round % 97);
                    let request = match (round + thread) % 4 {
                        0 => Request::new().deadline(limit),
                        1 => Request::new().cancel(&cancel),
                        2 => Request::new().priority(thread as i32).deadline(limit),
                        _ => Request::new(),
                    };
                    if round % 7 == thread {
                        cancel.cancel();
                    }
                    if let Ok(mut pair) = lock.lock_with(&request) {
                        assert_eq!(pair.0, pair.1);
                        pair.0 += 1;
                        pair.1 += 1;
                        added.fetch_add(1, Ordering::Relaxed);
                    }
                    if round % 16 == 0 {
                        let hand_off = (round / 16 + thread) % 2 == 0;
                        let scheduling =
                            if hand_off { Scheduling::HAND_OFF } else { Scheduling::FREE_FOR_ALL };
                        lock.set_scheduling(scheduling);
                        lock.set_waiting(if round % 32 == 0 { Waiting::BLOCK } else { SPIN_A_LITTLE });
                    }
                }
                ended.send(()).unwrap();
            });
        }
    });
    assert_eq!(ends.try_iter().count(), 6);
    assert_eq!(lock.lock().0, added.into_inner());
    assert_eq!(lock.monitor().waiters, 0);
}
