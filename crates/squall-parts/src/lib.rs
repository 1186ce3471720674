//! Building blocks for shared objects. The literature calls them constituents.
//!
//! - I1. A part synchronises itself. The object that embeds it decides where its pieces lie.
//!
#![doc = include_str!("../README.md")]

#[cfg(squall_global_alloc)]
use squall_alloc as _;

pub mod bag;
mod block;
pub mod budget;
#[cfg(feature = "directories")]
pub mod dhash;
mod drops;
#[cfg(feature = "gates")]
pub mod gate;
pub mod ids;
pub mod loads;
pub mod queue;
mod reentry;
pub mod replica;
pub mod ship;
pub mod table;
pub mod turns;
use squall_machine::unpark;

/// Not public: drops of users' types, for the crates above.
#[doc(hidden)]
pub use drops::{DropEach as __DropEach, DropQuietly as __DropQuietly, Drops as __Drops};
