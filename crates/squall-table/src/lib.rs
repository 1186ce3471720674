//! A concurrent hash table. Invariant of the crate: a reader writes nothing that another processor reads, waits for nobody, and gets
//! an entry that was in the table at one moment of its look.
//!
#![doc = include_str!("../README.md")]

mod bucket;
#[cfg(not(loom))]
mod entry;
mod ground;
mod layout;
#[cfg(all(test, loom))]
mod model;
mod raw;
mod sites;
mod slab;
#[cfg(not(loom))]
mod table;
mod word;

#[cfg(not(loom))]
pub use entry::{Compute, Computed, Entry};
#[cfg(not(loom))]
pub use table::{Iter, Table, position};
