#![forbid(unsafe_code)]
//! Ready-made objects that scale with the processors: several forms of each behind one interface.
//!
#![doc = include_str!("../README.md")]

pub mod cached;
pub mod counter;
pub mod directory;
pub mod gate;
pub mod lock;
pub mod map;
pub mod read_mostly;
mod sizes;
mod walk;

pub use sizes::CLUSTER_SIZE;
