#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod frames;
pub mod pages;
#[cfg(not(loom))]
pub mod pids;
#[cfg(not(loom))]
mod pool;
#[cfg(not(loom))]
pub mod protocol;
#[cfg(not(loom))]
mod state;

#[cfg(not(loom))]
pub use error::{PoolError, PoolErrorKind};
#[cfg(not(loom))]
pub use pool::{DistributedPool, PoolEnd, PoolInfo, PoolLocation, PoolState, pools};
#[cfg(not(loom))]
pub use protocol::{Attributes, Strategy};
