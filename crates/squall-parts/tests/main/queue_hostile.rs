//! Queues under programs that panic, leak, call back, or set extreme values.

use squall_parts::queue::{Closed, End, Form, Insertion, Queue, Topology, Wait, WaitTaken, WhichPriority};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

fn poll<F: Future + Unpin>(wait: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(wait).poll(&mut Context::from_waker(waker))
}

/// Counts its wake-ups.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Bell>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Counts its drops, and panics in one of them.
struct Bomb<'a> {
    drops: &'a AtomicUsize,
    panics: bool,
}

impl Drop for Bomb<'_> {
    fn drop(&mut self) {
        self.drops.fetch_add(1, SeqCst);
        if self.panics {
            panic!("a bomb");
        }
    }
}

/// A queue of 20 elements, of which one panics when it is dropped.
fn bombs(form: Form, drops: &AtomicUsize) -> Queue<Bomb<'_>> {
    let queue = Queue::with_places(form, 4);
    for n in 0..20 {
        let bomb = Bomb { drops, panics: n == 7 };
        assert!(queue.client(n as usize % 4).put(n, bomb).is_ok());
    }
    queue
}

#[test]
fn a_panic_of_an_elements_drop_keeps_the_drops_of_the_others() {
    for form in Form::ALL {
        let drops = AtomicUsize::new(0);
        let queue = bombs(form, &drops);
        assert!(catch_unwind(AssertUnwindSafe(|| drop(queue))).is_err());
        assert_eq!(drops.into_inner(), 20, "{form:?}");
        let drops = AtomicUsize::new(0);
        let queue = bombs(form, &drops);
        assert!(catch_unwind(AssertUnwindSafe(|| drop(queue.drain()))).is_err());
        assert_eq!((drops.load(SeqCst), queue.len(), queue.is_done()), (20, 0, true));
        // The queue works afterwards.
        let bomb = Bomb { drops: &drops, panics: false };
        assert!(queue.client(3).put(1, bomb).is_ok() && queue.client(0).get().is_some());
    }
}

#[test]
fn a_waker_that_panics_harms_no_other_waiter() {
    struct Broken;
    impl Wake for Broken {
        fn wake(self: Arc<Broken>) {
            panic!("a broken waker");
        }
    }
    impl Drop for Broken {
        fn drop(&mut self) {
            if !thread::panicking() {
                panic!("a broken drop");
            }
        }
    }
    for form in Form::ALL {
        let queue = Queue::with_places(form, 2);
        let bell = Arc::new(Bell::default());
        let (broken, sound) = (Arc::new(Broken), Waker::from(bell.clone()));
        let taken = queue.client(0).put(0, 0).map(|()| queue.client(1).take()).unwrap();
        let mut waits: Vec<_> = (0..4).map(|_| WaitTaken::new(&queue)).collect();
        for (at, wait) in waits.iter_mut().enumerate() {
            let waker = if at % 2 == 0 { Waker::from(broken.clone()) } else { sound.clone() };
            assert!(poll(wait, &waker).is_pending());
        }
        queue.client(0).put(1, 1).unwrap();
        queue.client(1).put(2, 2).unwrap();
        assert_eq!((queue.waiting(), bell.0.load(SeqCst)), (2, 1));
        assert!(queue.client(1).get().is_some() && queue.client(1).get().is_some());
        drop(taken);
        assert_eq!((queue.waiting(), bell.0.load(SeqCst)), (0, 2), "the end wakes all");
        assert!(waits.iter_mut().all(|wait| poll(wait, &sound) == Poll::Ready(Err(End::Done))));
        let panicked = catch_unwind(AssertUnwindSafe(|| drop(broken)));
        assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"a broken drop"));
    }
}

/// Puts an element into a queue when it is woken or dropped.
struct Putter(Weak<Queue<u64>>);

impl Putter {
    fn put(&self) {
        if let Some(queue) = self.0.upgrade() {
            queue.client(1).put(9, 9).unwrap();
        }
    }
}

impl Wake for Putter {
    fn wake(self: Arc<Putter>) {
        self.put();
    }
}

impl Drop for Putter {
    fn drop(&mut self) {
        self.put();
    }
}

#[test]
fn a_waker_may_put_into_the_queue_when_it_is_woken_replaced_or_dropped() {
    for form in Form::ALL {
        let queue = Arc::new(Queue::with_places(form, 2));
        let putter = || Waker::from(Arc::new(Putter(Arc::downgrade(&queue))));
        let mut wait = Wait::new(queue.clone());
        assert!(poll(&mut wait, &putter()).is_pending());
        // The other waker replaces the first one. The drop of that one puts, and so wakes the other one.
        assert!(poll(&mut wait, Waker::noop()).is_pending());
        assert_eq!((queue.len(), queue.waiting()), (1, 0));
        assert_eq!(poll(&mut wait, Waker::noop()), Poll::Ready(Ok((9, 9))));
        // A wake-up puts once, and the drop of the waker once more.
        let mut wait = Wait::new(queue.clone());
        assert!(poll(&mut wait, &putter()).is_pending());
        queue.client(0).put(1, 1).unwrap();
        assert_eq!((queue.len(), queue.waiting()), (3, 0));
        assert_eq!(queue.drain().len(), 3);
        // A wait that is cancelled drops its waker.
        assert!(poll(&mut wait, &putter()).is_pending());
        drop(wait);
        assert_eq!((queue.len(), queue.waiting()), (1, 0));
    }
}

