//! The machine as Squall models it: virtual processors (VPs), clusters of VPs, per-VP data, and short
//! restartable operations on that data.
//!
//! - A [`Vp`] is the index of a processor. [`Vp::current`] returns the caller's VP in two loads.
//! - [`machine()`] describes the machine of the process: its VPs, its levels (cpu, core, cache, node) and the
//!   share that the process may use.
//! - [`Clusters`] and [`ClusterTree`] group VPs for objects that keep one representative per cluster.
//! - [`pervp`] holds words, lists, stacks and values with one copy per VP.
//! - [`asym`] and [`park`] hold asymmetric fences and an event count for the layers above.
//! - [`transfer`] has the cost of moving a cache line to another processor, as contended locks measure it.
//!
//! Invariant of the crate: a [`Vp`] is a locality hint, never exclusion. Code that is correct only while its
//! thread stays on one processor uses a restartable operation or an atomic one.
//!
//! Layering: the crate knows no operations, grace periods or objects.

#[cfg(squall_global_alloc)]
use squall_alloc as _;

#[cfg(not(loom))]
mod cluster;
#[cfg(not(loom))]
mod current;
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
pub mod transfer;
/// Not public: sleep of threads that wait as tasks do.
#[doc(hidden)]
pub mod unpark;

#[cfg(not(loom))]
pub use cluster::{Cluster, ClusterSize, ClusterSizeError, ClusterTree, Clusters, TreeError, TreeNode};
#[cfg(not(loom))]
pub use machine::{Description, LevelDescription, Machine, MachineError, machine, try_machine};
#[cfg(not(loom))]
pub use topology::VpSet;
#[cfg(not(loom))]
pub use vp::{AssignError, Vp};
