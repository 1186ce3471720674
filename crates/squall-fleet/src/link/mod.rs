//! Links: messages between two processes of a machine.
//!
//! Problem: two processes that need not trust each other exchange messages. Each may be killed at any
//! instruction, or write anything into the memory that they share.
//! Idea: each direction has a ring in shared memory (`ring.rs`). The sides sleep on words of that memory. A
//! socket carries the handshake, and shows the end of the peer. The thread `squall-calls` of squall-call
//! watches it.
//!
//! - I1. A message that was accepted is received once, unless the receiver ends. This holds for a sender that
//!   is killed at any instruction, too.
//! - I2. No bytes of a peer can make this process read outside of a ring, panic, or loop. They can only end
//!   the link.
//! - I3. The kernel frees the rings and the socket when both processes have dropped the link or have ended.
//!   No file and no name remains.
//!
//! Source: Wentzlaff 2012, §3.2.2 and §3.4 (FO-03, FO-12).

#[cfg_attr(not(all(target_os = "linux", not(miri), not(loom))), allow(dead_code))]
mod ring;
#[cfg_attr(not(all(target_os = "linux", not(miri), not(loom))), allow(dead_code))]
mod vigil;

#[cfg(all(test, any(loom, squall_model)))]
mod model;

#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod error;
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod establish;
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod halves;
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod hello;
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod joint;
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod listener;
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod memory;
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod waits;

#[cfg(all(target_os = "linux", not(miri), not(loom)))]
pub use error::{Fault, LinkError, LinkName};
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
pub(crate) use establish::SERVICE;
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
pub use establish::{Link, LinkOptions};
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
pub use halves::{LinkReceiver, LinkSender};
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
pub(crate) use listener::Look;
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
pub use listener::{LinkListener, LinkRequest};
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
pub use waits::{LinkWait, LinkWaitToSend};
