//! Models of lanes, bell, receiver and the tasks of a dispatcher, and their twins with one weakened site.

use crate::bell::Bell;
use crate::capability::{Alias, Capability};
use crate::handover;
use crate::lane::{Cursor, Lane, Look, Refused, Sent};
use crate::post::{Post, Route};
use crate::receiver::Receiver;
#[cfg(loom)]
use crate::sites;
use crate::stats::Counts;
use crate::tasks::{New, Queue, Tasks, Wish};
use squall_machine::unpark::Unpark;
use squall_sys::sync::atomic::{AtomicU64, Ordering};
use squall_sys::sync::handed::Handed;
use squall_sys::sync::{Arc, StdArc, thread};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

type TestLane = Lane<Box<[Handed]>>;

fn lane(words: usize) -> (Arc<TestLane>, Cursor) {
    let (lane, cursor) = Lane::new((0..words).map(|_| Handed::new(0)).collect());
    (Arc::new(lane), cursor)
}

fn spawn<R: Send + 'static>(
    lane: &Arc<TestLane>,
    f: impl FnOnce(&TestLane) -> R + Send + 'static,
) -> thread::JoinHandle<R> {
    let lane = lane.clone();
    thread::spawn(move || f(&lane))
}

/// Receives one message of 8 bytes.
fn receive(lane: &TestLane, cursor: &mut Cursor) -> u64 {
    let mut buffer = Vec::new();
    while lane.receive(cursor, &mut buffer) == Look::Nothing {
        thread::yield_now();
    }
    u64::from_le_bytes(buffer.try_into().unwrap())
}

fn send(lane: &TestLane, value: u64) {
    while let Err(refused) = lane.send(&value.to_le_bytes(), false) {
        assert_eq!(refused, Refused::Full);
        thread::yield_now();
    }
}

/// Messages of one sender arrive whole and in order, through a lane with room for one.
fn in_order() {
    let (lane, mut cursor) = lane(2);
    let sender = spawn(&lane, |lane| {
        send(lane, 5);
        send(lane, 6);
    });
    assert_eq!(receive(&lane, &mut cursor), 5);
    assert_eq!(receive(&lane, &mut cursor), 6);
    sender.join().unwrap();
}

/// Two senders use the words that the receiver has freed. One may learn of the room from the other.
fn two_senders() {
    let (lane, mut cursor) = lane(4);
    send(&lane, 1);
    send(&lane, 2);
    let senders =
        [10, 20].map(|value| spawn(&lane, move |lane: &TestLane| lane.send(&[value], false).is_ok()));
    assert_eq!(receive(&lane, &mut cursor), 1);
    assert_eq!(receive(&lane, &mut cursor), 2);
    for sender in senders {
        let _ = sender.join().unwrap();
    }
}

/// A lane is made quiet while a message comes. The message is seen, or its sender rings.
fn quiet() {
    let (lane, mut cursor) = lane(2);
    send(&lane, 1);
    assert_eq!(receive(&lane, &mut cursor), 1);
    let sender = spawn(&lane, |lane| lane.send(&[1], false).unwrap() == Sent::Rings);
    let quiet = lane.quiet(&mut cursor);
    let rings = sender.join().unwrap();
    assert_eq!(quiet, rings);
}

/// A capability ends while a message is sent: it is refused or arrives, and no later one arrives.
fn closed() {
    let (lane, mut cursor) = lane(4);
    let sender = spawn(&lane, |lane| [lane.send(&[1], false).is_ok(), lane.send(&[2], false).is_ok()]);
    lane.close();
    let mut buffer = Vec::new();
    let mut received = 0;
    while !lane.is_over(&cursor) {
        match lane.receive(&mut cursor, &mut buffer) {
            Look::Message => received += 1,
            Look::Nothing => thread::yield_now(),
        }
    }
    let sent = sender.join().unwrap();
    assert_eq!(received, sent.into_iter().filter(|sent| *sent).count());
    assert!(sent[0] || !sent[1]);
}

