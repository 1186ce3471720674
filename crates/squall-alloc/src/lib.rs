//! The locality allocator. Invariant of the crate: a block is in one place, with at most one user, and
//! returns to the slab it came from. The fast path touches no memory that another VP writes.
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(loom, allow(dead_code))]

#[cfg(not(loom))]
mod address_space;
#[cfg(not(loom))]
mod arena;
#[cfg(not(loom))]
mod bound;
mod classes;
#[cfg(not(loom))]
mod debug;
#[cfg(not(loom))]
mod debug_table;
#[cfg(not(loom))]
mod decay;
mod drain;
#[cfg(not(loom))]
mod fatal;
#[cfg(not(loom))]
mod faults;
#[cfg(not(loom))]
mod fork;
#[cfg(not(loom))]
mod global;
mod growth;
mod heap;
#[cfg(not(loom))]
mod inspect;
#[cfg(not(loom))]
mod large;
#[cfg(not(loom))]
mod last_resort;
mod list;
mod lock;
#[cfg(not(loom))]
mod lookup;
mod magazine;
#[cfg(not(loom))]
mod mappings;
#[cfg(all(test, loom))]
mod model;
mod page_pool;
#[cfg(not(loom))]
mod part;
#[cfg(not(loom))]
mod raw;
mod remote_free;
#[cfg(not(loom))]
mod sequence;
#[cfg(not(loom))]
mod settings;
#[cfg(not(loom))]
mod setup;
mod sites;

pub use classes::{BOUND_BYTES, SPARE_BYTES};
pub use page_pool::PoolUnits;

#[cfg(not(loom))]
pub use arena::{Arena, OutOfMemory, Placed, PlacedBytes, Placement};
#[cfg(not(loom))]
pub use bound::{AlreadyReserved, reserve_at_most};
#[doc(hidden)]
pub use classes::is_of_slab;
#[cfg(not(loom))]
pub use decay::decay;
#[cfg(not(loom))]
#[doc(hidden)]
pub use faults::{decay_always, pretend_alternating_nodes, pretend_nodes, refuse_after};
#[cfg(not(loom))]
pub use global::LocalityAlloc;
#[cfg(not(loom))]
pub use inspect::{AllocStats, ClassStats, VpStats, mode, stats, stats_if_used, trim};
#[cfg(not(loom))]
#[doc(hidden)]
pub use inspect::{home_of, owns, room_of};
#[cfg(not(loom))]
pub use settings::Mode;
#[cfg(not(loom))]
#[doc(hidden)]
pub use setup::pretend_restartable;
