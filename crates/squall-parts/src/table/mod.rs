//! A concurrent hash table.
//!
//! - I1. A reader writes no memory that another processor reads, and waits for no other thread.
//! - I2. A reader gets an entry that was in the table at one moment during its lookup.
//!
#![doc = include_str!("README.md")]

mod bucket;
mod compiled;
#[cfg(not(loom))]
mod compute;
#[cfg(not(loom))]
mod entry;
mod fast;
mod hash;
#[cfg(not(loom))]
mod hash_table;
mod layout;
#[cfg(not(loom))]
mod try_fast;
// Loom builds have no `Table` to limit.
#[cfg_attr(loom, allow(dead_code))]
mod limit;
#[cfg(not(loom))]
mod limited;
#[cfg(all(test, loom))]
mod model;
#[cfg(not(loom))]
mod ops;
mod platform;
mod raw;
mod resize;
#[cfg(not(loom))]
mod sample;
mod sites;
mod slab;
mod slots;
mod tags;
#[cfg(not(loom))]
mod update;
#[cfg(not(loom))]
mod walk;
mod word;
mod write;

#[cfg(not(loom))]
pub use compute::{Compute, Computed};
#[cfg(not(loom))]
pub use entry::Entry;
#[cfg(not(loom))]
pub use hash_table::Table;
pub use limit::{Budget, Exhausted, Reservation};
#[cfg(not(loom))]
pub use limited::{Full, Limited};
#[cfg(not(loom))]
pub use sample::Sample;
#[cfg(not(loom))]
pub use walk::{Iter, position};

/// Internal: whether a clone of a value of this type runs no user code. Holds for a list of known types.
///
/// # Cost
/// A constant in optimised builds.
#[cfg(not(loom))]
#[doc(hidden)]
#[inline(always)]
pub fn __clones_without_user_code<T: 'static>() -> bool {
    word::has_stable_bits::<T>()
}

/// Internal: copies a value of one of `std`'s plain types. Values of other types are not copied.
#[cfg(not(loom))]
#[doc(hidden)]
#[inline(always)]
pub fn __copied<T: 'static>(value: &T) -> Option<T> {
    word::copy_if_plain(value)
}
