//! Tests of shipped calls on the machine of the test. `tests/ship.rs` has those on a virtual topology.

use super::inbox::{Inbox, Slot, Slots};
use super::{Events, PostError, SendError, ShipError, ship};
use squall_machine::{ClusterSize, Vp, machine};
use std::sync::Arc;

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
    let inbox = inbox(4);
    let old = inbox.send(|| ()).ok().unwrap();
    // The old call has slot 0. Calls that come later, in later slots, do not stay before it.
    for _ in 0..3 {
        let next = inbox.send(|| ()).ok().unwrap();
        let taken = inbox.take().unwrap();
        inbox.run(taken);
        if inbox.is_done(&old) {
            inbox.detach(old);
            inbox.detach(next);
            return;
        }
        inbox.detach(next);
    }
    panic!("a call was passed over three times");
}

#[test]
fn hu_08_closure_and_result_lie_in_the_slot() {
    assert!(size_of::<Slot>() <= 192 && align_of::<Slot>() == 64);
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
fn events_that_find_no_room_come_back() {
    let events = Events::new(2, |_, batch: Vec<u32>| assert!(batch.len() <= 2));
    let vp = Vp::current();
    for event in 0..100 {
        // The thread may have moved to another VP, so that the buffer fills.
        match events.post(vp, event) {
            Ok(()) => {}
            Err(PostError::BufferFull(back)) => assert_eq!(back, event),
            Err(other) => panic!("{other}"),
        }
    }
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

#[test]
fn a_vp_that_the_machine_lacks_is_a_panic() {
    let beyond = [Vp::new(u32::try_from(machine().vp_limit()).unwrap())];
    let ships = || beyond.iter().all(|vp| ship(vp, || ()).is_ok());
    let panic = std::panic::catch_unwind(ships).unwrap_err();
    assert!(panic.downcast_ref::<String>().is_some_and(|text| text.contains("this machine has no")));
}
