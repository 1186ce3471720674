//! Frames that no node sends: random and changed bytes, extreme numbers, and copies of old frames.
//!
//! - Each of them leaves the node alive, in a build that checks arithmetic.
//! - No length field reserves room that the frame does not have.
//! - No answer holds the result of another client.

use super::answer::{Answer, Key, Part};
use super::core::{Core, NodeOptions, Output, Registration};
use super::directory::{Change, Request};
use super::frame::{Beat, Body, Frame, Position};
use super::group::Timing;
use super::location::Location;
use super::{Name, NameCapability, NodeId, Random, Route, Time, sim};
use std::collections::BTreeMap;

const GROUP: u128 = 5;
const TIMING: Timing = Timing { beat: 30_000, lease: 400_000, loyal: 160_000 };
/// The nodes of a [`Cluster`].
const FOUNDER: usize = 0;
const MEMBER: usize = 1;
const CLIENT: usize = 2;
const INTRUDER: usize = 3;
/// In each result of a call of the client.
const SECRET: &[u8] = b"the result of another client";

/// A founder and a member with services, a client, and a client that knows the group but no session.
struct Cluster {
    now: Time,
    cores: Vec<Core>,
    /// Frames of the intruder.
    sent: Vec<Vec<u8>>,
    /// Frames that reached the endpoint of the intruder.
    received: Vec<Vec<u8>>,
    results: usize,
}

impl Cluster {
    fn new() -> Cluster {
        let core = |at: usize| {
            let options = NodeOptions {
                group: GROUP,
                endpoint: Cluster::endpoint(at),
                location: Location::of_host(at as u64 % 2),
                timing: TIMING,
            };
            Core::new(options, at as u64 + 1, 1_000_000)
        };
        let mut cluster = Cluster {
            now: 1_000_000,
            cores: (0..4).map(core).collect(),
            sent: Vec::new(),
            received: Vec::new(),
            results: 0,
        };
        let seeds = || (0..2).map(Cluster::endpoint).collect::<Vec<_>>();
        cluster.cores[FOUNDER].found(cluster.now, 77, seeds());
        cluster.cores[MEMBER].join(cluster.now, seeds());
        for node in [FOUNDER, MEMBER] {
            for (name, shards) in [("/fleet", 3), ("/echo", 0)] {
                let registration = Registration {
                    name: name.parse().unwrap(),
                    service: node as u64 * 10 + u64::from(shards),
                    several: true,
                    stateless: shards == 0,
                    shards,
                    roster: None,
                    key: 100 + node as u128 * 10 + u128::from(shards),
                    parent: NameCapability { name: Name::root(), key: 77 },
                    seen: None,
                    register_at: 0,
                };
                cluster.cores[node].register(cluster.now, 0, registration);
            }
        }
        cluster.cores[CLIENT].visit(seeds());
        cluster.cores[INTRUDER].visit(seeds());
        cluster.run_for(300_000);
        for shard in [Some(0), Some(1), Some(2), None] {
            for client in [CLIENT, INTRUDER] {
                let name = if shard.is_some() { "/fleet" } else { "/echo" };
                let route = Route { name: name.parse().unwrap(), shard, repeatable: false };
                let body = if client == CLIENT { SECRET.to_vec() } else { b"own".to_vec() };
                let deadline = cluster.now + 2_000_000;
                cluster.cores[client].call(cluster.now, route, 1, body, deadline);
            }
        }
        cluster.run_for(600_000);
        assert_eq!(cluster.results, 8, "all calls have their results");
        cluster.cores.iter_mut().for_each(|core| drop(core.take_outputs()));
        cluster
    }

    fn endpoint(at: usize) -> String {
        format!("n/{at}")
    }

    fn run_for(&mut self, time: Time) {
        let end = self.now + time;
        while self.now < end {
            (0..self.cores.len()).for_each(|at| self.absorb(at, true));
            let next = self.cores.iter().map(Core::wake_at).min().unwrap_or(end);
            self.now = next.clamp(self.now + 1_000, end.max(self.now + 1_000));
            self.cores.iter_mut().for_each(|core| core.tick(self.now));
        }
    }

