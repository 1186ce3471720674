//! Decisions about the size of a fleet, over histories of loads.

use super::decide::{Size, Sizer, Step};
use super::{GrowthAction, GrowthOptions, GrowthReason, NodeLoad};
use crate::NodeId;
use std::collections::BTreeMap;
use std::time::Duration;

/// A fleet that does as it decides: one look each second.
struct Fleet {
    sizer: Sizer,
    seconds: u64,
    members: BTreeMap<NodeId, NodeLoad>,
    /// Starts bring a member, unless this is set.
    starts_nothing: bool,
    last: u64,
    record: Vec<(u64, GrowthAction, GrowthReason)>,
}

const ME: NodeId = NodeId(1);

fn options() -> GrowthOptions {
    let second = Duration::from_secs(1);
    GrowthOptions::new(1, 4).calls_max(100).waiting_max(10).pause(10 * second).start_limit(5 * second)
}

impl Fleet {
    fn new(members: u64) -> Fleet {
        let members: BTreeMap<_, _> = (1..=members).map(|node| (NodeId(node), NodeLoad::default())).collect();
        let last = members.len() as u64;
        let (sizer, record) = (Sizer::new(options()), Vec::new());
        Fleet { sizer, seconds: 0, members, starts_nothing: false, last, record }
    }

