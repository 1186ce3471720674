//! The order of the calls of one caller: a late copy of a frame never passes the next call.

use super::answer::{Answer, Key, Part};
use super::core::{Core, NodeOptions, Output, Registration};
use super::frame::{Body, Frame};
use super::group::Timing;
use super::guard::Guard;
use super::location::Location;
use super::serving::{Arrived, Serving};
use super::{CallId, Fate, Name, NameAlias, NameCapability, NodeId, Route, Time};
use std::collections::{BTreeMap, BTreeSet};

const TIMING: Timing = Timing { beat: 30_000, lease: 400_000, loyal: 160_000 };
const SECOND: Time = 1_000_000;

/// A member that serves a name, a visitor that calls it, and the network between them.
struct Pair {
    now: Time,
    server: Core,
    client: Core,
    name: Name,
    /// The network holds the calls with this body back.
    held_body: &'static [u8],
    held: Vec<Vec<u8>>,
    /// The bodies of the calls that have run.
    ran: Vec<Vec<u8>>,
    called: Vec<(CallId, Result<Vec<u8>, Fate>)>,
}

impl Pair {
    fn new() -> Pair {
        let core = |endpoint: &str, seed| {
            let location = Location::of_host(1);
            Core::new(
                NodeOptions { group: 5, endpoint: endpoint.into(), location, timing: TIMING },
                seed,
                SECOND,
            )
        };
        let (mut server, mut client) = (core("server", 1), core("client", 2));
        let name: Name = "/log".parse().unwrap();
        server.found(SECOND, 77, Vec::new());
        let registration = Registration {
            name: name.clone(),
            service: 9,
            several: false,
            stateless: false,
            shards: 0,
            roster: None,
            key: 3,
            parent: NameCapability { name: Name::root(), key: 77 },
            seen: None,
            register_at: 0,
        };
        server.register(SECOND, 1, registration);
        client.visit(vec!["server".into()]);
        let (held, ran, called) = (Vec::new(), Vec::new(), Vec::new());
        let mut pair = Pair { now: SECOND, server, client, name, held_body: b"", held, ran, called };
        pair.pass(SECOND);
        pair
    }

    fn call(&mut self, body: &[u8], limit: Time) -> CallId {
        let route = Route { name: self.name.clone(), shard: None, repeatable: false };
        let call = self.client.call(self.now, route, 0, body.to_vec(), self.now + limit);
        self.deliver();
        call
    }

    /// Lets time pass.
    fn pass(&mut self, time: Time) {
        let end = self.now + time;
        while self.now < end {
            self.now += 10_000;
            self.server.tick(self.now);
            self.client.tick(self.now);
            self.deliver();
        }
    }

    /// Delivers all frames, but the calls that the network holds back. Calls run, and end unless their body
    /// is "open".
    fn deliver(&mut self) {
        loop {
            let (of_client, of_server) = (self.client.take_outputs(), self.server.take_outputs());
            if of_client.is_empty() && of_server.is_empty() {
                return;
            }
            for output in of_client {
                match output {
                    Output::Send { frame, .. } if self.holds(&frame) => self.held.push(frame),
                    Output::Send { frame, .. } => self.server.receive(self.now, "client", &frame),
                    Output::Called { call, result } => self.called.push((call, result)),
                    _ => {}
                }
            }
            for output in of_server {
                match output {
                    Output::Send { frame, .. } => self.client.receive(self.now, "server", &frame),
                    Output::Run { run, body, .. } => {
                        if body != b"open" {
                            self.server.completed(self.now, run, Some(Vec::new()));
                        }
                        self.ran.push(body);
                    }
                    _ => {}
                }
            }
        }
    }

    fn holds(&self, frame: &[u8]) -> bool {
        match Frame::decode(frame).map(|frame| frame.body) {
            Some(Body::Call { body, .. }) => body == self.held_body,
            _ => false,
        }
    }
}