    /// Does the work that a core has asked for. The services answer with the arguments.
    fn absorb(&mut self, at: usize, deliver: bool) {
        // A frame that leads to another frame without end is a fault, too.
        for _ in 0..1_000 {
            let outputs = self.cores[at].take_outputs();
            if outputs.is_empty() {
                return;
            }
            for output in outputs {
                match output {
                    Output::Send { to, frame } => self.deliver(at, &to, frame, deliver),
                    Output::Run { run, body, .. } => {
                        self.cores[at].completed(self.now, run, Some(body));
                    }
                    Output::Export { name, shard, epoch, .. } => {
                        self.cores[at].exported(self.now, name, shard, epoch, vec![1; 200_000]);
                    }
                    Output::Called { result, .. } => self.results += usize::from(result.is_ok()),
                    _ => {}
                }
            }
        }
        panic!("node {at} never rests");
    }

    fn deliver(&mut self, from: usize, to: &str, frame: Vec<u8>, deliver: bool) {
        if from == INTRUDER {
            self.sent.push(frame.clone());
        }
        if to == Cluster::endpoint(INTRUDER) {
            self.received.push(frame.clone());
        }
        if let Some(to) = (0..self.cores.len()).find(|at| Cluster::endpoint(*at) == to).filter(|_| deliver) {
            self.cores[to].receive(self.now, &Cluster::endpoint(from), &frame);
        }
    }

    /// Brings bytes to a node, and lets it act on them.
    fn inject(&mut self, to: usize, bytes: &[u8]) {
        self.cores[to].receive(self.now, &Cluster::endpoint(INTRUDER), bytes);
        self.absorb(to, false);
        self.now += 500;
        self.cores[to].tick(self.now);
        self.absorb(to, false);
    }

    fn frame(&self, from: NodeId, to: usize, body: Body) -> Vec<u8> {
        Frame::new(GROUP, from, self.cores[to].me(), body).encode()
    }

    /// A frame for this node, that does not decode to less.
    fn redirect(&self, bytes: &[u8], to: usize) -> Vec<u8> {
        let Some(frame) = Frame::decode(bytes) else { return bytes.to_vec() };
        Frame::new(GROUP, frame.from, self.cores[to].me(), frame.body).encode()
    }
}

/// Changes bytes: flips, cuts, copies, and numbers of all sizes.
fn mutate(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..=random.below(3) {
        if bytes.is_empty() {
            bytes.push(0);
        }
        let at = random.below(bytes.len() as u64) as usize;
        match random.below(6) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next() as u8,
            2 => bytes.truncate(at),
            3 => bytes.insert(at, random.next() as u8),
            4 => {
                // The encoding of a number of 64 bits: the largest, or one near it.
                let last = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
                let near = [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
                let number = if random.below(2) == 0 { last } else { near };
                bytes.splice(at..=at, number);
            }
            _ => {
                let to = at + random.below((bytes.len() - at) as u64) as usize;
                let part = bytes[at..=to].to_vec();
                let into = random.below(bytes.len() as u64) as usize;
                bytes.splice(into..into, part);
            }
        }
    }
}

/// Frames that end sessions, and requests that claim names.
fn reclaims_and_claims(number: u64) -> Vec<Body> {
    let key = Key { name: "/fleet".parse::<Name>().unwrap().alias(), part: Part::Shard(0) };
    let mut all = vec![Body::Reclaim { key, session: number }, Body::Reclaimed { session: number }];
    for several in [false, true] {
        let (name, parent) = ("/sys".parse().unwrap(), NameCapability { name: Name::root(), key: 77 });
        let request = Request::Reserve { name, several, key: u128::from(number), parent };
        all.push(Body::Propose { number, request });
    }
    all
}

