//! Operations, markers and waits, through the public interface.

use super::alone;
use squall_rcu::{
    Marker, MarkerState, PinError, Rcu, WaitError, in_operation, pin, try_pin, wait, wait_until,
};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Number of iterations; fewer under a checker, where each is slow.
const fn times(many: usize) -> usize {
    if cfg!(miri) { many / 200 + 2 } else { many }
}

#[test]
fn operations_nest_and_end() {
    let _alone = alone();
    assert!(!in_operation());
    let result = pin(|_| {
        assert!(in_operation());
        pin(|_| assert!(in_operation()));
        assert!(in_operation());
        7
    });
    assert_eq!(result, 7);
    assert!(!in_operation());
}

#[test]
fn a_panic_ends_the_operation_and_goes_on() {
    let _alone = alone();
    let panic = std::panic::catch_unwind(|| pin(|_| pin(|_| panic!("mine"))));
    assert_eq!(panic.unwrap_err().downcast_ref::<&str>(), Some(&"mine"));
    assert!(!in_operation());
    wait().unwrap();
}

#[test]
fn pitfall_08_waiting_inside_an_operation_is_an_error() {
    let _alone = alone();
    assert_eq!(pin(|_| wait()), Err(WaitError::InOperation));
    assert_eq!(pin(|_| squall_rcu::wait_expedited()), Err(WaitError::InOperation));
    assert_eq!(pin(|_| squall_rcu::barrier()), Err(WaitError::InOperation));
    assert_eq!(pin(|_| squall_rcu::reclaim()), Err(WaitError::InOperation));
    assert_eq!(pin(|_| Marker::set().wait()), Err(WaitError::InOperation));
}

#[test]
fn co_22_a_marker_elapses_only_after_every_operation_alive_at_set() {
    let _alone = alone();
    let (inside, go) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let reader = {
        let (inside, go) = (inside.clone(), go.clone());
        thread::spawn(move || {
            pin(|_| {
                inside.wait();
                go.wait();
            });
        })
    };
    inside.wait();
    let marker = Marker::set();
    for _ in 0..times(1000) {
        assert_eq!(marker.update_and_check(), Ok(MarkerState::Active));
        assert_eq!(marker.check(), MarkerState::Active);
    }
    assert_eq!(wait_until(Instant::now() + Duration::from_millis(5)), Err(WaitError::Timeout));
    go.wait();
    reader.join().unwrap();
    while marker.update_and_check() == Ok(MarkerState::Active) {
        thread::yield_now();
    }
    assert_eq!(marker.check(), MarkerState::Elapsed);
}

#[test]
fn co_21_new_operations_do_not_delay_the_verdict() {
    let _alone = alone();
    // The reader is inside an operation almost always, but never in one operation for long.
    let stop = Arc::new(AtomicBool::new(false));
    let reader = {
        let stop = stop.clone();
        thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                pin(|_| (0..50).for_each(|_| std::hint::spin_loop()));
            }
        })
    };
    for _ in 0..times(2000) {
        wait().unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    reader.join().unwrap();
}

#[test]
fn to_11_a_value_read_in_an_operation_outlives_its_replacement() {
    let _alone = alone();
    struct Canary(Arc<AtomicUsize>);
    impl Drop for Canary {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    let cell = Arc::new(Rcu::new(Box::new(Canary(dropped.clone()))));
    let (loaded_tx, loaded) = mpsc::channel();
    let (replaced, replaced_rx) = mpsc::channel::<()>();
    let reader = {
        let (cell, dropped) = (cell.clone(), dropped.clone());
        thread::spawn(move || {
            pin(|o| {
                let canary = cell.load(o);
                loaded_tx.send(()).unwrap();
                replaced_rx.recv().unwrap();
                assert_eq!(canary.0.load(Ordering::SeqCst), 0);
                assert_eq!(dropped.load(Ordering::SeqCst), 0, "dropped under a reader");
            });
        })
    };
    loaded.recv().unwrap();
    cell.replace(Box::new(Canary(dropped.clone())));
    // Neither the marker nor any deferred call may become ripe.
    let marker = Marker::set();
    for _ in 0..times(1000) {
        assert_eq!(marker.update_and_check(), Ok(MarkerState::Active));
        squall_rcu::reclaim().unwrap();
    }
    replaced.send(()).unwrap();
    reader.join().unwrap();
    squall_rcu::barrier().unwrap();
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
}

#[test]
fn update_loses_nothing_between_writers() {
    let _alone = alone();
    let cell = Rcu::new(Box::new(0_u64));
    let each = times(2000) as u64;
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..each).for_each(|_| cell.update(|value| value + 1)));
        }
    });
    assert_eq!(pin(|o| *cell.load(o)), 4 * each);
}