/// Another caller of the node has an older call under way. The frames of a call are late, so its caller gives
/// it up, and makes the next one. Then the late frames arrive.
fn bodies_that_ran() -> Vec<Vec<u8>> {
    let mut pair = Pair::new();
    let open = pair.call(b"open", 60 * SECOND);
    pair.held_body = b"first";
    let first = pair.call(b"first", SECOND / 2);
    pair.pass(SECOND);
    assert!(pair.held.len() > 1, "it was not sent again");
    assert_eq!(pair.called, [(first, Err(Fate::TimedOut))]);
    let second = pair.call(b"second", SECOND);
    assert_eq!(pair.called[1..], [(second, Ok(Vec::new()))]);
    for frame in std::mem::take(&mut pair.held) {
        pair.server.receive(pair.now, "client", &frame);
    }
    pair.pass(SECOND);
    assert!(pair.called.iter().all(|(call, _)| *call != open));
    pair.ran
}

#[test]
fn a_late_copy_of_a_call_does_not_run_after_the_next_call() {
    let expected: [&[u8]; 3] = [b"open", b"second", b"first"];
    assert_eq!(bodies_that_ran(), expected[..2]);
    assert_eq!(Guard::without(Some(Guard::EndedCalls), bodies_that_ran), expected);
}

const CLIENT: NodeId = NodeId(1);
const KEY: Key = Key { name: NameAlias(1), part: Part::Service(1) };

#[test]
fn a_call_that_is_given_up_and_cancelled_does_not_run() {
    let mut serving = Serving::default();
    serving.open(0, CLIENT, 1, KEY, 1).unwrap();
    let mut arrive =
        |number, open: &[u64]| serving.arrive(0, CLIENT, KEY, 1, number, &open.iter().copied().collect());
    let Arrived::Run { run, .. } = arrive(1, &[0, 1]) else { panic!("refused") };
    // The next call tells that it was given up, while it waits for a thread.
    assert!(matches!(arrive(2, &[0, 2]), Arrived::Run { .. }));
    serving.cancel(run);
    let mut arrive =
        |number, open: &[u64]| serving.arrive(0, CLIENT, KEY, 1, number, &open.iter().copied().collect());
    assert_eq!(arrive(1, &[0, 1]), Arrived::Ignore);
    // The older call of another caller goes on.
    assert!(matches!(arrive(0, &[0, 2]), Arrived::Run { .. }));
}

/// Compares a session with all frames that it got, in any order of the frames.
#[test]
fn ended_calls_are_known_whatever_the_order_of_the_frames() {
    let mut random = super::Random::new(7);
    let mut counts = [0; 3];
    for _ in 0..30 {
        let mut serving = Serving::default();
        serving.open(0, CLIENT, 1, KEY, 1).unwrap();
        // A call ends at a time of its own. Frames show the calls of some time.
        let end_of: Vec<u64> = (0..300).map(|number| number + 1 + random.below(90)).collect();
        let (mut ended, mut running, mut done) = (BTreeSet::new(), BTreeMap::new(), BTreeSet::new());
        for _ in 0..200 {
            let time = random.below(300);
            let is_open = |n: &u64| end_of[*n as usize] > time;
            let open: BTreeSet<u64> = (0..=time).filter(is_open).collect();
            let number = *open.iter().nth(random.below(open.len() as u64) as usize).unwrap();
            ended.extend((0..=time).filter(|n| !is_open(n)));
            match serving.arrive(0, CLIENT, KEY, 1, number, &open) {
                Arrived::Run { run, .. } => {
                    counts[0] += 1;
                    assert!(!ended.contains(&number) && !running.contains_key(&number));
                    assert!(!done.contains(&number));
                    running.insert(number, run);
                }
                Arrived::Answer(answer) => {
                    counts[1] += 1;
                    assert_eq!(answer, Answer::Dropped);
                    assert!(!ended.contains(&number) && done.contains(&number));
                }
                Arrived::Ignore => {
                    counts[2] += 1;
                    assert!(ended.contains(&number) || running.contains_key(&number));
                }
            }
            // One of the calls ends, or is cancelled before it begins.
            let at = random.below(1 + running.len() as u64) as usize;
            if let Some((number, run)) = running.iter().nth(at).map(|(number, run)| (*number, *run)) {
                running.remove(&number);
                if random.below(4) == 0 {
                    serving.cancel(run);
                } else {
                    let told = serving.complete(run, Answer::Dropped);
                    assert_eq!(told.is_some(), !ended.contains(&number), "{number}");
                    done.insert(number);
                }
            }
        }
    }
    assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
}
