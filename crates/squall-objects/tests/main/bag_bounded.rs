//! Bags with a limit.

use crate::bag::swap_under_load;
use crate::common::{Stop, VPS, alone, eventually, on};
use squall_core::swap::arbitrate_object;
use squall_core::{Handle, info_of};
use squall_objects::bag::{self, BoundedBag};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

fn forms<T: Send + 'static>(capacity: usize) -> [BoundedBag<T>; 3] {
    [BoundedBag::shared(capacity), BoundedBag::distributed(capacity), BoundedBag::adaptive(capacity)]
}

type Task<T> = Pin<Box<dyn Future<Output = T> + Send>>;

fn poll<T>(task: &mut Task<T>) -> Poll<T> {
    task.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_full_bag_refuses_elements_and_gives_them_back() {
    let _alone = alone();
    for bag in forms(3) {
        let handle = bag.handle();
        for n in 0..3 {
            assert_eq!(on(n * 9, || handle.try_put(n)), Ok(()));
        }
        assert_eq!((on(5, || handle.try_put(7)), handle.len(), handle.capacity()), (Err(7), 3, 3));
        assert!(on(31, || handle.get()).is_some());
        assert_eq!((on(5, || handle.try_put(7)), on(6, || handle.try_put(8))), (Ok(()), Err(8)));
        while handle.get().is_some() {}
        assert!(handle.is_empty() && handle.get_for(Duration::from_millis(1)) == Ok(None));
        drop(bag);
        assert_eq!((handle.try_put(1), handle.put_wait(2)), (Err(1), Err(2)));
        assert!(handle.get_wait().is_err());
    }
}

#[test]
fn refused_calls_lose_neither_elements_nor_rooms() {
    let _alone = alone();
    for bag in forms(2) {
        let handle = bag.handle();
        let refused = |bag| arbitrate_object(bag, |call| call.refuse("closed")).unwrap();
        let elements = refused(Handle::id(handle.elements()));
        assert_eq!(handle.try_put(1), Ok(()));
        elements.detach();
        let rooms = refused(Handle::id(handle.rooms()));
        assert_eq!(handle.get(), Some(1));
        rooms.detach();
        assert_eq!([2, 3, 4].map(|n| handle.try_put(n)), [Ok(()), Ok(()), Err(4)]);
    }
}

#[test]
fn puts_wait_for_room_in_turn_and_a_cancelled_one_takes_none() {
    let _alone = alone();
    for bag in forms(1) {
        let handle = bag.handle();
        handle.try_put(0).unwrap();
        let mut puts: Vec<Task<_>> = (1..4).map(|n| Box::pin(handle.put_async(n)) as _).collect();
        assert!(puts.iter_mut().all(|put| poll(put).is_pending()));
        assert_eq!((handle.get(), poll(&mut puts[1]).is_pending()), (Some(0), true));
        drop(puts.remove(0));
        assert_eq!((poll(&mut puts[0]), handle.get()), (Poll::Ready(Ok(())), Some(2)));
        assert_eq!((poll(&mut puts[1]), handle.get(), handle.len()), (Poll::Ready(Ok(())), Some(3), 0));
        let mut get: Task<_> = Box::pin(handle.get_async());
        assert!(poll(&mut get).is_pending());
        assert_eq!((handle.put_wait(4), poll(&mut get)), (Ok(()), Poll::Ready(Ok(4))));
    }
}

#[test]
fn the_limit_holds_while_both_bags_are_swapped() {
    const CAPACITY: usize = 5;
    let _alone = alone();
    let bag = BoundedBag::distributed(CAPACITY);
    let (handle, stop) = (bag.handle(), AtomicBool::new(false));
    let (inside, puts) = (AtomicIsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for thread in 0..2 {
            let (stop, inside, puts) = (&stop, &inside, &puts);
            scope.spawn(move || {
                for n in (thread..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                    assert_eq!(on(n * 3 % VPS, || handle.put_wait(n)), Ok(()));
                    assert!(
                        inside.fetch_add(1, Ordering::SeqCst) < CAPACITY as isize + 2,
                        "two gets may be in progress"
                    );
                    puts.fetch_add(1, Ordering::Relaxed);
                }
                // So that both getters end.
                let _ended = handle.put_wait(u32::MAX);
            });
            scope.spawn(move || {
                while on(7 * thread % VPS, || handle.get_wait()).unwrap() != u32::MAX {
                    inside.fetch_sub(1, Ordering::SeqCst);
                }
            });
        }
        let _stop = Stop(&stop);
        for n in 0..20 {
            let before = puts.load(Ordering::Relaxed);
            if n % 2 == 0 {
                swap_under_load(handle.elements(), bag::new_shared());
                swap_under_load(handle.rooms(), bag::new_shared());
            } else {
                swap_under_load(handle.elements(), bag::new_distributed());
                swap_under_load(handle.rooms(), bag::new_distributed());
            }
            eventually("the threads go on", || puts.load(Ordering::Relaxed) != before);
        }
    });
    while handle.get().is_some() {}
    for n in 0..CAPACITY as u32 {
        assert_eq!(handle.try_put(n), Ok(()));
    }
    assert_eq!(handle.try_put(9), Err(9));
}

#[test]
fn the_bag_of_the_rooms_is_a_part_of_the_bag() {
    let _alone = alone();
    let bag = BoundedBag::<u8>::shared(2).named("jobs");
    let (elements, rooms) = (Handle::id(bag.elements()), Handle::id(bag.rooms()));
    let info = info_of(rooms).unwrap();
    assert_eq!((info.name.as_deref(), info.part_of), (Some("jobs: rooms"), Some(elements)));
    assert_eq!(info_of(elements).unwrap().name.as_deref(), Some("jobs"));
}
