#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

mod frame;
mod keeper;
mod peer;
mod tcp;

pub use tcp::{Tcp, TcpBuilder, TcpStats};
