//! The directory of a group and the figures of its nodes, asked for by people.
//!
//! A question or its answer may be lost, so it is asked again until the time is over.

use super::driver::Driver;
use super::show::GroupInfo;
use super::{Node, RequestError, block_for};
use crate::NodeId;
use crate::handover::{Taker, handover};
use crate::protocol::NodeFigures;
use crate::retry::{RETRY, Times};
use squall_machine::park::{is_past, time_left};
use squall_sys::sync::StdArc as Arc;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Begins the attempts of a question.
fn attempts(limit: Duration) -> Times {
    Times { deadline: Instant::now().checked_add(limit), retry: RETRY }
}

/// Waits for an answer to an attempt.
fn wait<T>(taker: &mut Taker<T>, until: Option<Instant>) -> Option<Option<T>> {
    block_for(taker, time_left(until))
}

impl Driver {
    /// Returns the number and the figures of this node.
    pub(super) fn look_at_itself(&self) -> (NodeId, NodeFigures) {
        let state = self.state();
        (state.core.me(), state.core.figures(self.now()))
    }

    /// Returns the directory of the group. Asks again until the time is over.
    pub(super) fn show_within(self: &Arc<Self>, limit: Duration) -> Result<GroupInfo, RequestError> {
        let mut attempts = attempts(limit);
        let (giver, mut taker) = handover();
        let ticket = self.drive(|state, now| {
            if state.closed {
                // The machine still has its copy. The giver ends, and with it the question.
                return 0;
            }
            let ticket = state.next_ticket();
            state.shows.insert(ticket, giver);
            state.core.show(now);
            ticket
        });
        loop {
            let until = attempts.again();
            match wait(&mut taker, until) {
                Some(Some((leader, directory))) => return Ok(GroupInfo::new(leader, &directory)),
                Some(None) => return Err(RequestError::NoMember),
                None if is_past(attempts.deadline) => break,
                None => self.drive(|state, now| state.core.show(now)),
            }
            attempts.back_off();
        }
        let unanswered = self.state().shows.remove(&ticket);
        drop(unanswered);
        Err(RequestError::TimedOut)
    }

    /// Asks nodes for their figures. Asks again until all have answered, or the time is over.
    pub(super) fn figures_of(
        self: &Arc<Self>,
        nodes: &[NodeId],
        limit: Duration,
    ) -> BTreeMap<NodeId, NodeFigures> {
        let mut attempts = attempts(limit);
        let mut found = BTreeMap::new();
        let mut asked: Vec<(NodeId, u64, Taker<NodeFigures>)> = Vec::new();
        for node in nodes.iter().copied() {
            let (giver, taker) = handover();
            let ticket = self.drive(|state, now| {
                if state.closed {
                    return 0;
                }
                let ticket = state.next_ticket();
                state.looks.insert(ticket, (node, giver));
                state.core.look(now, node);
                ticket
            });
            asked.push((node, ticket, taker));
        }
        loop {
            let until = attempts.again();
            asked.retain_mut(|(node, _, taker)| match wait(taker, until) {
                Some(Some(figures)) => {
                    found.insert(*node, figures);
                    false
                }
                Some(None) => false,
                None => true,
            });
            if asked.is_empty() || is_past(attempts.deadline) {
                break;
            }
            attempts.back_off();
            for (node, ..) in &asked {
                self.drive(|state, now| state.core.look(now, *node));
            }
        }
        for (_, ticket, _) in asked {
            let unanswered = self.state().looks.remove(&ticket);
            drop(unanswered);
        }
        found
    }

    pub(super) fn leave(self: &Arc<Self>, limit: Duration) -> Result<(), RequestError> {
        if self.state().closed {
            return Err(RequestError::NoMember);
        }
        self.drive(|state, now| state.core.leave(now));
        let left = self.wait(limit, |state| state.left && state.core.running() == 0);
        if left { Ok(()) } else { Err(RequestError::TimedOut) }
    }
}

impl Node {
    /// Leaves the group: the services lose their names, the shards move to other members, and the node ends.
    ///
    /// If no other member can take the shards, their state ends.
    ///
    /// # Errors
    /// The time is over. The node goes on leaving until it is dropped.
    pub fn leave(&self, limit: Duration) -> Result<(), RequestError> {
        self.0.leave(limit)
    }

    /// Returns the directory of the group: this member's copy, or that of a member which a visitor asks. A
    /// visitor asks again after 100 ms, and then after longer pauses, since frames may be lost.
    ///
    /// # Errors
    /// No member answers within `limit`.
    pub fn show(&self, limit: Duration) -> Result<GroupInfo, RequestError> {
        self.0.show_within(limit)
    }

    /// Returns the figures of this node.
    pub fn figures(&self) -> NodeFigures {
        self.0.look_at_itself().1
    }

    /// Asks nodes of the group for their figures, and waits at most for `limit`. Returns those that answered.
    /// A visitor can ask the members that [`show`](Node::show) has found.
    pub fn figures_of(&self, nodes: &[NodeId], limit: Duration) -> BTreeMap<NodeId, NodeFigures> {
        self.0.figures_of(nodes, limit)
    }
}
