//! Threads and tasks that wait for an element of a bag.

use crate::bag::{forms, swap_under_load};
use crate::common::{VPS, alone, on};
use squall_core::swap::Swap;
use squall_core::{CallError, CallErrorKind, Owned};
use squall_objects::bag::{self, Bag, BagExt};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

/// A future, boxed so that it can be polled and dropped.
type Task<T> = Pin<Box<dyn Future<Output = T> + Send>>;

fn task(bag: &Owned<dyn Bag<u32>>) -> Task<Result<u32, CallError>> {
    Box::pin(bag.handle().get_async())
}

fn poll<T>(task: &mut Task<T>) -> Poll<T> {
    task.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn waiting_tasks_get_elements_in_the_order_in_which_they_began_to_wait() {
    let _alone = alone();
    for bag in forms() {
        let mut tasks: Vec<_> = (0..4).map(|_| task(&bag)).collect();
        assert!(tasks.iter_mut().all(|task| poll(task).is_pending()));
        for (vp, n) in [(0, 1), (9, 2), (31, 3)] {
            on(vp, || bag.put(n));
        }
        for (task, n) in tasks.iter_mut().zip(1..4) {
            assert_eq!(poll(task), Poll::Ready(Ok(n)));
        }
        assert!(poll(&mut tasks[3]).is_pending());
        on(5, || bag.put_batch(vec![4, 5]));
        assert!(matches!(poll(&mut tasks[3]), Poll::Ready(Ok(_))));
        assert_eq!(bag.len(), 1);
    }
}

#[test]
fn a_wait_that_is_cancelled_gives_its_element_back() {
    let _alone = alone();
    for bag in forms() {
        let (mut first, mut second) = (task(&bag), task(&bag));
        assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
        bag.put(1);
        drop(first);
        assert_eq!(poll(&mut second), Poll::Ready(Ok(1)));
        let mut third = task(&bag);
        assert!(poll(&mut third).is_pending());
        bag.put(2);
        drop(third);
        assert_eq!((bag.get(), bag.get()), (Some(2), None));
    }
}

#[test]
fn waits_give_a_shared_bag_no_second_shard() {
    let _alone = alone();
    let bag = on(0, bag::shared::<u32>);
    let handle = bag.handle();
    for vp in 1..VPS {
        assert_eq!(on(vp, || handle.get_for(Duration::from_millis(1))), Ok(None));
    }
    let mut cancelled = task(&bag);
    on(9, || {
        assert!(poll(&mut cancelled).is_pending());
        handle.put(1);
        drop(cancelled);
    });
    let before = bag.counts().looks;
    assert_eq!(on(0, || (handle.local_len(), handle.get(), handle.get())), (1, Some(1), None));
    assert_eq!(bag.counts().looks, before, "there is no other shard");
}

#[test]
fn waiting_threads_get_elements_and_end_after_their_limit() {
    let _alone = alone();
    for bag in forms() {
        let handle = bag.handle();
        assert_eq!(handle.get_for(Duration::from_millis(1)), Ok(None));
        thread::scope(|scope| {
            let waiters = [1, 2, 3].map(|vp| scope.spawn(move || on(vp, || handle.get_wait())));
            let last = scope.spawn(move || handle.get_for(Duration::MAX));
            for n in 0..4 {
                on(n * 7, || handle.put(n));
            }
            let mut got: Vec<u32> =
                waiters.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect();
            got.extend(last.join().unwrap().unwrap());
            got.sort_unstable();
            assert_eq!(got, [0, 1, 2, 3]);
        });
    }
}

#[test]
fn waits_go_on_across_swaps() {
    let _alone = alone();
    let bag = bag::shared();
    let handle = bag.handle();
    let mut waiting = task(&bag);
    assert!(poll(&mut waiting).is_pending());
    thread::scope(|scope| {
        let thread = scope.spawn(move || handle.get_wait());
        swap_under_load(handle, bag::new_distributed());
        swap_under_load(handle, bag::new_shared());
        assert!(poll(&mut waiting).is_pending());
        handle.put(1);
        handle.put(2);
        let Poll::Ready(Ok(one)) = poll(&mut waiting) else { panic!("the task has its element") };
        assert_eq!(one + thread.join().unwrap().unwrap(), 3);
    });
}

#[test]
fn a_wait_at_a_bag_that_a_swap_replaced_without_state_goes_on_at_the_new_one() {
    let _alone = alone();
    let bag = bag::shared();
    let handle = bag.handle();
    thread::scope(|scope| {
        let thread = scope.spawn(move || handle.get_wait());
        Swap::new(handle).without_state().run(bag::new_shared()).unwrap();
        handle.put(7);
        assert_eq!(thread.join().unwrap(), Ok(7));
    });
}

#[test]
fn the_end_of_a_bag_ends_all_waits() {
    let _alone = alone();
    for bag in forms() {
        let handle = bag.handle();
        let (mut waiting, mut later) = (task(&bag), task(&bag));
        assert!(poll(&mut waiting).is_pending());
        let threads = [1, 2].map(|vp| thread::spawn(move || on(vp, || handle.get_wait())));
        drop(bag);
        for result in threads.map(|thread| thread.join().unwrap()) {
            assert_eq!(result.unwrap_err().reason(), CallErrorKind::Destroyed);
        }
        let Poll::Ready(Err(error)) = poll(&mut waiting) else { panic!("the wait has ended") };
        assert!(error.to_string().contains(".get_async()"), "{error}");
        assert!(matches!(poll(&mut later), Poll::Ready(Err(_))));
        assert!(handle.get_wait().is_err() && handle.get_for(Duration::MAX).is_err());
    }
}

#[test]
fn a_wait_inside_an_operation_panics() {
    let _alone = alone();
    let bag = bag::shared();
    bag.put(1);
    let wait = || squall_rcu::pin(|_| bag.get_wait());
    let panic = catch_unwind(AssertUnwindSafe(wait)).expect_err("it must not wait");
    assert!(panic.downcast_ref::<&str>().is_some_and(|text| text.contains("inside an operation")));
    assert_eq!(bag.get(), Some(1));
}