/// Bodies of all kinds, with this number at all places for numbers.
fn bodies(number: u64) -> Vec<Body> {
    let [fleet, echo, unknown] =
        ["/fleet", "/echo", "/unknown"].map(|name| name.parse::<Name>().unwrap().alias());
    let node = NodeId(number);
    let small = u32::try_from(number).unwrap_or(u32::MAX);
    let position = Position { term: number, index: number };
    let beat = |term, echo, changes| {
        Body::Beat(Box::new(Beat {
            term,
            sent: number,
            committed: position,
            echo,
            whole: None,
            after: position,
            changes,
        }))
    };
    let held =
        |term, missed| Body::Held { term, held: position, committed: position, missed, sent: 0, at: number };
    let endpoint = |length: usize| "e".repeat(length);
    let part = u32::try_from(number).ok();
    let location = Location { host: number, memory: part, cache: part };
    let mut all = vec![
        Body::Join { endpoint: endpoint(0), location },
        Body::Join { endpoint: endpoint(64 << 10), location },
        Body::Ask { node, endpoint: endpoint(64 << 10) },
        Body::Seek { committed: position },
        Body::NoMember { committed: Position::default() },
        Body::Ended { node },
        Body::Show,
        Body::Look,
        Body::Looked { figures: Box::default() },
    ];
    for term in [0, 1, number] {
        all.push(beat(term, None, Vec::new()));
        all.push(beat(term, Some(number), vec![(position, Change::Promote { node })]));
        all.push(beat(term, Some(number), vec![(position, Change::Nothing), (position, Change::Nothing)]));
        for flag in [false, true] {
            all.push(held(term, flag));
            all.push(Body::Vote { term, last: position, pre: flag });
            all.push(Body::Voted { term, pre: flag, granted: !flag });
        }
    }
    for name in [fleet, echo, unknown] {
        let request = Request::Moved { name, shard: small, epoch: number };
        all.push(Body::Propose { number, request });
        all.push(Body::Propose { number, request: Request::Abandon { name, shard: 0, epoch: number } });
        all.push(Body::Resolve { name });
        all.push(Body::Resolved { name, entry: None, nodes: vec![(node, endpoint(0), location)] });
        for part in [Part::Shard(0), Part::Shard(small), Part::Service(0), Part::Service(number)] {
            let key = Key { name, part };
            all.push(Body::Open { key, nonce: number });
            all.push(Body::Opened { key, nonce: number, session: Ok(number) });
            all.push(Body::Opened { key, nonce: number, session: Err(Answer::NoSession { known: true }) });
            for open in [&[][..], &[0], &[number], &[0, number], &[number, u64::MAX]] {
                let (open, body) = (open.iter().copied().collect(), vec![0; 3]);
                all.push(Body::Call { key, session: number, number, open, method: number, body });
            }
        }
        for (piece, pieces) in [(0, 0), (0, small), (small, small), (small, 0)] {
            let bytes = vec![0; 5];
            all.push(Body::Handover { name, shard: 0, epoch: number, piece, pieces, bytes });
            all.push(Body::Taken { name, shard: 0, epoch: number, piece });
        }
    }
    all.push(Body::Answered { session: number, number, answer: Answer::Result(Vec::new()) });
    all.push(Body::Propose { number, request: Request::Leave });
    all.extend(reclaims_and_claims(number));
    all
}

#[test]
fn random_bytes_change_nothing() {
    let mut cluster = Cluster::new();
    let mut random = Random::new(1);
    for length in 0..2_000u64 {
        let bytes: Vec<u8> = (0..length % 200).map(|_| random.next() as u8).collect();
        assert!(Frame::decode(&bytes).is_none());
        (0..4).for_each(|node| cluster.cores[node].receive(cluster.now, "n/9", &bytes));
    }
    assert!(cluster.cores.iter_mut().all(|core| core.take_outputs().is_empty()));
}

