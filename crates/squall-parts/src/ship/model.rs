//! Models of inboxes, their staff and the end of a round, and their twins with one weakened site.

use super::inbox::{Inbox, Slot, Slots, Taken, Ticket};
#[cfg(loom)]
use super::sites;
use super::staff::Staff;
use super::tally::Tally;
use crate::unpark::Unpark;
use squall_sys::sync::cell::UnsafeCell;
use squall_sys::sync::{Arc, thread};
use std::task::Waker;

struct World {
    inbox: Inbox,
    staff: Staff,
}

fn world(slots: usize) -> Arc<World> {
    let slots = Slots::Owned((0..slots).map(|_| Slot::new()).collect());
    Arc::new(World { inbox: Inbox::new(slots), staff: Staff::new() })
}

fn spawn<R, F>(world: &Arc<World>, f: F) -> thread::JoinHandle<R>
where
    R: Send + 'static,
    F: FnOnce(&Arc<World>) -> R + Send + 'static,
{
    let world = world.clone();
    thread::spawn(move || f(&world))
}

/// A server that takes one call, if there is one, and runs it.
fn serve_once(world: &Arc<World>) -> bool {
    world.inbox.take().map(|taken| world.inbox.run(taken)).is_some()
}

/// A cell that calls change, one after the other.
struct Changed(UnsafeCell<u32>);

// SAFETY: the runs of a call are ordered (`inbox/I5`).
unsafe impl Send for Changed {}
// SAFETY: as for `Send`.
unsafe impl Sync for Changed {}

fn serve_all(world: &Arc<World>, calls: usize) {
    let mut done = 0;
    while done < calls {
        if serve_once(world) { done += 1 } else { thread::yield_now() }
    }
}

fn send(world: &Arc<World>, value: u32) -> Ticket {
    world.inbox.send(move || value).ok().expect("the inbox is full")
}

fn result(world: &Arc<World>, ticket: Ticket) -> u32 {
    // SAFETY: the calls of the models return `u32`.
    unsafe { world.inbox.take_result::<u32>(ticket) }.unwrap()
}

fn sleep(world: &Arc<World>, ticket: &Ticket) {
    let mut done = world.inbox.watch(ticket, &Unpark::waker());
    while !done {
        thread::park();
        done = world.inbox.is_done(ticket);
    }
}

/// A sender looks for its result, and then uses the only slot again.
fn sent_twice() {
    let world = world(1);
    let server = spawn(&world, |world| serve_all(world, 2));
    for value in [3, 4] {
        let ticket = send(&world, value);
        while !world.inbox.is_done(&ticket) {
            thread::yield_now();
        }
        assert_eq!(result(&world, ticket), value);
    }
    server.join().unwrap();
    assert_eq!(world.inbox.free_count(), 1);
}

/// Two senders use the only slot one after the other. The second one claims the slot that the first freed.
fn two_senders() {
    let world = world(1);
    let sender = spawn(&world, |world| {
        let ticket = loop {
            match world.inbox.send(|| 7_u32) {
                Ok(ticket) => break ticket,
                Err(_) => thread::yield_now(),
            }
        };
        world.inbox.cancel(ticket).is_ok()
    });
    if let Ok(ticket) = world.inbox.send(|| 8_u32) {
        assert!(world.inbox.cancel(ticket).is_ok());
    }
    assert!(sender.join().unwrap());
    assert_eq!(world.inbox.free_count(), 1);
}

/// A sender sleeps until a server wakes it.
fn watched() {
    let world = world(1);
    let ticket = send(&world, 5);
    let server = spawn(&world, |world| assert!(serve_once(world)));
    sleep(&world, &ticket);
    assert_eq!(result(&world, ticket), 5);
    server.join().unwrap();
}

/// A sender leaves a waker, and then another one, while the call ends. The second one wakes it.
fn watched_twice() {
    let world = world(1);
    let ticket = send(&world, 5);
    let server = spawn(&world, |world| assert!(serve_once(world)));
    let _ = world.inbox.watch(&ticket, Waker::noop());
    sleep(&world, &ticket);
    assert_eq!(result(&world, ticket), 5);
    server.join().unwrap();
}

