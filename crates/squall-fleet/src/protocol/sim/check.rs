//! The promises that a schedule must keep.

use super::World;
use crate::protocol::answer::Answer;
use crate::protocol::frame::{Body, Frame, Position};
use crate::protocol::{Fate, NodeId};
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

impl World {
    /// A result of a shard leaves no node while another one owns the shard.
    pub(super) fn check_answer(&self, node: usize, frame: &[u8]) {
        let Some(shard) = self.completes else { return };
        let body = Frame::decode(frame).map(|frame| frame.body);
        if matches!(body, Some(Body::Answered { answer: Answer::Result(_), .. })) {
            self.check_owner(node, shard);
        }
    }

    /// No other node owns the shard.
    pub(super) fn check_owner(&self, node: usize, shard: u32) {
        for other in 0..self.nodes.len() {
            let owns = self.nodes[other].core.owns(self.clock(other), self.fleet.alias(), shard);
            let lives = self.nodes[other].alive && !self.nodes[other].left;
            assert!(
                other == node || !lives || !owns,
                "seed {}: nodes {node} and {other} own shard {shard}",
                self.seed
            );
        }
    }

    /// All nodes have equal directories at equal positions.
    pub(super) fn check_directory(&mut self, node: usize) {
        let super::Node { core, checked, .. } = &mut self.nodes[node];
        let group = core.group();
        if !group.is_member() {
            return;
        }
        if group.is_leader() {
            let (term, me) = (group.last().term, group.me);
            let leader = *self.leaders.entry(term).or_insert(me);
            assert!(leader == me, "seed {}: {leader:?} and {me:?} lead in term {term}", self.seed);
        }
        let position = group.committed();
        let (of, before) = std::mem::replace(checked, (group.me, position));
        let before = if of == group.me { before } else { Position::default() };
        for (at, _) in group.changes().filter(|(at, _)| *at > before && *at <= position) {
            let known = *self.changes.entry(at.index).or_insert(*at);
            assert!(known == *at, "seed {}: two changes, {known:?} and {at:?}", self.seed);
        }
        let mut hasher = DefaultHasher::new();
        group.directory.hash(&mut hasher);
        let hash = hasher.finish();
        if !self.directories.contains_key(&(position.term, position.index)) {
            for (name, entry) in group.directory.names() {
                if self.traced {
                    eprintln!("{position:?} {name} {:?} {:?}", entry.places, entry.shards);
                }
                let keys: BTreeSet<u128> = entry.places.iter().map(|place| place.key).collect();
                assert_eq!(
                    keys.len(),
                    entry.places.len(),
                    "seed {}: a service is twice in {name}",
                    self.seed
                );
            }
        }
        let known = self.directories.entry((position.term, position.index)).or_insert(hash);
        assert_eq!(*known, hash, "seed {}: two directories at {position:?}", self.seed);
    }

    /// Returns whether the group could heal.
    pub(super) fn check_end(&self) -> bool {
        let seed = self.seed;
        for (token, record) in &self.records {
            assert!(record.result.is_some(), "seed {seed}: call {token} never ended: {record:?}");
            let _ = record.deadline;
        }
        // Also by the group that a node left behind: it takes no majority along.
        let (voters, alive) = self.voters(|node| node.alive || node.left);
        if alive * 2 <= voters {
            return false;
        }
        let members: Vec<usize> =
            (0..self.nodes.len()).filter(|node| self.running(*node) && self.nodes[*node].member).collect();
        let Some(first) = members.first() else { return true };
        // If all want to leave, the last ones end together with the group.
        let stay = |node: &&usize| !self.nodes[**node].leaving;
        if members.iter().filter(stay).count() == 0 {
            return true;
        }
        let leaving = members.iter().find(|node| self.nodes[**node].leaving);
        assert_eq!(leaving, None, "seed {seed}: this node never left");
        let directory = &self.nodes[*first].core.group().directory;
        let ids: BTreeSet<NodeId> = members.iter().map(|node| self.nodes[*node].core.me()).collect();
        for node in &members {
            let group = self.nodes[*node].core.group();
            assert!(
                group.directory == *directory,
                "seed {seed}: nodes {first} and {node} disagree at the end: {:?} {:?} {:?}",
                (voters, alive),
                group,
                self.nodes[*first].core
            );
            assert!(
                group.may_serve(self.clock(*node)),
                "seed {seed}: node {node} has no lease at the end: {:?}, {:?}",
                (voters, alive),
                group.directory.voters
            );
        }
        assert_eq!(directory.members.keys().copied().collect::<BTreeSet<_>>(), ids, "seed {seed}: members");
        for name in [&self.fleet, &self.echo] {
            let (_, entry) = directory.entry(name.alias()).expect("the name");
            let places: BTreeSet<NodeId> = entry.places.iter().map(|place| place.node).collect();
            assert_eq!(places, ids, "seed {seed}: {name} leads to other nodes than those that live");
        }
        self.check_fleet(&members);
        true
    }

    /// Each shard has its owner and its state, with all calls that ran on it.
    pub(super) fn check_fleet(&self, members: &[usize]) {
        let seed = self.seed;
        let directory = &self.nodes[members[0]].core.group().directory;
        let (_, entry) = directory.entry(self.fleet.alias()).unwrap();
        for (number, shard) in (0u32..).zip(&entry.shards) {
            assert!(shard.target.is_none(), "seed {seed}: shard {number} still moves: {shard:?}");
            let owner = shard.owner.expect("an owner");
            let owner = *members.iter().find(|node| self.nodes[**node].core.me() == owner).unwrap();
            let mut services = self.nodes[owner].services.values();
            let tokens = services.find_map(|service| service.shards.get(&number)).expect("its state");
            for (token, record) in &self.records {
                if record.ran_at == Some((number, shard.born)) {
                    assert!(tokens.contains(token), "seed {seed}: shard {number} has lost call {token}");
                    // The session was with the state, all the time.
                    let lost = matches!(record.result, Some(Err(Fate::ServerLost)));
                    assert!(!lost, "seed {seed}: call {token} ran on a state that is still there");
                }
            }
            if self.gentle && self.births.contains_key(&number) {
                let born = &self.births[&number];
                assert!(born.len() == 1, "seed {seed}: shard {number} was lost without a fault: {born:?}");
            }
        }
    }
}