/// Two senders share a capability for one message: one succeeds.
fn once() {
    let (lane, mut cursor) = lane(4);
    let other = spawn(&lane, |lane| lane.send(&7_u64.to_le_bytes(), true).is_ok());
    let sent = lane.send(&7_u64.to_le_bytes(), true).is_ok();
    assert_eq!(receive(&lane, &mut cursor), 7);
    assert!(lane.is_over(&cursor));
    assert!(other.join().unwrap() != sent);
}

/// A sender sleeps until there is room.
fn waits_for_room() {
    let (lane, mut cursor) = lane(2);
    send(&lane, 1);
    let sender = spawn(&lane, |lane| {
        let waker = Unpark::waker();
        while lane.send(&2_u64.to_le_bytes(), false) == Err(Refused::Full) {
            if lane.wait_for_room(8, &waker).is_some() {
                thread::park();
            }
        }
    });
    assert_eq!(receive(&lane, &mut cursor), 1);
    lane.free(&mut cursor);
    sender.join().unwrap();
}

/// Two lanes of one word of the bell ring while the receiver answers and sleeps.
fn rings() {
    let bell = Arc::new(Bell::new());
    let ringers = [0, 1].map(|number| {
        let bell = bell.clone();
        thread::spawn(move || bell.ring(number))
    });
    let waker = Unpark::waker();
    let mut rung = [false; 2];
    while rung != [true; 2] {
        bell.answer(|number| rung[number] = true);
        if rung != [true; 2] && bell.sleep(&waker) {
            thread::park();
        }
    }
    for ringer in ringers {
        ringer.join().unwrap();
    }
}

/// The answer sees a word that the ringer wrote before.
fn ring_is_seen() {
    let shared = Arc::new((Bell::new(), Handed::new(0)));
    let ringer = {
        let shared = shared.clone();
        thread::spawn(move || {
            shared.1.set(1);
            shared.0.ring(0);
        })
    };
    shared.0.answer(|_| assert_eq!(shared.1.get(), 1));
    ringer.join().unwrap();
}

fn post() -> (Arc<Post>, Receiver) {
    let alias = Alias::from_bytes([0; 16]);
    #[cfg(loom)]
    let post = Arc::new(Post::new(alias, 4));
    #[cfg(not(loom))]
    let post = Arc::new(Post::new(alias, 4, squall_machine::ClusterSize::Machine));
    (post.clone(), Receiver::new(post))
}

fn route(post: &Post, key: u8) -> Route {
    let capability = Capability::from_bytes([key; 16]);
    assert!(post.grant(capability, u64::from(key), false));
    post.route(capability, 0).unwrap()
}

fn send_by(post: &Post, route: &Route) -> bool {
    match route.lane.send(&[1], route.once) {
        Ok(sent) => {
            if sent == Sent::Rings {
                post.bell.ring(route.number);
            }
            true
        }
        Err(refused) => {
            assert_eq!(refused, Refused::Closed);
            false
        }
    }
}

fn sleep_until_message(receiver: &mut Receiver) {
    let waker = Unpark::waker();
    while !receiver.look() {
        if receiver.sleep(&waker) {
            thread::park();
        } else {
            thread::yield_now();
        }
    }
}

/// Two senders with lanes of their own wake the receiver.
fn wakes() {
    let (post, mut receiver) = post();
    let senders = [1, 2].map(|key| {
        let (post, route) = (post.clone(), route(&post, key));
        thread::spawn(move || assert!(send_by(&post, &route)))
    });
    sleep_until_message(&mut receiver);
    sleep_until_message(&mut receiver);
    assert!(!receiver.look());
    for sender in senders {
        sender.join().unwrap();
    }
}

/// A sender sends twice, while the receiver makes its lane quiet in between.
fn wakes_again() {
    let (post, mut receiver) = post();
    let route = route(&post, 1);
    let sender = {
        let post = post.clone();
        thread::spawn(move || {
            assert!(send_by(&post, &route));
            assert!(send_by(&post, &route));
        })
    };
    sleep_until_message(&mut receiver);
    sleep_until_message(&mut receiver);
    sender.join().unwrap();
}

