//! The interface of all sources.

use squall_macros::interface;

use super::error::SourceError;

/// A source of pages.
///
/// Page `n` has the bytes from `n * PAGE_BYTES` on. The last page has zeros beyond the length.
///
/// A program makes a source of its own with `squall::shared`, or with `squall::swappable` if swaps shall
/// replace it. [`Contents`](super::Contents) has an example.
///
/// A buffer must be memory that causes no fault to the source's own pages. The built-in sources hold locks
/// while they use it.
///
/// # Errors
/// If the object was destroyed, methods with a `Result` return
/// [`SourceErrorKind::Call`](super::SourceErrorKind::Call).
#[interface(crate = squall_core)]
pub trait Source: Send + Sync {
    /// Returns the length in bytes.
    fn len(&self) -> u64;

    /// Returns whether the length is 0.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether the page is sure to consist of zeros, and then counts it as a fill. Otherwise
    /// [`fill`](Source::fill) tells.
    ///
    /// By default no page is sure.
    ///
    /// ```
    /// use squall::pager::source::{self, Source};
    ///
    /// let source = source::zero_fill(1 << 30);
    /// assert!(source.is_zeros(7) && !source.is_zeros(1 << 30));
    /// ```
    ///
    /// # Cost
    /// Three loads in the built-in sources. Wait-free.
    fn is_zeros(&self, page: u64) -> bool {
        let _ = page;
        false
    }

    /// Reads a page into `into`, which has [`PAGE_BYTES`](super::PAGE_BYTES).
    ///
    /// With [`Filled::Zeros`] the page consists of zeros, and `into` is unchanged: the caller provides the
    /// zeros.
    ///
    /// # Errors
    /// [`SourceError`]; `into` has undefined contents.
    #[blocking]
    fn fill(&self, page: u64, into: &mut [u8]) -> Result<Filled, SourceError>;

    /// Writes a page of [`PAGE_BYTES`](super::PAGE_BYTES). Bytes beyond the length are ignored.
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

    /// Copies up to `pages` pages from the source that a swap replaced. Returns the number that remain, at
    /// most. At 0 the old source is dropped.
    ///
    /// Other calls go on meanwhile. A source without an old one returns 0.
    ///
    /// # Errors
    /// [`SourceError`] of the page that could not be copied. The old source still has it.
    ///
    /// ```
    /// use squall::swap::swap;
    /// use squall::pager::source::{self, PAGE_BYTES, Source};
    ///
    /// let source = source::compressed(10 * PAGE_BYTES as u64, 1 << 20);
    /// source.write(3, &[1; PAGE_BYTES])?;
    /// swap(source.handle(), source::new_compressed(1 << 30)).unwrap();
    /// assert_eq!(source.migrate(4)?, 6);
    /// assert_eq!(source.migrate(100)?, 0);
    /// # Ok::<(), source::SourceError>(())
    /// ```
    #[blocking]
    fn migrate(&self, pages: u64) -> Result<u64, SourceError> {
        let _ = pages;
        Ok(0)
    }

    /// Returns the counts since the creation, across swaps too.
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
