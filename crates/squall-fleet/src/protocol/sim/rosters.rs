//! Schedules in which each member of the group is a member of one roster, too.
//!
//! Each member has an heir, and vacates the seats that it inherits.
//!
//! Checked: equal epochs have equal members. A member is told growing epochs. A member that is missing in a
//! roster, or inherited, and has not vacated its seat, serves no more. A frame arrives at the member that it
//! is for. At the end the roster has the living nodes, each for itself.

use super::World;
use crate::protocol::core::{News, Roster};
use crate::protocol::guard::Guard;
use crate::protocol::{Name, NodeId, Registration, Time};
use std::collections::{BTreeMap, BTreeSet};

/// The roster of a schedule.
#[derive(Default, Debug)]
pub(super) struct Rosters {
    members: BTreeMap<u64, Roster>,
    /// The last roster of each node.
    told: BTreeMap<usize, Option<Roster>>,
    vacated: BTreeSet<u64>,
    frames: u64,
    /// Seats that were inherited.
    inherited: BTreeSet<u64>,
}

fn name() -> Name {
    "/roster".parse().unwrap()
}

/// The number of the service of a node.
fn service(node: usize) -> u64 {
    1_000_000 + node as u64
}

impl World {
    pub(super) fn register_member(&mut self, now: Time, node: usize) {
        if self.rosters.is_none() {
            return;
        }
        let registration = Registration {
            name: name(),
            service: service(node),
            several: true,
            stateless: false,
            shards: 0,
            roster: Some(9),
            key: u128::from(service(node)),
            parent: self.root.clone(),
            seen: None,
            register_at: 0,
        };
        self.nodes[node].core.register(now, 0, registration);
    }

    /// A member is told a roster. It greets all others, and leaves if it was asked to.
    pub(super) fn member_told(&mut self, node: usize, news: News) {
        let seed = self.seed;
        let rosters = self.rosters.as_mut().expect("a schedule with rosters");
        let told = match &news {
            News::Changed(roster) => Some(roster.clone()),
            News::Vacated | News::Removed => None,
        };
        let before = rosters.told.insert(node, told).flatten();
        if news == News::Vacated {
            let asked = before.as_ref().is_some_and(|before| rosters.vacated.contains(&before.me));
            assert!(asked, "seed {seed}: node {node} has not asked to leave the roster");
        }
        let News::Changed(roster) = news else { return };
        assert!(
            before.is_none_or(|before| before.me != roster.me || before.epoch <= roster.epoch),
            "seed {seed}: node {node} was told an old roster"
        );
        let known = rosters.members.entry(roster.epoch).or_insert_with(|| roster.clone());
        let of = |roster: &Roster| (roster.members.clone(), roster.inherited.clone());
        assert_eq!(of(known), of(&roster), "seed {seed}: two rosters of one epoch");
        rosters.inherited.extend(roster.inherited.iter().map(|(number, _)| *number));
        for other in 0..self.nodes.len() {
            let rosters = self.rosters.as_ref().expect("a schedule with rosters");
            let Some(Some(told)) = rosters.told.get(&other) else { continue };
            let is_there = |(number, _): &(u64, NodeId)| *number == told.me;
            let inherited = roster.inherited.iter().any(|(number, _)| *number == told.me);
            let missing = inherited || !roster.members.iter().any(is_there);
            if missing && told.me <= roster.epoch && !rosters.vacated.contains(&told.me) {
                let (clock, core) = (self.clock(other), &self.nodes[other].core);
                let serves = core.member_serves_until(clock, service(other), told.me) > clock;
                let lives = self.nodes[other].alive && !self.nodes[other].left;
                assert!(
                    !serves || !lives,
                    "seed {seed}: node {other} serves, and {node} has a roster without it"
                );
            }
        }
        let now = self.clock(node);
        for (to, _) in &roster.members {
            let frame: Vec<u8> = [roster.me, *to].iter().flat_map(|number| number.to_le_bytes()).collect();
            assert!(self.nodes[node].core.send_peer(now, service(node), roster.me, *to, frame));
        }
        let inherited = roster.inherited.iter().filter(|(_, heir)| *heir == roster.me);
        for (number, _) in inherited {
            self.rosters.as_mut().expect("a schedule with rosters").vacated.insert(*number);
            self.nodes[node].core.vacate(now, service(node), *number, None);
        }
        if roster.heir.is_none() {
            let heir = roster.members[self.random.below(roster.members.len() as u64) as usize].0;
            self.nodes[node].core.set_heir(now, service(node), roster.me, heir);
        }
        if roster.leaving {
            // Half of them by the epoch. They ask again in the next one.
            let if_epoch = (roster.me % 2 == 0).then_some(roster.epoch);
            self.rosters.as_mut().expect("a schedule with rosters").vacated.insert(roster.me);
            self.nodes[node].core.vacate(now, service(node), roster.me, if_epoch);
        }
    }

