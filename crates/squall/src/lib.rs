#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
//! Counters, maps, configuration values, caches, locks and gates for programs with many threads or tasks.
//!
//! Programs depend on this crate alone. It re-exports the other crates of Squall.
//!
#![doc = include_str!("../README.md")]
// Without its feature, the name of a module leads to the table of features.
#![doc = ""]
#![cfg_attr(not(feature = "bags"), doc = "[`objects::bag`]: #features\n[`objects::pool`]: #features")]
#![cfg_attr(not(feature = "queues"), doc = "[`objects::queue`]: #features")]
#![cfg_attr(not(feature = "gates"), doc = "[`objects::gate`]: #features\n[`parts::gate`]: #features")]
#![cfg_attr(not(feature = "directories"), doc = "[`objects::directory`]: #features")]
#![cfg_attr(not(feature = "directories"), doc = "[`parts::dhash`]: #features")]
#![cfg_attr(not(feature = "adaptive-lock"), doc = "[`objects::lock`]: #features")]
#![cfg_attr(not(feature = "call"), doc = "[`call`]: #features")]
#![cfg_attr(not(feature = "fleet"), doc = "[`fleet`]: #features")]
#![cfg_attr(not(feature = "browse"), doc = "[`browse`]: #features")]

pub use squall_adapt::adaptive::{Adaptive, adaptive};
pub use squall_core::{
    CallError, CallErrorKind, ClassInfo, Cleanup, CreateError, Destruction, Extends, Handle, Id, Interface,
    InterfaceOf, Interrupted, LinkError, MediatorInfo, MediatorPhase, MessageError, Miss, MissAnswer, Name,
    NameError, ObjectInfo, ObjectKind, ObjectState, Owned, ParseIdError, RepContext, RepInfo, RepIter,
    RepMemory, RepRef, Root, Source, Transport, WellKnown, class_of, count_after, info_of, name_of, parts_of,
    set_name, set_part_of, shared, shared_with, snapshot, snapshot_after, swap, swappable, swappable_with,
    tables, try_shared, whole_of,
};
pub use squall_machine::{
    Cluster, ClusterSize, ClusterTree, Clusters, Machine, TreeNode, Vp, VpSet, machine, pervp, restartable,
    topology,
};
pub use squall_macros::interface;

// Modules, and not names of the crates: rustc suggests the paths of modules for a trait that is not imported,
// and rustdoc documents their contents here. Items of a feature are also named one by one: rustc then tells a
// program that lacks the feature which one to enable.

/// The engine that changes the form of adaptive objects with their load.
pub mod adapt {
    pub use squall_adapt::*;
}

/// A memory allocator with a cache per processor.
pub mod alloc {
    pub use squall_alloc::*;
}

/// Locks that are cheap while they are free.
pub mod lock {
    pub use squall_lock::*;
    #[cfg(feature = "adaptive-lock")]
    pub use squall_lock::{
        Cancel, ConfigurableGuard, ConfigurableLock, LockError, Method, MonitorReading, Order, Release,
        Request, Scheduling, Waiting,
    };
}

/// Ready objects: counters, maps, read-mostly values, caches, directories, gates and an adaptive lock.
pub mod objects {
    #[cfg(feature = "directories")]
    pub use squall_objects::directory;
    #[cfg(feature = "gates")]
    pub use squall_objects::gate;
    #[cfg(feature = "adaptive-lock")]
    pub use squall_objects::lock;
    #[cfg(feature = "queues")]
    pub use squall_objects::queue;
    pub use squall_objects::*;
    #[cfg(feature = "bags")]
    pub use squall_objects::{bag, pool};
}

/// Building blocks of objects: a concurrent hash table, replicas, gates.
pub mod parts {
    #[cfg(feature = "directories")]
    pub use squall_parts::dhash;
    #[cfg(feature = "gates")]
    pub use squall_parts::gate;
    pub use squall_parts::*;
}

/// Policies around the calls of an object, typed attributes and monitors.
pub mod policy {
    #[cfg(feature = "monitors")]
    pub use squall_policy::monitor;
    pub use squall_policy::*;
    #[cfg(feature = "policies")]
    pub use squall_policy::{
        Adt, Binding, Block, Condition, Constant, Created, Creation, Fixed, GovernError, Governor, Monitor,
        Policy, Setting, Steered, Task, ThreadedAdt, governed, invoke,
    };
}

/// Read-copy-update: read sections, grace periods and deferred calls.
pub mod rcu {
    pub use squall_rcu::*;
}

#[cfg(feature = "call")]
pub mod call {
    #![doc = include_str!("call.md")]

    pub use squall_call::*;
}

/// Messages between services that share no memory.
#[cfg(feature = "fleet")]
pub mod fleet {
    pub use squall_fleet::*;
    #[cfg(feature = "pool")]
    pub use squall_pool as pool;
}

pub mod ship {
    #![doc = include_str!("ship.md")]

    pub use squall_objects::ship::*;
    pub use squall_parts::ship::*;
}

/// Virtual memory as clustered objects.
#[cfg(feature = "pager")]
pub mod pager {
    pub use squall_pager::*;
}

/// Bounded caches.
#[cfg(feature = "cache")]
pub mod cache {
    pub use squall_cache::*;
}

/// Inspection and control of the objects of a running program.
#[cfg(feature = "browse")]
pub mod browse {
    pub use squall_browse::*;
}

#[doc(hidden)]
pub use squall_core::__macro;

/// The names that most programs with objects of their own need, and the traits of the ready objects.
///
/// The traits come without a name, so that their methods can be called.
///
/// ```
/// use squall::objects::counter;
/// use squall::prelude::*;
///
/// let requests = counter::shared();
/// requests.inc();
/// assert_eq!(requests.total(), 1);
/// ```
pub mod prelude {
    pub use crate::{CallError, ClusterSize, Handle, Owned, RepContext, Root, Vp, interface};

    #[cfg(feature = "bags")]
    pub use squall_objects::bag::{Bag as _, BagExt as _};
    pub use squall_objects::cached::{CachedMapExt as _, Items as _};
    pub use squall_objects::counter::Counter as _;
    #[cfg(feature = "directories")]
    pub use squall_objects::directory::Parts as _;
    #[cfg(feature = "gates")]
    pub use squall_objects::gate::{Gate as _, GateExt as _};
    pub use squall_objects::ids::{IdPool as _, IdPoolExt as _};
    pub use squall_objects::map::MapExt as _;
    pub use squall_objects::pages::{PagePool as _, PagePoolExt as _};
    #[cfg(feature = "queues")]
    pub use squall_objects::queue::{Queue as _, QueueExt as _};
    pub use squall_objects::read_mostly::{ReadMostly as _, ReadMostlyExt as _};
}
