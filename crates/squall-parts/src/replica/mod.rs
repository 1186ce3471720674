//! A read-mostly value with replicas. Invariant of the crate: who has seen a value of a master, or has heard of it from
//! somebody who has, sees no earlier one, in that master or in any of its replicas; and no reader waits.
//!
#![doc = include_str!("README.md")]

// Under loom the models alone use it.
#[cfg_attr(loom, allow(dead_code))]
mod keyed;
#[cfg(all(test, any(loom, squall_model)))]
mod keyed_model;
#[cfg(all(test, any(loom, squall_model)))]
mod model;
mod places;
// Under loom the models alone use them.
#[cfg_attr(loom, allow(dead_code))]
mod raw;
mod sites;
#[cfg(not(loom))]
mod typed;
mod watch;

pub use keyed::{Announced, Keyed};
pub use places::{Holders, Places, Presence};
#[cfg(not(loom))]
pub use typed::{Conflict, Kept, Master, Replica, Versioned};
pub use watch::Watch;