#[test]
fn pitfall_11_a_reader_may_join_a_thread_whose_first_operation_it_is() {
    let _alone = alone();
    // While a grace period waits for this reader, a new thread registers, and the reader waits for that
    // thread.
    for _ in 0..times(50) {
        let waiting = Arc::new(AtomicBool::new(false));
        let waiter = pin(|_| {
            let waiter = {
                let waiting = waiting.clone();
                thread::spawn(move || {
                    waiting.store(true, Ordering::SeqCst);
                    wait().unwrap();
                })
            };
            while !waiting.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            thread::spawn(|| pin(|_| ())).join().unwrap();
            waiter
        });
        waiter.join().unwrap();
    }
}

#[test]
fn pitfall_14_thread_local_destructors_may_open_operations() {
    let _alone = alone();
    struct AtExit(Arc<AtomicUsize>);
    impl Drop for AtExit {
        fn drop(&mut self) {
            // Works before and after the library's own exit hook has run: nested, with a deferred call, and
            // with a wait.
            pin(|_| pin(|_| self.0.fetch_add(1, Ordering::SeqCst)));
            let (count, ran) = (self.0.clone(), Arc::new(AtomicBool::new(false)));
            let runs = ran.clone();
            squall_rcu::defer(move || {
                count.fetch_add(1, Ordering::SeqCst);
                runs.store(true, Ordering::SeqCst);
            });
            wait().unwrap();
            squall_rcu::barrier().unwrap();
            assert!(ran.load(Ordering::SeqCst), "a barrier did not wait for its caller's own call");
            assert!(try_pin(|_| ()).is_ok());
        }
    }
    thread_local! {
        static BEFORE: std::cell::RefCell<Option<AtExit>> = const { std::cell::RefCell::new(None) };
        static AFTER: std::cell::RefCell<Option<AtExit>> = const { std::cell::RefCell::new(None) };
    }
    let count = Arc::new(AtomicUsize::new(0));
    for _ in 0..times(50) {
        let count = count.clone();
        thread::spawn(move || {
            // Destructors run in reverse order: this one runs after the exit hook of the registration that
            // follows.
            BEFORE.with(|slot| *slot.borrow_mut() = Some(AtExit(count.clone())));
            pin(|_| ());
            AFTER.with(|slot| *slot.borrow_mut() = Some(AtExit(count.clone())));
        })
        .join()
        .unwrap();
    }
    squall_rcu::barrier().unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 4 * times(50));
}

#[test]
fn threads_come_and_go_by_the_thousand() {
    let _alone = alone();
    let rounds = times(60);
    let at_once = if cfg!(miri) { 3 } else { 50 };
    for _ in 0..rounds {
        let threads: Vec<_> = (0..at_once)
            .map(|_| {
                thread::spawn(|| {
                    pin(|_| ());
                    squall_rcu::retire(Box::new([0_u8; 32]));
                })
            })
            .collect();
        wait().unwrap();
        // A joined thread has given back its record, which the end of a scope does not promise.
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
    // Records are reused, so there are about as many as threads ran at once in this test binary.
    let stats = squall_rcu::stats();
    assert!(stats.records < 10 * at_once + 64, "{stats:?}");
}

#[test]
fn errors_say_what_is_wrong() {
    assert!(WaitError::InOperation.to_string().contains("inside an operation"));
    assert!(PinError::Forked.to_string().contains("fork"));
    assert!(WaitError::Forked.to_string().contains("fork"));
}
