//! Virtual memory as clustered objects, in user space.
//!
//! Invariant of the crate: a page that a thread has pinned stays in memory, and its bytes change only by a
//! thread that has pinned it for writing.
//!
#![deny(unsafe_code)]
#![doc = include_str!("../README.md")]

mod access;
pub mod cache;
mod error;
mod graves;
#[allow(unsafe_code)]
pub mod hat;
mod home;
mod index;
#[allow(unsafe_code)]
mod memory;
pub mod process;
pub mod region;
mod replicas;
#[allow(unsafe_code)]
mod slot;
pub mod source;
mod working_set;
mod writers;

pub use error::PageFault;
pub use slot::{Frame, FrameMut};
