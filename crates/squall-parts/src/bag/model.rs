//! Models of the emptiness that `get` reports, and their twins with one weakened site.

#[cfg(loom)]
use super::sites;
use super::{Bag, Client, Closed, Strategy, Wait};
#[cfg(loom)]
use squall_lock::ModelVp as Vp;
use squall_lock::VpLock;
#[cfg(not(loom))]
use squall_machine::Vp;
use squall_sys::sync::Arc;
use squall_sys::sync::thread;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// A bag with shards in a model, and these elements in the second one.
fn bag(strategy: Strategy, shards: usize, elements: &[u32]) -> Arc<Bag<u32>> {
    let bag = Bag::make(shards);
    bag.attributes().set_strategy(strategy);
    (0..shards).for_each(|at| _ = client(&bag, at));
    client(&bag, 1).put_batch(elements.iter().copied());
    Arc::new(bag)
}

fn client(bag: &Bag<u32>, at: usize) -> Client<'_, u32> {
    bag.client_with(at, |elements| VpLock::new(Vp::new(at as u32), elements))
}

/// A thread that puts 2 into a shard, and then takes an element of another one.
fn puts_and_takes(bag: &Arc<Bag<u32>>, put: usize, take: usize) -> thread::JoinHandle<Option<u32>> {
    let bag = bag.clone();
    thread::spawn(move || {
        client(&bag, put).put(2);
        client(&bag, take).shard.get(&bag)
    })
}

/// A thread that puts 1 into a shard.
fn puts(bag: &Arc<Bag<u32>>, at: usize) -> thread::JoinHandle<()> {
    let bag = bag.clone();
    thread::spawn(move || client(&bag, at).put(1))
}

/// A thread that gets, as the client of a shard.
fn gets(bag: &Arc<Bag<u32>>, at: usize) -> thread::JoinHandle<Option<u32>> {
    let bag = bag.clone();
    thread::spawn(move || client(&bag, at).get())
}

/// A thread that takes a spare element, as the client of a shard.
fn gets_spare(bag: &Arc<Bag<u32>>, at: usize) -> thread::JoinHandle<Option<u32>> {
    let bag = bag.clone();
    thread::spawn(move || client(&bag, at).get_spare())
}

/// A client puts an element into one shard and then takes one of another. The bag is never empty. The other
/// client looks at the shards in the order 2, 0, 1.
fn never_empty() {
    let bag = bag(Strategy::Distributed, 3, &[1]);
    let other = puts_and_takes(&bag, 0, 1);
    let got = client(&bag, 2).get();
    assert!(got.is_some(), "empty, although an element was there all the time");
    let all = usize::from(got.is_some()) + usize::from(other.join().unwrap().is_some()) + bag.len();
    assert_eq!(all, 2);
}

/// A client takes one of two elements and moves the other to its own shard. Meanwhile another client looks
/// for one.
fn in_transit() {
    let bag = bag(Strategy::BulkTransfer, 2, &[1, 2]);
    let mover = gets(&bag, 0);
    let got = client(&bag, 1).get();
    assert!(got.is_some(), "empty, although two elements were there and one client took one");
    assert!(mover.join().unwrap().is_some());
    assert_eq!(bag.len(), 0);
}

/// Two clients take spare elements of a shard that has two. One of the two clients gets one, and the shard
/// keeps the other.
fn spared() {
    let bag = bag(Strategy::Distributed, 3, &[1, 2]);
    let other = gets_spare(&bag, 0);
    let mine = client(&bag, 2).get_spare();
    let other = other.join().unwrap();
    assert!(mine.is_some() != other.is_some(), "two elements, of which one is spare: {mine:?}, {other:?}");
    assert_eq!(client(&bag, 1).len(), 1);
}

/// A client takes a spare element of three, and moves another one to its own shard. Meanwhile the client of
/// the shard gets two.
fn spared_in_transit() {
    let bag = bag(Strategy::BulkTransfer, 2, &[1, 2, 3]);
    let mover = gets_spare(&bag, 0);
    for _ in 0..2 {
        assert!(client(&bag, 1).get().is_some(), "empty, although others took one of three elements");
    }
    assert_eq!(usize::from(mover.join().unwrap().is_some()) + bag.len(), 1);
}

/// An idle client moves the only element to another shard. Meanwhile a third client looks for one.
fn pushed() {
    let bag = bag(Strategy::BackgroundPush, 3, &[1]);
    bag.attributes().set_push_above(0);
    let pusher = {
        let bag = bag.clone();
        thread::spawn(move || bag.balance(client(&bag, 1).shard))
    };
    let got = client(&bag, 2).get();
    pusher.join().unwrap();
    assert_eq!((got, bag.len()), (Some(1), 0));
}

