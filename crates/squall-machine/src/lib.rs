//! The machine as Squall sees it: virtual processors, the clusters they form, data that each of them keeps for
//! itself, and short restartable operations on that data.
//!
//! Invariant of the crate: a [`Vp`] is a hint about *where* a thread runs, never exclusion. Whatever is right only
//! while the thread stays on its processor is done by a restartable operation, or else by an atomic one.
//!
//! Does not know: operations, grace periods, objects.

#[cfg(squall_global_alloc)]
use squall_alloc as _;

#[cfg(not(loom))]
mod cluster;
#[cfg(not(loom))]
mod machine;
#[cfg(not(loom))]
pub mod pervp;
#[cfg(not(loom))]
pub mod topology;
#[cfg(not(loom))]
mod vp;

pub mod asym;
pub mod park;

#[cfg(not(loom))]
pub use cluster::{Cluster, ClusterSize, ClusterSizeError, ClusterTree, Clusters, TreeError, TreeNode};
#[cfg(not(loom))]
pub use machine::{Description, LevelDescription, Machine, MachineError, machine, try_machine};
#[cfg(not(loom))]
pub use topology::VpSet;
#[cfg(not(loom))]
pub use vp::{AssignError, Vp};
