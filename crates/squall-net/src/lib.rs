#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

mod fault;
mod frame;
mod greet;
mod keeper;
#[cfg(not(feature = "noise"))]
mod no_noise;
#[cfg(feature = "noise")]
mod noise;
mod peer;
mod read;
mod tcp;

#[cfg(not(feature = "noise"))]
use self::no_noise as cipher;
#[cfg(feature = "noise")]
use self::noise as cipher;

pub use fault::{ConnectionFault, FaultReason};
pub use tcp::{Tcp, TcpBuilder, TcpStats};
