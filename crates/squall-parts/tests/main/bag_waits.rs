//! Tests of waiting gets, of bounded bags, and of shards that leave.

use squall_parts::bag::{Bag, Bounded, Closed, Strategy, Wait, WaitError};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

const TURNS: usize = if cfg!(miri) { 20 } else { 5_000 };

#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Bell>) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn pr_23_waiters_are_served_in_the_order_in_which_they_came() {
    let bag = Bag::with_places(2);
    let bells: Vec<Arc<Bell>> = (0..3).map(|_| Arc::default()).collect();
    let mut waits: Vec<_> = (0..3).map(|_| Wait::new(&bag)).collect();
    let poll = |at: usize, waits: &mut Vec<Wait<u32, &Bag<u32>>>| {
        pin!(&mut waits[at]).poll(&mut Context::from_waker(&Waker::from(bells[at].clone())))
    };
    (0..3).for_each(|at| assert_eq!(poll(at, &mut waits), Poll::Pending));
    assert_eq!(bag.waiting(), 3);
    bag.client(1).put(7);
    assert_eq!(bells.iter().map(|bell| bell.0.load(SeqCst)).collect::<Vec<_>>(), [1, 0, 0]);
    assert_eq!((poll(1, &mut waits), poll(0, &mut waits)), (Poll::Pending, Poll::Ready(Ok(7))));
    bag.client(0).put_batch([8, 9]);
    assert_eq!((bag.waiting(), bag.len()), (2, 2), "given, but not yet taken");
    let mut got = [poll(1, &mut waits), poll(2, &mut waits)];
    got.sort_by_key(|it| format!("{it:?}"));
    assert_eq!(got, [Poll::Ready(Ok(8)), Poll::Ready(Ok(9))]);
}

#[test]
fn a_wait_that_is_dropped_gives_its_element_back() {
    let bag = Bag::with_places(2);
    let mut first = Box::pin(Wait::new(&bag));
    let mut second = Box::pin(Wait::new(&bag));
    let mut context = Context::from_waker(Waker::noop());
    assert!(
        first.as_mut().poll(&mut context).is_pending() && second.as_mut().poll(&mut context).is_pending()
    );
    bag.client(0).put(5);
    drop(first);
    assert_eq!(second.as_mut().poll(&mut context), Poll::Ready(Ok(5)), "the next waiter gets it");
    let mut third = Box::pin(Wait::new(&bag));
    assert!(third.as_mut().poll(&mut context).is_pending());
    drop(third);
    assert_eq!(bag.waiting(), 0);
    bag.client(0).put(6);
    assert_eq!(bag.client(1).get(), Some(6));
}

#[test]
fn dp_05_get_finds_an_element_that_a_waiter_has_not_taken() {
    let bag = Bag::with_places(2);
    let mut context = Context::from_waker(Waker::noop());
    let mut waits: Vec<_> = (0..2).map(|_| Box::pin(Wait::new(&bag))).collect();
    assert!(waits.iter_mut().all(|wait| wait.as_mut().poll(&mut context).is_pending()));
    bag.client(0).put_batch([1, 2]);
    assert_eq!((bag.len(), bag.is_empty(), bag.waiting()), (2, false, 2));
    let mut got = vec![bag.client(1).get().unwrap()];
    assert_eq!((bag.waiting(), bag.len()), (2, 1), "the last waiter waits again");
    assert!(waits[1].as_mut().poll(&mut context).is_pending());
    let Poll::Ready(Ok(value)) = waits[0].as_mut().poll(&mut context) else {
        panic!("the first keeps its own")
    };
    got.push(value);
    got.sort_unstable();
    assert_eq!((got, bag.client(1).get()), (vec![1, 2], None));
    bag.client(1).put(3);
    bag.close();
    assert_eq!(bag.client(0).get(), Some(3), "also in a closed bag");
    assert_eq!(waits[1].as_mut().poll(&mut context), Poll::Ready(Err(Closed)));
}

#[test]
fn an_element_that_is_put_back_at_a_deadline_is_not_lost() {
    let bag = Bag::with_places(2);
    let got = AtomicUsize::new(0);
    thread::scope(|threads| {
        threads.spawn(|| (0..TURNS).for_each(|turn| bag.client(1).put(turn)));
        threads.spawn(|| {
            for _ in 0..TURNS {
                got.fetch_add(usize::from(bag.client(0).get_for(Duration::ZERO).is_ok()), SeqCst);
            }
        });
    });
    assert_eq!(got.into_inner() + bag.len(), TURNS);
}

#[test]
fn a_closed_bag_ends_waits_and_still_gives_its_elements() {
    let bag = Arc::new(Bag::with_places(2));
    let waiter = thread::spawn({
        let bag = bag.clone();
        move || Wait::new(bag).block()
    });
    while bag.waiting() == 0 {
        thread::yield_now();
    }
    bag.close();
    assert_eq!((waiter.join().unwrap(), bag.is_closed()), (Err(Closed), true));
    bag.client(1).put(3);
    assert_eq!(bag.client(0).get_wait(), Ok(3));
    assert_eq!(bag.client(0).get_wait(), Err(Closed));
    assert_eq!(bag.client(0).get_for(Duration::MAX), Err(WaitError::Closed));
}

