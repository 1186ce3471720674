//! Figures of a node: its part in the group, and counts of its work.
//!
//! The figures follow from the outputs and the committed directories, so no step of the protocol depends on
//! them. A node tells its figures to any node of its group.
//!
//! Cost: a match for each output, and a pass over the members for each committed change.

use super::answer::Fate;
use super::core::Output;
use super::directory::Directory;
use super::{NodeId, Time};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::time::Duration;

/// The ends of members that a node remembers.
const ENDS_MAX: usize = 32;
/// The deaths that a node remembers until the group removes the members.
const DEAD_MAX: usize = 1_024;

/// The part of a node in its group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum NodeState {
    /// Calls services, and is no member.
    #[default]
    Visitor,
    /// Looks for its group, to be a member.
    Joining,
    /// Is a member.
    Member,
    /// Is a member that moves its shards away to leave.
    Leaving,
    /// Has left its group.
    Left,
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NodeState::Visitor => "visitor",
            NodeState::Joining => "joining",
            NodeState::Member => "member",
            NodeState::Leaving => "leaving",
            NodeState::Left => "left",
        })
    }
}

/// The reason why a node is a member no more, as another member knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum EndReason {
    /// The member was leaving in two phases. It may have died before its last shard had moved.
    Left,
    /// A certain death: the kernel told this member of it, or the node began again under another number.
    Died,
    /// The leader removed it: it was silent for longer than a lease, or the leader knew that it was dead.
    Removed,
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EndReason::Left => "left",
            EndReason::Died => "died",
            EndReason::Removed => "removed by the leader: silent, or known to be dead",
        })
    }
}

/// The end of a member, as another member saw it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EndInfo {
    /// Its number.
    pub node: NodeId,
    /// Its endpoint.
    pub endpoint: String,
    /// The reason.
    pub reason: EndReason,
    /// The time since then.
    pub age: Duration,
}

/// Calls that a node has made, by their ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CallCounts {
    /// Calls with a result. Each ran once.
    pub done: u64,
    /// Calls that ended by [`Fate::NoService`].
    pub no_service: u64,
    /// Calls that ended by [`Fate::NotAccepted`].
    pub not_accepted: u64,
    /// Calls that ended by [`Fate::TooLarge`].
    pub too_large: u64,
    /// Calls that ended by [`Fate::Closed`].
    pub closed: u64,
    /// Calls that ended by [`Fate::TimedOut`].
    pub timed_out: u64,
    /// Calls that ended by [`Fate::ServerLost`].
    pub server_lost: u64,
    /// Calls that ended by [`Fate::Dropped`].
    pub dropped: u64,
    /// Calls that ended by [`Fate::NoResult`].
    pub no_result: u64,
}

impl CallCounts {
    /// Returns the number of calls that have ended.
    pub fn total(&self) -> u64 {
        self.by_fate().into_iter().map(|(_, count)| count).fold(self.done, u64::saturating_add)
    }

    /// Returns the calls without a result, by their fates.
    pub fn by_fate(&self) -> [(Fate, u64); 8] {
        [
            (Fate::NoService, self.no_service),
            (Fate::NotAccepted, self.not_accepted),
            (Fate::TooLarge, self.too_large),
            (Fate::Closed, self.closed),
            (Fate::TimedOut, self.timed_out),
            (Fate::ServerLost, self.server_lost),
            (Fate::Dropped, self.dropped),
            (Fate::NoResult, self.no_result),
        ]
    }

    fn add<T>(&mut self, result: &Result<T, Fate>) {
        let count = match result {
            Ok(_) => &mut self.done,
            Err(Fate::NoService) => &mut self.no_service,
            Err(Fate::NotAccepted) => &mut self.not_accepted,
            Err(Fate::TooLarge) => &mut self.too_large,
            Err(Fate::Closed) => &mut self.closed,
            // Refused before it becomes a call.
            Err(Fate::OwnShard) => return,
            Err(Fate::TimedOut) => &mut self.timed_out,
            Err(Fate::ServerLost) => &mut self.server_lost,
            Err(Fate::Dropped) => &mut self.dropped,
            Err(Fate::NoResult) => &mut self.no_result,
        };
        *count += 1;
    }
}

