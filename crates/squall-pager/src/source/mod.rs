//! Sources: the contents of the pages that are not in memory.
//!
//! A cache of pages asks its source only to read or to write a page.
//!
//! | source | a page that was never written | a page that is written goes to | for |
//! |---|---|---|---|
//! | [`zero_fill`] | zeros | an error: the page must stay in memory | memory that is never swapped |
//! | [`compressed`] | zeros | compressed memory, with a limit | anonymous memory |
//! | [`file()`] | the file's bytes | the file | a mapped file; a swap file |
//!
//! All have one interface, [`Source`]. A program can implement it for a source of its own: see [`Contents`].
//!
//! Each source can be swapped while it is used: see [`new_compressed`] and [`new_file`]. The new source reads
//! the old one for the pages that were not written since. [`Source::migrate`] copies these pages, a few at a
//! time. In the end the old one is dropped.
//!
//! ```
//! use squall::swap::swap;
//! use squall::pager::source::{self, Filled, PAGE_BYTES, Source};
//!
//! let source = source::zero_fill(1 << 30);
//! let mut page = [1; PAGE_BYTES];
//! assert_eq!(source.fill(9, &mut page)?, Filled::Zeros);
//!
//! // Memory is short: from now on, pages can be written.
//! swap(source.handle(), source::new_compressed(1 << 20)).unwrap();
//! source.write(9, &page)?;
//! assert_eq!(source.fill(9, &mut page)?, Filled::Read);
//! assert!(source.statistics().stored_bytes < 100);
//! # Ok::<(), source::SourceError>(())
//! ```
//!
//! # Guarantees
//! - A fill returns the page as the last write left it, across swaps, migrations and changes of the length.
//!   Bytes that were cut off are zeros if the source grows again.
//! - A fill sees a concurrent write of its page as a whole or not at all.
//! - A write that fails loses no page: the caller has it, and writes it again.
//!
//! # Limits
//! - A swap fails if more than 8 sources would stand one above the other. [`Source::migrate`] frees those
//!   below.
//! - A file to which a source was swapped has all pages only after [`Source::migrate`] has returned 0.
//! - The source keeps its length if another program makes the file longer.
//!
//! Progress: calls block. A fill or write waits for a write of the same 64 pages, and for a swap. A call that
//! lowers the length waits for all calls.
//!
//! Source: Appavoo 2005, §4.1: K42's File Representatives (CO-42). A named file's is asked for input and
//! output alone, so it has one representative. That of anonymous memory is asked at each first touch, so it
//! has one for each VP.

mod compressed;
mod contents;
mod error;
mod file;
mod interface;
mod layers;
mod served;
mod zeros;

use squall_core::Owned;
use squall_core::swap::Replacement;
use squall_machine::ClusterSize;
use std::fs::File;

use compressed::Compressed;
use file::FileStore;
use served::Served;
use zeros::Zeros;

pub use contents::Contents;
pub use error::{SourceError, SourceErrorKind};
pub use interface::{Filled, Source, SourceStatistics};
pub use squall_objects::pages::PAGE_BYTES;

/// Creates a source of zeros with this length, with a representative for each VP.
///
/// A write is an error, so a page that was changed must stay in memory.
///
/// ```
/// use squall::pager::source::{self, Filled, PAGE_BYTES, Source};
///
/// let source = source::zero_fill(1 << 30);
/// let mut page = [1; PAGE_BYTES];
/// assert_eq!(source.fill(1000, &mut page)?, Filled::Zeros);
/// assert!(source.write(1000, &page).is_err());
/// # Ok::<(), source::SourceError>(())
/// ```
///
/// # Panics
/// If the object cannot be created: see [`CreateError`](squall_core::CreateError).
#[track_caller]
pub fn zero_fill(bytes: u64) -> Owned<dyn Source> {
    Served::source(Zeros, bytes, ClusterSize::Cpu)
}

