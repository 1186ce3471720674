//! Calls of a client: with an entry of a name that is out of date, and above the limit of a session.

use super::answer::{Answer, Key, Lookup, Part};
use super::calls::Client;
use super::directory::{Entry, Shard};
use super::ended::CERTAIN;
use super::frame::{Body, Frame};
use super::{CallId, Fate, LARGEST_BODY, Name, NameAlias, NodeId, OPEN_MAX, Random, Route, Time};
use std::collections::BTreeSet;

const LIMIT: Time = 5_000_000;
const DEAD: NodeId = NodeId(1);
const LIVING: NodeId = NodeId(2);

/// An entry that is asked for again after a doubt, and then names the living owner.
struct OutOfDate {
    entry: Entry,
    doubted: bool,
    is_renewed: bool,
}

impl OutOfDate {
    fn new() -> OutOfDate {
        OutOfDate { entry: owned_by(DEAD), doubted: false, is_renewed: true }
    }
}

fn owned_by(node: NodeId) -> Entry {
    let shard = Shard { owner: Some(node), epoch: 1, born: 1, target: None };
    Entry { several: true, stateless: false, places: Vec::new(), shards: vec![shard], roster: None }
}

impl Lookup for OutOfDate {
    fn want(&mut self, _: NameAlias) {
        if self.doubted && self.is_renewed {
            self.entry = owned_by(LIVING);
            self.doubted = false;
        }
    }

    fn entry(&self, _: NameAlias) -> Option<&Entry> {
        Some(&self.entry)
    }

    fn doubt(&mut self, _: NameAlias) {
        self.doubted = true;
    }

    fn distance(&self, _: NodeId) -> u8 {
        0
    }
}

fn call(client: &mut Client, now: Time) -> CallId {
    let name: Name = "/counters".parse().unwrap();
    client.begin(now, Route { name, shard: Some(0), repeatable: false }, 0, Vec::new(), now + LIMIT)
}

/// Ticks until `end`. The living node answers, and the dead one does not.
fn run(client: &mut Client, lookup: &mut OutOfDate, mut now: Time, end: Time) {
    while now < end {
        client.tick(now, lookup);
        for (to, body) in std::mem::take(&mut client.out) {
            match body {
                _ if to == DEAD => {}
                Body::Open { key, nonce } => client.opened(now, key, nonce, Ok(5), lookup),
                Body::Call { session, number, .. } => {
                    client.answered(now, to, session, number, Answer::Result(Vec::new()), lookup);
                }
                other => panic!("{other:?}"),
            }
        }
        now += 10_000;
    }
}

#[test]
fn an_owner_that_opens_no_session_is_doubted() {
    let (mut client, mut lookup) = (Client::new(Random::new(1)), OutOfDate::new());
    let id = call(&mut client, 0);
    run(&mut client, &mut lookup, 0, LIMIT / 10);
    assert_eq!(client.done, [(id, Ok(Vec::new()))]);
}

#[test]
fn an_owner_that_has_answered_no_call_until_its_deadline_is_doubted() {
    let (mut client, mut lookup) = (Client::new(Random::new(1)), OutOfDate::new());
    lookup.is_renewed = false;
    let id = call(&mut client, 0);
    run(&mut client, &mut lookup, 0, LIMIT + 10_000);
    assert_eq!(client.done, [(id, Err(Fate::NotAccepted))]);
    assert!(lookup.doubted);
}

