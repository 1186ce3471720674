//! The work of a node's driver.

use crate::protocol::answer::Fate;
use crate::protocol::calls::CallId;
use crate::protocol::directory::{Directory, Request};
use crate::protocol::figures::NodeFigures;
use crate::protocol::name::{Name, NameAlias, NameCapability};
use crate::protocol::{NodeId, Refusal, RunId, Time};

/// News for a member of a roster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    Changed(Roster),
    /// The member has left, as it had asked for.
    Vacated,
    /// Its node was removed from the group, or has ended.
    Removed,
}

/// The members of a roster, as the group has agreed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Roster {
    /// Grows with each change of the members.
    pub(crate) epoch: u64,
    /// The number of this member.
    pub(crate) me: u64,
    /// Whether this member was asked to leave.
    pub(crate) leaving: bool,
    /// Numbers and nodes of the members, in the order of their joins.
    pub(crate) members: Vec<(u64, NodeId)>,
    /// Members of removed nodes, each with the member that acts for it.
    pub(crate) inherited: Vec<(u64, u64)>,
    /// The heir of this member.
    pub(crate) heir: Option<u64>,
}

impl Roster {
    /// Returns whether this member acts under a number: its own, or an inherited one.
    pub(crate) fn acts_as(&self, number: u64) -> bool {
        number == self.me || self.inherited.contains(&(number, self.me))
    }
}

/// Work for the driver, in this order.
#[derive(Debug, PartialEq)]
pub(crate) enum Output {
    Send {
        to: String,
        frame: Vec<u8>,
    },
    Run {
        run: RunId,
        service: u64,
        shard: Option<u32>,
        client: NodeId,
        method: u64,
        body: Vec<u8>,
    },
    /// Begin with an empty shard.
    Create {
        service: u64,
        shard: u32,
    },
    /// Begin with a shard that comes from another member.
    Import {
        service: u64,
        shard: u32,
        state: Vec<u8>,
    },
    /// Copy the state of a shard, and call [`Core::exported`]. No call of the shard runs.
    Export {
        service: u64,
        name: NameAlias,
        shard: u32,
        epoch: u64,
    },
    /// Forget a shard.
    Drop {
        service: u64,
        shard: u32,
    },
    Called {
        call: CallId,
        result: Result<Vec<u8>, Fate>,
    },
    /// The outcome of the request with this ticket.
    Requested {
        ticket: u64,
        outcome: Result<(), Refusal>,
    },
    /// Forget a service that has lost its name for ever.
    Forget {
        service: u64,
    },
    /// The directory of the group, as a member has it.
    Shown {
        leader: Option<NodeId>,
        directory: Directory,
    },
    /// The figures of a node.
    Looked {
        node: NodeId,
        figures: Box<NodeFigures>,
    },
    /// News for a service that is a member of a roster.
    Roster {
        service: u64,
        news: News,
    },
    /// A frame of another member of a roster.
    Peer {
        service: u64,
        from: u64,
        bytes: Vec<u8>,
    },
    Joined,
    /// The node has left, or its group has ended.
    Left,
}

/// A service that this node keeps registered.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    pub(crate) name: Name,
    pub(crate) service: u64,
    pub(crate) several: bool,
    pub(crate) stateless: bool,
    pub(crate) shards: u32,
    /// The tag of a roster.
    pub(crate) roster: Option<u64>,
    pub(crate) key: u128,
    pub(crate) parent: NameCapability,
    /// The number under which the node has seen it registered.
    pub(crate) seen: Option<NodeId>,
    /// The earliest time of its next registration, after the group has refused one.
    pub(crate) register_at: Time,
}

impl Registration {
    pub(super) fn request(&self) -> Request {
        Request::Register {
            name: self.name.clone(),
            service: self.service,
            several: self.several,
            stateless: self.stateless,
            shards: self.shards,
            roster: self.roster,
            key: self.key,
            parent: self.parent.clone(),
        }
    }
}