/// A client that comes late makes its shard, puts an element there, and takes the only other one.
fn late() {
    let bag = Arc::new(Bag::make(2));
    client(&bag, 0).put(1);
    let other = puts_and_takes(&bag, 1, 0);
    let got = client(&bag, 0).get();
    assert!(got.is_some(), "empty, although an element was there all the time");
    assert!(other.join().unwrap().is_none_or(|it| Some(it) != got));
}

/// A shard with the only element leaves, and gives it to another one. Meanwhile a third client looks for it.
fn leaves() {
    let bag = bag(Strategy::BulkTransfer, 3, &[1]);
    let leaver = {
        let bag = bag.clone();
        thread::spawn(move || bag.leave(client(&bag, 1).shard))
    };
    let got = client(&bag, 2).get();
    leaver.join().unwrap();
    assert_eq!((got, bag.len()), (Some(1), 0));
}

/// A client comes back to a shard that has left, puts there, and takes the only other element.
fn comes_back() {
    let bag = bag(Strategy::Distributed, 3, &[1]);
    assert!(bag.leave(client(&bag, 0).shard));
    let other = puts_and_takes(&bag, 0, 1);
    let got = client(&bag, 2).get();
    assert!(got.is_some(), "empty, although an element was there all the time");
    assert!(other.join().unwrap().is_none_or(|it| Some(it) != got));
}

/// A shard leaves, and so takes its arrival out of the sum of all. Then a client puts into a second shard,
/// and takes the only other element. A third client looks at the shards in the order 0, 1, 3.
fn leaves_the_sum() {
    let bag = bag(Strategy::Distributed, 4, &[]);
    client(&bag, 3).put(1);
    client(&bag, 0).put(0);
    assert_eq!(client(&bag, 0).get(), Some(0));
    let other = {
        let bag = bag.clone();
        thread::spawn(move || {
            assert!(bag.leave(client(&bag, 0).shard));
            client(&bag, 1).put(2);
            client(&bag, 3).shard.get(&bag)
        })
    };
    let got = client(&bag, 2).get();
    assert!(got.is_some(), "empty, although an element was there all the time");
    other.join().unwrap();
}

/// A shard leaves while a transfer to it is in progress. Then a third client looks for an element.
fn leaves_with_a_transfer() {
    let bag = bag(Strategy::BulkTransfer, 3, &[1, 2]);
    let taker = gets(&bag, 0);
    bag.leave(client(&bag, 0).shard);
    let got = client(&bag, 2).get();
    assert!(got.is_some(), "empty, although two elements were there and one client took one");
    assert!(taker.join().unwrap().is_some());
}

/// A client looks with all shards locked, while another one moves two elements and takes one of them.
fn locked_in_transit() {
    let bag = bag(Strategy::BulkTransfer, 3, &[1, 2]);
    let mover = gets(&bag, 0);
    let got = bag.get_locked(client(&bag, 2).shard);
    assert_ne!(got, Some(None), "empty, although two elements were there and one client took one");
    assert!(mover.join().unwrap().is_some());
}

/// A client looks with all shards locked, while another one comes back to a shard that has left, puts there,
/// and takes the only other element.
fn locked_comes_back() {
    let bag = bag(Strategy::Distributed, 3, &[1]);
    assert!(bag.leave(client(&bag, 0).shard));
    let other = puts_and_takes(&bag, 0, 1);
    let got = bag.get_locked(client(&bag, 2).shard);
    assert_ne!(got, Some(None), "empty, although an element was there all the time");
    other.join().unwrap();
}

/// An element moves to another shard while the strategy becomes the directory, and a client looks for it.
fn enlisted() {
    let bag = bag(Strategy::BackgroundPush, 3, &[1]);
    bag.attributes().set_push_above(0);
    let pusher = {
        let bag = bag.clone();
        thread::spawn(move || {
            bag.balance(client(&bag, 1).shard);
            bag.attributes().set_strategy(Strategy::Directory);
        })
    };
    let got = client(&bag, 2).get();
    pusher.join().unwrap();
    assert_eq!((got, client(&bag, 2).get()), (Some(1), None));
}

/// A client waits, and another one puts.
fn waits() {
    let bag = bag(Strategy::Distributed, 2, &[]);
    let putter = puts(&bag, 1);
    assert_eq!(Wait::new(&*bag).block(), Ok(1));
    putter.join().unwrap();
}

/// A client waits in a bag that was announced to have waiters, and another one puts.
fn waits_again() {
    let bag = bag(Strategy::Distributed, 2, &[]);
    bag.waiters.announce();
    let putter = puts(&bag, 1);
    assert_eq!(Wait::new(&*bag).block(), Ok(1));
    putter.join().unwrap();
}

/// A client waits. Another one puts two elements, moves them to another shard, and takes one of them.
fn waits_for_a_transfer() {
    let bag = bag(Strategy::BulkTransfer, 2, &[]);
    let mover = {
        let bag = bag.clone();
        thread::spawn(move || {
            client(&bag, 1).put_batch([1, 2]);
            client(&bag, 0).get()
        })
    };
    let got = Wait::new(&*bag).block();
    let moved = mover.join().unwrap();
    assert!(got.is_ok() && moved.is_some() && got.ok() != moved);
}

