//! Models of the queue, and their twins with one weakened site.

#[cfg(loom)]
use super::sites;
use super::{Client, Closed, End, Form, Insertion, Queue, Wait, WaitTaken, WhichPriority};
use squall_sys::sync::{Arc, StdArc, thread};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

type Shared = Arc<Queue<u64>>;

/// A queue in a model whose places have joined, with elements of these priorities at these places.
fn queue(form: Form, places: usize, elements: &[(usize, u64)]) -> Shared {
    let queue = Queue::make(form, places);
    (0..places).for_each(|at| _ = queue.client(at));
    elements.iter().for_each(|(at, priority)| put(&queue, *at, *priority));
    Arc::new(queue)
}

fn put(queue: &Queue<u64>, at: usize, priority: u64) {
    queue.client(at).put(priority, priority).unwrap();
}

fn get(queue: &Queue<u64>, at: usize) -> Option<u64> {
    queue.client(at).get().map(|(priority, value)| {
        assert_eq!(priority, value);
        priority
    })
}

/// A thread that works with the queue.
fn thread<R: Send + 'static>(
    queue: &Shared,
    work: impl FnOnce(&Queue<u64>) -> R + Send + 'static,
) -> thread::JoinHandle<R> {
    let queue = queue.clone();
    thread::spawn(move || work(&queue))
}

/// Counts its wake-ups. Loom does not see it: a model reads it after it has joined the threads.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: StdArc<Bell>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Polls a wait once. It must sleep.
fn sleeps<F: Future + Unpin>(wait: &mut F) -> StdArc<Bell> {
    let bell = StdArc::new(Bell::default());
    let waker = Waker::from(bell.clone());
    assert!(Pin::new(wait).poll(&mut Context::from_waker(&waker)).is_pending());
    bell
}

fn rings(bell: &Bell) -> usize {
    bell.0.load(Ordering::Relaxed)
}

/// A client puts an element at one place and then takes one of another. The queue is never empty. The other
/// client looks at the places in the order 2, 0, 1.
fn stays_filled(form: Form) {
    let queue = queue(form, 3, &[(1, 1)]);
    let other = thread(&queue, |queue| {
        put(queue, 0, 2);
        get(queue, 1)
    });
    let got = get(&queue, 2);
    assert!(got.is_some(), "empty, although an element was there all the time");
    let got = [got, other.join().unwrap(), get(&queue, 0)];
    assert!(got.contains(&Some(1)) && got.contains(&Some(2)) && got.contains(&None));
}

fn never_empty() {
    stays_filled(Form::Local);
}

fn never_empty_relaxed() {
    stays_filled(Form::Relaxed);
}

/// A client puts an element and then takes another one. A second client looks, without locks, whether the
/// queue is empty, and whether the work is done.
fn looks_filled() {
    let queue = queue(Form::Local, 2, &[(1, 1)]);
    let other = thread(&queue, |queue| {
        put(queue, 0, 2);
        get(queue, 1)
    });
    assert!(!queue.is_empty(), "empty, although an element was there all the time");
    assert!(!queue.is_done(), "done, although an element was there all the time");
    assert_eq!(other.join().unwrap(), Some(1));
}

/// A client takes one of three elements, and its balancing moves another. Meanwhile a second client gets two.
fn in_transit() {
    let queue = queue(Form::Local, 3, &[(0, 1), (0, 2), (0, 3)]);
    queue.attributes().set_balance_every(1);
    let mover = thread(&queue, |queue| get(queue, 0));
    for _ in 0..2 {
        assert!(get(&queue, 2).is_some(), "empty, although an element was there all the time");
    }
    assert!(mover.join().unwrap().is_some());
    assert_eq!(get(&queue, 1), None);
}

/// Balancing puts an element at another place, and its client takes the only other one.
fn balanced_put() {
    let queue = queue(Form::Local, 3, &[(1, 1)]);
    queue.attributes().set_insertion(Insertion::LoadBalance);
    queue.attributes().set_balance_every(1);
    let other = thread(&queue, |queue| {
        put(queue, 2, 2);
        get(queue, 1)
    });
    assert!(get(&queue, 2).is_some(), "empty, although an element was there all the time");
    assert!(other.join().unwrap().is_some());
}

/// A client that comes late makes its place, puts an element there, and takes the only other one.
fn late() {
    let queue = Arc::new(Queue::make(Form::Local, 2));
    put(&queue, 0, 1);
    let other = thread(&queue, |queue| {
        put(queue, 1, 2);
        get(queue, 0)
    });
    let got = get(&queue, 0);
    assert!(got.is_some(), "empty, although an element was there all the time");
    assert!(other.join().unwrap().is_none_or(|it| Some(it) != got));
}