/// A sender watches a call and cancels it, and watches the next one in the same slot, while a server takes.
fn cancelled_and_watched() {
    let world = world(1);
    let first = send(&world, 5);
    let server = spawn(&world, |world| u32::from(serve_once(world)) + u32::from(serve_once(world)));
    let _ = world.inbox.watch(&first, Waker::noop());
    let begun = world.inbox.cancel(first).map_err(|first| world.inbox.detach(first)).is_err();
    if !begun {
        let second = send(&world, 6);
        if !world.inbox.watch(&second, &Unpark::waker()) && !serve_once(&world) {
            sleep(&world, &second);
        }
        assert_eq!(result(&world, second), 6);
    }
    assert!(server.join().unwrap() <= 1);
    assert_eq!(world.inbox.free_count(), 1);
}

/// A sender watches a call and gives it up. The slot serves the next call, and its sender sleeps.
fn detached() {
    let world = world(1);
    let first = send(&world, 5);
    let server = spawn(&world, |world| serve_all(world, 2));
    assert!(!world.inbox.watch(&first, Waker::noop()) || world.inbox.is_done(&first));
    world.inbox.detach(first);
    let second = loop {
        match world.inbox.send(|| 6_u32) {
            Ok(ticket) => break ticket,
            Err(_) => thread::yield_now(),
        }
    };
    sleep(&world, &second);
    assert_eq!(result(&world, second), 6);
    server.join().unwrap();
    assert_eq!(world.inbox.free_count(), 1);
}

/// A sender cancels while a server takes: the call runs or is dropped, and the slot is free at the end.
fn cancelled() {
    let world = world(1);
    let call = StdCount::default();
    let held = call.clone();
    let ticket = world.inbox.send(move || held.run()).ok().unwrap();
    let server = spawn(&world, serve_once);
    if let Err(ticket) = world.inbox.cancel(ticket) {
        world.inbox.detach(ticket);
    }
    let served = server.join().unwrap();
    assert_eq!((u32::from(served), 1), (call.runs(), call.links()));
    assert_eq!(world.inbox.free_count(), 1);
}

/// Counts runs, and the closures that hold it. Of std, since no protocol depends on it.
#[derive(Clone, Default)]
struct StdCount(squall_sys::sync::StdArc<std::sync::atomic::AtomicU32>);