    fn now(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    fn wanted(&self) -> Option<u32> {
        self.sizer.size().wanted()
    }

    fn size(&self) -> usize {
        self.members.len()
    }

    /// Shares so many calls a second evenly.
    fn run(&mut self, seconds: u64, calls: u64) {
        self.run_with(seconds, |load, size| load.calls += calls / size);
    }

    fn run_with(&mut self, seconds: u64, change: impl Fn(&mut NodeLoad, u64)) {
        for _ in 0..seconds {
            let size = self.members.len() as u64;
            self.members.values_mut().for_each(|load| change(load, size));
            self.look();
        }
    }

    /// Tells the wanted size of a change, and the started members that may still come.
    fn follow(&mut self, change: u64, wanted: u32, coming: u32) {
        self.sizer.follow(self.now(), Size { change, wanted, coming });
    }

    /// Lets another member decide.
    fn pass_on(&mut self) {
        self.sizer.pass_on(self.now(), self.members.keys().copied().collect());
    }

    fn look(&mut self) -> Step {
        self.seconds += 1;
        let loads = self.members.iter().map(|(node, load)| (*node, Some(*load))).collect();
        let (step, decision) = self.sizer.look(self.now(), ME, &loads);
        self.record.extend(decision.map(|decision| (self.seconds, decision.action, decision.reason)));
        if step == Step::Start {
            let members = self.members.keys().copied().collect();
            assert!(self.sizer.confirm_start(self.now(), members, true));
        }
        match step {
            Step::Keep => {}
            Step::Start if self.starts_nothing => {}
            Step::Start => {
                self.last += 1;
                self.members.insert(NodeId(self.last), NodeLoad::default());
            }
            Step::AskToLeave(node) => assert!(node != ME && self.members.remove(&node).is_some()),
        }
        step
    }

    fn steps(&self) -> Vec<(u64, GrowthAction)> {
        let changes = self.record.iter().filter(|(_, action, _)| *action != GrowthAction::Keep);
        changes.map(|(at, action, _)| (*at, *action)).collect()
    }
}

#[test]
fn fo_13_a_high_load_grows_a_fleet_by_one_after_each_pause() {
    let mut fleet = Fleet::new(1);
    fleet.run(60, 390);
    // The first look has no load. Three high ones follow, and then a pause before each change.
    let starts = fleet.steps();
    assert_eq!(starts, [(4, GrowthAction::Start), (14, GrowthAction::Start), (24, GrowthAction::Start)]);
    assert!(fleet.record.iter().any(|(_, _, reason)| *reason == GrowthReason::ManyCalls));
    assert_eq!((fleet.size(), fleet.wanted()), (4, Some(4)));
    // More is not allowed, and said once.
    fleet.run(60, 4_000);
    let most = fleet.record.iter().filter(|(_, _, reason)| *reason == GrowthReason::AtMost);
    assert_eq!((fleet.size(), most.count()), (4, 1));
}

#[test]
fn a_fleet_shrinks_only_if_the_rest_stays_far_below_the_limit() {
    let mut fleet = Fleet::new(4);
    // Three would have 51 each, which is more than half of the limit.
    fleet.run(100, 153);
    assert_eq!(fleet.steps(), []);
    // Three have 50 each, and two would have 75.
    fleet.run(100, 150);
    assert_eq!((fleet.size(), fleet.steps().len()), (3, 1));
    assert_eq!(fleet.record.last().map(|last| last.2), Some(GrowthReason::FewCalls));
    fleet.run(100, 0);
    assert_eq!(fleet.size(), 1);
    fleet.run(100, 0);
    assert_eq!(fleet.size(), 1);
}

#[test]
fn waiting_and_refused_calls_grow_a_fleet() {
    for (reason, change) in [
        (GrowthReason::CallsWait, (|load, _| load.waiting = 11) as fn(&mut NodeLoad, u64)),
        (GrowthReason::Refusals, |load, _| load.refused += 1),
    ] {
        let mut fleet = Fleet::new(2);
        fleet.run_with(4, change);
        assert_eq!(fleet.record, [(4, GrowthAction::Start, reason)]);
    }
    let mut fleet = Fleet::new(1);
    fleet.run_with(20, |load, _| load.waiting = 10);
    assert_eq!(fleet.steps(), []);
}

#[test]
fn a_load_that_alternates_changes_the_size_less_and_less() {
    let mut fleet = Fleet::new(1);
    let mut changes = Vec::new();
    for _ in 0..40 {
        let before = fleet.steps().len();
        fleet.run(15, 190);
        fleet.run(15, 0);
        changes.push(fleet.steps().len() - before);
    }
    assert_eq!(changes[0], 2, "{:?}", fleet.record);
    // Without the doubled pause, there were 80.
    assert!(changes.iter().sum::<usize>() <= 12, "{changes:?}");
    // Looks that are high one by one change no size.
    let mut fleet = Fleet::new(1);
    for _ in 0..50 {
        fleet.run(2, 190);
        fleet.run(1, 60);
    }
    assert_eq!(fleet.steps(), []);
}

#[test]
fn a_dead_member_is_replaced_once_and_at_once() {
    let mut fleet = Fleet::new(3);
    fleet.run(5, 240);
    fleet.members.remove(&NodeId(3));
    assert_eq!(fleet.look(), Step::Start);
    fleet.run(20, 240);
    assert_eq!(fleet.record, [(6, GrowthAction::Start, GrowthReason::MemberMissing)]);
    assert_eq!(fleet.size(), 3);
}

#[test]
fn a_start_that_brings_no_member_is_repeated_after_pauses_that_double() {
    let mut fleet = Fleet::new(2);
    fleet.run(5, 160);
    fleet.starts_nothing = true;
    fleet.members.remove(&NodeId(2));
    fleet.run(200, 80);
    let at: Vec<u64> = fleet.steps().iter().map(|(at, _)| *at).collect();
    assert_eq!(at, [6, 11, 31, 71, 151]);
    assert_eq!(fleet.record[1].2, GrowthReason::StartLost);
    // A closure that fails at once pauses as well.
    let mut fleet = Fleet::new(2);
    fleet.run(5, 160);
    fleet.starts_nothing = true;
    fleet.members.remove(&NodeId(2));
    let mut failed = Vec::new();
    for _ in 0..100 {
        if fleet.look() == Step::Start {
            fleet.sizer.start_failed(fleet.now());
            failed.push(fleet.seconds);
        }
    }
    assert_eq!(failed, [6, 26, 66]);
    fleet.starts_nothing = false;
    fleet.run(100, 80);
    assert_eq!(fleet.size(), 2);
}

#[test]
fn members_that_come_and_go_by_command_change_the_wanted_size() {
    let mut fleet = Fleet::new(2);
    fleet.run(5, 160);
    fleet.members.insert(NodeId(7), NodeLoad::default());
    fleet.run(5, 240);
    assert_eq!(fleet.record, [(6, GrowthAction::Keep, GrowthReason::Joined)]);
    assert_eq!(fleet.wanted(), Some(3));
    fleet.sizer.resigned(fleet.now(), NodeId(7));
    fleet.sizer.resigned(fleet.now(), NodeId(7));
    // It serves on for a moment, and its load is no reason to grow.
    fleet.run_with(4, |load, _| load.waiting = 9);
    fleet.members.remove(&NodeId(7));
    fleet.run_with(1, |load, _| load.waiting = 0);
    fleet.run(20, 160);
    assert_eq!((fleet.wanted(), fleet.record.len()), (Some(2), 1));
    // Too many are asked to leave, but for the one that decides.
    for node in 8..12 {
        fleet.members.insert(NodeId(node), NodeLoad::default());
    }
    fleet.run(10, 300);
    assert_eq!((fleet.size(), fleet.wanted()), (4, Some(4)));
    assert!(fleet.members.contains_key(&ME));
}

#[test]
fn a_member_that_does_not_leave_counts_again() {
    let mut fleet = Fleet::new(2);
    fleet.run(3, 0);
    let before = fleet.members.clone();
    fleet.run(1, 0);
    assert_eq!((fleet.size(), fleet.wanted()), (1, Some(1)));
    // It was asked, and stays.
    fleet.members = before;
    for _ in 0..4 {
        assert_eq!(fleet.look(), Step::Keep);
        assert_eq!(fleet.wanted(), Some(1));
    }
    fleet.look();
    assert_eq!(fleet.wanted(), Some(2));
    // It still says that it leaves.
    fleet.sizer.leaves(fleet.now(), NodeId(2));
    fleet.run(2, 60);
    assert_eq!(fleet.wanted(), Some(2));
}

#[test]
fn a_member_that_takes_over_knows_the_wanted_size() {
    let mut fleet = Fleet::new(2);
    fleet.follow(0, 4, 0);
    assert_eq!(fleet.wanted(), None);
    fleet.follow(7, 3, 0);
    // The one that decided is dead, and two are missing of three with it.
    assert_eq!(fleet.look(), Step::Start);
    // A size of an earlier change is older, and one beyond the bounds is bounded.
    fleet.follow(6, 1, 0);
    assert_eq!(fleet.wanted(), Some(3));
    fleet.follow(9, 99, 0);
    assert_eq!(fleet.wanted(), Some(4));
    fleet.follow(u64::MAX, 2, 0);
    // The number of the last change stays.
    fleet.sizer.resigned(fleet.now(), NodeId(2));
    assert_eq!(fleet.sizer.size(), Size { change: u64::MAX, wanted: 1, coming: 0 });
}

#[test]
fn without_all_loads_only_the_size_counts() {
    let mut sizer = Sizer::new(options());
    let loads =
        BTreeMap::from([(ME, Some(NodeLoad { waiting: 99, ..NodeLoad::default() })), (NodeId(2), None)]);
    for second in 0..50 {
        assert_eq!(sizer.look(Duration::from_secs(second), ME, &loads), (Step::Keep, None));
    }
    // Two looks at one time, and a count that falls, are no load.
    let loads = BTreeMap::from([(ME, Some(NodeLoad { calls: 5, ..NodeLoad::default() }))]);
    let fewer = BTreeMap::from([(ME, Some(NodeLoad::default()))]);
    let mut sizer = Sizer::new(options());
    for loads in [&loads, &loads, &fewer, &fewer] {
        assert_eq!(sizer.look(Duration::from_secs(1), ME, loads).0, Step::Keep);
    }
}

#[test]
fn a_start_is_over_once_its_member_has_come_also_if_another_one_decides() {
    let mut fleet = Fleet::new(1);
    fleet.starts_nothing = true;
    fleet.run(4, 150);
    assert_eq!((fleet.steps().len(), fleet.wanted()), (1, Some(2)));
    fleet.pass_on();
    assert_eq!(fleet.look(), Step::Keep);
    // The started member decides, and dies.
    fleet.members.insert(NodeId(0), NodeLoad::default());
    fleet.pass_on();
    fleet.members.remove(&NodeId(0));
    assert_eq!((fleet.look(), fleet.wanted()), (Step::Start, Some(2)));
}

#[test]
fn a_member_that_takes_over_knows_the_starts() {
    let mut fleet = Fleet::new(1);
    fleet.pass_on();
    fleet.follow(7, 3, 1);
    fleet.starts_nothing = true;
    // The started member may ask before the directory tells of it. It does not count yet.
    let coming = |fleet: &Fleet, from| fleet.sizer.known(NodeId(from)).coming;
    assert_eq!((coming(&fleet, 1), coming(&fleet, 2)), (1, 0));
    assert_eq!((fleet.look(), fleet.look()), (Step::Keep, Step::Keep));
    fleet.members.insert(NodeId(2), NodeLoad::default());
    fleet.pass_on();
    assert_eq!((coming(&fleet, 1), coming(&fleet, 2), fleet.sizer.size().coming), (0, 0, 1));
    // Two of three have come.
    assert_eq!((fleet.look(), fleet.sizer.size().coming), (Step::Start, 1));
    // Of three starts it waits for one. The others are late ones.
    let mut fleet = Fleet::new(2);
    fleet.pass_on();
    fleet.follow(7, 3, 3);
    assert_eq!(fleet.look(), Step::Keep);
    for node in [5, 6, 7] {
        fleet.members.insert(NodeId(node), NodeLoad::default());
    }
    assert_eq!(fleet.look(), Step::AskToLeave(NodeId(7)));
    assert_eq!(fleet.look(), Step::AskToLeave(NodeId(6)));
    fleet.run(20, 240);
    assert_eq!((fleet.size(), fleet.wanted(), fleet.sizer.size().coming), (3, Some(3), 0));
    // A start that does not come is repeated, and no number of starts is too large.
    let mut fleet = Fleet::new(1);
    fleet.pass_on();
    fleet.follow(7, 2, u32::MAX);
    let steps: Vec<Step> = (0..6).map(|_| fleet.look()).collect();
    assert_eq!(steps.iter().filter(|step| **step == Step::Start).count(), 1);
    assert_eq!(fleet.record.last().map(|last| last.2), Some(GrowthReason::StartLost));
}

#[test]
fn the_next_member_starts_once_the_last_one_has_come() {
    let mut fleet = Fleet::new(1);
    fleet.sizer = Sizer::new(GrowthOptions { members_min: 4, ..options() });
    fleet.starts_nothing = true;
    // Each started member comes at the second look after its start.
    for node in 2..=4 {
        assert_eq!((fleet.look(), fleet.look()), (Step::Start, Step::Keep));
        fleet.members.insert(NodeId(node), NodeLoad::default());
    }
    fleet.run(20, 0);
    let missing = |at| (at, GrowthAction::Start, GrowthReason::MemberMissing);
    assert_eq!(fleet.record, [missing(1), missing(3), missing(5)]);
    // A death meanwhile hides no member that comes.
    fleet.members.remove(&NodeId(2));
    assert_eq!(fleet.look(), Step::Start);
    fleet.members.remove(&NodeId(3));
    assert_eq!(fleet.look(), Step::Keep);
    fleet.members.remove(&NodeId(4));
    fleet.members.insert(NodeId(5), NodeLoad::default());
    assert_eq!(fleet.look(), Step::Start);
    assert!(fleet.record.iter().all(|(_, _, reason)| *reason == GrowthReason::MemberMissing));
}

/// A fleet of two with one member. The start of the second one is lost, and so is a further one.
fn fleet_with_lost_starts() -> Fleet {
    let mut fleet = Fleet::new(2);
    fleet.run(5, 160);
    fleet.starts_nothing = true;
    fleet.members.remove(&NodeId(2));
    fleet.run(6, 80);
    assert_eq!(fleet.steps().iter().map(|(at, _)| *at).collect::<Vec<_>>(), [6, 11]);
    fleet
}

#[test]
fn a_member_that_comes_too_late_makes_the_fleet_no_larger() {
    // The lost one and the second one come, at one look or at two.
    for gap in [0, 3] {
        let mut fleet = fleet_with_lost_starts();
        fleet.members.insert(NodeId(3), NodeLoad::default());
        fleet.run(gap, 80);
        fleet.members.insert(NodeId(4), NodeLoad::default());
        fleet.run(20, 80);
        let last = fleet.record.last().map(|(_, action, reason)| (*action, *reason));
        assert_eq!(last, Some((GrowthAction::Shrink, GrowthReason::StartLate)));
        assert_eq!((fleet.size(), fleet.wanted()), (2, Some(2)));
        // No further lost start is open, so this one joined by a command.
        fleet.members.insert(NodeId(5), NodeLoad::default());
        fleet.run(20, 160);
        assert_eq!((fleet.size(), fleet.wanted()), (3, Some(3)));
    }
    // A late one that is still missing stays, and the next one joined by a command.
    let mut fleet = fleet_with_lost_starts();
    fleet.sizer.start_failed(fleet.now());
    for (node, size) in [(3, 2), (4, 3)] {
        fleet.members.insert(NodeId(node), NodeLoad::default());
        fleet.run(10, 160);
        assert_eq!((fleet.size(), fleet.wanted()), (size, u32::try_from(size).ok()));
    }
    // After 32 limits, a member has joined by a command.
    let mut fleet = fleet_with_lost_starts();
    fleet.members.insert(NodeId(3), NodeLoad::default());
    fleet.run(5 * 32, 160);
    fleet.members.insert(NodeId(4), NodeLoad::default());
    fleet.run(20, 160);
    assert_eq!((fleet.size(), fleet.wanted()), (3, Some(3)));
}

#[test]
fn the_longest_limits_are_no_time_past_the_last() {
    let mut fleet = Fleet::new(2);
    let (start_limit, pause) = (Duration::MAX, Duration::MAX);
    fleet.sizer = Sizer::new(GrowthOptions { start_limit, pause, ..options() });
    fleet.run(5, 160);
    fleet.sizer.leaves(fleet.now(), NodeId(2));
    fleet.sizer.resigned(fleet.now(), NodeId(2));
    assert_eq!(fleet.look(), Step::Start);
    fleet.sizer.start_failed(fleet.now());
    fleet.run(20, 0);
    assert_eq!(fleet.wanted(), Some(2));
}

#[test]
fn a_start_goes_on_if_another_member_tells_an_equal_size() {
    let mut fleet = Fleet::new(2);
    fleet.starts_nothing = true;
    fleet.run(5, 160);
    fleet.members.remove(&NodeId(2));
    assert_eq!(fleet.look(), Step::Start);
    let Size { change, .. } = fleet.sizer.size();
    for change in [change, change + 1, change + 2] {
        fleet.follow(change, 2, 1);
        assert_eq!(fleet.look(), Step::Keep);
    }
    // Another size is new, and two members are missing.
    fleet.follow(change + 3, 3, 0);
    assert_eq!(fleet.look(), Step::Start);
}

/// A fleet of two with one member, which has told the others of the start of the second one.
fn fleet_with_announced_start() -> Fleet {
    let mut fleet = Fleet::new(2);
    fleet.run(5, 160);
    fleet.members.remove(&NodeId(2));
    fleet.seconds += 1;
    let loads = fleet.members.iter().map(|(node, load)| (*node, Some(*load))).collect();
    assert_eq!(fleet.sizer.look(fleet.now(), ME, &loads).0, Step::Start);
    assert_eq!(fleet.sizer.size().coming, 1);
    fleet
}

impl Fleet {
    fn confirm_start(&mut self, decides: bool) -> bool {
        let members = self.members.keys().copied().collect();
        self.sizer.confirm_start(self.now(), members, decides)
    }
}

#[test]
fn a_start_is_withdrawn_if_a_member_came_while_the_others_were_told() {
    let mut fleet = fleet_with_announced_start();
    let told = fleet.sizer.size();
    fleet.members.insert(NodeId(3), NodeLoad::default());
    assert!(!fleet.confirm_start(true));
    // The others learn that no member comes.
    let size = fleet.sizer.size();
    assert!(size > told && (size.wanted, size.coming) == (2, 0), "{size:?}");
    fleet.run(20, 160);
    assert_eq!((fleet.size(), fleet.wanted()), (2, Some(2)));
}

#[test]
fn a_start_is_withdrawn_if_another_member_decides_and_does_not_delay_the_next_one() {
    let mut fleet = fleet_with_announced_start();
    assert!(!fleet.confirm_start(false));
    assert_eq!((fleet.look(), fleet.size()), (Step::Start, 2));
}

#[test]
fn a_later_size_counts_the_starts_of_its_member_alone() {
    for coming in [0, 1] {
        let mut fleet = fleet_with_announced_start();
        let Size { change, .. } = fleet.sizer.size();
        fleet.follow(change + 1, 2, coming);
        assert!(!fleet.confirm_start(true), "{coming}");
        assert_eq!(fleet.sizer.size(), Size { change: change + 1, wanted: 2, coming });
        assert_eq!(fleet.look(), if coming == 0 { Step::Start } else { Step::Keep });
    }
}

#[test]
fn the_time_of_a_start_begins_once_the_others_know_of_it() {
    let mut fleet = fleet_with_announced_start();
    // One of the others answers after the start limit.
    fleet.seconds += 5;
    assert!(fleet.confirm_start(true));
    fleet.starts_nothing = true;
    let steps: Vec<Step> = (0..5).map(|_| fleet.look()).collect();
    assert_eq!(steps, [Step::Keep, Step::Keep, Step::Keep, Step::Keep, Step::Start]);
}

#[test]
fn the_member_of_a_lost_start_takes_the_place_of_one_that_has_not_started() {
    let mut fleet = fleet_with_announced_start();
    assert!(fleet.confirm_start(true));
    fleet.seconds += 5;
    let loads = fleet.members.iter().map(|(node, load)| (*node, Some(*load))).collect();
    assert_eq!(fleet.sizer.look(fleet.now(), ME, &loads).0, Step::Start);
    assert_eq!(fleet.sizer.size().coming, 2);
    // The first one comes, so the second one is not started.
    fleet.members.insert(NodeId(3), NodeLoad::default());
    assert!(!fleet.confirm_start(true));
    assert_eq!(fleet.sizer.size().coming, 0);
    // A further member joined by a command.
    fleet.members.insert(NodeId(4), NodeLoad::default());
    fleet.run(20, 240);
    assert_eq!((fleet.size(), fleet.wanted()), (3, Some(3)));
}