/// A client waits. Another one pushes an element to another shard, where it arrives after the client looked.
fn waits_for_a_push() {
    let bag = bag(Strategy::BackgroundPush, 3, &[]);
    bag.attributes().set_push_above(0);
    let pusher = {
        let bag = bag.clone();
        thread::spawn(move || {
            client(&bag, 1).put(1);
            bag.balance(client(&bag, 1).shard);
        })
    };
    assert_eq!(Wait::new(&*bag).block(), Ok(1));
    pusher.join().unwrap();
}

/// A client waits in an announced bag. Another one looks for waiters in vain, and then puts.
fn waits_beside_looks() {
    let bag = bag(Strategy::Distributed, 2, &[]);
    bag.waiters.announce();
    let putter = {
        let bag = bag.clone();
        thread::spawn(move || {
            bag.serve_waiters(client(&bag, 1).shard);
            client(&bag, 1).put(1);
        })
    };
    assert_eq!(Wait::new(&*bag).block(), Ok(1));
    putter.join().unwrap();
}

/// An element is given to a waiter that is not polled again. A client that has seen the element gets it.
fn given() {
    let bag = bag(Strategy::Distributed, 2, &[]);
    let mut wait = Wait::new(&*bag);
    assert!(Pin::new(&mut wait).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let putter = puts(&bag, 1);
    if !client(&bag, 1).is_empty() {
        assert_eq!(client(&bag, 0).get(), Some(1), "an element was there all the time");
    }
    putter.join().unwrap();
}

/// A get takes an element back from a waiter, while that looks.
fn taken_back() {
    let bag = bag(Strategy::Distributed, 2, &[]);
    let mut wait = Wait::new(&*bag);
    let poll = |wait: &mut Wait<_, _>| Pin::new(wait).poll(&mut Context::from_waker(Waker::noop()));
    assert!(poll(&mut wait).is_pending());
    client(&bag, 1).put(1);
    let other = gets(&bag, 1);
    let answer = poll(&mut wait);
    let got = other.join().unwrap();
    match answer {
        Poll::Ready(answer) => assert_eq!((answer, got), (Ok(1), None)),
        Poll::Pending => assert_eq!((got, bag.waiting()), (Some(1), 1)),
    }
}

/// A wait is cancelled, while another client puts.
fn cancelled() {
    let bag = bag(Strategy::Distributed, 2, &[]);
    let putter = puts(&bag, 0);
    let mut wait = Wait::new(&*bag);
    let answer = Pin::new(&mut wait).poll(&mut Context::from_waker(Waker::noop()));
    drop(wait);
    putter.join().unwrap();
    let rest = client(&bag, 0).get();
    assert!(matches!((answer, rest), (Poll::Ready(Ok(1)), None) | (Poll::Pending, Some(1))));
}

/// A bag is closed while a client waits.
fn closed() {
    let bag = bag(Strategy::Distributed, 2, &[]);
    let closer = {
        let bag = bag.clone();
        thread::spawn(move || bag.close())
    };
    assert_eq!(Wait::new(&*bag).block(), Err(Closed));
    closer.join().unwrap();
}

/// Makes a test of each model, which must hold.
use squall_sys::models;
models! { within 2:
    never_empty in_transit spared spared_in_transit pushed late leaves comes_back leaves_the_sum leaves_with_a_transfer
    locked_in_transit locked_comes_back enlisted
    waits waits_again waits_for_a_transfer waits_for_a_push waits_beside_looks given taken_back
    cancelled closed
}

#[cfg(loom)]
#[test]
fn twins() {
    use sites::*;
    for (site, model) in [
        (LEN, "never_empty"),
        (AGAIN, "never_empty"),
        (ARRIVE, "in_transit"),
        (LATE, "in_transit"),
        (EXPECT, "in_transit"),
        (KEEP, "spared"),
        (EXPECT, "spared_in_transit"),
        (INBOUND, "in_transit"),
        (ENDED, "in_transit"),
        (CHANGES, "leaves_the_sum"),
        (LEAVING, "leaves_the_sum"),
        (OUTSTANDING, "leaves_with_a_transfer"),
        (ALL_INBOUND, "locked_in_transit"),
        (ALL_CHANGES, "locked_comes_back"),
        (ANNOUNCE, "waits"),
        (LOOK, "waits"),
        (RECHECK, "waits"),
        (QUEUE, "waits_again"),
        (MOVED, "waits_for_a_transfer"),
        (GIFT, "waits_for_a_push"),
        (WITHDRAW, "waits_beside_looks"),
        (GIVEN, "given"),
        (TAKE_BACK, "given"),
        (ONE_STEP, "taken_back"),
        (BACK, "cancelled"),
    ] {
        squall_sys::sync::weaken::twin(site, &[], &format!("bag::model::{model}::holds"));
    }
}
