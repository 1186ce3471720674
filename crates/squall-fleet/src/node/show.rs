//! A group as people see it.

use crate::protocol::Directory;
use crate::{Name, NodeId};
use std::collections::BTreeSet;

/// The directory of a group at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupInfo {
    /// The member that orders the changes, if there is one.
    pub leader: Option<NodeId>,
    /// The members.
    pub members: Vec<MemberInfo>,
    /// The names, in their order.
    pub services: Vec<ServiceInfo>,
    /// The names with a claim to all longer names.
    pub reserved: Vec<Name>,
}

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberInfo {
    /// Its number.
    pub node: NodeId,
    /// Where other nodes reach it.
    pub endpoint: String,
    /// The number of its machine.
    pub host: u64,
    /// The NUMA node, if it keeps to one.
    pub memory: Option<u32>,
    /// The last-level cache, if it keeps to the processors of one.
    pub cache: Option<u32>,
    /// Whether it votes on changes.
    pub votes: bool,
    /// Whether it moves its shards away to leave.
    pub leaving: bool,
}

/// A name with its services.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServiceInfo {
    /// The name.
    pub name: Name,
    /// Any service may serve any call.
    pub stateless: bool,
    /// The nodes that serve it. Of a roster: the nodes of its members, in the order of their joins. A node
    /// with several members comes several times.
    pub nodes: Vec<NodeId>,
    /// The shards, if it is a fleet with shards.
    pub shards: Vec<ShardInfo>,
    /// The epoch of the roster, if the name is one. Grows with each change of its members.
    pub roster_epoch: Option<u64>,
}

/// A shard of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardInfo {
    /// The owner, if the fleet has members.
    pub owner: Option<NodeId>,
    /// The member that it moves to.
    pub target: Option<NodeId>,
    /// Grows with each change of the owner or the target.
    pub epoch: u64,
    /// The epoch in which its state began.
    pub born: u64,
}

impl GroupInfo {
    pub(super) fn new(leader: Option<NodeId>, directory: &Directory) -> GroupInfo {
        let voters: &BTreeSet<NodeId> = &directory.voters;
        let members = (directory.members.iter())
            .map(|(node, member)| MemberInfo {
                node: *node,
                endpoint: member.endpoint.clone(),
                host: member.location.host,
                memory: member.location.memory,
                cache: member.location.cache,
                votes: voters.contains(node),
                leaving: member.leaving,
            })
            .collect();
        let services = (directory.names())
            .map(|(name, entry)| ServiceInfo {
                name: name.clone(),
                stateless: entry.stateless,
                nodes: entry.places.iter().map(|place| place.node).collect(),
                shards: (entry.shards.iter())
                    .map(|shard| ShardInfo {
                        owner: shard.owner,
                        target: shard.target,
                        epoch: shard.epoch,
                        born: shard.born,
                    })
                    .collect(),
                roster_epoch: entry.roster.map(|roster| roster.epoch),
            })
            .collect();
        GroupInfo { leader, members, services, reserved: directory.reserved().cloned().collect() }
    }
}
