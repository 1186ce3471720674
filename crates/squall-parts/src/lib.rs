//! Parts to build shared objects from: the literature calls them constituents.
//!
//! Invariant of the crate: a part synchronises itself. The object that embeds it decides where its pieces lie.
//!
#![doc = include_str!("../README.md")]

#[cfg(squall_global_alloc)]
use squall_alloc as _;

pub mod dhash;
pub mod gate;
pub mod replica;
pub mod table;