/// Figures of a node at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NodeFigures {
    /// Its part in the group.
    pub state: NodeState,
    /// The member that it takes for the leader.
    pub leader: Option<NodeId>,
    /// The number of the latest election that it knows of.
    pub term: u64,
    /// The time for which it may still serve. Zero for a node without a lease.
    pub lease_left: Duration,
    /// How often it became a member. Above 1, the group has removed it, and it began again.
    pub joined: u64,
    /// Its calls that have not ended.
    pub open_calls: u64,
    /// Its calls that have ended.
    pub calls: CallCounts,
    /// Calls of its services that have begun.
    pub served: u64,
    /// Calls of its services that run.
    pub running: u64,
    /// Sessions of clients with its services.
    pub sessions: u64,
    /// Requests to change the directory that the group granted.
    pub granted: u64,
    /// Requests to change the directory that the group refused.
    pub refused: u64,
    /// Shards whose state lies here.
    pub shards: u64,
    /// Shards that began empty here.
    pub created: u64,
    /// Shards that other members handed over to it.
    pub imported: u64,
    /// Shards that its services exported for other members. A move that begins again counts twice.
    pub exported: u64,
    /// The latest ends of members, oldest first.
    pub ends: Vec<EndInfo>,
}

/// A member of the last committed directory.
#[derive(Debug)]
struct Seen {
    endpoint: String,
    leaving: bool,
}

/// The counts behind the figures of a node.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    joined: u64,
    calls: CallCounts,
    served: u64,
    granted: u64,
    refused: u64,
    created: u64,
    imported: u64,
    exported: u64,
    members: BTreeMap<NodeId, Seen>,
    /// Members that are dead for certain, and not removed yet.
    dead: BTreeSet<NodeId>,
    ends: VecDeque<(Time, NodeId, String, EndReason)>,
}

impl Counts {
    /// Counts an output on its way to the driver.
    pub(crate) fn add(&mut self, output: &Output) {
        match output {
            Output::Create { .. } => self.created += 1,
            Output::Import { .. } => self.imported += 1,
            Output::Export { .. } => self.exported += 1,
            Output::Called { result, .. } => self.calls.add(result),
            Output::Requested { outcome: Ok(()), .. } => self.granted += 1,
            Output::Requested { outcome: Err(_), .. } => self.refused += 1,
            Output::Joined => self.joined += 1,
            _ => {}
        }
    }

    /// Counts a call that a service begins to run.
    pub(crate) fn add_served(&mut self) {
        self.served += 1;
    }

    /// Notes that a node is dead for certain.
    pub(crate) fn note_death(&mut self, node: NodeId) {
        if self.members.contains_key(&node) && self.dead.len() < DEAD_MAX {
            self.dead.insert(node);
        }
    }

    /// Compares the members of a committed directory with those before. `left` are those that were leaving
    /// when the group removed them.
    pub(crate) fn note_members(&mut self, now: Time, directory: &Directory, left: &[NodeId]) {
        let gone = |node: &NodeId| !directory.members.contains_key(node);
        let ended: Vec<NodeId> = self.members.keys().copied().filter(gone).collect();
        for node in ended {
            let Some(Seen { endpoint, leaving }) = self.members.remove(&node) else { continue };
            let reason = match (leaving || left.contains(&node), self.dead.remove(&node)) {
                // The news of its end may come before the directory without it.
                (true, _) => EndReason::Left,
                (false, true) => EndReason::Died,
                (false, false) => EndReason::Removed,
            };
            if self.ends.len() >= ENDS_MAX {
                self.ends.pop_front();
            }
            self.ends.push_back((now, node, endpoint, reason));
        }
        for (node, member) in &directory.members {
            match self.members.get_mut(node) {
                Some(seen) => seen.leaving = member.leaving,
                None => {
                    let seen = Seen { endpoint: member.endpoint.clone(), leaving: member.leaving };
                    self.members.insert(*node, seen);
                }
            }
        }
    }

    /// Forgets the members: the node begins again, and knows no directory.
    pub(crate) fn forget_members(&mut self) {
        self.members.clear();
        self.dead.clear();
    }

