#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![doc = include_str!("../README.md")]

#[doc(hidden)]
pub mod frames;
#[doc(hidden)]
pub mod layout;
#[cfg(all(target_os = "linux", not(miri)))]
#[doc(hidden)]
pub mod socket;
