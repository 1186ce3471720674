#![forbid(unsafe_code)]
//! A cache server that speaks memcached's text protocol.
//!
#![doc = include_str!("../README.md")]

mod cache;
mod clock;
mod config;
mod connection;
mod item;
mod output;
mod patience;
pub mod protocol;
mod server;
mod squall_store;
mod stats;
mod store;

pub use cache::{Cache, Moment};
pub use clock::{Clock, Hand};
pub use config::Config;
pub use connection::converse;
pub use item::Item;
pub use server::serve;
pub use squall_store::SquallStore;
pub use stats::{Fact, Stats};
pub use store::{Change, Key, Store};

/// What `version` answers: the last memcached whose text protocol is all of what is spoken here (the next one has the meta commands), and
/// who speaks it. libmemcached reads the number before the first dot, and takes a server of which that is 0 for a broken one.
pub const VERSION: &str = concat!("1.5.22-squall-", env!("CARGO_PKG_VERSION"));