/// A client of an object's representative joins with its first put, while the form becomes strict.
fn joins_while_reformed() {
    let queue = Arc::new(Queue::make(Form::Local, 2));
    put(&queue, 0, 2);
    let other = thread(&queue, |queue| queue.set_form(Form::Strict));
    Client { queue: &queue, place: queue.make_place(1) }.put(1, 1).unwrap();
    other.join().unwrap();
    assert_eq!([get(&queue, 0), get(&queue, 0), get(&queue, 0)], [Some(1), Some(2), None]);
}

/// Such a client joins with its first put, and a get elsewhere finds the element.
fn joins_late() {
    let queue = Arc::new(Queue::make(Form::Local, 2));
    put(&queue, 0, 1);
    let other = thread(&queue, |queue| {
        let client = Client { queue, place: queue.make_place(1) };
        client.put(2, 2).unwrap();
        get(queue, 0)
    });
    let got = get(&queue, 0);
    assert!(got.is_some(), "empty, although an element was there all the time");
    assert!(other.join().unwrap().is_none_or(|it| Some(it) != got));
}

/// The form becomes strict while a client puts. Afterwards both elements are in order.
fn put_while_reformed() {
    let queue = queue(Form::Local, 2, &[(0, 2)]);
    let other = thread(&queue, |queue| queue.set_form(Form::Strict));
    put(&queue, 1, 1);
    other.join().unwrap();
    assert_eq!([get(&queue, 0), get(&queue, 0), get(&queue, 0)], [Some(1), Some(2), None]);
}

/// The form becomes relaxed while a client gets the only element.
fn get_while_reformed() {
    let queue = queue(Form::Strict, 2, &[(0, 1)]);
    let other = thread(&queue, |queue| queue.set_form(Form::Relaxed));
    assert_eq!(get(&queue, 1), Some(1));
    other.join().unwrap();
    assert!(queue.is_empty());
}

/// The form changes twice while a client gets the only element.
fn get_while_reformed_twice() {
    let queue = queue(Form::Local, 2, &[(0, 1)]);
    let other = thread(&queue, |queue| {
        queue.set_form(Form::Strict);
        queue.set_form(Form::Local);
    });
    assert_eq!(get(&queue, 1), Some(1));
    other.join().unwrap();
    assert!(queue.is_empty());
}

/// An element moves to a neighbour while the form becomes strict.
fn balanced_while_reformed() {
    let queue = queue(Form::Local, 2, &[(0, 1), (0, 2), (0, 3)]);
    queue.attributes().set_balance_every(1);
    let other = thread(&queue, |queue| queue.set_form(Form::Strict));
    assert_eq!(get(&queue, 0), Some(1));
    other.join().unwrap();
    assert_eq!([get(&queue, 0), get(&queue, 0), get(&queue, 0)], [Some(2), Some(3), None]);
}

/// The order changes while a client puts. Afterwards both elements are in the new order.
fn put_while_reordered() {
    let queue = queue(Form::Strict, 1, &[(0, 2)]);
    let other = thread(&queue, |queue| queue.set_which_priority(WhichPriority::Highest));
    put(&queue, 0, 3);
    other.join().unwrap();
    assert_eq!([get(&queue, 0), get(&queue, 0)], [Some(3), Some(2)]);
}

/// A put is rejected, or the client that closed the queue gets the element.
fn put_while_closed(form: Form) {
    let queue = queue(form, 2, &[]);
    let other = thread(&queue, |queue| {
        queue.close();
        get(queue, 0)
    });
    let is_put = queue.client(1).put(1, 1).is_ok();
    assert_eq!(other.join().unwrap().is_some(), is_put);
    assert!(queue.is_empty());
}

fn closed_strict() {
    put_while_closed(Form::Strict);
}

fn closed_relaxed() {
    put_while_closed(Form::Relaxed);
}

fn closed_local() {
    put_while_closed(Form::Local);
}

/// A client puts an element and closes the queue. Another one sees the close, and then the element.
fn close_is_seen() {
    let queue = queue(Form::Local, 1, &[]);
    let looker = thread(&queue, |queue| if queue.is_closed() { queue.len() } else { 1 });
    put(&queue, 0, 1);
    queue.close();
    assert_eq!(looker.join().unwrap(), 1, "the queue was closed after an element had come");
}

/// Elements are drained while a client puts one.
fn put_while_drained() {
    let queue = queue(Form::Local, 2, &[(0, 1)]);
    let other = thread(&queue, |queue| queue.drain());
    put(&queue, 1, 2);
    let mut all = other.join().unwrap();
    all.extend(queue.drain());
    assert_eq!(all, [(1, 1), (2, 2)]);
}

