//! The distributed reader-writer lock. `raw` contains the protocol, and `marks` the places where readers mark
//! themselves inside.

#![cfg_attr(loom, allow(dead_code, reason = "models are built without the public types"))]

#[cfg(not(loom))]
mod guard;
mod marks;
#[cfg(all(test, any(loom, squall_model)))]
mod model;
mod raw;
mod sites;
#[cfg(not(loom))]
mod thread;

#[cfg(not(loom))]
pub use guard::{DistributedReadGuard, DistributedWriteGuard};
#[cfg(not(loom))]
pub use lock::{DistributedRwLock, readers_known};

#[cfg(not(loom))]
mod lock;
