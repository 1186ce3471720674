//! A distributed hash table: a master and local tables that answer as one.
//!
//! - I1. Of all callers that ask for a key, exactly one fills it for each of its lives.
//! - I2. A key that one table finds is found by all, until it is emptied in all at one moment.
//!
#![doc = include_str!("README.md")]
#![forbid(unsafe_code)]

// Under loom only the models use it.
#[cfg_attr(loom, allow(dead_code))]
mod element;
// Under loom only the models use it.
#[cfg_attr(loom, allow(dead_code))]
mod fill;
#[cfg(not(loom))]
mod lock_order;
#[cfg(not(loom))]
mod master;
#[cfg(all(test, loom))]
mod model;
mod platform;
// Under loom only the models use it.
#[cfg_attr(loom, allow(dead_code))]
mod raw;
#[cfg(not(loom))]
mod reservation;
// Under loom only the models use it.
#[cfg_attr(loom, allow(dead_code))]
mod reserve;
mod sites;

pub use element::{Emptied, Emptying, Locked, Locking, Replicas};
pub use fill::FillError;
#[cfg(not(loom))]
pub use master::{LocalTable, MasterTable, Walk};
#[doc(hidden)]
#[cfg(not(loom))]
pub use reservation::__Filling;
#[cfg(not(loom))]
pub use reservation::{Busy, Lookup, Reservation, Revoked};

/// The answer to a caller that asks for a key and fills it if needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The key was present.
    Found,
    /// The key was absent, and this caller has filled it.
    Empty,
}