    pub(super) fn member_received(&mut self, node: usize, from: u64, frame: &[u8]) {
        let seed = self.seed;
        let numbers: Vec<u64> = frame.chunks(8).map(|b| u64::from_le_bytes(b.try_into().unwrap())).collect();
        let rosters = self.rosters.as_mut().expect("a schedule with rosters");
        let told = rosters.told.get(&node).and_then(|told| told.as_ref());
        let is_mine = told.is_some_and(|told| told.acts_as(numbers[1]));
        assert!(from == numbers[0] && is_mine, "seed {seed}: a frame went astray");
        rosters.frames += 1;
    }
}

/// The end of a schedule.
struct End {
    /// Frames that arrived.
    frames: u64,
    /// Whether the group could heal.
    healed: bool,
    inherited: usize,
}

/// Runs a schedule with a roster.
fn run(seed: u64) -> End {
    let mut world = World::new(seed);
    world.rosters = Some(Rosters::default());
    world.play();
    let healed = world.check_end();
    let living: Vec<usize> =
        (0..world.nodes.len()).filter(|node| world.running(*node) && world.nodes[*node].member).collect();
    let rosters = world.rosters.as_ref().unwrap();
    let stays = living.iter().any(|node| !world.nodes[*node].leaving);
    if healed && stays {
        let ids: BTreeSet<NodeId> = living.iter().map(|node| world.nodes[*node].core.me()).collect();
        for node in living {
            let told = rosters.told.get(&node).and_then(|told| told.as_ref());
            assert!(
                told.is_none_or(|told| told.inherited.is_empty()),
                "seed {seed}: an inherited seat stays"
            );
            let told = told.map(|told| told.members.iter().map(|(_, node)| *node).collect::<BTreeSet<_>>());
            assert_eq!(told.as_ref(), Some(&ids), "seed {seed}: the roster of node {node} at the end");
        }
    }
    End { frames: rosters.frames, healed, inherited: rosters.inherited.len() }
}

#[test]
fn rosters_break_no_promise() {
    let count = std::env::var("SQUALL_SCHEDULES").ok().and_then(|count| count.parse::<u64>().ok());
    let count = (count.unwrap_or(1000) / 10).max(1);
    let first = std::env::var("SQUALL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    let ends: Vec<End> = (first..first + count).map(run).collect();
    assert!(ends.iter().all(|end| end.frames > 0), "a schedule without frames");
    let inherited: usize = ends.iter().map(|end| end.inherited).sum();
    assert!(count < 50 || inherited > 20, "only {inherited} seats were inherited");
    let healed = ends.iter().filter(|end| end.healed).count() as u64;
    assert!(healed * 10 >= count * 8, "only {healed} of {count} groups kept a majority");
}

/// Without the wait for a lease, a member serves that others do not have in their roster.
#[test]
fn a_member_serves_beside_a_roster_without_it() {
    let fails = |seed| {
        let result =
            std::panic::catch_unwind(|| Guard::without(Some(Guard::SilenceBeforeRemoval), || run(seed)));
        let text = result.err().and_then(|panic| panic.downcast::<String>().ok()).unwrap_or_default();
        text.contains("has a roster without it")
    };
    assert!((0..60).any(fails), "the check sees no member that serves too long");
}