#[test]
fn a_leaked_element_keeps_the_work_from_being_done_and_a_close_ends_the_waits() {
    for form in Form::ALL {
        let queue = Queue::with_places(form, 2);
        queue.client(0).put(1, 1).unwrap();
        std::mem::forget(queue.client(1).take());
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(bell.clone());
        let mut wait = WaitTaken::at(&queue, 1);
        assert!(poll(&mut wait, &waker).is_pending());
        queue.client(0).put(2, 2).unwrap();
        assert_eq!(bell.0.load(SeqCst), 1);
        assert_eq!(queue.client(0).get(), Some((2, 2)));
        assert!(poll(&mut wait, &waker).is_pending());
        assert!(queue.is_empty() && !queue.is_done());
        queue.close();
        assert_eq!(bell.0.load(SeqCst), 2);
        assert_eq!(poll(&mut wait, &waker), Poll::Ready(Err(End::Closed)));
    }
}

#[test]
fn an_element_may_be_finished_on_another_thread() {
    for form in Form::ALL {
        let queue = Queue::with_places(form, 2);
        queue.client(0).put(1, String::from("work")).unwrap();
        let bell = Arc::new(Bell::default());
        let mut wait = WaitTaken::new(&queue);
        let mut taken = queue.client(1).take().unwrap();
        assert!(poll(&mut wait, &Waker::from(bell.clone())).is_pending());
        taken.push_str(", done");
        assert_eq!((taken.priority(), taken.as_str()), (1, "work, done"));
        thread::scope(|threads| threads.spawn(move || drop(taken)).join().unwrap());
        assert!(queue.is_done());
        assert_eq!(bell.0.load(SeqCst), 1);
        assert_eq!(poll(&mut wait, Waker::noop()).map(|end| end.unwrap_err()), Poll::Ready(End::Done));
    }
}

#[test]
fn waiters_for_an_element_sleep_on_when_the_queue_gets_empty() {
    let queue = Queue::with_places(Form::Local, 2);
    let bells: Vec<Arc<Bell>> = (0..3).map(|_| Arc::default()).collect();
    let mut waits: Vec<_> = (0..3).map(|_| Wait::new(&queue)).collect();
    for (wait, bell) in waits.iter_mut().zip(&bells) {
        assert!(poll(wait, &Waker::from(bell.clone())).is_pending());
    }
    queue.client(0).put(1, 1).unwrap();
    assert_eq!(queue.client(1).get(), Some((1, 1)));
    let rings: Vec<usize> = bells.iter().map(|bell| bell.0.load(SeqCst)).collect();
    assert_eq!((rings, queue.waiting()), (vec![1, 0, 0], 2));
}

#[test]
fn the_waiter_that_has_slept_longest_is_woken_first_also_of_two_kinds() {
    let queue = Queue::with_places(Form::Strict, 1);
    queue.client(0).put(0, 0).unwrap();
    let unfinished = queue.client(0).take_raw();
    let bells: Vec<Arc<Bell>> = (0..4).map(|_| Arc::default()).collect();
    let wakers: Vec<Waker> = bells.iter().map(|bell| Waker::from(bell.clone())).collect();
    let (mut first, mut second) = (Wait::new(&queue), WaitTaken::new(&queue));
    let (mut third, mut fourth) = (WaitTaken::new(&queue), Wait::new(&queue));
    assert!(poll(&mut first, &wakers[0]).is_pending() && poll(&mut second, &wakers[1]).is_pending());
    assert!(poll(&mut third, &wakers[2]).is_pending() && poll(&mut fourth, &wakers[3]).is_pending());
    for woken in 1..=4 {
        queue.client(0).put(woken, woken).unwrap();
        let rings: Vec<usize> = bells.iter().map(|bell| bell.0.load(SeqCst)).collect();
        assert_eq!(rings, (0..4).map(|at| usize::from(at < woken as usize)).collect::<Vec<_>>());
    }
    assert!(unfinished.is_some());
}

