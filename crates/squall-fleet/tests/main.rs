//! Mailboxes, as programs use them.
#![cfg(not(loom))]

use squall_fleet::{Alias, Capability, CapabilityError, Mailbox, SendError, Sender};
use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

/// Senders and messages of a stress; Miri is slow.
const SENDERS: u64 = if cfg!(miri) { 3 } else { 8 };
const MESSAGES: u64 = if cfg!(miri) { 50 } else { 20_000 };

fn pair(lane_bytes: usize) -> (Mailbox, Sender) {
    let mailbox = Mailbox::builder().lane_bytes(lane_bytes).build();
    let sender = mailbox.sender(mailbox.add_capability().unwrap()).unwrap();
    (mailbox, sender)
}

fn receive(mailbox: &mut Mailbox) -> Vec<u8> {
    mailbox.wait().block();
    mailbox.receive().unwrap().to_vec()
}

#[test]
fn every_size_arrives_whole_at_every_place_of_the_ring() {
    let (mut mailbox, sender) = pair(256);
    assert_eq!(mailbox.largest_message(), 248);
    for round in 0..3_u8 {
        for size in 0..=mailbox.largest_message() {
            let message: Vec<u8> = (0..size).map(|at| at as u8 ^ round ^ 0xa5).collect();
            sender.send(&message).unwrap();
            assert_eq!(&*mailbox.receive().unwrap(), message);
        }
    }
    assert!(mailbox.receive().is_none());
}

#[test]
fn a_full_lane_says_retry_and_takes_no_room_of_another_capability() {
    let mut mailbox = Mailbox::builder().lane_bytes(128).build();
    let flood = mailbox.sender(mailbox.add_labelled(1).unwrap()).unwrap();
    let other = mailbox.sender(mailbox.add_labelled(2).unwrap()).unwrap();
    let sent = (0..).take_while(|n: &u64| flood.send(&n.to_le_bytes()).is_ok()).count();
    assert_eq!(sent, 128 / 16);
    assert_eq!(flood.send(&[0]), Err(SendError::Retry { mailbox: mailbox.alias() }));
    other.send(b"unharmed").unwrap();
    let mut by_label = HashMap::new();
    while let Some(message) = mailbox.receive() {
        *by_label.entry(message.label()).or_insert(0) += 1;
    }
    assert_eq!(by_label, HashMap::from([(1, sent), (2, 1)]));
    flood.send(&[0]).unwrap();
}

#[test]
fn a_message_that_never_fits_says_so() {
    let (mailbox, sender) = pair(64);
    let error = SendError::NoSpace { mailbox: mailbox.alias(), largest: 56 };
    assert_eq!(sender.send(&[0; 57]), Err(error));
    assert_eq!(sender.wait_to_send(&[0; 57]).block(), Err(error));
    sender.send(&[0; 56]).unwrap();
}

#[test]
fn forged_capabilities_and_aliases_are_errors_and_leave_no_trace() {
    let (mailbox, sender) = pair(64);
    let before = format!("{mailbox:?}");
    let forged = Capability::from_bytes([7; 16]);
    let error = SendError::Permissions { mailbox: mailbox.alias() };
    assert_eq!(Sender::new(mailbox.alias(), forged).unwrap_err(), error);
    let nowhere = Alias::from_bytes([9; 16]);
    assert_eq!(Sender::new(nowhere, forged).unwrap_err(), SendError::InvalidAlias { mailbox: nowhere });
    assert_eq!(format!("{mailbox:?}"), before);
    // The alias and the key of a real one travel as bytes.
    let key = mailbox.add_capability().unwrap();
    let alias = Alias::from_bytes(mailbox.alias().to_bytes());
    Sender::new(alias, Capability::from_bytes(key.to_bytes())).unwrap().send(&[]).unwrap();
    drop(sender);
}

