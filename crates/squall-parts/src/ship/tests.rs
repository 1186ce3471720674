//! Tests of shipped calls on the machine of the test. `tests/ship.rs` has those on a virtual topology.

use super::inbox::{Inbox, Slot, Slots};
use super::vps::{VpInbox, existing};
use super::{PendingCall, SendError, ShipError, send, serve_here, ship};
use squall_machine::{ClusterSize, machine};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

fn inbox(slots: usize) -> Inbox {
    Inbox::new(Slots::Owned((0..slots).map(|_| Slot::new()).collect()))
}

#[test]
fn a_full_inbox_returns_the_call_and_a_free_slot_takes_it() {
    let inbox = inbox(2);
    let tickets = [1_u32, 2].map(|value| inbox.send(move || value).ok().unwrap());
    let refused = inbox.send(|| 3_u32).unwrap_err();
    assert_eq!(refused(), 3);
    let [first, second] = tickets;
    assert!(inbox.cancel(first).is_ok());
    let third = inbox.send(|| 3_u32).ok().unwrap();
    while let Some(taken) = inbox.take() {
        inbox.run(taken);
    }
    // SAFETY: the calls return `u32`.
    let results = [second, third].map(|ticket| unsafe { inbox.take_result::<u32>(ticket) }.unwrap());
    assert_eq!((results, inbox.free_count()), ([2, 3], 2));
}

#[test]
fn no_call_is_passed_over_for_long() {
    for slot in [0, 1, 3] {
        let inbox = inbox(4);
        let before: Vec<_> = (0..slot).map(|_| inbox.send(|| ()).ok().unwrap()).collect();
        let old = inbox.send(|| ()).ok().unwrap();
        before.into_iter().for_each(|ticket| assert!(inbox.cancel(ticket).is_ok()));
        // Calls that come later take the first free slot. They do not stay before the old call.
        let passed = (0..3).take_while(|_| {
            let next = inbox.send(|| ()).ok().unwrap();
            let taken = inbox.take().unwrap();
            inbox.run(taken);
            inbox.detach(next);
            !inbox.is_done(&old)
        });
        assert!(passed.count() < 3, "the call in slot {slot} was passed over three times");
        inbox.detach(old);
    }
}

#[test]
fn a_result_without_an_owner_is_dropped_and_frees_its_slot() {
    let inbox = inbox(1);
    let held = Arc::new(());
    for detach_first in [false, true] {
        let result = held.clone();
        let ticket = inbox.send(move || result).ok().unwrap();
        let taken = inbox.take().unwrap();
        if detach_first {
            inbox.detach(ticket);
            inbox.run(taken);
        } else {
            inbox.run(taken);
            inbox.detach(ticket);
        }
        assert_eq!((Arc::strong_count(&held), inbox.free_count()), (1, 1));
    }
}

#[test]
fn hu_08_closure_and_result_lie_in_the_slot() {
    assert!(size_of::<Slot>() == 256 && align_of::<Slot>() == 128);
    let inbox = inbox(1);
    let call = [7_u8; super::INLINE_BYTES];
    let ticket = inbox.send(move || (&raw const call).addr()).ok().unwrap();
    let taken = inbox.take().unwrap();
    inbox.run(taken);
    // SAFETY: the call returns `usize`.
    assert!(unsafe { inbox.take_result::<usize>(ticket) }.is_ok());
}

#[test]
fn a_call_to_the_own_cluster_runs_at_once() {
    let here = std::thread::current().id();
    let machine_wide =
        (ClusterSize::Machine, machine().clusters(ClusterSize::Machine).iter().next().unwrap());
    let mut call = ship(machine_wide, move || std::thread::current().id() == here).unwrap();
    assert!(call.is_finished());
    assert!(call.try_take().unwrap().unwrap());
    let panics = ship(machine_wide, || panic!("of the test")).unwrap();
    let Err(ShipError::Panicked(payload)) = panics.wait() else { panic!("no panic came back") };
    assert_eq!(payload.message(), "of the test");
}

#[test]
fn errors_give_the_call_back() {
    let held = Arc::new(());
    let count = held.clone();
    let error = SendError::InboxFull(move || drop(held));
    assert_eq!(
        error.to_string(),
        "the call was not sent: the inbox of its target is full; send it again later"
    );
    error.into_call()();
    assert_eq!(Arc::strong_count(&count), 1);
}

/// Panics when it is dropped.
struct Fragile;

impl Wake for Fragile {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Fragile {
    fn drop(&mut self) {
        panic!("of the test");
    }
}

#[test]
fn a_panic_of_a_waker_leaks_no_slot() {
    let inbox = inbox(1);
    let watched = |inbox: &Inbox| {
        let ticket = inbox.send(|| ()).ok().unwrap();
        assert!(!inbox.watch(&ticket, &Waker::from(Arc::new(Fragile))));
        ticket
    };
    assert!(inbox.cancel(watched(&inbox)).is_ok());
    assert_eq!(inbox.free_count(), 1);
    inbox.detach(watched(&inbox));
    let taken = inbox.take().unwrap();
    inbox.run(taken);
    assert_eq!(inbox.free_count(), 1);
    // This one is woken.
    let ticket = watched(&inbox);
    let taken = inbox.take().unwrap();
    inbox.run(taken);
    inbox.detach(ticket);
    assert_eq!(inbox.free_count(), 1);
}

/// An inbox of a test's own, for which no thread can be started.
fn refusing() -> &'static VpInbox {
    /// Leak checkers look for memory without a pointer to it.
    static KEPT: Mutex<Vec<&VpInbox>> = Mutex::new(Vec::new());
    let inbox = &*Box::leak(Box::new(VpInbox::new(machine().vps().iter().next().unwrap())));
    inbox.refuses.store(true, Ordering::Relaxed);
    KEPT.lock().unwrap().push(inbox);
    inbox
}

