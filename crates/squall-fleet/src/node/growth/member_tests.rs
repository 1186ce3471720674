//! The size of a fleet over histories in which calls are lost and members die.

use super::decide::{Size, Step};
use super::member::{Answers, Member};
use super::{GrowthOptions, NodeLoad};
use crate::NodeId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const LOW: u64 = 0;
/// Waiting calls of a member that fit its limit, but not the half of it.
const STEADY: u64 = 8;

/// Members that call each other: one look each second.
struct Fleet {
    members: BTreeMap<NodeId, Member>,
    seconds: u64,
    waiting: u64,
    /// Members that hear no call.
    deaf: BTreeSet<NodeId>,
}

fn options() -> GrowthOptions {
    let second = Duration::from_secs(1);
    GrowthOptions::new(1, 8).calls_max(100).waiting_max(10).pause(second).start_limit(5 * second)
}

impl Fleet {
    fn new(members: u64) -> Fleet {
        let members = (1..=members).map(|node| (NodeId(node), Member::new(options()))).collect();
        Fleet { members, seconds: 0, waiting: STEADY, deaf: BTreeSet::new() }
    }

    fn join(&mut self, node: u64) {
        self.members.insert(NodeId(node), Member::new(options()));
    }

    fn die(&mut self, node: u64) {
        assert!(self.members.remove(&NodeId(node)).is_some());
    }

    fn member(&mut self, node: u64) -> &mut Member {
        self.members.get_mut(&NodeId(node)).unwrap()
    }

    fn wanted(&mut self, node: u64) -> Option<u32> {
        self.member(node).wanted()
    }

    /// Lets the member with the lowest number decide, and does without the requests to leave.
    fn decide(&mut self) -> Step {
        self.seconds += 1;
        let now = Duration::from_secs(self.seconds);
        let load = NodeLoad { waiting: self.waiting, ..NodeLoad::default() };
        let nodes: BTreeSet<NodeId> = self.members.keys().copied().collect();
        let (me, mut decider) = self.members.pop_first().unwrap();
        self.members.values_mut().for_each(|member| member.pass_on(now, nodes.clone()));
        let size = decider.begin(now, me, nodes.clone());
        let answers = self.tell(now, me, size);
        let (step, _) = decider.decide(now, me, load, size, &answers);
        if step == Step::Start {
            let told = decider.size();
            for (node, answer) in self.tell(now, me, told) {
                answer.into_iter().for_each(|answer| decider.hear(now, node, answer));
            }
            assert!(decider.confirm_start(now, me, nodes, told));
        }
        self.members.insert(me, decider);
        step
    }

    /// Tells the others a size.
    fn tell(&mut self, now: Duration, from: NodeId, size: Size) -> Answers {
        let load = NodeLoad { waiting: self.waiting, ..NodeLoad::default() };
        let answer = |(node, member): (&NodeId, &mut Member)| {
            (*node, (!self.deaf.contains(node)).then(|| member.answer(now, from, size, load)))
        };
        self.members.iter_mut().map(answer).collect()
    }

    /// Sends the requests to leave.
    fn ask_to_leave(&mut self) {
        let now = Duration::from_secs(self.seconds);
        let (me, mut decider) = self.members.pop_first().unwrap();
        let (to_ask, size) = decider.to_ask();
        for node in to_ask {
            match self.members.get_mut(&node) {
                Some(member) if !self.deaf.contains(&node) => member.ask_to_leave(now, size),
                Some(_) => continue,
                None => {}
            }
            decider.was_asked(node);
        }
        self.members.insert(me, decider);
    }

    fn look(&mut self) -> Step {
        let step = self.decide();
        self.ask_to_leave();
        step
    }

    /// Decides until there is something to do. Returns the step.
    fn decide_until(&mut self) -> Step {
        let step = (0..20).map(|_| self.decide()).find(|step| *step != Step::Keep);
        step.expect("the fleet keeps its size")
    }

    fn assert_keeps(&mut self, looks: u32) {
        for _ in 0..looks {
            assert_eq!(self.look(), Step::Keep);
        }
    }
}

#[test]
fn a_member_that_was_asked_to_leave_is_not_replaced_after_a_death() {
    let mut fleet = Fleet::new(4);
    fleet.assert_keeps(3);
    fleet.waiting = LOW;
    assert_eq!(fleet.decide_until(), Step::AskToLeave(NodeId(4)));
    fleet.ask_to_leave();
    fleet.waiting = STEADY;
    // The others have not heard of the smaller size.
    assert!(fleet.member(4).is_asked());
    assert_eq!((fleet.wanted(1), fleet.wanted(2), fleet.wanted(4)), (Some(3), Some(4), Some(3)));
    fleet.die(1);
    assert_eq!(fleet.look(), Step::Start);
    fleet.join(5);
    fleet.die(4);
    fleet.assert_keeps(20);
    assert_eq!((fleet.wanted(2), fleet.wanted(5)), (Some(3), Some(3)));
}

