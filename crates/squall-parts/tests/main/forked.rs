//! Waits in the child of a fork, for threads that exist only in the parent.

#[path = "../../../squall-rcu/tests/forked/mod.rs"]
mod child;
#[path = "../../../squall-machine/tests/main/this_program.rs"]
mod this_program;

use child::{End, in_child_ending, in_forked_child};
use squall_parts::dhash::MasterTable;
use squall_parts::gate::{GateError, GateState, Limits, LocalRequests, SharedGate, SpreadRequests};
use squall_parts::queue::{End as Over, Form, Queue, Wait};
use squall_parts::replica::Watch;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;

/// Runs a test in a process of its own, which can detect its children. Returns whether this is that process.
///
/// A test that panics on another thread may hold locks of the panic hook at the fork.
fn alone(test: &str) -> bool {
    const CHILD: &str = "SQUALL_TEST_CHILD";
    if std::env::var_os("SQUALL_TEST_RUNNER").is_some() {
        eprintln!("SKIP {test}: the emulator ignores wipe-on-fork");
        return false;
    }
    if std::env::var_os(CHILD).is_some() {
        return squall_rcu::pin(|_| true);
    }
    let test = format!("forked::{test}");
    let output =
        this_program::this_program().args(["--exact", &test, "--nocapture"]).env(CHILD, "1").output();
    let output = output.unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("running 1 test"), "{test} does not exist");
    assert!(output.status.success(), "{output:?}");
    false
}

#[test]
fn a_gate_waits_for_no_thread_in_a_forked_child() {
    if !alone("a_gate_waits_for_no_thread_in_a_forked_child") {
        return;
    }
    let (shared, spread) = (SharedGate::new(), SpreadRequests::new(|| AtomicU64::new(0)));
    let local: LocalRequests<AtomicU64> = spread.local(|| AtomicU64::new(0));
    // Requests that leave in the parent only.
    shared.enter().unwrap();
    local.try_enter().unwrap();
    let forked = Err(GateError::Forked);
    for end in [End::AtOnce, End::Orderly] {
        assert!(in_child_ending(end, || shared.stop() == forked && spread.stop(Limits::NONE) == forked));
        assert!(
            in_child_ending(end, || shared.shutdown() == forked && spread.shutdown(Limits::NONE) == forked)
        );
        // The failed shutdowns are taken back.
        assert!(in_child_ending(end, || {
            _ = (shared.shutdown(), spread.shutdown(Limits::NONE));
            (shared.state(), spread.state()) == (GateState::Normal, GateState::Normal)
                && shared.try_enter().is_ok()
                && local.try_enter().is_ok()
        }));
        assert!(in_child_ending(end, || {
            let polled = pin!(shared.shutdown_async()).poll(&mut Context::from_waker(Waker::noop()));
            polled == Poll::Ready(forked) && shared.state() == GateState::Normal
        }));
    }
    shared.leave();
    local.leave();
    shared.stop().unwrap();
    spread.stop(Limits::NONE).unwrap();
    let panics = |f: &mut dyn FnMut()| catch_unwind(AssertUnwindSafe(f)).is_err();
    assert!(in_forked_child(|| panics(&mut || _ = shared.enter())));
    assert!(in_forked_child(|| panics(&mut || {
        let _ = pin!(shared.request_async()).poll(&mut Context::from_waker(Waker::noop()));
    })));
    assert!(in_forked_child(|| panics(&mut || local.await_turn(Limits::NONE))));
    shared.restart().unwrap();
    spread.restart().unwrap();
    shared.enter().unwrap();
    assert_eq!((shared.inside(), spread.inside()), (1, 0));
}

