//! Bounded concurrent caches.
//!
//! Invariant of the crate: the weights of a cache's entries add up to its bound at most.
//!
#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

mod builder;
mod entry;
pub mod future;
mod inner;
mod listener;
pub mod ops;
pub mod policy;
mod random;
mod reservation;
mod selector;
mod stats;
mod stored;
mod sync;
mod time;

pub use builder::CacheBuilder;
pub use entry::Entry;
pub use listener::RemovalCause;
pub use reservation::Reservation;
pub use selector::EntrySelector;
pub use stats::Statistics;
pub use sync::{Cache, Iter};
pub use time::{Expiry, ManualClock};

/// The default hasher of keys, with a new seed in each cache. It is fast, and no defence against clients that
/// choose keys to collide: for those, give std's `RandomState` to [`CacheBuilder::build_with_hasher`].
pub type DefaultHasher = foldhash::fast::RandomState;
