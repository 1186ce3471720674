#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![doc = include_str!("../README.md")]

#[cfg(not(loom))]
#[doc(hidden)]
pub mod carrier;
#[cfg(not(loom))]
mod codec;
#[cfg(not(loom))]
mod differs;
#[doc(hidden)]
pub mod frames;
#[doc(hidden)]
pub mod layout;
#[cfg(not(loom))]
mod port;
#[cfg(not(loom))]
mod remote;
#[cfg(not(loom))]
mod serving;
#[cfg(not(loom))]
mod status;

#[cfg(not(loom))]
pub use port::with_deadline;
#[cfg(not(loom))]
pub use remote::Remote;

// The protocols. Loom and Miri check them without the modules that need the kernel.
#[cfg_attr(not(all(target_os = "linux", not(miri), not(loom))), allow(dead_code))]
mod region;
#[cfg_attr(not(all(target_os = "linux", not(miri), not(loom))), allow(dead_code))]
mod share;
#[cfg_attr(not(all(target_os = "linux", not(miri), not(loom))), allow(dead_code))]
mod slot;

#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod aside;
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod client;
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod segment;
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod server;
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
#[doc(hidden)]
pub mod sleep;
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
#[doc(hidden)]
pub mod socket;
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
#[doc(hidden)]
pub mod watch;

#[cfg(all(target_os = "linux", not(miri), not(loom)))]
pub use client::{
    ImportError, ImportInfo, ImportOptions, RenewableImport, disconnect, import, import_from, imports,
};
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
pub use frames::{FrameError, Refusal};
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
pub use server::{
    Caller, Export, ExportError, ExportInfo, ExportOptions, caller, export, export_on, exports, workers,
};

/// Makes a pair of connected sockets, for [`export_on`] and [`import_from`]. Both close on exec. To connect a
/// child process, make one of them its standard input.
///
/// # Errors
/// Those of socketpair(2), for example if this process has too many open files.
/// # Examples
/// ```no_run
/// use std::process::{Command, Stdio};
///
/// let (here, there) = squall::call::socket_pair()?;
/// let child = Command::new("decoder").stdin(Stdio::from(there)).spawn()?;
/// // Now export an object on `here`, or import one from it. The child does the other.
/// # Ok::<(), std::io::Error>(())
/// ```
/// In the child:
/// ```no_run
/// use std::os::fd::AsFd;
///
/// let there = std::io::stdin().as_fd().try_clone_to_owned()?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
pub fn socket_pair() -> std::io::Result<(std::os::fd::OwnedFd, std::os::fd::OwnedFd)> {
    socket::pair()
}

/// Not public: the items that the macro's expansion uses.
#[cfg(not(loom))]
#[doc(hidden)]
pub mod __macro {
    pub use crate::codec::*;
    pub use crate::port::Port;
    pub use crate::remote::{Remote, Unserved, fits};
}
