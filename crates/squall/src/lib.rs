#![forbid(unsafe_code)]
//! Shared objects that scale. This crate is what users depend on; it only names what the others have.
//!
#![doc = include_str!("../README.md")]

pub use squall_core::{
    At, CallError, Cleanup, CoRef, CreateError, Destruction, Ended, Extends, Found, Id, Interface,
    InterfaceOf, Miss, ObjectInfo, ObjectKind, ObjectState, Owned, Peers, Reason, RepInfo, Reply, Root,
    Source, WellKnown, info_of, shared, snapshot, stateful, swap, tables, try_shared,
};
pub use squall_machine::{
    Cluster, ClusterSize, ClusterTree, Clusters, Machine, TreeNode, Vp, VpSet, machine, pervp, restartable,
    topology,
};
pub use squall_macros::interface;
pub use squall_rcu as rcu;

#[doc(hidden)]
pub use squall_core::__macro;

/// What most programs need.
pub mod prelude {
    pub use crate::{At, CallError, ClusterSize, CoRef, Owned, Root, Vp, interface};
}