#[test]
fn a_removed_capability_ends_for_all_its_senders_and_no_other() {
    let mut mailbox = Mailbox::new();
    let (gone, stays) = (mailbox.add_capability().unwrap(), mailbox.add_capability().unwrap());
    let sender = mailbox.sender(gone).unwrap();
    let clone = sender.clone();
    sender.send(b"before").unwrap();
    assert!(mailbox.remove_capability(gone));
    assert!(!mailbox.remove_capability(gone));
    let error = Err(SendError::Permissions { mailbox: mailbox.alias() });
    assert_eq!(sender.send(b"after"), error);
    assert_eq!(clone.send(b"after"), error);
    mailbox.sender(stays).unwrap().send(b"other").unwrap();
    let mut received = vec![receive(&mut mailbox), receive(&mut mailbox)];
    received.sort();
    assert_eq!(received, [b"before".to_vec(), b"other".to_vec()]);
    assert!(mailbox.receive().is_none());
}

#[test]
fn a_single_use_is_used_up_by_one_of_many() {
    for _ in 0..if cfg!(miri) { 2 } else { 200 } {
        let mut mailbox = Mailbox::new();
        let once = mailbox.add_single_use(5).unwrap();
        let senders: Vec<Sender> = (0..4).map(|_| mailbox.sender(once).unwrap()).collect();
        let sent = AtomicUsize::new(0);
        thread::scope(|threads| {
            for sender in &senders {
                threads.spawn(|| sent.fetch_add(usize::from(sender.send(&[1]).is_ok()), Ordering::Relaxed));
            }
        });
        assert_eq!(sent.into_inner(), 1);
        assert_eq!(mailbox.receive().unwrap().label(), 5);
        assert!(mailbox.receive().is_none());
        // The capability is gone.
        assert!(mailbox.sender(once).is_err());
        assert!(!mailbox.remove_capability(once));
    }
}

#[test]
fn numbers_of_lanes_are_used_again() {
    let mut mailbox = Mailbox::new();
    // More than there are numbers.
    for n in 0..if cfg!(miri) { 100 } else { 10_000_u64 } {
        let once = mailbox.add_single_use(n).unwrap();
        mailbox.sender(once).unwrap().send(&[]).unwrap();
        mailbox.wait().block();
        assert_eq!(mailbox.receive().unwrap().label(), n);
    }
}