    /// Returns the counts as figures. The other fields are those of `figures`.
    pub(crate) fn fill(&self, now: Time, figures: NodeFigures) -> NodeFigures {
        let end = |(at, node, endpoint, reason): &(Time, NodeId, String, EndReason)| EndInfo {
            node: *node,
            endpoint: endpoint.clone(),
            reason: *reason,
            age: Duration::from_micros(now.saturating_sub(*at)),
        };
        NodeFigures {
            joined: self.joined,
            calls: self.calls,
            served: self.served,
            granted: self.granted,
            refused: self.refused,
            created: self.created,
            imported: self.imported,
            exported: self.exported,
            ends: self.ends.iter().map(end).collect(),
            ..figures
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::CallId;
    use crate::protocol::directory::{Change, Request};
    use crate::protocol::location::Location;

    #[test]
    fn each_end_of_a_call_is_counted_once() {
        let mut counts = Counts::default();
        counts.add(&Output::Called { call: CallId(1), result: Ok(Vec::new()) });
        for (fate, _) in CallCounts::default().by_fate() {
            counts.add(&Output::Called { call: CallId(1), result: Err(fate) });
        }
        let calls = counts.fill(0, NodeFigures::default()).calls;
        assert_eq!((calls.done, calls.total()), (1, 9));
        assert!(calls.by_fate().iter().all(|(_, count)| *count == 1), "{calls:?}");
    }

    #[test]
    fn a_member_that_is_gone_left_or_died_or_was_removed() {
        let [first, second, third, fourth] = [1, 2, 3, 4].map(NodeId);
        let mut directory = Directory::new(7, first, "1".to_owned(), Location::of_host(0));
        for node in [second, third, fourth] {
            directory.apply(&Change::Join {
                node,
                endpoint: node.0.to_string(),
                location: Location::of_host(0),
            });
        }
        let mut counts = Counts::default();
        counts.note_members(10, &directory, &[]);
        directory.apply(&Change::Of { node: second, number: 1, request: Request::Leave });
        counts.note_members(20, &directory, &[]);
        counts.note_death(third);
        // A stranger's death is not kept.
        counts.note_death(NodeId(9));
        for node in [second, third, fourth] {
            directory.apply(&Change::Remove { node });
            counts.note_members(30, &directory, &[]);
        }
        let ends = counts.fill(50, NodeFigures::default()).ends;
        let ends: Vec<_> = ends.iter().map(|end| (end.node, &*end.endpoint, end.reason)).collect();
        assert_eq!(
            ends,
            [
                (second, "2", EndReason::Left),
                (third, "3", EndReason::Died),
                (fourth, "4", EndReason::Removed)
            ]
        );
        assert_eq!(counts.fill(50, NodeFigures::default()).ends[0].age, Duration::from_micros(20));
        assert!(counts.dead.is_empty());
        // A node that begins again does not take the others for ended.
        counts.forget_members();
        counts.note_members(60, &Directory::new(7, fourth, "4".to_owned(), Location::of_host(0)), &[]);
        assert_eq!(counts.ends.len(), 3);
    }

    #[test]
    fn a_leave_and_a_removal_in_one_step_is_a_leave() {
        let [first, second] = [1, 2].map(NodeId);
        let mut directory = Directory::new(7, first, "1".to_owned(), Location::of_host(0));
        let before = directory.clone();
        directory.apply(&Change::Join {
            node: second,
            endpoint: "2".to_owned(),
            location: Location::of_host(0),
        });
        let mut counts = Counts::default();
        counts.note_members(10, &directory, &[]);
        // The news of its end came first.
        counts.note_death(second);
        counts.note_members(20, &before, &[second]);
        assert_eq!(counts.fill(20, NodeFigures::default()).ends[0].reason, EndReason::Left);
    }

    #[test]
    fn the_oldest_ends_make_room() {
        let mut counts = Counts::default();
        let first = NodeId(1);
        for number in 2..2 * ENDS_MAX as u64 {
            let mut directory = Directory::new(7, first, String::new(), Location::of_host(0));
            let node = NodeId(number);
            directory.apply(&Change::Join { node, endpoint: String::new(), location: Location::of_host(0) });
            counts.note_members(number, &directory, &[]);
        }
        let ends = counts.fill(0, NodeFigures::default()).ends;
        assert_eq!((ends.len(), ends[ENDS_MAX - 1].node), (ENDS_MAX, NodeId(2 * ENDS_MAX as u64 - 2)));
    }
}
