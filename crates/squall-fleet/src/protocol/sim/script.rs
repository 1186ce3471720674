//! Scripts: schedules in a fixed order, on a network whose faults are named.
//!
//! Problem: some faults need five coincidences. No random seed in reach has them.
//! Idea: a script says which frames are dropped, and runs the nodes until an event comes. All else is free of
//! faults: each frame takes [`DELAY`], each run takes a moment, and all clocks have one rate.
//!
//! - I1. A script depends on no seed: it names the next leader, and waits for events, not for times.

use super::{SHARDS, Time, World};
use crate::protocol::directory::{Change, Request, Shard};
use crate::protocol::frame::{Body, Frame};
use crate::protocol::location::Location;
use crate::protocol::{NodeId, Route};
use std::collections::BTreeSet;

/// The time of each frame on its way, in microseconds.
pub(super) const DELAY: Time = 100;
/// The longest wait for an event.
const PATIENCE: Time = 5_000_000;

/// A kind of frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Beat,
    Held,
    Vote,
    Moved,
    Handover,
    Answered,
}

/// The frames that are dropped.
#[derive(Debug, Default)]
pub(super) struct Rules {
    cut: BTreeSet<(usize, usize)>,
    muted: BTreeSet<(usize, usize, Kind)>,
}

impl Rules {
    /// Returns whether a frame arrives.
    pub(super) fn pass(&self, from: usize, to: usize, bytes: &[u8]) -> bool {
        let kind = match Frame::decode(bytes).map(|frame| frame.body) {
            Some(Body::Beat(_)) => Some(Kind::Beat),
            Some(Body::Held { .. }) => Some(Kind::Held),
            Some(Body::Vote { .. }) => Some(Kind::Vote),
            Some(Body::Propose { request: Request::Moved { .. }, .. }) => Some(Kind::Moved),
            Some(Body::Handover { .. }) => Some(Kind::Handover),
            Some(Body::Answered { .. }) => Some(Kind::Answered),
            _ => None,
        };
        !self.cut.contains(&(from, to)) && !kind.is_some_and(|kind| self.muted.contains(&(from, to, kind)))
    }
}

/// A world under a script.
pub(super) struct Script {
    world: World,
    /// The last call's token. Even ones change the state as they begin.
    token: u64,
    reserved: u32,
}

impl Script {
    /// Begins with so many voters. Node 0 leads.
    pub(super) fn new(voters: usize) -> Script {
        let mut world = World::new(0);
        world.script = Some(Rules::default());
        let mut script = Script { world, token: 0, reserved: 0 };
        (0..voters).for_each(|_| script.add_node());
        let all = move |script: &Script| script.group(0).directory.voters.len() == voters;
        script.until("all nodes vote", all);
        script.settle();
        script
    }

    /// Adds a node that joins the group.
    pub(super) fn add_node(&mut self) {
        let at = self.world.nodes.len();
        self.world.make_node(at as u64, 0, 1000, Location::of_host(0));
        self.world.begin(at);
        self.world.collect(at);
    }

    pub(super) fn group(&self, node: usize) -> &crate::protocol::group::Group {
        self.world.nodes[node].core.group()
    }

    pub(super) fn id(&self, node: usize) -> NodeId {
        self.group(node).me
    }

    /// A shard of the fleet, as a node knows it.
    pub(super) fn shard(&self, node: usize, shard: u32) -> Option<Shard> {
        self.group(node).directory.shard(self.world.fleet.alias(), shard).copied()
    }

    pub(super) fn owner(&self, node: usize, shard: u32) -> Option<NodeId> {
        self.shard(node, shard)?.owner
    }

    pub(super) fn epoch(&self, node: usize, shard: u32) -> u64 {
        self.shard(node, shard).map_or(0, |shard| shard.epoch)
    }

    /// Returns whether the newest change of a node fulfils a condition.
    pub(super) fn newest(&self, node: usize, is: impl Fn(&Change) -> bool) -> bool {
        self.group(node).changes().last().is_some_and(|(_, change)| is(change))
    }

    /// Returns whether a node has committed all that another one holds.
    pub(super) fn has_all(&self, node: usize, of: usize) -> bool {
        self.group(node).committed() == self.group(of).last()
    }

    /// Returns how often the last call ran.
    pub(super) fn runs(&self) -> u32 {
        self.world.records[&self.token].runs
    }

    /// Runs the nodes until an event comes.
    ///
    /// # Panics
    /// If it does not come: the script is wrong.
    pub(super) fn until(&mut self, event: &str, comes: impl Fn(&Script) -> bool) {
        let end = self.world.now + PATIENCE;
        while !comes(self) {
            assert!(self.world.now < end, "the script waits in vain until {event}");
            self.world.step();
        }
    }

    /// Runs the nodes until an event comes, and at most for a time: all safeguards may prevent it.
    pub(super) fn run_until(&mut self, limit: Time, comes: impl Fn(&Script) -> bool) {
        let end = self.world.now + limit;
        while !comes(self) && self.world.now < end {
            self.world.step();
        }
    }