#[test]
fn the_extreme_priorities_come_in_order_in_each_form() {
    for form in Form::ALL {
        for which in WhichPriority::ALL {
            let queue = Queue::with_places(form, 1);
            queue.set_which_priority(which);
            let client = queue.client(0);
            assert_eq!((client.is_empty(), queue.first_priority()), (true, None));
            for alone in [0, u64::MAX] {
                client.put(alone, ()).unwrap();
                assert_eq!((queue.first_priority(), queue.is_empty()), (Some(alone), false), "{form:?}");
                assert_eq!(client.is_empty(), form == Form::Strict, "{form:?} {which:?} {alone}");
                assert_eq!(client.get(), Some((alone, ())));
            }
            [u64::MAX, 0, 1, u64::MAX - 1, u64::MAX, 0].iter().for_each(|it| client.put(*it, ()).unwrap());
            let mut got: Vec<u64> = std::iter::from_fn(|| client.get()).map(|(it, ())| it).collect();
            if form == Form::Relaxed {
                got.sort_unstable();
            } else if which == WhichPriority::Highest {
                got.reverse();
            }
            assert_eq!(got, [0, 0, 1, u64::MAX - 1, u64::MAX, u64::MAX], "{form:?} {which:?}");
        }
    }
}

#[test]
fn a_queue_of_one_place_and_one_of_a_thousand_find_their_elements() {
    for form in Form::ALL {
        let one = Queue::with_places(form, 1);
        (0..50).for_each(|n| one.client(0).put(n, n).unwrap());
        assert_eq!(std::iter::from_fn(|| one.client(0).get()).count(), 50);
        let many = Queue::with_places(form, 1000);
        for place in [999, 0, 500] {
            many.client(place).put(7, place).unwrap();
            assert_eq!(
                (many.len(), many.client(1).get(), many.client(998).get()),
                (1, Some((7, place)), None)
            );
        }
        (0..1000).for_each(|place| many.client(place).put(place as u64, place).unwrap());
        many.set_form(Form::Strict);
        let got: Vec<usize> = std::iter::from_fn(|| many.client(3).get()).map(|(_, it)| it).collect();
        assert!(got.is_sorted() && got.len() == 1000, "{form:?}");
        assert!(catch_unwind(AssertUnwindSafe(|| many.client(1000).put(0, 0))).is_err());
    }
    assert!(catch_unwind(|| Queue::<u8>::with_places(Form::Strict, 0)).is_err());
}

#[test]
fn a_queue_may_be_dropped_with_waiters_that_sleep() {
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(bell.clone());
    let queue = Arc::new(Queue::<u8>::with_places(Form::Local, 2));
    let mut owning = Wait::new(queue.clone());
    assert!(poll(&mut owning, &waker).is_pending());
    drop(queue);
    drop(owning);
    let queue = Queue::<u8>::with_places(Form::Local, 2);
    let mut leaked = Wait::new(&queue);
    assert!(poll(&mut leaked, &waker).is_pending());
    std::mem::forget(leaked);
    assert_eq!(queue.waiting(), 1);
    drop((queue, waker));
    assert_eq!((Arc::strong_count(&bell), bell.0.load(SeqCst)), (1, 0));
}

#[test]
fn a_wait_that_has_ended_may_be_polled_again() {
    let queue = Queue::with_places(Form::Relaxed, 2);
    queue.client(0).put(1, 1).unwrap();
    let mut wait = Wait::new(&queue);
    assert_eq!(poll(&mut wait, Waker::noop()), Poll::Ready(Ok((1, 1))));
    assert!(poll(&mut wait, Waker::noop()).is_pending());
    queue.close();
    assert_eq!(poll(&mut wait, Waker::noop()), Poll::Ready(Err(Closed)));
    assert_eq!(poll(&mut wait, Waker::noop()), Poll::Ready(Err(Closed)));
}

#[test]
fn extreme_attributes_lose_no_element() {
    for form in Form::ALL {
        for extreme in [0, 1, usize::MAX] {
            for (topology, insertion) in Topology::ALL.into_iter().zip(Insertion::ALL.into_iter().cycle()) {
                let queue = Queue::with_places(form, 3);
                queue.attributes().set_balance_every(extreme);
                queue.attributes().set_stickiness(extreme);
                queue.attributes().set_topology(topology);
                queue.attributes().set_insertion(insertion);
                (0..60).for_each(|n| queue.client(n as usize % 3).put(n, n).unwrap());
                let mut got: Vec<u64> =
                    (0..60).map(|n| queue.client(n % 2).get().unwrap_or_else(|| panic!("{n}")).0).collect();
                got.sort_unstable();
                assert!(got.into_iter().eq(0..60), "{form:?} {extreme} {topology:?} {insertion:?}");
                assert_eq!(queue.client(2).get(), None);
            }
        }
    }
}

#[test]
fn values_without_a_size_and_large_ones_are_kept() {
    for form in Form::ALL {
        let queue = Queue::with_places(form, 2);
        (0..100).for_each(|n| queue.client(n as usize % 2).put(n, ()).unwrap());
        assert_eq!((queue.len(), queue.drain().len(), queue.len()), (100, 100, 0));
        let large = Queue::with_places(form, 2);
        (0..40_u8).for_each(|n| large.client(usize::from(n) % 2).put(u64::from(n), [n; 4096]).unwrap());
        let count = std::iter::from_fn(|| large.client(0).get())
            .inspect(|(priority, value)| assert!(value.iter().all(|byte| u64::from(*byte) == *priority)));
        assert_eq!(count.count(), 40);
    }
}
