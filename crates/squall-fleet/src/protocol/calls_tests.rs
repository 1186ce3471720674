//! Calls of a client whose entry of a name is out of date.

use super::answer::{Answer, Lookup};
use super::calls::Client;
use super::directory::{Entry, Shard};
use super::frame::Body;
use super::{CallId, Fate, Name, NameAlias, NodeId, Random, Route, Time};

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
