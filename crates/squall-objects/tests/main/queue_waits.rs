//! Threads and tasks that wait for an element of a queue, or for the end of the work.

use crate::common::{VPS, alone, on};
use crate::queue::{forms, new, swap_under_load};
use squall_core::swap::Swap;
use squall_core::{CallErrorKind, Handle};
use squall_objects::queue::{self, End, Form, Queue, QueueExt, Taken, WaitError};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

/// A future, boxed so that it can be polled and dropped.
type Task<T> = Pin<Box<dyn Future<Output = T> + Send>>;

fn getter(handle: Handle<dyn Queue<u32>>) -> Task<Result<(u64, u32), WaitError>> {
    Box::pin(handle.get_async())
}

fn taker(handle: Handle<dyn Queue<u32>>) -> Task<Result<Taken<u32>, End>> {
    Box::pin(handle.take_async())
}

fn poll<T>(task: &mut Task<T>) -> Poll<T> {
    task.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn waiting_tasks_get_elements_and_a_cancelled_wait_loses_none() {
    let _alone = alone();
    for queue in forms() {
        let handle = queue.handle();
        let (mut first, mut second) = (getter(handle), getter(handle));
        assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
        on(9, || handle.put(1, 10)).unwrap();
        drop(first);
        assert_eq!(poll(&mut second), Poll::Ready(Ok((1, 10))));
        let mut third = getter(handle);
        assert!(poll(&mut third).is_pending());
        on(31, || handle.put(2, 20)).unwrap();
        drop(third);
        assert_eq!((handle.get(), handle.get()), (Some((2, 20)), None));
    }
}

#[test]
fn waiting_threads_get_elements_and_end_after_their_limit() {
    let _alone = alone();
    for queue in forms() {
        let handle = queue.handle();
        assert_eq!(handle.get_for(Duration::from_millis(1)), Ok(None));
        thread::scope(|scope| {
            let waiters = [1, 2, 3].map(|vp| scope.spawn(move || on(vp, || handle.get_wait())));
            let last = scope.spawn(move || handle.get_for(Duration::MAX));
            for n in 0..4 {
                on(n * 7, || handle.put(n.into(), n)).unwrap();
            }
            let mut got: Vec<(u64, u32)> =
                waiters.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect();
            got.extend(last.join().unwrap().unwrap());
            got.sort_unstable();
            assert_eq!(got, [(0, 0), (1, 1), (2, 2), (3, 3)]);
        });
    }
}

#[test]
fn waits_go_on_across_swaps() {
    let _alone = alone();
    let queue = queue::strict();
    let handle = queue.handle();
    let mut waiting = getter(handle);
    assert!(poll(&mut waiting).is_pending());
    thread::scope(|scope| {
        let thread = scope.spawn(move || handle.get_wait());
        for form in [Form::Relaxed, Form::Local, Form::Strict] {
            swap_under_load(handle, new(form));
            assert!(poll(&mut waiting).is_pending());
        }
        handle.put(1, 1).unwrap();
        handle.put(2, 2).unwrap();
        let Poll::Ready(Ok((one, _))) = poll(&mut waiting) else { panic!("the task has its element") };
        assert_eq!(one + thread.join().unwrap().unwrap().0, 3);
    });
}

#[test]
fn waits_at_a_queue_that_a_swap_replaced_without_state_go_on_at_the_new_one() {
    let _alone = alone();
    let queue = queue::strict();
    let handle = queue.handle();
    handle.put(1, 1).unwrap();
    let taken = handle.take().unwrap();
    thread::scope(|scope| {
        let taker = scope.spawn(move || handle.take_wait().map(|_| ()));
        Swap::new(handle).without_state().run(queue::new_relaxed()).unwrap();
        // No element of the new queue is unfinished.
        assert_eq!(taker.join().unwrap(), Err(End::Done));
    });
    thread::scope(|scope| {
        let getter = scope.spawn(move || handle.get_wait());
        Swap::new(handle).without_state().run(queue::new_local()).unwrap();
        handle.put(7, 7).unwrap();
        assert_eq!(getter.join().unwrap(), Ok((7, 7)));
    });
    drop(taken);
    assert!(handle.is_done());
}

#[test]
fn the_end_of_a_queue_ends_all_waits() {
    let _alone = alone();
    for queue in forms() {
        let handle = queue.handle();
        handle.put(1, 1).unwrap();
        let taken = handle.take().unwrap();
        let (mut getting, mut taking, mut later) = (getter(handle), taker(handle), getter(handle));
        assert!(poll(&mut getting).is_pending() && poll(&mut taking).is_pending());
        let getters = [1, 2].map(|vp| thread::spawn(move || on(vp, || handle.get_wait())));
        let takers = [1, 2].map(|vp| thread::spawn(move || on(vp, || handle.take_wait())));
        drop(queue);
        for result in getters.map(|thread| thread.join().unwrap()) {
            let WaitError::Call(error) = result.unwrap_err() else { panic!("the object is gone") };
            assert_eq!(error.reason(), CallErrorKind::Destroyed);
        }
        for result in takers.map(|thread| thread.join().unwrap()) {
            let End::Call(error) = result.unwrap_err() else { panic!("the object is gone") };
            assert_eq!(error.reason(), CallErrorKind::Destroyed);
        }
        let Poll::Ready(Err(error)) = poll(&mut getting) else { panic!("the wait has ended") };
        assert!(error.to_string().contains(".get_async()"), "{error}");
        let Poll::Ready(Err(error)) = poll(&mut taking) else { panic!("the wait has ended") };
        assert!(error.to_string().contains(".take_async()"), "{error}");
        assert!(matches!(poll(&mut later), Poll::Ready(Err(WaitError::Call(_)))));
        assert!(handle.get_wait().is_err() && handle.get_for(Duration::MAX).is_err());
        assert!(handle.take_wait().is_err());
        drop(taken);
    }
}

#[test]
fn closing_a_queue_ends_its_waits_once_it_is_empty() {
    let _alone = alone();
    for queue in forms() {
        let handle = queue.handle();
        handle.put(1, 1).unwrap();
        let taken = handle.take().unwrap();
        let (mut getting, mut taking) = (getter(handle), taker(handle));
        assert!(poll(&mut getting).is_pending() && poll(&mut taking).is_pending());
        thread::scope(|scope| {
            let getter = scope.spawn(move || on(3, || handle.get_wait()));
            let taker = scope.spawn(move || on(4, || handle.take_wait().map(|_| ())));
            handle.close();
            assert_eq!(getter.join().unwrap(), Err(WaitError::Closed));
            assert_eq!(taker.join().unwrap(), Err(End::Closed));
        });
        assert_eq!(poll(&mut getting), Poll::Ready(Err(WaitError::Closed)));
        assert!(matches!(poll(&mut taking), Poll::Ready(Err(End::Closed))));
        assert_eq!(handle.get_for(Duration::MAX), Err(WaitError::Closed));
        assert_eq!(WaitError::Closed.to_string(), "the queue was closed and is empty");
        drop(taken);
    }
}

#[test]
fn kt_11_workers_end_when_the_last_element_is_finished() {
    let _alone = alone();
    for queue in forms::<u32>() {
        let (handle, seen) = (queue.handle(), AtomicU64::new(0));
        handle.put(0, 6).unwrap();
        thread::scope(|scope| {
            let workers: Vec<_> = (0..4)
                .map(|worker| {
                    let seen = &seen;
                    scope.spawn(move || {
                        for round in (worker..).step_by(4) {
                            let taken = match on(round % VPS, || handle.take_wait()) {
                                Ok(taken) => taken,
                                Err(end) => return end,
                            };
                            seen.fetch_add(1, Ordering::Relaxed);
                            for _ in 0..if *taken == 0 { 0 } else { 2 } {
                                on(round % VPS, || handle.put(taken.priority() + 1, *taken - 1)).unwrap();
                            }
                        }
                        unreachable!("the numbers do not end")
                    })
                })
                .collect();
            for worker in workers {
                assert_eq!(worker.join().unwrap(), End::Done);
            }
        });
        assert_eq!((seen.load(Ordering::Relaxed), handle.is_done()), (127, true));
    }
}

#[test]
fn waiting_tasks_learn_the_end_from_the_last_element() {
    let _alone = alone();
    for queue in forms() {
        let handle = queue.handle();
        on(5, || handle.put(1, 1)).unwrap();
        let Poll::Ready(Ok(taken)) = poll(&mut taker(handle)) else { panic!("there is an element") };
        let mut waiting = taker(handle);
        assert!(poll(&mut waiting).is_pending());
        on(6, || handle.put(2, *taken + 1)).unwrap();
        let Poll::Ready(Ok(next)) = poll(&mut waiting) else { panic!("there is another element") };
        drop(taken);
        let mut last = taker(handle);
        assert!(poll(&mut last).is_pending());
        assert_eq!((next.priority(), *next), (2, 2));
        drop(next);
        assert!(matches!(poll(&mut last), Poll::Ready(Err(End::Done))));
        assert_eq!(End::Done.to_string(), "the queue is empty and all elements are finished");
    }
}

#[test]
fn a_wait_inside_an_operation_panics() {
    let _alone = alone();
    let queue = queue::strict();
    queue.put(1, 1).unwrap();
    let wait = || squall_rcu::pin(|_| queue.get_wait());
    let panic = catch_unwind(AssertUnwindSafe(wait)).expect_err("it must not wait");
    assert!(panic.downcast_ref::<&str>().is_some_and(|text| text.contains("inside an operation")));
    assert!(catch_unwind(AssertUnwindSafe(|| squall_rcu::pin(|_| queue.take_wait()))).is_err());
    assert_eq!(queue.get(), Some((1, 1)));
}
