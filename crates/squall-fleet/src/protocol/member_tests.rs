//! Members that were removed, and begin again under other numbers.

use super::core::{Core, NodeOptions, Output, Registration};
use super::directory::Request;
use super::frame::{Body, Frame};
use super::group::Timing;
use super::location::Location;
use super::{CallId, Fate, Name, NameCapability, NodeId, Refusal, Route, Time};
use std::collections::VecDeque;

const TIMING: Timing = Timing { beat: 30_000, lease: 400_000, loyal: 160_000 };
const SECOND: Time = 1_000_000;
const GROUP: u128 = 5;
const ROOT: u128 = 77;

/// Three members, and the network between them. A frame arrives at once, or is lost.
struct Members {
    now: Time,
    cores: Vec<Core>,
    /// Outputs of the members that are not handled yet.
    waiting: VecDeque<(usize, Output)>,
    /// The member that no frame reaches or leaves.
    cut: Option<usize>,
    /// Copies of all `NoMember` frames, with their senders and receivers.
    refusals: Vec<(usize, usize, Vec<u8>)>,
    outcomes: Vec<(u64, Result<(), Refusal>)>,
    called: Vec<(CallId, Result<Vec<u8>, Fate>)>,
}

impl Members {
    fn new() -> Members {
        let core = |at: usize| {
            let (endpoint, location) = (at.to_string(), Location::of_host(1));
            Core::new(NodeOptions { group: GROUP, endpoint, location, timing: TIMING }, at as u64, SECOND)
        };
        let cores = (0..3).map(core).collect();
        let (refusals, outcomes, called) = (Vec::new(), Vec::new(), Vec::new());
        let mut members =
            Members { now: SECOND, cores, waiting: VecDeque::new(), cut: None, refusals, outcomes, called };
        members.cores[0].found(SECOND, ROOT, Vec::new());
        (1..3).for_each(|at| members.cores[at].join(SECOND, vec!["0".into()]));
        members.pass(SECOND);
        assert_eq!(members.cores[0].group().directory.voters.len(), 3);
        members
    }

    /// Lets time pass.
    fn pass(&mut self, time: Time) {
        let end = self.now + time;
        while self.now < end {
            self.now += 10_000;
            let now = self.now;
            self.cores.iter_mut().for_each(|core| core.tick(now));
            self.deliver();
        }
    }

    /// Delivers all frames. A call runs and ends at once; its result is its body.
    fn deliver(&mut self) {
        while let Some((from, output)) = self.next_output() {
            match output {
                Output::Send { to, frame } => {
                    let to: usize = to.parse().expect("an endpoint");
                    if self.cut.is_some_and(|cut| cut == from || cut == to) {
                        continue;
                    }
                    if matches!(body(&frame), Body::NoMember { .. }) {
                        self.refusals.push((from, to, frame.clone()));
                    }
                    self.cores[to].receive(self.now, &from.to_string(), &frame);
                }
                Output::Run { run, body, .. } => self.cores[from].completed(self.now, run, Some(body)),
                Output::Requested { ticket, outcome } => self.outcomes.push((ticket, outcome)),
                Output::Called { call, result } => self.called.push((call, result)),
                _ => {}
            }
        }
    }

    fn next_output(&mut self) -> Option<(usize, Output)> {
        for (at, core) in self.cores.iter_mut().enumerate() {
            self.waiting.extend(core.take_outputs().into_iter().map(|output| (at, output)));
        }
        self.waiting.pop_front()
    }

    /// Lets a member serve a name. Returns the outcome.
    fn serve(&mut self, at: usize, text: &str, key: u128) -> Result<(), Refusal> {
        let registration = Registration {
            name: name(text),
            service: key as u64,
            several: false,
            stateless: false,
            shards: 0,
            roster: None,
            key,
            parent: NameCapability { name: Name::root(), key: ROOT },
            seen: None,
            register_at: 0,
        };
        self.cores[at].register(self.now, key as u64, registration);
        self.outcome(key as u64)
    }