#[test]
fn a_watch_waits_for_no_lock_in_a_forked_child() {
    if !alone("a_watch_waits_for_no_lock_in_a_forked_child") {
        return;
    }
    let (watch, stop) = (Watch::new(), AtomicBool::new(false));
    let kept = watch.register(None, Waker::noop());
    let all_ended = thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    watch.unregister(watch.register(None, Waker::noop()));
                }
            });
        }
        let all_ended = (0..100).all(|_| {
            in_forked_child(|| {
                watch.unregister(watch.register(None, Waker::noop()));
                watch.wake();
                true
            })
        });
        stop.store(true, Ordering::Relaxed);
        all_ended
    });
    assert!(all_ended);
    watch.unregister(kept);
}

#[test]
fn a_reserved_key_is_not_waited_for_in_a_forked_child() {
    if !alone("a_reserved_key_is_not_waited_for_in_a_forked_child") {
        return;
    }
    let master = MasterTable::<u64, u64, ()>::new(|_| ());
    // Filled in the parent only.
    let page = master.find_or_reserve(&7, |_| ()).unwrap().empty().unwrap();
    assert!(in_forked_child(|| {
        let waits = catch_unwind(AssertUnwindSafe(|| master.find_or_reserve(&7, |_| ()).is_ok()));
        waits.is_err() && master.try_find_or_reserve(&7, |_| ()).is_err() && master.read(&7, |_| ()).is_none()
    }));
    page.fill(4).unwrap();
    assert_eq!(master.read(&7, |frame| *frame), Some(4));
}

#[test]
fn a_queue_in_a_forked_child_waits_for_no_thread() {
    if !alone("a_queue_in_a_forked_child_waits_for_no_thread") {
        return;
    }
    let panics = |f: &mut dyn FnMut()| catch_unwind(AssertUnwindSafe(f)).is_err();
    for form in Form::ALL {
        let queue = Queue::with_places(form, 2);
        queue.client(0).put(1, 1).unwrap();
        // A waiter that exists only in the parent.
        let unfinished = queue.client(0).take().unwrap();
        let mut wait = pin!(Wait::new(&queue));
        assert!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!(in_forked_child(|| {
            let (one, two) = (queue.client(0), queue.client(1));
            one.put(5, 5).unwrap();
            two.put(6, 6).unwrap();
            let got = [two.get_wait().unwrap(), two.get().unwrap()];
            queue.set_form(Form::Strict);
            got[0].0 + got[1].0 == 11 && queue.waiting() == 1 && queue.is_empty() && !queue.is_done()
        }));
        assert!(in_forked_child(|| panics(&mut || _ = queue.client(1).get_wait())));
        assert!(in_forked_child(|| panics(&mut || _ = queue.client(1).take_wait())));
        assert!(in_forked_child(|| {
            queue.close();
            queue.client(0).finish(1);
            queue.is_done() && queue.client(1).take_wait().unwrap_err() == Over::Closed
        }));
        drop(unfinished);
        assert_eq!((queue.is_done(), queue.is_closed(), queue.waiting()), (true, false, 1));
    }
}

/// The heaps' locks may be held at the fork. Each call in the child ends, some with a panic.
#[test]
fn a_queue_that_is_used_at_the_fork_blocks_no_child() {
    if !alone("a_queue_that_is_used_at_the_fork_blocks_no_child") {
        return;
    }
    let (queue, stop) = (Queue::with_places(Form::Relaxed, 2), AtomicBool::new(false));
    (0..2).for_each(|place| queue.client(place).put(0, 0).unwrap());
    let all_ended = thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                queue.client(0).put(1, 1).unwrap();
                queue.client(0).get();
                // Locks all heaps, and changes no form.
                queue.set_form(Form::Relaxed);
            }
        });
        let all_ended = (0..50).all(|_| {
            in_forked_child(|| {
                // Backtraces would take seconds.
                std::panic::set_hook(Box::new(|_| {}));
                _ = catch_unwind(AssertUnwindSafe(|| queue.client(1).put(2, 2)));
                _ = catch_unwind(AssertUnwindSafe(|| queue.client(1).get()));
                _ = catch_unwind(AssertUnwindSafe(|| queue.drain()));
                true
            })
        });
        stop.store(true, Ordering::Relaxed);
        all_ended
    });
    assert!(all_ended);
}