/// A client waits, and another one puts.
fn waits(form: Form) {
    let queue = queue(form, 2, &[]);
    let putter = thread(&queue, |queue| put(queue, 1, 1));
    assert_eq!(Wait::at(&*queue, 0).block(), Ok((1, 1)));
    putter.join().unwrap();
}

fn waits_strict() {
    waits(Form::Strict);
}

fn waits_relaxed() {
    waits(Form::Relaxed);
}

fn waits_local() {
    waits(Form::Local);
}

/// Two clients wait, and another one puts two elements.
fn two_wait() {
    let queue = queue(Form::Strict, 1, &[]);
    let waiter = thread(&queue, |queue| Wait::at(queue, 0).block());
    let putter = thread(&queue, |queue| {
        put(queue, 0, 1);
        put(queue, 0, 2);
    });
    let got = Wait::at(&*queue, 0).block().unwrap();
    let other = waiter.join().unwrap().unwrap();
    assert_eq!(got.0 + other.0, 3);
    putter.join().unwrap();
}

/// Two clients sleep. The first one leaves while another client puts an element. Then the second one is
/// woken.
fn passes_on() {
    let queue = queue(Form::Strict, 1, &[]);
    let (mut first, mut second) = (Wait::at(&*queue, 0), Wait::at(&*queue, 0));
    let _first_bell = sleeps(&mut first);
    let bell = sleeps(&mut second);
    let putter = thread(&queue, |queue| put(queue, 0, 1));
    drop(first);
    putter.join().unwrap();
    assert_eq!(rings(&bell), 1, "an element is there, and its waiter sleeps");
    assert_eq!(get(&queue, 0), Some(1));
}

/// A client sleeps, and its wait is polled while another client puts.
fn polled_again() {
    let queue = queue(Form::Strict, 1, &[]);
    let mut wait = Wait::at(&*queue, 0);
    let old_bell = sleeps(&mut wait);
    let putter = thread(&queue, |queue| put(queue, 0, 1));
    let bell = StdArc::new(Bell::default());
    let waker = Waker::from(bell.clone());
    let answer = Pin::new(&mut wait).poll(&mut Context::from_waker(&waker));
    putter.join().unwrap();
    match answer {
        Poll::Ready(answer) => assert_eq!((answer, rings(&bell)), (Ok((1, 1)), 0)),
        Poll::Pending => assert_eq!((rings(&bell), rings(&old_bell)), (1, 0)),
    }
}

/// A client waits while the queue is closed.
fn waits_for_close() {
    let queue = queue(Form::Relaxed, 1, &[]);
    let closer = thread(&queue, Queue::close);
    assert_eq!(Wait::at(&*queue, 0).block(), Err(Closed));
    closer.join().unwrap();
}

/// A client waits. Another one puts an element, and closes the queue. The wait gets the element first.
fn waits_for_the_rest() {
    let queue = queue(Form::Relaxed, 2, &[]);
    let closer = thread(&queue, |queue| {
        put(queue, 1, 1);
        queue.close();
    });
    assert_eq!(Wait::at(&*queue, 0).block(), Ok((1, 1)));
    assert_eq!(Wait::at(&*queue, 0).block(), Err(Closed));
    closer.join().unwrap();
}

/// The queue is closed while a client waits for the end, which does not come.
fn waits_for_end_or_close() {
    let queue = queue(Form::Strict, 1, &[(0, 1)]);
    assert!(queue.client(0).take_raw().is_some());
    let closer = thread(&queue, Queue::close);
    assert_eq!(WaitTaken::at(&*queue, 0).block(), Err(End::Closed));
    closer.join().unwrap();
}

/// Two clients finish the last two elements, while a third one sleeps.
fn two_finish() {
    let queue = queue(Form::Local, 2, &[(0, 1), (1, 2)]);
    assert!(queue.client(0).take_raw().is_some() && queue.client(1).take_raw().is_some());
    let mut wait = WaitTaken::at(&*queue, 0);
    let bell = sleeps(&mut wait);
    let other = thread(&queue, |queue| queue.client(1).finish(1));
    queue.client(0).finish(1);
    other.join().unwrap();
    assert_eq!(rings(&bell), 1, "all is finished, and a waiter sleeps");
    assert_eq!(
        Pin::new(&mut wait).poll(&mut Context::from_waker(Waker::noop())),
        Poll::Ready(Err(End::Done))
    );
}

