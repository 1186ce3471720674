//! A read-mostly value with replicas.
//!
//! - I1. Suppose that a reader has seen a value of a master, or was told of it by a thread that has. Then it
//!   sees no earlier value in that master or in any of its replicas.
//! - I2. A reader never waits.
//!
#![doc = include_str!("README.md")]

// Under loom only the models use it.
#[cfg_attr(loom, allow(dead_code))]
mod directory;
#[cfg(all(test, any(loom, squall_model)))]
mod directory_model;
// Under loom only the models use it.
#[cfg_attr(loom, allow(dead_code))]
mod keyed;
#[cfg(all(test, any(loom, squall_model)))]
mod keyed_model;
#[cfg(all(test, any(loom, squall_model)))]
mod model;
mod places;
// Under loom only the models use it.
#[cfg_attr(loom, allow(dead_code))]
mod raw;
pub(crate) mod sites;
#[cfg(not(loom))]
mod typed;
mod watch;

pub use directory::{Directory, Published};
pub use keyed::{Announced, KeyedCopies};
pub use places::{Holders, Places, Presence};
#[cfg(not(loom))]
pub use typed::{Conflict, Master, Replica, ValueRef, Versioned};
pub use watch::Watch;
