//! The locality allocator. Invariant of the crate: a block is in one place, with at most one user, and
//! returns to the slab it came from. The fast path touches no memory that another VP writes.
#![doc = include_str!("../README.md")]
#![cfg_attr(loom, allow(dead_code))]

#[cfg(not(loom))]
mod asked;
mod classes;
#[cfg(not(loom))]
mod debug;
#[cfg(not(loom))]
mod decay;
mod drain;
#[cfg(not(loom))]
mod faults;
#[cfg(not(loom))]
mod fork;
#[cfg(not(loom))]
mod global;
#[cfg(not(loom))]
mod ground;
mod growth;
mod heap;
mod home;
#[cfg(not(loom))]
mod inspect;
#[cfg(not(loom))]
mod large;
#[cfg(not(loom))]
mod last;
mod list;
mod lock;
mod magazine;
#[cfg(not(loom))]
mod mappings;
#[cfg(all(test, loom))]
mod model;
#[cfg(not(loom))]
mod pool;
#[cfg(not(loom))]
mod raw;
#[cfg(not(loom))]
mod sequence;
mod sites;
mod units;

pub use classes::{BOUND_BYTES, SPARE_BYTES};
pub use units::PoolUnits;

#[cfg(not(loom))]
pub use decay::decay;
#[cfg(not(loom))]
#[doc(hidden)]
pub use faults::{pretend_apart, pretend_nodes, refuse_after, turn_always};
#[cfg(not(loom))]
pub use global::LocalityAlloc;
#[cfg(not(loom))]
#[doc(hidden)]
pub use ground::pretend_restartable;
#[cfg(not(loom))]
pub use inspect::{ClassStats, Mode, Stats, VpStats, mode, stats, stats_if_used, trim};
#[cfg(not(loom))]
#[doc(hidden)]
pub use inspect::{home_of, owns, room_of};
#[cfg(not(loom))]
pub use pool::{OutOfMemory, Placed, PlacedBytes, Placement, Pool};
#[cfg(not(loom))]
#[doc(hidden)]
pub use raw::is_of_slab;
