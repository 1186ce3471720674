//! The views of nodes and of their groups.

use serde::{Deserialize, Serialize};

/// A node of the program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct NodeView {
    /// Number of the node in the program. The program uses each number once.
    pub number: u64,
    /// Number of the node in its group: 16 hexadecimal digits. A node that begins again has another one.
    pub node: String,
    /// Endpoint at which other nodes reach it. May contain control characters.
    pub endpoint: String,
    /// Number of its machine: 16 hexadecimal digits.
    pub machine: String,
    /// Its figures.
    #[serde(flatten)]
    pub figures: FiguresView,
}

/// Figures of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct FiguresView {
    /// `visitor`, `joining`, `member`, `leaving` or `left`.
    pub state: String,
    /// Number of the member that the node takes for the leader.
    pub leader: Option<String>,
    /// Number of the latest election that it knows of.
    pub term: u64,
    /// Time for which it may still serve, in milliseconds.
    pub lease_ms: u64,
    /// How often it became a member. Above 1, the group has removed it, and it began again.
    pub joined: u64,
    /// Its calls that have not ended.
    pub open_calls: u64,
    /// Its calls that have ended, by their ends.
    pub calls: FatesView,
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
    /// Shards whose state lies on it.
    pub shards: u64,
    /// Shards that began empty on it.
    pub created: u64,
    /// Shards that other members handed over to it.
    pub imported: u64,
    /// Shards that it exported for other members. A move that begins again counts twice.
    pub exported: u64,
    /// The latest ends of members that it has seen, oldest first.
    pub ends: Vec<EndView>,
}

/// Calls of a node, by their ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct FatesView {
    /// Calls with a result.
    pub done: u64,
    /// No service had the name until the deadline. The calls did not run.
    pub no_service: u64,
    /// No server accepted the calls until the deadline. They did not run.
    pub not_accepted: u64,
    /// The arguments were larger than a frame. The calls did not run.
    pub too_large: u64,
    /// The node was closed. The calls did not run.
    pub closed: u64,
    /// No answer came until the deadline. The calls may have run.
    pub timed_out: u64,
    /// The server died or lost its state. The calls may have run.
    pub server_lost: u64,
    /// The service dropped the calls, or panicked. They may have run in part.
    pub dropped: u64,
    /// The calls ran, but their results were too large, or are gone.
    pub no_result: u64,
}

/// The end of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct EndView {
    /// Number of the member.
    pub node: String,
    /// Endpoint of the member. May contain control characters.
    pub endpoint: String,
    /// Reason, in words: it left, it died, or the leader removed it.
    pub reason: String,
    /// Time of the end, in milliseconds since 1970.
    pub at_ms: u64,
}

/// A group of nodes, as one of them sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct GroupView {
    /// Endpoint of the member that orders the changes, if there is one. May contain control characters.
    pub leader: Option<String>,
    /// The members.
    pub members: Vec<MemberView>,
    /// The names, in their order.
    pub names: Vec<NameView>,
    /// Names with a claim to all longer names.
    pub reserved: Vec<String>,
}

/// A member of a group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct MemberView {
    /// Number of the node: 16 hexadecimal digits.
    pub node: String,
    /// Endpoint at which other nodes reach it. May contain control characters.
    pub endpoint: String,
    /// Number of its machine: 16 hexadecimal digits.
    pub machine: String,
    /// `true` if it orders the changes.
    pub leader: bool,
    /// `true` if it votes on changes.
    pub votes: bool,
    /// `true` if it moves its shards away to leave.
    pub leaving: bool,
    /// [`NodeView::number`], if it is a node of the program.
    pub number: Option<u64>,
    /// Its figures, if it answered in time.
    pub figures: Option<FiguresView>,
}

/// A name with its services.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct NameView {
    /// The name.
    pub name: String,
    /// `true` if any service may serve any call.
    pub stateless: bool,
    /// `true` if it is a roster: a name with agreed members, such as a pool.
    pub roster: bool,
    /// Endpoints of the members that serve it. They may contain control characters. A roster has one entry
    /// for each of its members, in the order of their joins.
    pub nodes: Vec<String>,
    /// Number of shards. Zero: the name is a roster, or that of services without shards.
    pub shards: usize,
    /// Sum of the epochs of its shards, or the epoch of the roster. Grows with each change of an owner, a
    /// target or a roster's member.
    pub epochs: u64,
    /// Members with shards, by their endpoints.
    pub owners: Vec<OwnerView>,
    /// Moves of shards that have begun and not ended.
    pub moves: Vec<MoveView>,
}

/// Shards of one member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct OwnerView {
    /// Endpoint of the member. Absent for shards without an owner. May contain control characters.
    pub member: Option<String>,
    /// Number of shards that it owns.
    pub shards: usize,
}

/// A move of a shard to another member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct MoveView {
    /// Number of the shard.
    pub shard: usize,
    /// Endpoint of the owner. May contain control characters.
    pub from: Option<String>,
    /// Endpoint of the member that takes it over. May contain control characters.
    pub to: String,
}
