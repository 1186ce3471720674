//! `pin`, `fault`, `memclone`, `grep`, `unmap`, `swap-source`, `clone-memory`: pages through the objects of
//! virtual memory.
//!
//! - `pin`: a resident page, pinned for reading and unpinned.
//! - `fault`: the first touch of a page at an address.
//! - `memclone`: new memory, touched page by page.
//! - `grep`: a resident file that each thread maps and reads.
//! - `unmap`: the end of regions that all threads have used.
//! - `swap-source`: the source of a cache in use, swapped.
//! - `clone-memory`: a copy of memory of which no byte is copied.
//!
//! Source: Appavoo 2005, §4.1; Gamsa et al. 1999, figure 5.

mod clone;
mod fault;
mod grep;
mod memclone;
mod pin;
mod swap_source;
mod unmap;

pub(super) use clone::CASE as CLONE;
pub(super) use fault::CASE as FAULT;
pub(super) use grep::CASE as GREP;
pub(super) use memclone::CASE as MEMCLONE;
pub(super) use pin::CASE as PIN;
pub(crate) use pin::{Pinned, Scope};
pub(super) use swap_source::CASE as SWAP_SOURCE;
pub(super) use unmap::CASE as UNMAP;
