#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
//! Ready-made objects that scale with the processors: several forms of each behind one interface.
//!
#![doc = include_str!("../README.md")]

mod answers;
#[cfg(feature = "bags")]
pub mod bag;
pub mod cached;
#[cfg(any(feature = "bags", feature = "queues"))]
mod callers;
pub mod counter;
#[cfg(feature = "directories")]
pub mod directory;
#[cfg(feature = "gates")]
pub mod gate;
pub mod ids;
#[cfg(feature = "adaptive-lock")]
pub mod lock;
pub mod map;
#[doc(hidden)]
pub mod misses;
pub mod pages;
#[cfg(feature = "bags")]
pub mod pool;
#[cfg(feature = "queues")]
pub mod queue;
pub mod read_mostly;
#[cfg(any(feature = "bags", feature = "queues"))]
mod shared_collection;
pub mod ship;
mod sizes;
#[doc(hidden)]
pub mod two_forms;
mod walk;

pub use sizes::CLUSTER_SIZE;
