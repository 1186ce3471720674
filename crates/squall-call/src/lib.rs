#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![doc = include_str!("../README.md")]

mod codec;
#[doc(hidden)]
pub mod frames;
#[doc(hidden)]
pub mod layout;
mod remote;
#[cfg(all(target_os = "linux", not(miri)))]
#[doc(hidden)]
pub mod socket;

pub use remote::Remote;

/// Not public: the items that the macro's expansion uses.
#[doc(hidden)]
pub mod __macro {
    pub use crate::codec::*;
    pub use crate::remote::{Remote, Unserved};
}