#[test]
fn a_wait_with_a_limit_ends() {
    let bag = Bag::<u32>::with_places(1);
    assert_eq!(bag.client(0).get_for(Duration::from_millis(1)), Err(WaitError::TimedOut));
    assert_eq!(bag.waiting(), 0);
    bag.client(0).put(1);
    assert_eq!(bag.client(0).get_for(Duration::ZERO), Ok(1));
}

#[test]
fn a_waker_that_panics_harms_no_other_waiter() {
    struct Broken;
    impl Wake for Broken {
        fn wake(self: Arc<Broken>) {
            panic!("a broken waker");
        }
    }
    let bag = Bag::with_places(1);
    let mut broken = Box::pin(Wait::new(&bag));
    let mut sound = Box::pin(Wait::new(&bag));
    let bell = Arc::new(Bell::default());
    assert!(broken.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::new(Broken)))).is_pending());
    let waker = Waker::from(bell.clone());
    assert!(sound.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    bag.client(0).put_batch([1, 2]);
    assert_eq!((bell.0.load(SeqCst), bag.waiting()), (1, 2));
    drop(broken);
    assert!(sound.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
    assert_eq!(bag.len(), 1);
}

#[test]
fn blocked_threads_get_each_element_once() {
    let bag = Bag::with_places(4);
    let (sum, count) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let start = Barrier::new(4);
    thread::scope(|threads| {
        for place in 0..2 {
            let (bag, start) = (&bag, &start);
            threads.spawn(move || {
                start.wait();
                for turn in 0..TURNS {
                    match turn % 3 {
                        0 => bag.client(place).put_batch([1, 1]),
                        _ => bag.client(place + 2).put(1),
                    }
                }
            });
        }
        for place in 0..2 {
            let (bag, start, sum, count) = (&bag, &start, &sum, &count);
            threads.spawn(move || {
                start.wait();
                // Each of the producers makes two elements in one of three turns.
                let all = 2 * (TURNS + TURNS.div_ceil(3));
                while count.fetch_add(1, SeqCst) < all {
                    sum.fetch_add(bag.client(place).get_wait().unwrap(), SeqCst);
                }
            });
        }
    });
    assert_eq!((sum.into_inner(), bag.len()), (2 * (TURNS + TURNS.div_ceil(3)), 0));
}

#[test]
fn a_bounded_bag_holds_its_capacity_at_most() {
    let bag = Bounded::new(3);
    assert!((0..3).all(|n| bag.try_put(n).is_ok()));
    assert_eq!((bag.try_put(3), bag.len(), bag.capacity()), (Err(3), 3, 3));
    let mut context = Context::from_waker(Waker::noop());
    let mut put = pin!(bag.put_async(4));
    assert!(put.as_mut().poll(&mut context).is_pending());
    assert!(bag.get().is_some());
    assert_eq!(put.poll(&mut context), Poll::Ready(Ok(())));
    assert_eq!(bag.try_put(5), Err(5));
    drop(bag.put_async(6));
    let mut late = pin!(bag.put_async(7));
    assert!(late.as_mut().poll(&mut context).is_pending());
    bag.close();
    assert_eq!(late.poll(&mut context), Poll::Ready(Err(7)));
    assert_eq!(bag.put_wait(8), Err(8));
    assert_eq!(std::iter::from_fn(|| bag.get_wait().ok()).count(), 3);
    assert_eq!(bag.try_put(9), Ok(()), "a closed bag with room takes elements");
    assert_eq!(pin!(bag.get_async()).poll(&mut context), Poll::Ready(Ok(9)));
}

#[test]
fn room_that_a_put_has_not_taken_is_found() {
    let bag = Bounded::new(1);
    bag.try_put(1).unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let mut put = pin!(bag.put_async(2));
    assert!(put.as_mut().poll(&mut context).is_pending());
    assert_eq!((bag.get(), bag.try_put(3), bag.try_put(4)), (Some(1), Ok(()), Err(4)));
    assert!(put.as_mut().poll(&mut context).is_pending());
    assert_eq!((bag.get(), put.as_mut().poll(&mut context)), (Some(3), Poll::Ready(Ok(()))));
    assert_eq!(bag.get(), Some(2));
    let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| put.poll(&mut context)));
    assert!(again.is_err(), "the put has ended");
    assert_eq!((bag.try_put(5), bag.len()), (Ok(()), 1), "no room was lost");
}

#[test]
fn a_full_bag_makes_producers_wait() {
    let bag = Bounded::new(2);
    let (most, held) = (AtomicIsize::new(0), AtomicIsize::new(0));
    thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                for turn in 0..TURNS {
                    bag.put_wait(turn).unwrap();
                    most.fetch_max(held.fetch_add(1, SeqCst) + 1, SeqCst);
                }
            });
        }
        threads.spawn(|| {
            for _ in 0..2 * TURNS {
                held.fetch_sub(1, SeqCst);
                bag.get_wait().unwrap();
            }
        });
    });
    assert!(bag.is_empty());
    // A consumer counts before it takes, so this never exceeds the capacity.
    assert!(most.into_inner() <= 2);
}