/// A client waits for the end, and another one finishes the last element.
fn waits_for_the_end() {
    let queue = queue(Form::Strict, 1, &[(0, 1)]);
    assert!(queue.client(0).take_raw().is_some());
    let other = thread(&queue, |queue| queue.client(0).finish(1));
    assert_eq!(WaitTaken::at(&*queue, 0).block(), Err(End::Done));
    other.join().unwrap();
}

/// A client takes the only element, puts another one, and finishes the first. The work is never done.
fn never_early() {
    let queue = queue(Form::Local, 2, &[(1, 1)]);
    let other = thread(&queue, |queue| {
        assert!(queue.client(1).take_raw().is_some());
        put(queue, 0, 2);
        queue.client(1).finish(1);
    });
    assert!(!queue.is_done(), "done, although an element was there or unfinished all the time");
    other.join().unwrap();
    assert!(!queue.is_done());
}

/// Two clients sleep until the end. A put has woken the first one. A plain get removes the element, while
/// another client finishes the only other one: then the second one is woken.
fn plain_get_ends() {
    let queue = queue(Form::Local, 2, &[(0, 1)]);
    assert!(queue.client(0).take_raw().is_some());
    let (mut first, mut second) = (WaitTaken::at(&*queue, 0), WaitTaken::at(&*queue, 0));
    let woken = sleeps(&mut first);
    let bell = sleeps(&mut second);
    put(&queue, 1, 2);
    assert_eq!((rings(&woken), rings(&bell)), (1, 0));
    let other = thread(&queue, |queue| get(queue, 1));
    queue.client(0).finish(1);
    assert_eq!(other.join().unwrap(), Some(2));
    assert_eq!(rings(&bell), 1, "all is finished, and a waiter sleeps");
}

/// A client waits for an element or the end. Another one finishes the last element, and a third one the one
/// that follows from it.
fn works_to_the_end() {
    let queue = queue(Form::Strict, 1, &[(0, 1)]);
    let work = |queue: &Queue<u64>| {
        let mut count = 0;
        while let Ok((priority, _)) = WaitTaken::at(queue, 0).block() {
            if priority == 1 {
                put(queue, 0, 2);
            }
            queue.client(0).finish(1);
            count += 1;
        }
        count
    };
    let other = thread(&queue, work);
    let count = work(&queue);
    assert_eq!(count + other.join().unwrap(), 2);
    assert!(queue.is_done());
}

/// Makes a test of each model, which must hold.
use squall_sys::models;
models! { within 2:
    never_empty never_empty_relaxed looks_filled in_transit balanced_put late joins_late joins_while_reformed
    put_while_reformed get_while_reformed balanced_while_reformed put_while_reordered
    closed_strict closed_relaxed closed_local close_is_seen put_while_drained
    waits_strict waits_relaxed waits_local passes_on polled_again
    waits_for_close waits_for_the_rest waits_for_end_or_close
    two_finish waits_for_the_end never_early plain_get_ends works_to_the_end
}
// With two preemptions they take minutes.
models! { within 1: get_while_reformed_twice two_wait }

/// The light fence of a lock's release in squall-lock, which hides weaknesses from loom. It orders nothing if
/// the lock is quick.
#[cfg(loom)]
const LIGHT: squall_sys::sync::weaken::Site = squall_sys::sync::weaken::Site(2);

#[cfg(loom)]
#[test]
fn twins() {
    use sites::*;
    for (site, masks, model) in [
        (COUNT, &[LIGHT, LOOK][..], "looks_filled"),
        (REMOVED, &[], "looks_filled"),
        (BEFORE, &[], "never_empty"),
        (MOVE, &[], "balanced_while_reformed"),
        (STATE, &[], "put_while_reformed"),
        (STATE, &[], "put_while_reordered"),
        (STATE, &[], "closed_local"),
        (ALL, &[], "put_while_reformed"),
        (CLOSE, &[LIGHT, LOOK], "close_is_seen"),
        (CLOSED, &[], "close_is_seen"),
        (CLOSED, &[], "waits_for_the_rest"),
        (FINISH, &[LIGHT, LOOK], "never_early"),
        (FINISHED, &[], "never_early"),
        // The look for waiters makes a full fence here, but not on a machine with `membarrier`.
        (LAST, &[LOOK], "two_finish"),
        (ANNOUNCE, &[], "waits_relaxed"),
        (ANNOUNCE, &[], "waits_for_close"),
        (LOOK, &[], "waits_for_the_end"),
        (RECHECK, &[], "waits_strict"),
        (PASS, &[], "passes_on"),
        (END, &[], "two_finish"),
        (END, &[], "plain_get_ends"),
    ] {
        squall_sys::sync::weaken::twin(site, masks, &format!("queue::model::{model}::holds"));
    }
}