/// The numbers of the calls that the client sends now, to a node that opens its session at once.
fn sent(client: &mut Client, lookup: &mut OutOfDate, now: Time) -> Vec<(u64, BTreeSet<u64>)> {
    let mut sent = Vec::new();
    loop {
        client.tick(now, lookup);
        let out = std::mem::take(&mut client.out);
        if out.is_empty() {
            return sent;
        }
        for (_, body) in out {
            match body {
                Body::Open { key, nonce } => client.opened(now, key, nonce, Ok(5), lookup),
                Body::Call { number, open, .. } => sent.push((number, open)),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn a_call_that_is_open_for_long_stops_no_other_call() {
    let (mut client, mut lookup) = (Client::new(Random::new(1)), OutOfDate::new());
    call(&mut client, 0);
    assert_eq!(sent(&mut client, &mut lookup, 0), [(0, [0].into())]);
    for number in 1..1_000 {
        let id = call(&mut client, 0);
        assert_eq!(sent(&mut client, &mut lookup, 0), [(number, [0, number].into())]);
        client.answered(0, DEAD, 5, number, Answer::Result(Vec::new()), &mut lookup);
        assert_eq!(std::mem::take(&mut client.done), [(id, Ok(Vec::new()))]);
    }
}

#[test]
fn a_late_refusal_is_not_certain() {
    for (late, ends) in [(CERTAIN - 1, false), (CERTAIN, true)] {
        let (mut client, mut lookup) = (Client::new(Random::new(1)), OutOfDate::new());
        call(&mut client, 0);
        assert_eq!(sent(&mut client, &mut lookup, 0).len(), 1);
        // The node was suspended, and has not sent the call again.
        client.answered(late, DEAD, 5, 0, Answer::NoSession { known: false }, &mut lookup);
        let lost: Vec<_> = client.done.iter().map(|(_, result)| result.clone()).collect();
        assert_eq!(lost, if ends { vec![Err(Fate::ServerLost)] } else { vec![] });
    }
}

#[test]
fn calls_above_the_limit_are_sent_once_others_have_ended() {
    let (mut client, mut lookup) = (Client::new(Random::new(1)), OutOfDate::new());
    (0..=OPEN_MAX).for_each(|_| _ = call(&mut client, 0));
    assert_eq!(sent(&mut client, &mut lookup, 0).len(), OPEN_MAX);
    client.answered(0, DEAD, 5, 1, Answer::Dropped, &mut lookup);
    let last = OPEN_MAX as u64;
    let open = (0..=last).filter(|number| *number != 1).collect();
    assert_eq!(sent(&mut client, &mut lookup, 20_000), [(last, open)]);
}

/// Ends a call that is open, and notes the calls that the client sends for it at once.
fn end(client: &mut Client, lookup: &mut OutOfDate, now: Time, number: u64) -> Vec<u64> {
    client.answered(now, DEAD, 5, number, Answer::Result(Vec::new()), lookup);
    sent(client, lookup, now).into_iter().map(|(number, _)| number).collect()
}

#[test]
fn calls_above_the_limit_wait_without_a_poll_and_are_sent_in_their_order() {
    let (mut client, mut lookup) = (Client::new(Random::new(1)), OutOfDate::new());
    let first: Vec<_> = (0..OPEN_MAX + 3).map(|_| call(&mut client, 0)).collect();
    assert_eq!(sent(&mut client, &mut lookup, 0).len(), OPEN_MAX);
    // The next event is that of the calls that were sent.
    assert_eq!(client.wake_at(), 100_000);
    // A younger call, at a time at which there is room, is behind the three that wait.
    client.answered(50, DEAD, 5, 0, Answer::Result(Vec::new()), &mut lookup);
    let younger = call(&mut client, 50);
    let mut number = OPEN_MAX as u64;
    assert_eq!(sent(&mut client, &mut lookup, 50).len(), 1);
    for _ in 0..3 {
        assert_eq!(end(&mut client, &mut lookup, 60, number - 1), [number + 1]);
        number += 1;
    }
    assert_eq!(end(&mut client, &mut lookup, 70, number), []);
    let ended: Vec<_> = client.done.drain(..).map(|(id, _)| id).collect();
    assert_eq!(ended[ended.len() - 3..], [first[OPEN_MAX], first[OPEN_MAX + 1], younger]);
}

#[test]
fn the_largest_call_fits_into_a_frame() {
    let key = Key { name: NameAlias(u128::MAX), part: Part::Service(u64::MAX) };
    let (session, method, body) = (u64::MAX, u64::MAX, vec![1; LARGEST_BODY]);
    let numbers = (0..64).map(|number| (1 << 62) - 1 - number);
    let (number, open) = ((1 << 62) - 1, numbers.collect());
    let body = Body::Call { key, session, number, open, method, body };
    let frame = Frame::new(u128::MAX, NodeId(u64::MAX), NodeId(u64::MAX), body);
    assert!(frame.encode().len() <= 1 << 20);
}