#[test]
fn dp_09_a_shard_that_leaves_gives_its_elements_to_others_in_turn() {
    let bag = Bag::with_places(4);
    let all: Vec<_> = (0..4).map(|place| bag.client(place)).collect();
    all[1].put_batch(0..300);
    assert!(all[1].leave());
    assert_eq!(all.iter().map(|it| it.len()).collect::<Vec<_>>(), [100, 0, 100, 100]);
    assert_eq!((bag.counts().leaves, bag.counts().moved, bag.len()), (1, 300, 300));
    assert!(!all[1].leave(), "it has left");
    all[1].put(300);
    assert_eq!((all[1].len(), all[0].get_batch(1000, &mut Vec::new())), (1, 301));
    assert!(all[0].leave() && all[1].leave() && all[2].leave());
    all[3].put(1);
    assert!(!all[3].leave(), "the last one stays");
    assert_eq!(all[2].get(), Some(1));
}

#[test]
fn a_shard_that_a_client_feeds_does_not_leave_for_ever() {
    let bag = Bag::with_places(2);
    bag.client(1).put(0);
    let stop = AtomicBool::new(false);
    thread::scope(|threads| {
        threads.spawn(|| {
            while !stop.load(SeqCst) {
                bag.client(0).put(1);
                bag.client(1).get_batch(2, &mut Vec::new());
            }
        });
        for _ in 0..TURNS / 20 {
            bag.client(0).leave();
        }
        stop.store(true, SeqCst);
    });
}

#[test]
fn dp_09_the_last_shard_keeps_its_elements() {
    let bag = Bag::with_places(2);
    bag.client(1).put_batch(0..70);
    assert!(!bag.client(1).leave());
    assert_eq!(bag.client(0).get_batch(100, &mut Vec::new()), 70);
}

#[test]
fn an_unused_shard_leaves_after_idle_acts() {
    let bag = Bag::with_places(2);
    bag.attributes().set_idle_events(1);
    bag.attributes().set_leave_after(3);
    let (idle, other) = (bag.client(0), bag.client(1));
    idle.put(5);
    (0..3).for_each(|_| idle.idle());
    assert_eq!((idle.len(), other.len()), (1, 0));
    idle.idle();
    assert_eq!((idle.len(), other.len(), bag.counts().leaves), (0, 1, 1));
    bag.attributes().set_leave_after(0);
    (0..9).for_each(|_| other.idle());
    assert_eq!(bag.counts().leaves, 1);
}

#[test]
fn what_a_shard_hoards_is_bounded() {
    let bag = Bag::with_places(3);
    bag.attributes().set_hoard(100);
    let (common, other) = (bag.client(0), bag.client(2));
    (0..1000).for_each(|n| other.put(n));
    assert!(other.len() <= 150, "{}", other.len());
    other.put_batch(0..500);
    assert!(other.len() <= 150, "{}", other.len());
    assert_eq!(common.len() + other.len(), 1500);
}

#[test]
fn the_directory_finds_the_only_element_at_the_second_look() {
    // Returns the looks of a client with an empty shard until it finds the only element of 16 shards.
    let looks = |strategy, at: usize| {
        let bag = Bag::with_places(16);
        bag.attributes().set_strategy(strategy);
        let all: Vec<_> = (0..16).map(|place| bag.client(place)).collect();
        // One look at all of them, so that each keeps its bit.
        assert_eq!(all[0].get(), None);
        all[at].put(1);
        let before = bag.counts().looks;
        assert_eq!(all[0].get(), Some(1));
        bag.counts().looks - before
    };
    let worst = |strategy| (1..16).map(|at| looks(strategy, at)).max().unwrap();
    assert_eq!(worst(Strategy::Directory), 2);
    for strategy in Strategy::ALL {
        if !matches!(strategy, Strategy::Directory | Strategy::Centralized) {
            assert_eq!(worst(strategy), 15, "{strategy:?}");
        }
    }
}

#[test]
fn gathered_elements_are_in_one_shard() {
    let bag = Bag::with_places(3);
    (0..3).for_each(|place| bag.client(place).put_batch(0..60));
    bag.gather(2);
    assert_eq!((0..3).map(|place| bag.client(place).len()).collect::<Vec<_>>(), [0, 0, 180]);
}

#[test]
fn counts_name_the_rare_steps() {
    let bag = Bag::with_places(2);
    bag.client(0).put_batch(0..60);
    assert!(bag.client(1).get().is_some());
    let counts = bag.counts();
    assert_eq!((counts.demand_transfers, counts.looks, counts.moved, counts.dry), (1, 1, 50, 0));
    bag.client(0).get_batch(100, &mut Vec::new());
    assert_eq!(bag.client(0).get(), None);
    assert_eq!(bag.counts().dry, 2, "the batch found the end too");
}
