//! A transport for the processes of one machine, over links.
//!
//! Problem: nodes in processes of a machine exchange frames. Any process can be killed at any instruction.
//! Its peers must learn of its death from the kernel, and take no living process for a dead one.
//! Idea: a transport listens by a name, and connects to another one with its first frame. One link carries
//! the frames of both sides. One thread serves all links.
//!
//! - I1. A frame arrives whole and unchanged, or not at all (`pieces.rs`).
//! - I2. The end of a peer is told once, after all its frames, and before those of the next process with its
//!   name (`peers.rs`). A link that ends by a fault of the peer is no proof.
//! - I3. A send never waits for a peer (`backlog.rs`).
//! - I4. After a stop no thread, descriptor, memory and name of the transport remains.
//!
//! Not promised: that a frame arrives. Frames are lost if a peer is not there, ends, or reads too slowly.
//! Cost: two threads for a transport, which sleep while no frame comes. A link has those of
//! [`Link`](crate::Link): a socket and two lanes of 64 KiB, of which unused pages take no memory.
//! Source: Wentzlaff 2012, §3.2.2 (FO-12).

#[cfg_attr(not(all(target_os = "linux", not(miri), not(loom))), allow(dead_code))]
pub(crate) mod backlog;
#[cfg_attr(not(all(target_os = "linux", not(miri), not(loom))), allow(dead_code))]
mod pieces;

#[cfg(all(test, any(loom, squall_model)))]
mod model;

#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod greet;
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod peers;
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod retries;
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod serve;
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod transport;

#[cfg(all(target_os = "linux", not(miri), not(loom)))]
pub use transport::HostTransport;

#[cfg(all(target_os = "linux", not(miri), not(loom)))]
use std::time::Duration;

/// The beginning of the endpoints of this transport.
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
const ENDPOINTS: &str = "host/";
/// Most links of a transport.
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
const LINKS_MAX: usize = 256;
/// Most greetings at a time, of those that connect and of those that accept.
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
const GREETS_MAX: usize = 8;
/// The time in which each step of a greeting must end.
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
const GREETING_LIMIT: Duration = Duration::from_secs(2);
