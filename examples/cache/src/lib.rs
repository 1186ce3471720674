#![forbid(unsafe_code)]
//! A cache server that speaks memcached's text protocol.
//!
#![doc = include_str!("../README.md")]

mod cache;
mod clock;
mod config;
mod connection;
mod idle;
mod item;
mod output;
pub mod protocol;
mod responder;
mod server;
mod squall_store;
mod stats;
mod store;

pub use cache::{Cache, Moment};
pub use clock::{Clock, Hand};
pub use config::Config;
pub use connection::serve_client;
pub use item::Item;
pub use server::{listen, serve};
pub use squall_store::SquallStore;
pub use stats::{Fact, Stats};
pub use store::{Change, Key, Store};

/// The answer to `version`: the memcached whose commands this server has. Clients parse it as three numbers.
/// Squall's version is in the answer to `stats`.
pub const VERSION: &str = "1.6.40";