    /// Runs the nodes for a time.
    pub(super) fn run_for(&mut self, time: Time) {
        self.world.run_until(self.world.now + time);
    }

    /// Runs the nodes until all changes are everywhere.
    pub(super) fn settle(&mut self) {
        self.run_for(300_000);
    }

    fn rules(&mut self) -> &mut Rules {
        self.world.script.as_mut().expect("a script has rules")
    }

    /// Drops all frames between nodes of different parts. A node in no part is alone.
    pub(super) fn divide(&mut self, parts: &[&[usize]]) {
        let nodes = self.world.nodes.len();
        let joined = |from, to| parts.iter().any(|part| part.contains(&from) && part.contains(&to));
        let pairs = (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to)));
        self.rules().cut = pairs.filter(|(from, to)| from != to && !joined(*from, *to)).collect();
    }

    /// Ends all divisions.
    pub(super) fn unite(&mut self) {
        self.rules().cut.clear();
    }

    /// Drops frames of a kind from some nodes to others.
    pub(super) fn mute(&mut self, kind: Kind, from: &[usize], to: &[usize]) {
        let pairs = from.iter().flat_map(|from| to.iter().map(|to| (*from, *to, kind)));
        self.rules().muted.extend(pairs);
    }

    /// Drops frames of a kind no more.
    pub(super) fn hear(&mut self, kind: Kind, from: &[usize], to: &[usize]) {
        self.rules()
            .muted
            .retain(|(one, other, muted)| *muted != kind || !from.contains(one) || !to.contains(other));
    }

    /// Lets a node be the next leader of those that it reaches.
    pub(super) fn elect(&mut self, node: usize) {
        assert!(self.elect_within(PATIENCE, node), "the script waits in vain until node {node} leads");
    }

    /// Lets no other node be elected until this one is, and at most for a time: all safeguards may prevent
    /// it.
    pub(super) fn elect_within(&mut self, limit: Time, node: usize) -> bool {
        let all: Vec<usize> = (0..self.world.nodes.len()).collect();
        let others: Vec<usize> = all.iter().copied().filter(|other| *other != node).collect();
        self.mute(Kind::Vote, &others, &all);
        let term = all.iter().map(|node| self.group(*node).term()).max().unwrap_or(0);
        let leads = |script: &Script| script.group(node).is_leader() && script.group(node).term() > term;
        self.run_until(limit, leads);
        self.hear(Kind::Vote, &others, &all);
        leads(self)
    }

    /// Lets each of these nodes ask for a change of the directory.
    pub(super) fn change(&mut self, nodes: &[usize]) {
        for node in nodes {
            self.reserved += 1;
            let name = format!("/reserved/{}", self.reserved).parse().expect("a name");
            let parent = self.world.root.clone();
            let request = Request::Reserve { name, several: false, key: u128::from(self.reserved), parent };
            let now = self.world.clock(*node);
            self.world.nodes[*node].core.request(now, 0, request);
            self.world.collect(*node);
        }
    }

    /// Lets a node serve the fleet.
    pub(super) fn serve(&mut self, node: usize) {
        let now = self.world.clock(node);
        self.world.register(now, node, true);
        self.world.collect(node);
    }

    pub(super) fn leave(&mut self, node: usize) {
        let now = self.world.clock(node);
        self.world.nodes[node].leaving = true;
        self.world.nodes[node].core.leave(now);
        self.world.collect(node);
    }

    /// Stops nodes for a time, as a slow machine does.
    pub(super) fn pause(&mut self, nodes: &[usize], time: Time) {
        let until = self.world.now + time;
        nodes.iter().for_each(|node| self.world.nodes[*node].paused_until = until);
    }

    /// Kills a node. The kernel tells the others.
    pub(super) fn crash(&mut self, node: usize) {
        self.world.crash(node, 2);
    }

    /// Calls a shard of the fleet.
    pub(super) fn call(&mut self, node: usize, shard: u32) {
        assert!(shard < SHARDS, "the fleet has {SHARDS} shards");
        self.token += 2;
        let route = Route { name: self.world.fleet.clone(), shard: Some(shard), repeatable: false };
        self.world.begin_call(node, self.token, route, 4_000_000);
    }

    /// Calls a shard, and waits until the call runs.
    pub(super) fn call_and_run(&mut self, node: usize, shard: u32) {
        self.call(node, shard);
        self.until("the call runs", |script| script.runs() > 0);
    }

    /// Ends all faults. Then the fleet has all that ran on it.
    pub(super) fn check(&mut self) {
        *self.rules() = Rules::default();
        self.run_for(4_000_000);
        let living = |node: &usize| self.world.running(*node);
        let members: Vec<usize> = (0..self.world.nodes.len()).filter(living).collect();
        for (token, record) in &self.world.records {
            assert!(record.result.is_some(), "call {token} never ended: {record:?}");
        }
        let leads = members.iter().any(|node| self.group(*node).is_leader());
        assert!(leads, "no member leads at the end");
        if self.shard(members[0], 0).is_some() {
            self.world.check_fleet(&members);
        }
    }
}