#[test]
fn a_later_size_is_not_undone_by_a_member_that_leaves() {
    let mut fleet = Fleet::new(3);
    fleet.assert_keeps(3);
    fleet.waiting = LOW;
    assert_eq!(fleet.decide_until(), Step::AskToLeave(NodeId(3)));
    fleet.ask_to_leave();
    fleet.waiting = STEADY;
    fleet.deaf.insert(NodeId(3));
    // A member joins by a command, while the one that leaves hears of no change.
    fleet.join(9);
    fleet.assert_keeps(2);
    assert_eq!((fleet.wanted(1), fleet.wanted(3)), (Some(3), Some(2)));
    fleet.deaf.clear();
    fleet.die(1);
    assert_eq!((fleet.look(), fleet.wanted(2), fleet.wanted(3)), (Step::Start, Some(3), Some(3)));
}

#[test]
fn a_lowest_member_that_joins_takes_the_latest_size() {
    let mut fleet = Fleet::new(3);
    fleet.assert_keeps(2);
    fleet.die(1);
    fleet.die(3);
    fleet.join(4);
    fleet.join(0);
    // The newest member knows no size, and the other one wants three.
    let (now, unknown) = (Duration::ZERO, Size::default());
    let known = fleet.member(4).answer(now, NodeId(0), unknown, NodeLoad::default()).size;
    assert_eq!((known.wanted(), fleet.wanted(2)), (None, Some(3)));
    fleet.assert_keeps(20);
    assert_eq!((fleet.wanted(0), fleet.wanted(4)), (Some(3), Some(3)));
}

#[test]
fn a_member_that_decides_leaves_once_the_next_one_knows() {
    let mut fleet = Fleet::new(3);
    fleet.assert_keeps(3);
    fleet.member(1).resign();
    // Neither of the others hears it, and then only the last one.
    for deaf in [vec![2, 3], vec![2]] {
        fleet.deaf = deaf.into_iter().map(NodeId).collect();
        fleet.assert_keeps(1);
        assert!(!fleet.member(1).may_leave());
    }
    fleet.deaf = BTreeSet::from([NodeId(3)]);
    fleet.assert_keeps(1);
    assert!(fleet.member(1).may_leave());
    fleet.die(1);
    fleet.deaf.clear();
    fleet.assert_keeps(20);
    assert_eq!((fleet.wanted(2), fleet.wanted(3)), (Some(2), Some(2)));
}

#[test]
fn a_member_that_resigns_before_it_knows_the_size_is_not_replaced() {
    // The others know the size, or they do not.
    for looks in [2, 0] {
        let mut fleet = Fleet::new(3);
        fleet.assert_keeps(looks);
        fleet.join(0);
        fleet.member(0).resign();
        fleet.assert_keeps(3);
        assert!(fleet.member(0).may_leave());
        fleet.die(0);
        fleet.assert_keeps(20);
        assert_eq!((fleet.wanted(1), fleet.members.len()), (Some(3), 3), "{looks}");
    }
    // One that is alone waits for no answer.
    let mut fleet = Fleet::new(1);
    fleet.member(1).resign();
    fleet.look();
    assert!(fleet.member(1).may_leave());
}

#[test]
fn a_member_that_counts_again_is_asked_no_more() {
    let mut fleet = Fleet::new(2);
    fleet.assert_keeps(3);
    fleet.waiting = LOW;
    assert_eq!(fleet.decide_until(), Step::AskToLeave(NodeId(2)));
    fleet.waiting = STEADY;
    fleet.deaf.insert(NodeId(2));
    // It hears no request for the time of a start. Then the fleet wants two.
    let asked = |fleet: &mut Fleet| fleet.member(1).to_ask().0.into_iter().collect::<Vec<_>>();
    for _ in 0..4 {
        fleet.assert_keeps(1);
        assert_eq!((asked(&mut fleet), fleet.wanted(1)), (vec![NodeId(2)], Some(1)));
    }
    fleet.assert_keeps(1);
    assert_eq!((asked(&mut fleet), fleet.wanted(1)), (vec![], Some(2)));
    fleet.deaf.clear();
    fleet.assert_keeps(20);
    assert!(!fleet.member(2).is_asked());
    // One that resigns is asked once, although its answers tell it at each look.
    fleet.member(2).resign();
    fleet.decide();
    fleet.decide();
    assert_eq!((asked(&mut fleet), fleet.wanted(1)), (vec![NodeId(2)], Some(1)));
    fleet.ask_to_leave();
    assert!(fleet.member(2).may_leave() && asked(&mut fleet).is_empty());
}