/// A call that was sent while a thread of the program served.
fn unserved(to: &'static VpInbox) -> PendingCall<thread::ThreadId> {
    to.add_serving();
    let call = send(to, || thread::current().id()).unwrap();
    to.remove_serving();
    call
}

#[test]
fn a_call_that_no_thread_can_serve_comes_back() {
    let to = refusing();
    let held = Arc::new(());
    let count = held.clone();
    let Err(SendError::NoThread(call)) = send(to, move || Arc::strong_count(&held)) else {
        panic!("a thread was started");
    };
    assert_eq!((call(), Arc::strong_count(&count), to.inbox.used()), (2, 1, 0));
}

#[test]
fn a_call_without_a_waiting_sender_comes_back_although_a_thread_seems_to_serve() {
    let to = refusing();
    to.add_serving();
    let ticket = to.inbox.send(|| ()).ok().unwrap();
    assert!(!to.let_run(ticket));
    assert_eq!(to.inbox.used(), 0);
}

#[test]
fn the_only_thread_that_serves_runs_a_call_again_until_it_is_done() {
    let (to, runs) = (refusing(), Arc::new(AtomicU32::new(0)));
    let counted = runs.clone();
    let ticket = to.inbox.send_repeated(move || counted.fetch_add(1, Ordering::Relaxed) < 9).ok().unwrap();
    to.inbox.detach(ticket);
    assert_eq!(to.serve_some(), 10);
    assert_eq!((runs.load(Ordering::Relaxed), to.inbox.used()), (10, 0));
}

#[test]
fn looks_run_no_call_on_the_sender_and_a_wait_does() {
    let (to, here) = (refusing(), thread::current().id());
    let mut call = unserved(to);
    assert!(!call.is_finished() && call.try_take().is_none());
    assert!(matches!(
        squall_rcu::pin(|_| call.wait_timeout(Duration::MAX)),
        Some(Err(ShipError::InOperation))
    ));
    assert_eq!(to.inbox.queued(), 1);
    assert_eq!(call.wait().unwrap(), here);
    let mut call = pin!(unserved(to));
    let poll = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(poll, Poll::Ready(Err(ShipError::NoThread))));
    // It waits for the next sender that gets a thread.
    unserved(to).detach();
    assert_eq!(to.inbox.queued(), 1);
    to.refuses.store(false, Ordering::Relaxed);
    assert_ne!(send(to, || thread::current().id()).unwrap().wait().unwrap(), here);
    while to.inbox.used() > 0 {
        thread::yield_now();
    }
}

/// Runs a queued call on this thread.
fn run_one(to: &'static VpInbox) {
    let taken = to.inbox.take().unwrap();
    to.inbox.run(taken);
}

#[test]
fn a_call_that_is_dropped_frees_its_slot_at_its_end_at_the_latest() {
    let to = refusing();
    // Before a thread has begun it.
    let call = unserved(to);
    assert_eq!(to.inbox.used(), 1);
    drop(call);
    assert_eq!((to.inbox.used(), to.inbox.queued()), (0, 0));
    // While it runs.
    let own = Arc::new(Mutex::new(None));
    let mine = own.clone();
    to.add_serving();
    let call = send(to, move || drop(mine.lock().unwrap().take()));
    *own.lock().unwrap() = Some(call.unwrap());
    run_one(to);
    assert!(own.lock().unwrap().is_none());
    assert_eq!(to.inbox.used(), 0);
    // After its end, with a result that panics when it is dropped.
    let call = send(to, || Fragile).unwrap();
    run_one(to);
    assert_eq!(to.inbox.used(), 1);
    drop(call);
    assert_eq!(to.inbox.used(), 0);
    to.remove_serving();
}

#[test]
fn a_call_that_is_kept_or_leaked_keeps_its_slot() {
    let to = refusing();
    let mut kept = unserved(to);
    let leaked = unserved(to);
    run_one(to);
    run_one(to);
    assert_eq!(to.inbox.used(), 2);
    assert!(kept.try_take().unwrap().is_ok());
    assert_eq!(to.inbox.used(), 1, "a result that was taken has no slot");
    std::mem::forget(leaked);
    drop(kept);
    assert_eq!(to.inbox.used(), 1);
}

#[test]
fn a_thread_that_waits_serves_if_no_other_one_can() {
    let to = refusing();
    to.refuses.store(false, Ordering::Relaxed);
    let outer = send(to, move || {
        to.refuses.store(true, Ordering::Relaxed);
        // This thread counts as one that serves, until it waits. Then it does not.
        let refused = || send(to, || ()).is_err();
        let call = send(to, move || (thread::current().id(), refused()));
        (call.unwrap().wait().unwrap(), (thread::current().id(), true))
    });
    let (inner, expected) = outer.unwrap().wait().unwrap();
    assert_eq!(inner, expected);
}

#[test]
fn a_thread_that_leaks_its_guard_serves_until_its_end() {
    let is_served = || machine().vps().iter().any(|vp| existing(vp).is_some_and(VpInbox::is_served));
    thread::spawn(move || {
        std::mem::forget(serve_here());
        assert!(is_served());
    })
    .join()
    .unwrap();
    assert!(!is_served());
}

#[test]
fn a_vp_that_the_machine_lacks_is_a_panic() {
    let beyond = [squall_machine::Vp::new(u32::try_from(machine().vp_limit()).unwrap())];
    let ships = || beyond.iter().all(|vp| ship(vp, || ()).is_ok());
    let panic = std::panic::catch_unwind(ships).unwrap_err();
    assert!(panic.downcast_ref::<String>().is_some_and(|text| text.contains("this machine has no")));
}