impl StdCount {
    fn run(&self) -> u32 {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    }
    fn runs(&self) -> u32 {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
    fn links(&self) -> usize {
        squall_sys::sync::StdArc::strong_count(&self.0)
    }
}

/// Two servers take from an inbox with two calls: each call runs once.
fn two_servers() {
    let world = world(2);
    let tickets = [send(&world, 1), send(&world, 2)];
    let server = spawn(&world, serve_once);
    let here = serve_once(&world);
    assert!(here && server.join().unwrap());
    let sum: u32 = tickets.map(|ticket| result(&world, ticket)).into_iter().sum();
    assert_eq!(sum, 3);
}

/// A call runs twice, perhaps on two servers, and its sender gives it up meanwhile.
fn repeated() {
    let world = world(1);
    let changed = Changed(UnsafeCell::new(0));
    let ticket = world.inbox.send_repeated(move || {
        // SAFETY: the runs of the call are ordered.
        changed.0.with_mut(|value| unsafe {
            *value += 1;
            *value < 2
        })
    });
    let ticket = ticket.ok().unwrap();
    let server = spawn(&world, serve_once);
    let mut runs = u32::from(serve_once(&world));
    world.inbox.detach(ticket);
    runs += u32::from(server.join().unwrap());
    while runs < 2 {
        runs += u32::from(serve_once(&world));
    }
    assert_eq!((world.inbox.take().is_none(), world.inbox.free_count()), (true, 1));
}

/// A thread of the staff that `ask` starts.
fn start(world: &Arc<World>) -> bool {
    drop(spawn(world, |world| world.staff.serve(&world.inbox, |taken| run(world, taken))));
    true
}

fn run(world: &Arc<World>, taken: Taken) -> bool {
    world.inbox.run(taken);
    true
}

/// A sender asks for a server while the thread of the staff ends.
fn asked() {
    let world = world(2);
    for value in [1, 2] {
        let ticket = send(&world, value);
        assert!(world.staff.ask(|| start(&world)));
        sleep(&world, &ticket);
        assert_eq!(result(&world, ticket), value);
    }
}

/// Two senders ask for a server, and the first start fails. A sender that got a server has its call run.
fn a_start_fails() {
    let world = world(2);
    // Of std, since no protocol depends on it.
    let failed = squall_sys::sync::StdArc::new(std::sync::atomic::AtomicBool::new(false));
    let sender = |value| {
        let failed = failed.clone();
        move |world: &Arc<World>| {
            let ticket = send(world, value);
            let may_start = || failed.swap(true, std::sync::atomic::Ordering::Relaxed);
            if world.staff.ask(|| may_start() && start(world)) {
                sleep(world, &ticket);
                assert_eq!(result(world, ticket), value);
            } else if let Err(ticket) = world.inbox.cancel(ticket) {
                world.inbox.detach(ticket);
            }
        }
    };
    let other = spawn(&world, sender(1));
    sender(2)(&world);
    other.join().unwrap();
    assert!(failed.load(std::sync::atomic::Ordering::Relaxed));
}

/// A call in an inbox waits for another one in the same inbox, which was sent before or comes later.
fn in_a_circle() {
    circle(start);
}

/// Like `in_a_circle`, but the system refuses a second thread.
fn refused() {
    circle(|_| false);
}

fn circle(start_second: fn(&Arc<World>) -> bool) {
    let world = world(2);
    let inner = world.clone();
    let outer = world.inbox.send(move || {
        let ticket = send(&inner, 1);
        let waiting = inner.staff.wait(&inner.inbox, || start_second(&inner));
        waiting.serve(&inner.inbox, || inner.inbox.is_done(&ticket), |taken| run(&inner, taken));
        sleep(&inner, &ticket);
        result(&inner, ticket) + 1
    });
    let outer = outer.ok().unwrap();
    assert!(world.staff.ask(|| start(&world)));
    sleep(&world, &outer);
    assert_eq!(result(&world, outer), 2);
}

/// The parents in a tree of a root, 0, with the leaves 1 and 2.
fn parent(node: usize) -> Option<usize> {
    (node > 0).then_some(0)
}

struct Results(Tally, [UnsafeCell<u32>; 2]);

// SAFETY: each cell is written by one thread, and read by another one after the end of the round.
unsafe impl Send for Results {}
// SAFETY: as for `Send`.
unsafe impl Sync for Results {}

/// Two leaves arrive, each with a result, and a waiter sleeps until both have.
fn gathered() {
    let results = Arc::new(Results(Tally::new([2, 0, 0].into_iter(), 1), [1, 2].map(|_| UnsafeCell::new(0))));
    let leaf = |at: usize| {
        let results = results.clone();
        move || {
            // SAFETY: the leaf's own result.
            results.1[at].with_mut(|result| unsafe { *result = 7 });
            results.0.arrive(at + 1, parent);
        }
    };
    let other = thread::spawn(leaf(0));
    // A thread of its own: loom takes a late wake-up of a thread that joins for the end of the other one.
    let shared = results.clone();
    let waiter = thread::spawn(move || {
        let mut over = shared.0.watch(&Unpark::waker());
        while !over {
            thread::park();
            over = shared.0.is_over();
        }
        for at in [0, 1] {
            // SAFETY: both leaves have arrived.
            assert_eq!(shared.1[at].with(|result| unsafe { *result }), 7);
        }
    });
    leaf(1)();
    other.join().unwrap();
    waiter.join().unwrap();
}

/// Makes a test of each model, which must hold.
use squall_sys::models;
models! {
    within 3: sent_twice two_senders watched watched_twice cancelled_and_watched detached cancelled two_servers repeated asked a_start_fails in_a_circle refused
    gathered
}

#[cfg(loom)]
#[test]
fn twins() {
    use sites::*;
    for (site, model) in [
        (QUEUE, "sent_twice"),
        (TAKE, "sent_twice"),
        (DONE, "sent_twice"),
        (RESULT, "sent_twice"),
        (FREE, "two_senders"),
        (CLAIM, "two_senders"),
        (WATCHED, "watched"),
        (WATCH, "watched"),
        (DETACHED, "detached"),
        (LOOK, "asked"),
        (AGAIN, "repeated"),
        (WAITS, "in_a_circle"),
        (SERVES, "refused"),
        (OUTCOME, "a_start_fails"),
        (FAILED, "a_start_fails"),
        (ARRIVE, "gathered"),
        (OVER, "gathered"),
        (LEAVE, "gathered"),
    ] {
        squall_sys::sync::weaken::twin(site, &[], &format!("ship::model::{model}::holds"));
    }
}
