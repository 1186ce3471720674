//! The views of the locality allocator.

use serde::{Deserialize, Serialize};

/// Statistics of the locality allocator. The fields are read one after the other while the program runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct MemoryView {
    /// Block cache mode: `restartable` or `locked`; absent if the program does not use the allocator.
    pub mode: Option<String>,
    /// Largest number of bytes that a VP caches.
    pub vp_bytes_max: u64,
    /// VPs that have ever allocated.
    pub vps: Vec<VpMemoryView>,
    /// Pages by node.
    pub nodes: Vec<NodeMemoryView>,
    /// Number of large blocks, each with a mapping of its own.
    pub large_count: u64,
    /// Bytes of the large blocks.
    pub large_bytes: u64,
}

/// Statistics of the locality allocator for one VP.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct VpMemoryView {
    /// Number of the VP.
    pub vp: u32,
    /// Bytes of its own blocks in its cache.
    pub cached_bytes: u64,
    /// Blocks of other VPs that wait here to be sent home.
    pub outbox_count: u64,
    /// Block classes that it has ever used.
    pub classes: Vec<ClassMemoryView>,
}

/// Statistics of the locality allocator for one block class of a VP.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ClassMemoryView {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// `true` if only threads of one VP use its blocks.
    pub local: bool,
    /// Number of slabs.
    pub slabs: u64,
    /// Blocks in use.
    pub used: u64,
    /// Blocks in the cache.
    pub cached: u64,
    /// Number of times that the cache was filled.
    pub fills: u64,
    /// Blocks returned to slabs.
    pub returned: u64,
    /// Returned blocks that other VPs sent home.
    pub sent_home: u64,
}

/// Statistics of the locality allocator for the pages of one node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct NodeMemoryView {
    /// Bytes of slabs.
    pub used_bytes: u64,
    /// Free bytes that still have memory.
    pub free_bytes: u64,
}
