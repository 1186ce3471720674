//! Bounded concurrent caches.
//!
//! Invariant of the crate: the entries of a cache need at most its bound.
//!
#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

mod bound;
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

/// The hasher of keys by default. It is seeded anew in each cache.
pub type DefaultHasher = foldhash::fast::RandomState;