#[test]
fn frames_of_another_version_group_or_node_change_nothing() {
    let mut cluster = Cluster::new();
    let founder = cluster.cores[FOUNDER].me();
    for body in bodies(3) {
        let mut version = cluster.frame(NodeId(9), FOUNDER, body.clone());
        version[0] += 1;
        let group = Frame::new(GROUP + 1, NodeId(9), founder, body.clone()).encode();
        let other = Frame::new(GROUP, NodeId(9), NodeId(founder.0 ^ 2), body.clone()).encode();
        let itself = Frame::new(GROUP, founder, founder, body).encode();
        for frame in [version, group, other, itself] {
            cluster.cores[FOUNDER].receive(cluster.now, "n/9", &frame);
        }
    }
    assert!(cluster.cores[FOUNDER].take_outputs().is_empty());
    assert!(cluster.cores[FOUNDER].group().is_leader());
}

#[test]
fn extreme_numbers_leave_every_node_alive() {
    for number in [0, 1, 2, 63, 64, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
        for node in [FOUNDER, MEMBER, CLIENT] {
            // Each body alone, from each node, and all of them one after the other.
            let mut cluster = Cluster::new();
            let froms = [cluster.cores[1 - node.min(1)].me(), NodeId(number | 2)];
            for from in froms {
                for body in bodies(number) {
                    let frame = cluster.frame(from, node, body);
                    cluster.inject(node, &frame);
                }
                cluster.now += TIMING.loyal;
                cluster.cores[node].tick(cluster.now);
            }
            // Elections, joins and retries go on.
            for _ in 0..40 {
                cluster.now += TIMING.loyal / 2;
                cluster.cores[node].tick(cluster.now);
                cluster.absorb(node, false);
            }
        }
    }
}

#[test]
fn each_extreme_frame_alone_leaves_the_leader_alive() {
    for number in [u64::MAX - 1, u64::MAX] {
        let mut cluster = Cluster::new();
        let count = bodies(number).len();
        for at in 0..count {
            if !cluster.cores[FOUNDER].group().is_leader() {
                cluster = Cluster::new();
            }
            let member = cluster.cores[MEMBER].me();
            let body = bodies(number).swap_remove(at);
            let frame = cluster.frame(member, FOUNDER, body);
            cluster.inject(FOUNDER, &frame);
        }
    }
}

#[test]
fn changed_and_truncated_frames_leave_every_node_alive() {
    let recorded: Vec<Vec<u8>> = [1, 6].into_iter().flat_map(sim::frames).collect();
    let mut random = Random::new(2);
    for round in 0..20 {
        let mut cluster = Cluster::new();
        for step in 0..150 {
            let at = random.below(recorded.len() as u64) as usize;
            let node = (round + step) % 3;
            let mut bytes = cluster.redirect(&recorded[at], node);
            mutate(&mut random, &mut bytes);
            cluster.inject(node, &bytes);
        }
    }
    // All beginnings of some frames.
    let mut cluster = Cluster::new();
    for at in 0..40 {
        let frame = cluster.redirect(&recorded[recorded.len() * at / 40], FOUNDER);
        for length in 0..frame.len().min(300) {
            assert!(Frame::decode(&frame[..length]).is_none(), "{length} of {} bytes", frame.len());
            cluster.cores[FOUNDER].receive(cluster.now, "n/9", &frame[..length]);
        }
    }
    assert!(cluster.cores[FOUNDER].take_outputs().is_empty());
}

#[test]
fn all_frames_of_a_run_leave_a_fresh_node_alive() {
    for seed in [1, 6] {
        for node in [FOUNDER, MEMBER, CLIENT] {
            let mut cluster = Cluster::new();
            for frame in sim::frames(seed) {
                let frame = cluster.redirect(&frame, node);
                cluster.inject(node, &frame);
            }
        }
    }
}