/// A capability is removed while a message is sent. Afterwards its lane is gone, and no message is lost.
fn removed() {
    let (post, mut receiver) = post();
    let way = route(&post, 1);
    let sender = {
        let post = post.clone();
        thread::spawn(move || send_by(&post, &way))
    };
    assert!(post.revoke(Capability::from_bytes([1; 16])));
    let mut received = 0;
    while post.counts() != (0, 0) {
        if receiver.look() { received += 1 } else { thread::yield_now() }
    }
    assert_eq!(received, usize::from(sender.join().unwrap()));
}

/// A capability is removed and granted again while the receiver forgets its old lane. The new grant stays,
/// with its lane, and can be removed.
fn granted_again() {
    let (post, mut receiver) = post();
    let capability = Capability::from_bytes([1; 16]);
    assert!(send_by(&post, &route(&post, 1)));
    let owner = {
        let post = post.clone();
        thread::spawn(move || {
            assert!(post.revoke(capability));
            assert!(post.grant(capability, 2, false));
            post.route(capability, 0).unwrap()
        })
    };
    sleep_until_message(&mut receiver);
    assert_eq!(receiver.message().1, 1);
    assert!(!receiver.look());
    let way = owner.join().unwrap();
    while post.counts() != (1, 1) {
        assert_eq!(post.counts().0, 1);
        assert!(!receiver.look());
        thread::yield_now();
    }
    assert!(send_by(&post, &way));
    sleep_until_message(&mut receiver);
    assert_eq!(receiver.message().1, 2);
    assert!(post.revoke(capability));
    assert!(!send_by(&post, &way));
}

/// A task waits for work that another thread does.
fn handed_over() {
    let (giver, mut taker) = handover::handover();
    let worker = thread::spawn(move || giver.give(7));
    let waker = Unpark::waker();
    let mut context = Context::from_waker(&waker);
    let result = loop {
        match Pin::new(&mut taker).poll(&mut context) {
            Poll::Ready(result) => break result,
            Poll::Pending => thread::park(),
        }
    };
    assert_eq!(result, Some(7));
    worker.join().unwrap();
}

/// The work is dropped without a result.
fn dropped_work() {
    let (giver, mut taker) = handover::handover::<u8>();
    let worker = thread::spawn(move || drop(giver));
    let waker = Unpark::waker();
    while Pin::new(&mut taker).poll(&mut Context::from_waker(&waker)).is_pending() {
        thread::park();
    }
    worker.join().unwrap();
}

/// Sends, and sleeps while the lane is full. Returns whether the message was sent before the lane was closed.
fn send_or_sleep(lane: &TestLane) -> bool {
    let waker = Unpark::waker();
    loop {
        match lane.send(&[2], false) {
            Err(Refused::Full) if lane.wait_for_room(1, &waker).is_some() => thread::park(),
            Err(Refused::Full) => thread::yield_now(),
            sent => return sent.is_ok(),
        }
    }
}

/// A lane is closed while a sender waits for room in it. The wait ends.
fn closed_in_a_wait() {
    let (lane, _cursor) = lane(2);
    send(&lane, 1);
    let sender = spawn(&lane, send_or_sleep);
    lane.close();
    assert!(!sender.join().unwrap());
}

/// One of two waits for room is cancelled while room comes. The other one ends.
fn cancelled_wait_for_room() {
    let (lane, mut cursor) = lane(2);
    send(&lane, 1);
    // Never polled again.
    let ticket = lane.wait_for_room(8, Waker::noop()).unwrap();
    let sender = spawn(&lane, send_or_sleep);
    let receiver = spawn(&lane, move |lane| {
        assert_eq!(receive(lane, &mut cursor), 1);
        lane.free(&mut cursor);
    });
    lane.forget(ticket);
    receiver.join().unwrap();
    assert!(sender.join().unwrap());
}

