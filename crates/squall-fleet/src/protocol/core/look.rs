//! The directory and the figures, for people.

use super::{ANY, Core};
use crate::protocol::figures::{NodeFigures, NodeState};
use crate::protocol::frame::Body;
use crate::protocol::{NodeId, Time};
use std::time::Duration;

impl Core {
    /// Asks for the directory: at this node if it is a member, or at the nodes that it knows. The answer is
    /// [`Output::Shown`], perhaps several.
    pub(crate) fn show(&mut self, now: Time) {
        if self.group.is_member() {
            self.loopback.push_back(Body::Show);
        } else {
            for contact in self.contacts() {
                self.send_to(contact, ANY, Body::Show);
            }
        }
        self.finish(now);
    }

    /// Asks a node for its figures. The answer is [`Output::Looked`], perhaps several.
    pub(crate) fn look(&mut self, now: Time, node: NodeId) {
        self.send(node, Body::Look);
        self.finish(now);
    }

    /// Returns the figures of this node.
    pub(crate) fn figures(&self, now: Time) -> NodeFigures {
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let me = self.group.directory.members.get(&self.group.me);
        let state = match me {
            _ if self.ended => NodeState::Left,
            Some(member) if member.leaving || self.leaves => NodeState::Leaving,
            Some(_) => NodeState::Member,
            None if self.leaves => NodeState::Leaving,
            None if self.joins => NodeState::Joining,
            None => NodeState::Visitor,
        };
        let figures = NodeFigures {
            state,
            leader: self.group.leader(),
            term: self.group.term(),
            lease_left: Duration::from_micros(self.group.lease_left(now)),
            open_calls: count(self.client.open()),
            running: count(self.serving.running()),
            sessions: count(self.serving.sessions()),
            shards: count(self.serving.shards.len()),
            ..NodeFigures::default()
        };
        self.counts.fill(now, figures)
    }
}
