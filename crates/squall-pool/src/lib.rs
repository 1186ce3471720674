#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

mod error;
mod pool;
pub mod protocol;
mod state;

pub use error::{PoolError, PoolErrorKind};
pub use pool::{DistributedPool, PoolEnd, PoolLocation};
pub use protocol::{Attributes, Strategy};