/// A sleep of the receiver is cancelled while a message comes. The next sleep does not miss it.
fn cancelled_sleep() {
    let (post, mut receiver) = post();
    let route = route(&post, 1);
    let sender = {
        let post = post.clone();
        thread::spawn(move || assert!(send_by(&post, &route)))
    };
    if receiver.sleep(&Unpark::waker()) {
        post.bell.awake();
    }
    sleep_until_message(&mut receiver);
    sender.join().unwrap();
}

/// A task that ends once `number` wake-ups have come, and gives its waker to `wakers` first.
fn dispatcher(number: u64) -> (Tasks, StdArc<Queue>, StdArc<AtomicU64>, Waker) {
    let queue = StdArc::new(Queue::new());
    let mut tasks = Tasks::new(queue.clone(), Rc::new(Counts::default()));
    let (came, waker) = (StdArc::new(AtomicU64::new(0)), Rc::new(std::cell::RefCell::new(None)));
    let (looks, gives) = (came.clone(), waker.clone());
    let work = Box::pin(std::future::poll_fn(move |task| {
        if gives.borrow().is_none() {
            *gives.borrow_mut() = Some(task.waker().clone());
            return Poll::Pending;
        }
        // Relaxed: the wake-up orders it, and the model fails if it does not.
        if looks.load(Ordering::Relaxed) == number { Poll::Ready(()) } else { Poll::Pending }
    }));
    tasks.add(New { work, label: 0, class: None });
    assert!(step(&mut tasks));
    let waker = waker.borrow().clone().unwrap();
    (tasks, queue, came, waker)
}

fn step(tasks: &mut Tasks) -> bool {
    tasks.next().map(|(slot, _)| tasks.run(slot)).is_some()
}

/// Two threads wake a task that looks for both. No wake-up is lost, and no sleep misses one.
fn wakes_task() {
    let (mut tasks, queue, came, waker) = dispatcher(2);
    let wakers = [0, 1].map(|_| {
        let (came, waker) = (came.clone(), waker.clone());
        thread::spawn(move || {
            came.fetch_add(1, Ordering::Relaxed);
            waker.wake_by_ref();
        })
    });
    let unpark = Unpark::waker();
    while !tasks.is_empty() {
        if !step(&mut tasks) && queue.sleep(&unpark, Wish::Serve) {
            thread::park();
        }
    }
    wakers.into_iter().for_each(|waker| waker.join().unwrap());
}

/// Another thread asks for the end of a dispatcher that goes to sleep.
fn asks_for_the_end() {
    let queue = StdArc::new(Queue::new());
    let asks = {
        let queue = queue.clone();
        thread::spawn(move || {
            queue.ask(Wish::Stop);
            // A wish never shrinks.
            queue.ask(Wish::Drain);
        })
    };
    let unpark = Unpark::waker();
    while queue.wish() == Wish::Serve {
        if queue.sleep(&unpark, Wish::Serve) {
            thread::park();
        }
    }
    asks.join().unwrap();
    assert_eq!(queue.wish(), Wish::Stop);
}

squall_sys::models! { "model":
    in_order: SEND, RECEIVE, FREE, CLEAR;
    two_senders: ROOM, ROOM_SEEN;
    quiet: EMPTY;
    closed: ;
    once: ;
    waits_for_room: WANTED, TELL;
    rings: SLEEP;
    ring_is_seen: RING, LOOK;
    wakes: QUIET;
    wakes_again: ;
    removed: ;
    granted_again: OWN_GRANT;
    handed_over: LEFT;
    dropped_work: ;
    closed_in_a_wait: CLOSE_TELLS, WAIT_OPEN;
    cancelled_wait_for_room: WAKE_ALL;
    cancelled_sleep: KEEP_RINGS;
    wakes_task: TASK_WOKEN, TASK_RUNS, TASKS_EMPTY;
    asks_for_the_end: WISH;
}
