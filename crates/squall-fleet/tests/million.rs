//! A million messages in flight: slow receivers, full mailboxes, and one sender that floods.
//!
//! The number is that of `SQUALL_MESSAGES`, if it is set: 1,000,000 in a release build, 100,000 in a debug
//! one. No test here measures a time: receives are the steps that count.
#![cfg(not(loom))]

use squall_fleet::{Mailbox, SendError, Sender};
use squall_machine::ClusterSize;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;

/// The bytes that a message of 8 bytes takes in a lane.
const TAKES: usize = 16;
/// Messages of a lane before the next one has its turn, as the documentation of a mailbox says.
const BURST: u64 = 16;

fn messages() -> u64 {
    let default = if cfg!(miri) {
        2_000
    } else if cfg!(debug_assertions) {
        100_000
    } else {
        1_000_000
    };
    std::env::var("SQUALL_MESSAGES").map_or(default, |count| count.parse().expect("a number of messages"))
}

/// A mailbox with one lane for each capability, and `count` senders.
fn mailbox(lane_bytes: usize, count: u64) -> (Mailbox, Vec<Sender>) {
    let mailbox = Mailbox::builder().lane_bytes(lane_bytes).lane_per(ClusterSize::Machine).build();
    let add = |label| mailbox.sender(mailbox.add_labelled(label).unwrap()).unwrap();
    let senders = (0..count).map(add).collect();
    (mailbox, senders)
}

/// The books of a receiver: the next number of each sender.
struct Books {
    next: Vec<u64>,
    received: u64,
}

impl Books {
    fn new(senders: usize) -> Books {
        Books { next: vec![0; senders], received: 0 }
    }

    /// Receives a message, which must be the next one of its sender. Returns the sender.
    fn receive(&mut self, mailbox: &mut Mailbox) -> Option<usize> {
        let message = mailbox.receive()?;
        let sender = message.label() as usize;
        assert_eq!(*message, self.next[sender].to_le_bytes(), "sender {sender}");
        self.next[sender] += 1;
        self.received += 1;
        Some(sender)
    }
}

#[test]
fn a_million_messages_wait_in_bounded_memory_and_arrive_once_and_in_order() {
    const SENDERS: u64 = 8;
    // All lanes together have room for at least so many messages, and for less than twice as many.
    let lane_bytes = (messages().div_ceil(SENDERS) as usize * TAKES).next_power_of_two();
    let room = (lane_bytes / TAKES) as u64;
    let (mut mailbox, senders) = mailbox(lane_bytes, SENDERS + 1);
    let (innocent, flooding) = senders.split_last().unwrap();
    for sender in flooding {
        // Each one floods until the mailbox takes no more of it: that is the stated capacity, to the message.
        let accepted = (0..).find(|n: &u64| match sender.send(&n.to_le_bytes()) {
            Ok(()) => false,
            Err(error) => {
                assert!(matches!(error, SendError::Retry { .. }), "{error}");
                true
            }
        });
        assert_eq!(accepted, Some(room));
    }
    assert!(room * SENDERS >= messages());
    // In a full mailbox, a sender with a lane of its own has room, and so has the sender of another mailbox.
    innocent.send(&0_u64.to_le_bytes()).unwrap();
    let (mut other, other_senders) = self::mailbox(4096, 1);
    let mut other_books = Books::new(1);
    let mut books = Books::new(senders.len());
    let mut waited = 0;
    while books.receive(&mut mailbox) != Some(SENDERS as usize) {
        waited += 1;
        other_senders[0].send(&other_books.received.to_le_bytes()).unwrap();
        assert_eq!(other_books.receive(&mut other), Some(0));
    }
    assert!(waited <= BURST * (SENDERS + 1), "the innocent message waited for {waited} others");
    assert_eq!(other_books.received, waited);
    while books.receive(&mut mailbox).is_some() {}
    assert_eq!(books.received, SENDERS * room + 1);
    assert_eq!(books.next[..SENDERS as usize], [room; SENDERS as usize]);
}

#[test]
fn a_flood_of_threads_delays_the_others_by_a_bounded_number_of_receives() {
    const FLOODING: u64 = 3;
    const INNOCENT: u64 = 4;
    let total = messages() / 10;
    let (mut mailbox, mut senders) = mailbox(4096, FLOODING + INNOCENT);
    let received = AtomicU64::new(0);
    let (longest, each) = (AtomicU64::new(0), total / FLOODING);
    let quiet_each = 50;
    let innocent = senders.split_off(FLOODING as usize);
    thread::scope(|threads| {
        for sender in senders {
            threads.spawn(move || {
                for n in 0..each {
                    sender.wait_to_send(&n.to_le_bytes()).block().unwrap();
                }
            });
        }
        // The receiver tells the innocent senders of each receive by its number.
        let seen: Vec<AtomicU64> = innocent.iter().map(|_| AtomicU64::new(u64::MAX)).collect();
        let seen = &seen[..];
        thread::scope(|threads| {
            for (sender, own) in innocent.into_iter().zip(seen) {
                let (received, longest) = (&received, &longest);
                threads.spawn(move || {
                    for n in 0..quiet_each {
                        own.store(u64::MAX, SeqCst);
                        // The lane is empty, so there is room.
                        sender.send(&u64::to_le_bytes(n)).unwrap();
                        // The message is there from now on.
                        let sent_at = received.load(SeqCst);
                        let found_at = loop {
                            match own.load(SeqCst) {
                                u64::MAX => thread::yield_now(),
                                found_at => break found_at,
                            }
                        };
                        longest.fetch_max(found_at.saturating_sub(sent_at), SeqCst);
                    }
                });
            }
            let mut books = Books::new((FLOODING + INNOCENT) as usize);
            while books.received < FLOODING * each + INNOCENT * quiet_each {
                mailbox.wait().block();
                let sender = books.receive(&mut mailbox).unwrap();
                received.store(books.received, SeqCst);
                if let Some(own) = sender.checked_sub(FLOODING as usize) {
                    seen[own].store(books.received, SeqCst);
                }
            }
            assert!(mailbox.receive().is_none());
            assert_eq!(
                books.next,
                [vec![each; FLOODING as usize], vec![quiet_each; INNOCENT as usize]].concat()
            );
        });
    });
    // A turn of each lane, and the turn that was under way.
    let bound = BURST * (FLOODING + INNOCENT + 1);
    let longest = longest.into_inner();
    assert!(longest <= bound, "a message waited for {longest} others; the bound is {bound}");
}
