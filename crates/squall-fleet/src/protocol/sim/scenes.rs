//! Scenes: one script for each safeguard that random seeds do not miss.
//!
//! With all safeguards a scene breaks no promise. Without its safeguard the simulator finds the violation.

use super::script::{Kind, Script};
use crate::protocol::directory::Change;
use crate::protocol::guard::Guard;

/// A safeguard, its scene, and a part of the violation that the simulator then reports.
pub(in crate::protocol) struct Scene {
    pub(in crate::protocol) guard: Guard,
    pub(in crate::protocol) violation: &'static str,
    pub(in crate::protocol) play: fn(),
}

pub(in crate::protocol) const SCENES: &[Scene] = &[
    Scene { guard: Guard::OwnTerm, violation: "two changes", play: an_older_change_is_overwritten },
    Scene { guard: Guard::KnownBefore, violation: "two directories", play: a_member_has_a_gap },
    Scene { guard: Guard::LeaderLast, violation: "no member leads", play: a_leader_leaves_unheard },
    Scene { guard: Guard::DeadCount, violation: "two changes", play: a_leader_returns_to_dead_voters },
    Scene { guard: Guard::OneChange, violation: "two changes", play: voters_change_four_times_at_once },
    Scene { guard: Guard::LeaseByMajority, violation: "own shard", play: an_old_leader_has_one_follower },
    Scene { guard: Guard::NoLeaseInRemoval, violation: "own shard", play: a_member_returns_in_its_removal },
    Scene { guard: Guard::EpochOfMove, violation: "has lost call", play: a_late_move_meets_a_later_one },
    Scene { guard: Guard::EpochOfBirth, violation: "ran twice", play: a_target_keeps_an_older_state },
    Scene { guard: Guard::NoRunOnceAbandoned, violation: "own shard", play: a_leaver_misses_its_outcome },
];

/// A majority may hold a change of an older term, and lose it again: Raft, §5.4.2, figure 8.
fn an_older_change_is_overwritten() {
    let mut script = Script::new(5);
    // Node 1 alone gets four changes of the first leader, as many as a beat has.
    script.mute(Kind::Beat, &[0], &[2, 3, 4]);
    script.change(&[0, 1, 2, 3]);
    script.until("node 1 has them", |script| {
        let last = script.group(0).last();
        script.group(1).last() == last && last.index == script.group(2).last().index + 4
    });
    // Node 4 leads, and tells no other node its first change.
    script.divide(&[&[2, 3, 4]]);
    script.mute(Kind::Beat, &[4], &[2, 3]);
    script.elect(4);
    script.hear(Kind::Beat, &[0], &[2, 3, 4]);
    script.divide(&[&[0, 1, 2]]);
    script.elect(0);
    // A majority gets the four changes, and not the one of the new term.
    script.run_for(1_000);
    script.divide(&[&[2, 3, 4]]);
    script.hear(Kind::Beat, &[4], &[2, 3]);
    script.elect(4);
    script.settle();
    script.check();
}

/// A new leader takes each member to be as far as itself, until it answers.
fn a_member_has_a_gap() {
    let mut script = Script::new(3);
    script.divide(&[&[0, 1]]);
    script.change(&[1]);
    script.until("node 1 knows more than node 2", |script| {
        script.group(1).committed() > script.group(2).last() && script.has_all(1, 0)
    });
    script.divide(&[&[1, 2]]);
    script.elect(1);
    script.settle();
    script.check();
}

/// Four voters join at once. Three nodes know of two of them, and are a majority then.
fn voters_change_four_times_at_once() {
    let mut script = Script::new(3);
    let joining = [3, 4, 5, 6];
    script.mute(Kind::Held, &joining, &[0]);
    joining.iter().for_each(|_| script.add_node());
    script.until("all have joined", |script| joining.iter().all(|node| script.group(*node).is_member()));
    script.run_for(40_000);
    // The leader hears one node at a time, and lets it vote. No other node is known to hold that.
    script.mute(Kind::Held, &[1, 2], &[0]);
    let promote = |script: &mut Script, node: usize| {
        script.hear(Kind::Held, &[node], &[0]);
        let votes = Change::Promote { node: script.id(node) };
        script.run_until(100_000, |script| script.newest(0, |change| *change == votes));
        script.mute(Kind::Held, &[node], &[0]);
    };
    promote(&mut script, 3);
    script.run_for(1_000);
    promote(&mut script, 4);
    // As many changes as a beat has. So nodes 2 to 4 get the first half alone.
    script.change(&[0, 1, 5, 6]);
    script.run_for(1_000);
    promote(&mut script, 5);
    promote(&mut script, 6);
    // Node 5 leads. Its first change commits all changes at once, with nodes 0, 1, 5 and 6 of seven voters.
    script.mute(Kind::Beat, &[0], &[1, 2, 3, 4, 5, 6]);
    script.mute(Kind::Held, &[2, 3, 4], &[5]);
    script.elect_within(1_000_000, 5);
    script.run_until(200_000, |script| script.group(5).directory.voters.len() == 7);
    // The others learn that their half is committed.
    script.run_for(31_000);
    script.divide(&[&[0, 1, 5, 6], &[2, 3, 4]]);
    script.run_for(1_000_000);
    script.check();
}

