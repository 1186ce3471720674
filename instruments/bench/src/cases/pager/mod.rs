//! `pin`, `memclone`, `grep`, `unmap`: pages through the objects of virtual memory.
//!
//! - `pin`: a resident page, pinned for reading and unpinned.
//! - `memclone`: new memory, touched page by page.
//! - `grep`: a resident file that each thread maps and reads.
//! - `unmap`: the end of regions that all threads have used.
//!
//! Source: Appavoo 2005, §4.1; Gamsa et al. 1999, figure 5.

mod grep;
mod memclone;
mod pin;
mod unmap;

pub(super) use grep::CASE as GREP;
pub(super) use memclone::CASE as MEMCLONE;
pub(super) use pin::CASE as PIN;
pub(crate) use pin::{Pinned, Scope};
pub(super) use unmap::CASE as UNMAP;
