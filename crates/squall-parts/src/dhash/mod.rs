//! A hash table with a master and local tables that answer as one, a constituent. Invariant of the crate: of all that ask for a key, one is
//! told to fill it for each of its lives, and what one table finds all find, until it is emptied in all at one moment.
//!
#![doc = include_str!("README.md")]
#![forbid(unsafe_code)]

// Under loom the models alone use them.
#[cfg_attr(loom, allow(dead_code))]
mod element;
mod ground;
#[cfg(not(loom))]
mod master;
#[cfg(all(test, loom))]
mod model;
#[cfg(not(loom))]
mod order;
// As above.
#[cfg_attr(loom, allow(dead_code))]
mod raw;
mod sites;

pub use element::{Emptied, Emptying, Locked, Locking, Replicas};
#[cfg(not(loom))]
pub use master::{Local, Master, Walk};

/// Whether a key was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was.
    Found,
    /// It was not, and the caller has filled it.
    Empty,
}
