#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![doc = include_str!("../README.md")]

mod codec;
#[doc(hidden)]
pub mod layout;
mod remote;

pub use remote::Remote;

/// Not public: the items that the macro's expansion uses.
#[doc(hidden)]
pub mod __macro {
    pub use crate::codec::*;
    pub use crate::remote::{Remote, Unserved};
}
