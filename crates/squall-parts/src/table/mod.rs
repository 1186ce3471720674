//! A concurrent hash table.
//!
//! - I1. A reader writes no memory that another processor reads, and waits for no other thread.
//! - I2. A reader gets an entry that was in the table at one moment during its lookup.
#![doc = include_str!("README.md")]

mod bucket;
#[cfg(not(loom))]
mod entry;
mod fast;
mod layout;
#[cfg(not(loom))]
mod ops;
mod platform;
// Loom builds have no `Table` to limit.
#[cfg_attr(loom, allow(dead_code))]
mod limit;
#[cfg(not(loom))]
mod limited;
#[cfg(all(test, loom))]
mod model;
mod raw;
mod sites;
mod slab;
#[cfg(not(loom))]
mod table;
mod tags;
mod word;

#[cfg(not(loom))]
pub use entry::{Compute, Computed, Entry};
pub use limit::{Budget, Exhausted, Reservation};
#[cfg(not(loom))]
pub use limited::{Full, Limited};
#[cfg(not(loom))]
pub use table::{Iter, Table, position};

/// Internal: copies a value of one of `std`'s plain types. Values of other types are not copied.
#[cfg(not(loom))]
#[doc(hidden)]
#[inline(always)]
pub fn __copied<T: 'static>(value: &T) -> Option<T> {
    word::copy_if_plain(value)
}