#[test]
fn a_member_that_decides_no_more_asks_no_member_to_leave() {
    let mut fleet = Fleet::new(3);
    fleet.assert_keeps(3);
    fleet.waiting = LOW;
    assert_eq!(fleet.decide_until(), Step::AskToLeave(NodeId(3)));
    fleet.waiting = STEADY;
    // One with a lower number decides, before the request is sent.
    fleet.join(0);
    fleet.assert_keeps(3);
    assert!(fleet.member(1).to_ask().0.is_empty());
    fleet.die(0);
    fleet.ask_to_leave();
    assert!(!fleet.member(3).is_asked());
}

#[test]
fn a_member_that_knows_no_size_decides_after_an_answer() {
    let mut fleet = Fleet::new(3);
    fleet.assert_keeps(2);
    fleet.die(1);
    fleet.join(0);
    // Three are wanted, and neither of the other two answers.
    fleet.die(3);
    fleet.join(4);
    fleet.deaf = BTreeSet::from([NodeId(2), NodeId(4)]);
    fleet.assert_keeps(9);
    assert_eq!((fleet.wanted(0), fleet.wanted(2)), (None, Some(3)));
    fleet.die(4);
    fleet.deaf.clear();
    assert_eq!((fleet.look(), fleet.wanted(0)), (Step::Start, Some(3)));
    // One that is alone needs no answer.
    let mut fleet = Fleet::new(1);
    fleet.look();
    assert_eq!(fleet.wanted(1), Some(1));
}

/// The member that decides dies while a member starts. The started one comes with a higher number, or
/// decides.
#[test]
fn a_start_outlives_the_member_that_decided_it() {
    for started in [4, 0] {
        let mut fleet = Fleet::new(3);
        fleet.assert_keeps(3);
        fleet.die(3);
        assert_eq!(fleet.look(), Step::Start);
        fleet.die(1);
        // Two are missing now, and one of them starts.
        fleet.assert_keeps(3);
        fleet.join(started);
        assert_eq!(fleet.look(), Step::Start);
        fleet.join(5);
        fleet.assert_keeps(40);
        let wanted: Vec<_> = fleet.members.values().map(Member::wanted).collect();
        assert_eq!(wanted, [Some(3); 3], "{started}");
    }
}

#[test]
fn a_start_that_was_told_and_brings_no_member_in_time_is_repeated_and_its_member_is_too_late() {
    let mut fleet = Fleet::new(3);
    fleet.assert_keeps(3);
    fleet.die(3);
    assert_eq!(fleet.look(), Step::Start);
    fleet.die(1);
    fleet.assert_keeps(4);
    assert_eq!(fleet.look(), Step::Start);
    fleet.join(4);
    assert_eq!(fleet.look(), Step::Start);
    fleet.join(5);
    fleet.assert_keeps(3);
    // That of the dead member comes after all.
    fleet.join(6);
    assert!(matches!(fleet.look(), Step::AskToLeave(_)));
    let leaver = fleet.members.iter().find(|(_, member)| member.is_asked()).map(|(node, _)| node.0);
    fleet.die(leaver.unwrap());
    fleet.assert_keeps(40);
    assert_eq!((fleet.wanted(2), fleet.members.len()), (Some(3), 3));
}

/// The member that decides, with a start of which it tells the others now.
fn decider_with_start(fleet: &mut Fleet) -> (Duration, Member, BTreeSet<NodeId>) {
    fleet.assert_keeps(3);
    fleet.die(3);
    fleet.seconds += 1;
    let now = Duration::from_secs(fleet.seconds);
    let load = NodeLoad { waiting: STEADY, ..NodeLoad::default() };
    let nodes: BTreeSet<NodeId> = fleet.members.keys().copied().collect();
    let (me, mut decider) = fleet.members.pop_first().unwrap();
    let size = decider.begin(now, me, nodes.clone());
    let answers = fleet.tell(now, me, size);
    assert_eq!(decider.decide(now, me, load, size, &answers).0, Step::Start);
    (now, decider, nodes)
}

#[test]
fn a_start_happens_only_as_the_others_were_told() {
    type Change = fn(&mut Fleet, Duration, &mut BTreeSet<NodeId>);
    let nothing: Change = |_, _, _| {};
    let decides_other: Change = |_, _, nodes| _ = nodes.insert(NodeId(0));
    let resigns: Change = |fleet, _, _| fleet.member(2).resign();
    // Another member decides by an older directory.
    let decided_other: Change = |fleet, now, nodes| {
        let member = fleet.member(2);
        member.begin(now, NodeId(2), nodes.clone());
        member.resign();
        member.begin(now, NodeId(2), nodes.clone());
    };
    for (change, starts) in
        [(nothing, true), (decides_other, false), (resigns, false), (decided_other, false)]
    {
        let mut fleet = Fleet::new(3);
        let (now, mut decider, mut nodes) = decider_with_start(&mut fleet);
        change(&mut fleet, now, &mut nodes);
        let told = decider.size();
        for (node, answer) in fleet.tell(now, NodeId(1), told) {
            decider.hear(now, node, answer.unwrap());
        }
        assert_eq!(decider.confirm_start(now, NodeId(1), nodes, told), starts);
    }
}