/// Creates a source in compressed memory with this length, with a representative for each VP. All pages are
/// zeros at first.
///
/// A page of zeros takes no memory, and a page that does not compress takes [`PAGE_BYTES`]. All pages
/// together take at most `limit_bytes`, and some 40 bytes for each.
///
/// ```
/// use squall::pager::source::{self, PAGE_BYTES, Source, SourceErrorKind};
///
/// let source = source::compressed(1 << 30, 100);
/// source.write(0, &[1; PAGE_BYTES])?;
/// let error = source.write(1, &std::array::from_fn::<u8, PAGE_BYTES, _>(|n| (n * n / 7) as u8)).unwrap_err();
/// assert!(matches!(error.kind(), SourceErrorKind::Full { limit: 100, .. }));
/// # Ok::<(), source::SourceError>(())
/// ```
///
/// # Panics
/// If the object cannot be created: see [`CreateError`](squall_core::CreateError).
/// # Cost
/// A write compresses the page with LZ4. A fill takes no lock if the page and its neighbours were never
/// written.
#[track_caller]
pub fn compressed(bytes: u64, limit_bytes: u64) -> Owned<dyn Source> {
    Served::source(Compressed::new(limit_bytes), bytes, ClusterSize::Cpu)
}

/// Creates a source of the file's bytes, as long as the file is now. `name` stands in errors.
///
/// The file must be open for reading, and for writing if pages are written. Bytes beyond the length are never
/// written.
///
/// ```no_run
/// use squall::pager::source::{self, PAGE_BYTES, Source};
///
/// let file = std::fs::File::open("words.txt")?;
/// let source = source::file(file, "words.txt")?;
/// let mut page = [0; PAGE_BYTES];
/// let _ = source.fill(0, &mut page)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`SourceError`] if it is no regular file, or if the system does not tell its length.
/// # Panics
/// If the object cannot be created: see [`CreateError`](squall_core::CreateError).
#[track_caller]
pub fn file(file: File, name: &str) -> Result<Owned<dyn Source>, SourceError> {
    let store = FileStore::new(file, name);
    let len = store.len().map_err(|kind| SourceError::new(name, None, kind))?;
    Ok(Served::source(store, len, ClusterSize::Machine))
}

/// Returns a replacement like [`zero_fill`], for a hot-swap of a source without pages that were written. It
/// takes over the length.
///
/// The swap fails if the old source has a page that may differ from zeros.
///
/// ```
/// use squall::swap::swap;
/// use squall::pager::source::{self, PAGE_BYTES, Source};
///
/// let source = source::compressed(1 << 30, 1 << 20);
/// swap(source.handle(), source::new_zero_fill()).unwrap();
/// assert_eq!(source.len(), 1 << 30);
/// assert!(source.write(0, &[1; PAGE_BYTES]).is_err());
/// ```
pub fn new_zero_fill() -> Replacement<dyn Source> {
    Served::replacement(Zeros, ClusterSize::Cpu)
}

/// Returns a replacement like [`compressed`], for a hot-swap of a source. It takes over the length and the
/// pages: see [`Source::migrate`].
///
/// ```
/// use squall::swap::swap;
/// use squall::pager::source::{self, Filled, PAGE_BYTES, Source};
///
/// let source = source::compressed(1 << 30, 1 << 20);
/// source.write(0, &[1; PAGE_BYTES])?;
/// swap(source.handle(), source::new_compressed(1 << 24)).unwrap(); // a higher limit
/// let mut page = [0; PAGE_BYTES];
/// assert_eq!(source.fill(0, &mut page)?, Filled::Read);
/// # Ok::<(), source::SourceError>(())
/// ```
pub fn new_compressed(limit_bytes: u64) -> Replacement<dyn Source> {
    Served::replacement(Compressed::new(limit_bytes), ClusterSize::Cpu)
}

/// Returns a replacement like [`file()`], for a hot-swap of a source. It takes over the length and the pages:
/// see [`Source::migrate`].
///
/// The file must be empty, and open for reading and writing. The swap fails otherwise, and the old source
/// serves on. The file of an earlier source may be emptied for a new swap only after [`Source::migrate`] has
/// returned 0.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use squall::swap::swap;
/// use squall::pager::source::{self, PAGE_BYTES, Source};
/// use std::fs::File;
///
/// let source = source::compressed(4 * PAGE_BYTES as u64, 1 << 20);
/// source.write(2, &[1; PAGE_BYTES])?;
///
/// let path = std::env::temp_dir().join(format!("squall-swap-{}", std::process::id()));
/// let file = File::options().read(true).write(true).create_new(true).open(&path)?;
/// swap(source.handle(), source::new_file(file, "swap")).unwrap();
/// while source.migrate(64)? > 0 {}
/// source.sync()?;
/// assert_eq!(std::fs::read(&path)?[2 * PAGE_BYTES], 1);
/// # std::fs::remove_file(&path)?;
/// # Ok(())
/// # }
/// ```
pub fn new_file(file: File, name: &str) -> Replacement<dyn Source> {
    Served::replacement(FileStore::new(file, name), ClusterSize::Machine)
}