/// The receiver forgets the lane of a removed capability after the capability was added again. The new grant
/// stays, also with a lane of its own, and can be removed.
#[test]
fn a_capability_that_is_added_again_keeps_its_new_grant() {
    // More rounds than a mailbox has numbers, so a number that leaks is missed.
    let rounds = if cfg!(miri) { 8 } else { 5_000 };
    let mut mailbox = Mailbox::builder().lane_bytes(64).build();
    let capabilities = mailbox.capabilities();
    let key = mailbox.add_labelled(3).unwrap();
    for round in 0..rounds {
        mailbox.sender(key).unwrap().send(b"before").unwrap();
        assert!(capabilities.remove(key));
        capabilities.add_existing(key, 7).unwrap();
        let early = mailbox.sender(key).unwrap();
        let mut expected = vec![b"before".to_vec()];
        if round % 2 == 0 {
            early.send(b"early").unwrap();
            expected.push(b"early".to_vec());
        }
        let mut received: Vec<_> = expected.iter().map(|_| receive(&mut mailbox)).collect();
        received.sort_unstable();
        assert_eq!(received, expected);
        // Before it sleeps, the receiver forgets the lane.
        assert!(pin!(mailbox.wait()).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let sender = mailbox.sender(key).unwrap();
        sender.send(b"after").unwrap();
        mailbox.wait().block();
        let message = mailbox.receive().unwrap();
        assert_eq!((message.label(), &*message), (7, &b"after"[..]));
        assert!(capabilities.remove(key));
        for sender in [early, sender] {
            assert!(matches!(sender.send(b"late"), Err(SendError::Permissions { .. })));
        }
        capabilities.add_existing(key, 3).unwrap();
    }
}

#[test]
fn there_is_an_end_to_capabilities() {
    let mailbox = Mailbox::new();
    let keys: Vec<Capability> = std::iter::from_fn(|| mailbox.add_capability().ok()).collect();
    assert_eq!(keys.len(), 4032);
    assert!(mailbox.add_capability().unwrap_err().to_string().contains("4032"));
    assert!(mailbox.remove_capability(keys[0]));
    mailbox.add_capability().unwrap();
}

#[test]
fn each_sender_keeps_its_order_while_all_send_and_wait() {
    let (mut mailbox, first) = pair(256);
    thread::scope(|threads| {
        for number in 0..SENDERS {
            let sender = first.clone();
            threads.spawn(move || {
                for n in 0..MESSAGES {
                    let message = [number.to_le_bytes(), n.to_le_bytes()].concat();
                    sender.wait_to_send(&message).block().unwrap();
                }
            });
        }
        let mut next = vec![0; SENDERS as usize];
        for _ in 0..SENDERS * MESSAGES {
            mailbox.wait().block();
            let message = mailbox.receive().unwrap();
            let number = |at: usize| u64::from_le_bytes(message[at..at + 8].try_into().unwrap());
            let (sender, n) = (number(0), number(8));
            assert_eq!(n, next[sender as usize]);
            next[sender as usize] += 1;
        }
    });
    assert!(mailbox.receive().is_none());
}

#[test]
fn accepted_messages_survive_the_end_and_later_ones_are_errors() {
    let (mailbox, sender) = pair(1 << 12);
    let alias = mailbox.alias();
    let sent = AtomicUsize::new(0);
    let rest = thread::scope(|threads| {
        let senders: Vec<_> = (0..3)
            .map(|_| {
                let (sender, sent) = (sender.clone(), &sent);
                threads.spawn(move || {
                    loop {
                        match sender.wait_to_send(&[1; 24]).block() {
                            Ok(()) => _ = sent.fetch_add(1, Ordering::Relaxed),
                            Err(error) => return error,
                        }
                    }
                })
            })
            .collect();
        while sent.load(Ordering::Relaxed) < 10 {
            thread::yield_now();
        }
        let rest = mailbox.end();
        for sender in senders {
            assert_eq!(sender.join().unwrap(), SendError::InvalidAlias { mailbox: alias });
        }
        rest
    });
    assert_eq!(rest.len(), sent.into_inner());
    assert!(rest.iter().all(|(label, bytes)| *label == 0 && *bytes == [1; 24]));
    assert!(Sender::new(alias, Capability::from_bytes([0; 16])).is_err());
}

#[test]
fn a_message_that_a_wait_found_is_not_lost() {
    let (mut mailbox, sender) = pair(64);
    sender.send(b"one").unwrap();
    mailbox.wait().block();
    mailbox.wait().block();
    sender.send(b"two").unwrap();
    assert_eq!(mailbox.end(), [(0, b"one".to_vec()), (0, b"two".to_vec())]);
}

#[test]
fn a_mailbox_goes_on_after_many_looks_in_vain() {
    let (mut mailbox, sender) = pair(64);
    let other = mailbox.sender(mailbox.add_capability().unwrap()).unwrap();
    for round in 0..200_u8 {
        sender.send(&[round]).unwrap();
        if round % 2 == 0 {
            other.send(&[round]).unwrap();
            assert_eq!(*mailbox.receive().unwrap(), [round]);
        }
        assert_eq!(*mailbox.receive().unwrap(), [round]);
        assert_eq!((0..round).filter(|_| mailbox.receive().is_some()).count(), 0);
    }
}

#[test]
fn each_message_that_is_received_makes_room_for_those_who_wait() {
    let (mut mailbox, sender) = pair(1 << 14);
    let (count, waker) = counter();
    let mut context = Context::from_waker(&waker);
    while sender.send(&[0; 8]).is_ok() {}
    let mut wait = pin!(sender.wait_to_send(&[1; 8]));
    assert!(wait.as_mut().poll(&mut context).is_pending());
    assert!(mailbox.receive().is_some());
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
    assert_eq!(wait.poll(&mut context), Poll::Ready(Ok(())));
}

#[test]
#[should_panic(expected = "polled after")]
fn a_wait_that_has_sent_does_not_send_again() {
    let (_mailbox, sender) = pair(64);
    let mut wait = pin!(sender.wait_to_send(&[1; 8]));
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(wait.as_mut().poll(&mut context), Poll::Ready(Ok(())));
    let _ = wait.poll(&mut context);
}

/// Counts its wake-ups.
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn counter() -> (Arc<Count>, Waker) {
    let count = Arc::new(Count(AtomicUsize::new(0)));
    (count.clone(), Waker::from(count))
}

#[test]
fn a_task_that_awaits_a_message_is_woken_once() {
    let (mut mailbox, sender) = pair(64);
    let (count, waker) = counter();
    {
        let mut wait = pin!(mailbox.wait());
        let mut context = Context::from_waker(&waker);
        assert!(wait.as_mut().poll(&mut context).is_pending());
        assert!(wait.as_mut().poll(&mut context).is_pending());
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
        sender.send(b"x").unwrap();
        sender.send(b"y").unwrap();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(wait.poll(&mut context).is_ready());
    }
    assert_eq!(&*mailbox.receive().unwrap(), b"x");
    // A wait that was dropped calls no waker.
    let (other, unused) = counter();
    assert_eq!(&*mailbox.receive().unwrap(), b"y");
    assert!(pin!(mailbox.wait()).poll(&mut Context::from_waker(&unused)).is_pending());
    sender.send(b"z").unwrap();
    assert_eq!(other.0.load(Ordering::Relaxed), 0);
    assert_eq!(&*mailbox.receive().unwrap(), b"z");
}

#[test]
fn a_task_that_awaits_room_is_woken_and_a_dropped_one_sends_nothing() {
    let (mut mailbox, sender) = pair(64);
    let (count, waker) = counter();
    let mut context = Context::from_waker(&waker);
    sender.send(&[1; 56]).unwrap();
    {
        let mut dropped = Box::pin(sender.wait_to_send(&[2; 56]));
        assert!(dropped.as_mut().poll(&mut context).is_pending());
    }
    let mut wait = pin!(sender.wait_to_send(&[3; 56]));
    assert!(wait.as_mut().poll(&mut context).is_pending());
    assert_eq!(mailbox.receive().unwrap()[0], 1);
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
    assert_eq!(wait.poll(&mut context), Poll::Ready(Ok(())));
    assert_eq!(mailbox.receive().unwrap()[0], 3);
    assert!(mailbox.receive().is_none());
}

#[test]
fn a_task_that_awaits_room_learns_of_the_end() {
    let (mailbox, sender) = pair(64);
    let (count, waker) = counter();
    let mut context = Context::from_waker(&waker);
    sender.send(&[1; 56]).unwrap();
    let mut wait = pin!(sender.wait_to_send(&[2; 56]));
    assert!(wait.as_mut().poll(&mut context).is_pending());
    let alias = mailbox.alias();
    drop(mailbox);
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
    assert_eq!(wait.poll(&mut context), Poll::Ready(Err(SendError::InvalidAlias { mailbox: alias })));
}

#[test]
fn waits_with_a_limit_end() {
    let (mut mailbox, sender) = pair(64);
    assert!(!mailbox.wait().block_for(Duration::from_millis(1)));
    sender.send(&[1; 56]).unwrap();
    let full = sender.wait_to_send(&[2; 56]).block_for(Duration::from_millis(1));
    assert_eq!(full, Err(SendError::Retry { mailbox: mailbox.alias() }));
    assert!(mailbox.wait().block_for(Duration::MAX));
}

#[test]
fn capabilities_come_and_go_while_the_owner_waits() {
    let mut mailbox = Mailbox::new();
    let (alias, capabilities) = (mailbox.alias(), mailbox.capabilities());
    thread::scope(|threads| {
        threads.spawn(|| {
            let gone = capabilities.add().unwrap();
            assert!(capabilities.remove(gone));
            let once = capabilities.clone().add_single_use(8).unwrap();
            Sender::new(alias, once).unwrap().send(b"now").unwrap();
        });
        mailbox.wait().block();
    });
    assert_eq!(mailbox.receive().unwrap().label(), 8);
    drop(mailbox);
    assert_eq!(capabilities.add(), Err(CapabilityError::InvalidAlias { mailbox: alias }));
}

#[test]
fn keys_are_in_no_debug_text() {
    let mailbox = Mailbox::new();
    let key = mailbox.add_capability().unwrap();
    let sender = mailbox.sender(key).unwrap();
    let hex: String = key.to_bytes().iter().rev().map(|byte| format!("{byte:02x}")).collect();
    for text in [format!("{key:?}"), format!("{sender:?}"), format!("{mailbox:?}")] {
        assert!(!text.contains(&hex[..8]), "{text}");
    }
}
