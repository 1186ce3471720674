//! The distributed reader-writer lock, and the read-biased one. `raw` contains the protocol, and `marks` the
//! places where readers mark themselves inside. `bias` decides when the read-biased lock uses them.

#![cfg_attr(loom, allow(dead_code, reason = "models are built without the public types"))]

mod bias;
#[cfg(all(test, any(loom, squall_model)))]
mod bias_model;
#[cfg(not(loom))]
mod guard;
mod marks;
#[cfg(all(test, any(loom, squall_model)))]
mod model;
mod raw;
#[cfg(not(loom))]
mod read_biased;
#[cfg(not(loom))]
mod read_biased_guard;
mod sites;
#[cfg(not(loom))]
mod thread;

#[cfg(not(loom))]
pub use guard::{DistributedReadGuard, DistributedWriteGuard};
#[cfg(not(loom))]
pub use lock::{DistributedRwLock, readers_known};
#[cfg(not(loom))]
pub use read_biased::ReadBiasedRwLock;
#[cfg(not(loom))]
pub use read_biased_guard::{ReadBiasedReadGuard, ReadBiasedWriteGuard};

#[cfg(not(loom))]
mod lock;
