//! The views of members of pools.

use serde::{Deserialize, Serialize};

/// A member of a pool in the program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PoolView {
    /// Number of the member in the program. The program uses each number once.
    pub number: u64,
    /// Name of the pool.
    pub name: String,
    /// Number of its node in the group, like [`NodeView::node`](super::NodeView::node). Absent while it is
    /// not in the pool.
    pub node: Option<String>,
    /// Place of the member in the pool. Absent while it is not in the pool.
    pub location: Option<u64>,
    /// `joining`, `serving`, `no lease` or `leaving`.
    pub state: String,
    /// `true` if it is the master, the first of the members.
    pub master: bool,
    /// Number of the pool's members that it knows, with itself.
    pub members: usize,
    /// Name of the pool's strategy, such as `directory`.
    pub strategy: String,
    /// Number of elements at it.
    pub elements: usize,
    /// Number of its operations that have not ended.
    pub open_operations: usize,
    /// Number of elements that callers got and have not taken yet. The member waits for them before it
    /// leaves.
    pub untaken: u64,
    /// `true` if another member has a complete copy of it. Then its death loses no element.
    pub has_heir: bool,
    /// Events at it.
    #[serde(flatten)]
    pub counts: PoolCountsView,
}

/// Events at a member of a pool, since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PoolCountsView {
    /// Operations that began.
    pub operations: u64,
    /// Messages that it sent to other members, without repetitions.
    pub messages: u64,
    /// Frames that it sent.
    pub frames: u64,
    /// Elements that it took from other members for gets that waited.
    pub demanded: u64,
    /// Transfers that brought these elements.
    pub demand_transfers: u64,
    /// Transfers that it began in the background.
    pub background_transfers: u64,
}