/// A leader that leaves has its removal committed. The other voter does not hear so in time.
fn a_leader_leaves_unheard() {
    let mut script = Script::new(2);
    script.leave(0);
    let removal = Change::Remove { node: script.id(0) };
    script.until("node 1 holds the removal", |script| script.newest(1, |change| *change == removal));
    // The answer of node 1 is on its way.
    script.divide(&[]);
    script.run_for(200_000);
    script.check();
}

/// A leader and one other voter stop. Meanwhile the other three agree on a change, and die.
fn a_leader_returns_to_dead_voters() {
    let mut script = Script::new(5);
    script.divide(&[&[0, 1], &[2, 3, 4]]);
    script.pause(&[0, 1], 2_000_000);
    script.elect(2);
    script.until("it has committed a change", |script| script.has_all(2, 2));
    [4, 3, 2].into_iter().for_each(|node| script.crash(node));
    // The leader removes the first dead voter, since the others seem to answer. Then it hears that they died.
    script.run_for(3_000_000);
}

/// A leader that is cut off has one follower left.
fn an_old_leader_has_one_follower() {
    let mut script = Script::new(5);
    script.serve(1);
    script.settle();
    script.serve(2);
    script.settle();
    let shard =
        (0..3).find(|shard| script.owner(0, *shard) == Some(script.id(1))).expect("a shard of node 1");
    script.divide(&[&[0, 1], &[2, 3, 4]]);
    script.elect(2);
    script.until("node 2 owns all", |script| script.owner(2, shard) == Some(script.id(2)));
    script.call_and_run(2, shard);
    script.check();
}

/// A silent member comes back while its removal waits for a majority.
fn a_member_returns_in_its_removal() {
    let mut script = Script::new(4);
    script.serve(1);
    script.settle();
    script.serve(2);
    script.settle();
    let shard =
        (0..3).find(|shard| script.owner(0, *shard) == Some(script.id(1))).expect("a shard of node 1");
    script.divide(&[&[0, 2, 3]]);
    script.until("it is to be removed", |script| script.newest(0, |c| matches!(c, Change::Remove { .. })));
    script.mute(Kind::Held, &[2, 3], &[0]);
    script.divide(&[&[0, 2, 3], &[0, 1]]);
    script.run_for(75_000);
    script.divide(&[&[0, 2, 3]]);
    script.hear(Kind::Held, &[2, 3], &[0]);
    script.until("node 2 owns all", |script| script.owner(2, shard) == Some(script.id(2)));
    script.call_and_run(2, shard);
    script.check();
}

/// The request that ends a move comes when the shard moves for the second time.
fn a_late_move_meets_a_later_one() {
    let mut script = Script::new(4);
    script.serve(1);
    script.settle();
    script.mute(Kind::Moved, &[2], &[0]);
    script.serve(2);
    script.until("the shard moves", |script| script.shard(1, 0).is_some_and(|shard| shard.target.is_some()));
    script
        .until("its owner keeps it", |script| script.shard(1, 0).is_some_and(|shard| shard.target.is_none()));
    let kept = script.epoch(1, 0);
    script.call_and_run(0, 0);
    // The next change of the fleet moves it again.
    script.mute(Kind::Handover, &[1], &[2]);
    script.leave(3);
    script.until("it moves again", |script| script.epoch(2, 0) > kept);
    script.hear(Kind::Moved, &[2], &[0]);
    script.settle();
    script.check();
}

/// A target has the state of a move that was given up, and gets the shard as its owner dies.
fn a_target_keeps_an_older_state() {
    let mut script = Script::new(5);
    script.serve(1);
    script.settle();
    script.call_and_run(0, 0);
    script.mute(Kind::Moved, &[2], &[0]);
    script.serve(2);
    script.until("the shard moves", |script| script.shard(0, 0).is_some_and(|shard| shard.target.is_some()));
    script
        .until("its owner keeps it", |script| script.shard(0, 0).is_some_and(|shard| shard.target.is_none()));
    // Node 2 learns of the end of the move together with the death of the owner.
    script.divide(&[&[0, 1, 3, 4]]);
    script.run_for(40_000);
    script.mute(Kind::Answered, &[1], &[0]);
    script.call_and_run(0, 0);
    script.crash(1);
    script.until("the shard is lost", |script| script.owner(0, 0) == Some(script.id(2)));
    script.unite();
    script.check();
}

/// The last member of a fleet gives a shard up, and does not hear that it may.
fn a_leaver_misses_its_outcome() {
    let mut script = Script::new(4);
    script.serve(1);
    script.settle();
    script.leave(1);
    script.until("it has given a shard up", |script| {
        script.shard(0, 0).is_some_and(|shard| shard.owner.is_none())
    });
    script.divide(&[&[0, 2, 3]]);
    script.serve(2);
    script.until("node 2 has it", |script| script.owner(2, 0) == Some(script.id(2)));
    script.call_and_run(2, 0);
    script.check();
}
