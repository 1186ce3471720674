#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![doc = include_str!("../README.md")]

#[cfg(not(loom))]
mod codec;
#[doc(hidden)]
pub mod frames;
#[doc(hidden)]
pub mod layout;
#[cfg(not(loom))]
mod remote;

#[cfg(not(loom))]
pub use remote::Remote;

// The protocols. Loom and Miri check them without the modules that need the kernel.
#[cfg_attr(not(all(target_os = "linux", not(miri), not(loom))), allow(dead_code))]
mod region;
#[cfg_attr(not(all(target_os = "linux", not(miri), not(loom))), allow(dead_code))]
mod slot;

#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod client;
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod segment;
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod server;
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod sleep;
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
#[doc(hidden)]
pub mod socket;
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod status;
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod watch;

#[cfg(all(target_os = "linux", not(miri), not(loom)))]
pub use client::{ImportError, ImportInfo, ImportOptions, import, import_from, imports, with_deadline};
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
pub use frames::{FrameError, Refusal};
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
pub use server::{
    Caller, Export, ExportError, ExportInfo, ExportOptions, caller, export, export_on, exports, workers,
};

    pub use client::{
        ImportError, ImportInfo, ImportOptions, disconnect, import, import_from, imports, with_deadline,
    };
    pub use frames::{FrameError, Refusal};
    pub use server::{
        Caller, Export, ExportError, ExportInfo, ExportOptions, caller, export, export_on, exports, workers,
    };

    /// Makes the two ends of a socket for [`export_on`] and [`import_from`]. They close on exec; give one to a
    /// child as its standard input.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn socket_pair() -> std::io::Result<(std::os::fd::OwnedFd, std::os::fd::OwnedFd)> {
        socket::pair()
    }
}

#[cfg(all(not(loom), any(not(target_os = "linux"), miri)))]
mod elsewhere;

/// Not public: the items that the macro's expansion uses.
#[cfg(not(loom))]
#[doc(hidden)]
pub mod __macro {
    #[cfg(all(target_os = "linux", not(miri)))]
    pub use crate::client::Port;
    pub use crate::codec::*;
    #[cfg(any(not(target_os = "linux"), miri))]
    pub use crate::elsewhere::Port;
    pub use crate::remote::{Remote, Unserved};
}
