//! Sources: the contents of the pages that are not in memory.
//!
//! A cache of pages asks its source only to read or to write a page. A page has [`PAGE_BYTES`].
//!
//! Source: Appavoo 2005, §4.1: K42's File Representatives (CO-42).

mod error;

use squall_macros::interface;

pub use error::{SourceError, SourceErrorKind};
pub use squall_objects::pages::PAGE_BYTES;

/// A source of pages.
///
/// Page `n` has the bytes from `n * PAGE_BYTES` on. The last page has zeros beyond the length.
///
/// # Errors
/// The plain methods return [`SourceErrorKind::Call`] if the object was destroyed.
#[interface(crate = squall_core)]
pub trait Source: Send + Sync {
    /// Returns the length in bytes.
    fn len(&self) -> u64;

    /// Returns whether the length is 0.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads a page into `into`, which has [`PAGE_BYTES`].
    ///
    /// With [`Filled::Zeros`] the page consists of zeros, and `into` is unchanged: the caller provides the
    /// zeros.
    ///
    /// # Errors
    /// [`SourceError`]; `into` has undefined contents.
    #[blocking]
    fn fill(&self, page: u64, into: &mut [u8]) -> Result<Filled, SourceError>;

    /// Writes a page of [`PAGE_BYTES`]. Bytes beyond the length are ignored.
    ///
    /// # Errors
    /// [`SourceError`]; the page must be written again.
    #[blocking]
    fn write(&self, page: u64, from: &[u8]) -> Result<(), SourceError>;

    /// Sets the length. Bytes that are cut off become zeros if the source grows again.
    ///
    /// # Errors
    /// [`SourceError`]; the length is unchanged.
    #[blocking]
    fn set_len(&self, bytes: u64) -> Result<(), SourceError>;

    /// Waits until all pages that were written are on stable storage, as far as the source has one.
    ///
    /// # Errors
    /// [`SourceError`]
    #[blocking]
    fn sync(&self) -> Result<(), SourceError>;

    /// Returns the counts since the creation.
    fn statistics(&self) -> SourceStatistics;
}

/// The outcome of [`Source::fill`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the caller must provide the zeros"]
pub enum Filled {
    /// The page consists of zeros. The buffer is unchanged.
    Zeros,
    /// The page is in the buffer.
    Read,
}

/// Counts of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceStatistics {
    /// Number of fills that found a page of zeros.
    pub zero_filled: u64,
    /// Number of fills that read a page.
    pub read: u64,
    /// Number of pages that were written.
    pub written: u64,
    /// Number of bytes that the pages occupy now: of a file its length, in memory the compressed bytes.
    pub stored_bytes: u64,
}
