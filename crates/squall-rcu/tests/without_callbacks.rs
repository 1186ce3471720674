//! Callback-free scopes. In a process of its own: the reclaimer never starts here, so only callers run users'
//! code.
#![cfg(not(loom))]

use squall_rcu::{
    __callback_free, WaitError, barrier, pin, reclaim, retire, set_reclaimer, wait, without_callbacks,
};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

/// More calls than a batch.
const MANY: usize = if cfg!(miri) { 8 } else { 1_000 };

/// Serialises the tests, and forbids the reclaimer.
fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    let alone = LOCK.lock().unwrap_or_else(|poison| poison.into_inner());
    set_reclaimer(false);
    barrier().unwrap();
    alone
}

/// A value with a drop that takes the lock under which the tests retire such values.
struct Locks(Arc<Mutex<usize>>);

impl Drop for Locks {
    fn drop(&mut self) {
        *self.0.try_lock().expect("a drop ran under the lock that it takes") += 1;
    }
}

fn retire_many(of: &Arc<Mutex<usize>>) {
    (0..MANY).for_each(|_| retire(Box::new(Locks(of.clone()))));
}

#[test]
fn postponed_calls_run_after_the_scope() {
    let _alone = alone();
    let dropped = Arc::new(Mutex::new(0));
    retire_many(&dropped);
    let before = *dropped.lock().unwrap();
    without_callbacks(|| {
        let held = dropped.lock().unwrap();
        // Values retired before and now, inside operations and outside.
        pin(|_| retire_many(&dropped));
        retire_many(&dropped);
        without_callbacks(|| pin(|_| retire_many(&dropped)));
        pin(|_| ());
        assert_eq!(*held, before);
    });
    assert!(*dropped.lock().unwrap() > before, "postponed calls were not run");
    barrier().unwrap();
    assert_eq!(*dropped.lock().unwrap(), 4 * MANY);
}

#[test]
fn postponed_calls_run_after_the_enclosing_operation() {
    let _alone = alone();
    let dropped = Arc::new(Mutex::new(0));
    retire_many(&dropped);
    let before = *dropped.lock().unwrap();
    pin(|_| {
        without_callbacks(|| {
            let _held = dropped.lock().unwrap();
            retire_many(&dropped);
        });
        assert_eq!(*dropped.lock().unwrap(), before, "postponed calls ran inside an operation");
    });
    assert!(*dropped.lock().unwrap() > before, "postponed calls were not run");
    barrier().unwrap();
    assert_eq!(*dropped.lock().unwrap(), 2 * MANY);
}

#[test]
fn a_scope_that_ends_without_its_calls_leaves_them_to_the_next_operation() {
    let _alone = alone();
    let dropped = Arc::new(Mutex::new(0));
    let held = dropped.lock().unwrap();
    let scope = __callback_free();
    retire_many(&dropped);
    scope.end_without_calls();
    assert_eq!(*held, 0);
    drop(held);
    pin(|_| assert_eq!(*dropped.lock().unwrap(), 0));
    assert!(*dropped.lock().unwrap() > 0, "postponed calls were not run");
    barrier().unwrap();
    assert_eq!(*dropped.lock().unwrap(), MANY);
}

#[test]
fn a_panic_ends_the_scope_and_propagates() {
    let _alone = alone();
    let dropped = Arc::new(Mutex::new(0));
    let panics = || {
        without_callbacks(|| {
            retire_many(&dropped);
            std::panic::resume_unwind(Box::new(()));
        })
    };
    catch_unwind(AssertUnwindSafe(panics)).unwrap_err();
    // The panic left no scope open.
    retire_many(&dropped);
    assert_eq!(reclaim().err(), None);
    barrier().unwrap();
    assert_eq!(*dropped.lock().unwrap(), 2 * MANY);
}

#[test]
fn reclaim_and_barrier_are_errors_inside_and_wait_is_not() {
    let _alone = alone();
    without_callbacks(|| {
        assert_eq!((reclaim(), barrier()), (Err(WaitError::Quiet), Err(WaitError::Quiet)));
        assert_eq!(wait(), Ok(()));
    });
    assert_eq!(barrier().err(), None);
}

/// Retires in the destructor of a thread-local value, before or after the thread has lost its registration.
struct Late(Arc<Mutex<usize>>, Arc<AtomicUsize>);

impl Drop for Late {
    fn drop(&mut self) {
        without_callbacks(|| {
            let _held = self.0.lock().unwrap();
            pin(|_| retire_many(&self.0));
            retire_many(&self.0);
        });
        self.1.fetch_add(1, SeqCst);
    }
}

#[test]
fn scopes_work_in_thread_local_destructors() {
    let _alone = alone();
    thread_local! {
        static FIRST: RefCell<Option<Late>> = const { RefCell::new(None) };
        static LAST: RefCell<Option<Late>> = const { RefCell::new(None) };
    }
    let (dropped, ended) = (Arc::new(Mutex::new(0)), Arc::new(AtomicUsize::new(0)));
    let late = || Late(dropped.clone(), ended.clone());
    thread::scope(|threads| {
        threads.spawn(|| {
            FIRST.set(Some(late()));
            pin(|_| ());
            LAST.set(Some(late()));
        });
    });
    // The thread-local values may be dropped after `thread::scope` has seen the thread end.
    while ended.load(SeqCst) < 2 {
        thread::yield_now();
    }
    barrier().unwrap();
    assert_eq!(*dropped.lock().unwrap(), 4 * MANY);
}