#[test]
fn no_answer_holds_the_result_of_another_client() {
    let mut random = Random::new(3);
    let holds = |bytes: &[u8]| bytes.windows(SECRET.len()).any(|part| part == SECRET);
    let mut answers = BTreeMap::new();
    for round in 0..20 {
        let mut cluster = Cluster::new();
        let own = cluster.sent.clone();
        cluster.received.clear();
        for step in 0..200 {
            // Its own frames, as they were and changed, and calls with guessed sessions.
            let node = (round + step) % 2;
            let from = cluster.cores[INTRUDER].me();
            let mut bytes = own[random.below(own.len() as u64) as usize].clone();
            match random.below(3) {
                0 => {}
                1 => mutate(&mut random, &mut bytes),
                _ => {
                    let name = "/fleet".parse::<Name>().unwrap().alias();
                    let key = Key { name, part: Part::Shard(random.below(3) as u32) };
                    let (session, number) = (random.next() >> random.below(64), random.below(3));
                    let (open, body) = ([number].into(), vec![1]);
                    let body = Body::Call { key, session, number, open, method: 1, body };
                    bytes = cluster.frame(from, node, body);
                }
            }
            cluster.inject(node, &bytes);
        }
        for frame in &cluster.received {
            assert!(!holds(frame), "a result of the client reached the intruder");
            if let Some(Body::Answered { answer, .. }) = Frame::decode(frame).map(|frame| frame.body) {
                let kind =
                    format!("{answer:?}").chars().take_while(|c| c.is_alphabetic()).collect::<String>();
                *answers.entry(kind).or_insert(0) += 1;
            }
        }
    }
    // Copies of its own calls have their results again, and guessed sessions have no results.
    assert!(answers["Result"] > 0 && answers["NoSession"] > 100, "{answers:?}");
}

#[test]
fn names_in_frames_have_at_most_255_bytes() {
    let request = |text: &str| {
        // The encoding of a name is that of its text.
        let mut bytes = postcard::to_allocvec(&(text, 1u128)).unwrap();
        let frame = Frame::new(
            GROUP,
            NodeId(9),
            NodeId(1),
            Body::Propose {
                number: 1,
                request: Request::Unregister {
                    capability: NameCapability { name: "/name".parse().unwrap(), key: 1 },
                },
            },
        );
        let mut all = frame.encode();
        all.truncate(all.len() - postcard::to_allocvec(&("/name", 1u128)).unwrap().len());
        all.append(&mut bytes);
        all
    };
    assert!(Frame::decode(&request("/name")).is_some());
    assert!(Frame::decode(&request("")).is_some(), "the root");
    assert!(Frame::decode(&request(&format!("/{}", "a".repeat(254)))).is_some());
    for text in [format!("/{}", "a".repeat(255)), format!("/{}", "a".repeat(65_535)), "a".into(), "/".into()]
    {
        assert!(Frame::decode(&request(&text)).is_none(), "{} bytes", text.len());
    }
}

#[test]
fn a_length_field_reserves_no_room() {
    use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};
    /// The elements that the decoder promises.
    struct Promised(Option<usize>);
    impl<'de> Deserialize<'de> for Promised {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Promised, D::Error> {
            struct Hint;
            impl<'de> Visitor<'de> for Hint {
                type Value = Promised;
                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("a sequence")
                }
                fn visit_seq<A: SeqAccess<'de>>(self, sequence: A) -> Result<Promised, A::Error> {
                    Ok(Promised(sequence.size_hint()))
                }
            }
            deserializer.deserialize_seq(Hint)
        }
    }
    for length in [4u64, 1 << 20, u64::from(u32::MAX), u64::MAX] {
        let mut bytes = postcard::to_allocvec(&length).unwrap();
        bytes.extend([0; 3]);
        let (promised, _) = postcard::take_from_bytes::<Promised>(&bytes).unwrap();
        assert!(promised.0.is_none(), "{length} elements in three bytes: {:?}", promised.0);
    }
    let (promised, _) = postcard::take_from_bytes::<Promised>(&[3, 0, 0, 0]).unwrap();
    assert_eq!(promised.0, Some(3));
}
