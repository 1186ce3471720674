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
mod stats;
mod stored;
mod sync;
mod time;

pub use bound::Reservation;
pub use builder::CacheBuilder;
pub use entry::{Entry, EntrySelector};
pub use listener::RemovalCause;
pub use stats::Statistics;
pub use sync::{Cache, Iter};
pub use time::{Expiry, ManualClock};

/// The hasher of keys by default. It is seeded anew in each cache.
pub type DefaultHasher = foldhash::fast::RandomState;
