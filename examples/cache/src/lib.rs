#![forbid(unsafe_code)]
//! A cache server that speaks memcached's text protocol.
//!
#![doc = include_str!("../README.md")]

mod cache;
mod clock;
mod config;
mod connection;
mod data;
mod drain;
mod idle;
mod inline;
mod item;
mod key;
mod output;
pub mod protocol;
mod responder;
mod server;
mod squall_store;
mod stats;
mod store;
#[cfg(unix)]
mod unix_socket;

pub use cache::{Cache, Moment};
pub use clock::{Clock, Hand};
pub use config::Config;
pub use connection::{serve_client, serve_client_until};
pub use data::Data;
pub use drain::Drain;
pub use item::Item;
pub use key::Key;
pub use server::{Listener, listen, serve, serve_until};
pub use squall_store::{Policy, SquallStore};
pub use stats::{Fact, Stats};
pub use store::{Bound, Change, Reserved, Store};
#[cfg(unix)]
pub use unix_socket::{UnixSocketListener, listen_unix};

/// The answer to `version`: the memcached whose commands this server has. Clients parse it as three numbers.
/// Squall's version is in the answer to `stats`.
pub const VERSION: &str = "1.6.40";
