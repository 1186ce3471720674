#![forbid(unsafe_code)]
//! Counters, maps, configuration values, caches, locks and gates for programs with many threads or tasks.
//!
//! Programs depend on this crate alone. It re-exports the other crates of Squall.
//!
#![doc = include_str!("../README.md")]

pub use squall_adapt as adapt;
pub use squall_alloc as alloc;
#[cfg(feature = "browse")]
pub use squall_browse as browse;
pub use squall_core::{
    CallError, CallErrorKind, ClassInfo, Cleanup, CreateError, Destruction, Extends, Handle, Id, Interface,
    InterfaceOf, Interrupted, Miss, MissAnswer, ObjectInfo, ObjectKind, ObjectState, Owned, ParseIdError,
    RepContext, RepInfo, RepIter, RepMemory, RepRef, Root, Source, WellKnown, class_of, info_of, shared,
    shared_with, snapshot, swap, swappable, swappable_with, tables, try_shared,
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

/// The names that most programs with objects of their own need.
pub mod prelude {
    pub use crate::{CallError, ClusterSize, Handle, Owned, RepContext, Root, Vp, interface};
}
