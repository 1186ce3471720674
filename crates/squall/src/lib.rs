#![forbid(unsafe_code)]
//! Shared objects that scale. This crate is what users depend on; it only names what the others have.
//!
#![doc = include_str!("../README.md")]

pub use squall_adapt as adapt;
pub use squall_alloc as alloc;
#[cfg(feature = "browse")]
pub use squall_browse as browse;
pub use squall_core::{
    RepContext, CallError, ClassInfo, Cleanup, Handle, CreateError, Destruction, Interrupted, Extends, RepRef, Id, Interface,
    InterfaceOf, Miss, NoId, ObjectInfo, ObjectKind, ObjectState, Owned, RepIter, CallErrorKind, RepInfo, RepMemory,
    MissAnswer, Root, Source, WellKnown, class_of, info_of, shared, shared_with, snapshot, swappable,
    swappable_with, swap, tables, try_shared,
};
pub use squall_lock as lock;
pub use squall_machine::{
    Cluster, ClusterSize, ClusterTree, Clusters, Machine, TreeNode, Vp, VpSet, machine, pervp, restartable,
    topology,
};
pub use squall_macros::interface;
pub use squall_objects as objects;
pub use squall_parts as parts;
pub use squall_policy as policy;
pub use squall_rcu as rcu;

#[doc(hidden)]
pub use squall_core::__macro;

/// What most programs need.
pub mod prelude {
    pub use crate::{RepContext, CallError, ClusterSize, Handle, Owned, Root, Vp, interface};
}