    fn outcome(&mut self, ticket: u64) -> Result<(), Refusal> {
        self.pass(SECOND / 2);
        let told = self.outcomes.iter().find(|(of, _)| *of == ticket);
        told.expect("an outcome").1
    }

    /// Returns the member that serves a name, by the directory of the first one.
    fn server(&self, text: &str) -> Option<usize> {
        let (_, entry) = self.cores[0].group().directory.entry(name(text).alias())?;
        self.cores.iter().position(|core| core.me() == entry.places[0].node)
    }

    /// Cuts a member off until the group has removed it. Returns its number.
    fn cut_off(&mut self, at: usize) -> NodeId {
        let old = self.cores[at].me();
        self.cut = Some(at);
        self.pass(4 * SECOND);
        assert!(!self.cores[0].group().directory.members.contains_key(&old), "the group has kept it");
        old
    }

    /// Ends the cut. The member joins under another number.
    fn unite(&mut self) {
        self.cut = None;
        self.pass(2 * SECOND);
    }

    fn is_member(&self, at: usize) -> bool {
        let me = self.cores[at].me();
        self.cores.iter().all(|core| core.group().directory.members.contains_key(&me))
    }
}

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn body(frame: &[u8]) -> Body {
    Frame::decode(frame).expect("a frame").body
}

#[test]
fn a_refused_service_holds_up_no_other_one_of_a_node_that_begins_again() {
    let mut members = Members::new();
    for (text, key) in [("/x", 10), ("/y", 11), ("/z", 12)] {
        assert_eq!(members.serve(2, text, key), Ok(()));
    }
    members.cut_off(2);
    // Others serve two of its names now.
    assert_eq!(members.serve(0, "/x", 20), Ok(()));
    assert_eq!(members.serve(1, "/y", 21), Ok(()));
    members.unite();
    assert!(members.is_member(2));
    assert_eq!(["/x", "/y", "/z"].map(|text| members.server(text)), [Some(0), Some(1), Some(2)]);
    // It goes on to ask for the others.
    let capability = NameCapability { name: name("/y"), key: 21 };
    members.cores[1].request(members.now, 30, Request::Unregister { capability });
    assert_eq!(members.outcome(30), Ok(()));
    members.pass(SECOND);
    assert_eq!(["/x", "/y", "/z"].map(|text| members.server(text)), [Some(0), Some(2), Some(2)]);
}

#[test]
fn a_late_no_member_ends_no_later_member_and_no_call() {
    let mut members = Members::new();
    assert_eq!(members.serve(0, "/echo", 10), Ok(()));
    let old = members.cut_off(2);
    members.unite();
    assert!(members.is_member(2));
    let me = members.cores[2].me();
    assert_ne!(me, old);
    let late: Vec<_> = members.refusals.iter().filter(|(_, to, _)| *to == 2).cloned().collect();
    assert!(!late.is_empty(), "nothing told it of its removal");
    // A call is under way as the copies arrive: those for its old number, and the like for its new one.
    let route = Route { name: name("/echo"), shard: None, repeatable: false };
    let deadline = members.now + SECOND;
    let call = members.cores[2].call(members.now, route, 0, b"echo".to_vec(), deadline);
    let begins = members.cores.iter().map(|core| core.group().directory.clone()).collect::<Vec<_>>();
    for (from, _, frame) in late {
        let sender = Frame::decode(&frame).expect("a frame").from;
        let renamed = Frame::new(GROUP, sender, me, body(&frame)).encode();
        for frame in [frame, renamed] {
            members.cores[2].receive(members.now, &from.to_string(), &frame);
        }
    }
    members.pass(SECOND);
    assert_eq!(members.called, [(call, Ok(b"echo".to_vec()))]);
    assert_eq!(members.cores[2].me(), me, "it has begun again");
    let after = members.cores.iter().map(|core| core.group().directory.clone()).collect::<Vec<_>>();
    assert_eq!(after, begins);
}
