//! A concurrent hash table. Invariant of the crate: a reader writes nothing that another processor reads, waits for nobody, and gets
//! an entry that was in the table at one moment of its look.
//!
#![doc = include_str!("README.md")]

#[cfg(not(loom))]
mod acts;
mod bucket;
#[cfg(not(loom))]
mod entry;
mod ground;
mod home;
mod layout;
// Under loom there is no table to limit.
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
pub use limit::{Budget, Exhausted, Part};
#[cfg(not(loom))]
pub use limited::{Full, Limited};
#[cfg(not(loom))]
pub use table::{Iter, Table, position};

/// Not public: a copy of a value, if its type is one of `std`'s plain ones, of which a copy of the bits is a clone.
#[cfg(not(loom))]
#[doc(hidden)]
#[inline(always)]
pub fn __copied<T: 'static>(value: &T) -> Option<T> {
    word::copied(value)
}
