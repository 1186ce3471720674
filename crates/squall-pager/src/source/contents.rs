//! The contents of a source, as a swap hands them over.

use squall_core::swap::Format;
use squall_objects::pages::PAGE_BYTES;
use std::fmt;
use std::sync::Arc;

use super::error::{SourceError, SourceErrorKind};
use super::interface::{Filled, Source, SourceStatistics};

/// The largest number of sources that stand one above the other.
pub(super) const DEPTH_MAX: u32 = 8;

/// Returns the number of pages of a source of this length.
pub(super) fn pages_of(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE_BYTES as u64)
}

/// Returns the offset of a page that begins below the end.
pub(super) fn offset_of(page: u64) -> u64 {
    page * PAGE_BYTES as u64
}

/// Returns the number of bytes of a page that lie below `end`.
pub(super) fn bytes_within(page: u64, end: u64) -> usize {
    end.saturating_sub(page.saturating_mul(PAGE_BYTES as u64)).min(PAGE_BYTES as u64) as usize
}

/// The contents of a source: the state that moves when a source is swapped. No page is copied.
///
/// The built-in sources export and import it. A source of the program's own can do so too. It then shares
/// its pages with the replacement, which reads them until they are migrated. From the export on they must
/// not change.
///
/// ```
/// use squall::swap::{State, StateFormats, swap};
/// use squall::pager::source::{self, Contents, Filled, Source, SourceError, SourceErrorKind};
/// use squall::pager::source::{PAGE_BYTES, SourceStatistics};
/// use std::sync::Arc;
///
/// /// Pages of a vector, which cannot be written.
/// #[derive(Clone)]
/// struct Bytes(Arc<Vec<u8>>);
///
/// impl Source for Bytes {
///     fn len(&self) -> u64 {
///         self.0.len() as u64
///     }
///     fn fill(&self, page: u64, into: &mut [u8]) -> Result<Filled, SourceError> {
///         let error = || SourceError::new("bytes", Some(page), SourceErrorKind::BeyondEnd { len: self.len() });
///         let bytes = self.0.chunks(PAGE_BYTES).nth(page as usize).ok_or_else(error)?;
///         into[..bytes.len()].copy_from_slice(bytes);
///         into[bytes.len()..].fill(0);
///         Ok(Filled::Read)
///     }
///     fn write(&self, page: u64, _: &[u8]) -> Result<(), SourceError> {
///         Err(SourceError::new("bytes", Some(page), SourceErrorKind::KeepsNothing))
///     }
///     fn set_len(&self, _: u64) -> Result<(), SourceError> {
///         Err(SourceError::new("bytes", None, SourceErrorKind::Other("its length is fixed".into())))
///     }
///     fn sync(&self) -> Result<(), SourceError> {
///         Ok(())
///     }
///     fn statistics(&self) -> SourceStatistics {
///         SourceStatistics::default()
///     }
/// }
/// impl State for Bytes {
///     fn formats(formats: &mut StateFormats<'_, Bytes>) {
///         formats.export(|this| Ok(Contents::new(Arc::new(this.clone()))));
///     }
/// }
///
/// let bytes = squall::swappable::<dyn Source, _>(Bytes(Arc::new(vec![7; 5000])));
/// let mut page = [1; PAGE_BYTES];
/// assert_eq!(bytes.fill(1, &mut page)?, Filled::Read);
/// assert_eq!((page[903], page[904]), (7, 0));
///
/// // Its pages can be written from now on.
/// swap(bytes.handle(), source::new_compressed(1 << 20)).unwrap();
/// bytes.write(1, &[8; PAGE_BYTES])?;
/// assert_eq!((bytes.fill(0, &mut page)?, page[0]), (Filled::Read, 7));
/// assert_eq!((bytes.fill(1, &mut page)?, page[0]), (Filled::Read, 8));
/// # Ok::<(), SourceError>(())
/// ```
#[derive(Clone)]
pub struct Contents {
    /// Absent if all pages are zeros.
    source: Option<Arc<dyn Source>>,
    len: u64,
    /// Bytes below this one come from `source`. The others are zeros.
    limit: u64,
    /// Number of sources that stand one above the other.
    depth: u32,
    statistics: SourceStatistics,
}

impl Format for Contents {}

impl Contents {
    /// Makes the contents of a source that no longer changes, with its length and its statistics.
    pub fn new(source: Arc<dyn Source>) -> Contents {
        let (len, statistics) = (source.len(), source.statistics());
        Contents { len, limit: len, depth: 1, statistics, source: Some(source) }
    }

    /// Makes contents of zeros.
    pub(super) fn zeros(len: u64) -> Contents {
        Contents { source: None, len, limit: 0, depth: 0, statistics: SourceStatistics::default() }
    }

    /// Makes the contents of a source that stands above `depth` others.
    pub(super) fn above(source: Arc<dyn Source>, depth: u32) -> Contents {
        Contents { depth: depth + 1, ..Contents::new(source) }
    }

    /// Returns contents of this length, and with these statistics. It may not be less than the bytes that
    /// come from the source.
    pub(super) fn with(self, len: u64, statistics: SourceStatistics) -> Contents {
        debug_assert!(self.limit <= len);
        Contents { len, statistics, ..self }
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the statistics of the sources up to now.
    pub fn statistics(&self) -> SourceStatistics {
        self.statistics
    }

    /// Reads a page, like [`Source::fill`].
    ///
    /// # Errors
    /// [`SourceError`] of the source below.
    pub fn fill(&self, page: u64, into: &mut [u8]) -> Result<Filled, SourceError> {
        let within = bytes_within(page, self.limit);
        let Some(source) = self.source.as_ref().filter(|_| within > 0) else { return Ok(Filled::Zeros) };
        let filled = source.fill(page, into)?;
        if filled == Filled::Read {
            into[within..].fill(0);
        }
        Ok(filled)
    }

    /// Returns whether the source has bytes of this page.
    pub(super) fn covers(&self, page: u64) -> bool {
        bytes_within(page, self.limit) > 0
    }

    /// Returns the number of pages of which the source has bytes.
    pub(super) fn pages(&self) -> u64 {
        pages_of(self.limit)
    }

    /// Returns whether all pages are zeros for lack of a source.
    pub(super) fn is_blank(&self) -> bool {
        self.limit == 0
    }

    /// Cuts off the bytes from `len` on.
    pub(super) fn cut(&mut self, len: u64) {
        self.len = self.len.min(len);
        self.limit = self.limit.min(len);
    }

    pub(super) fn depth(&self) -> u32 {
        self.depth
    }

    /// Waits until the source's pages are on stable storage.
    pub(super) fn sync(&self) -> Result<(), SourceError> {
        self.source.as_ref().map_or(Ok(()), |source| source.sync())
    }

    /// Refuses contents below which too many sources stand.
    pub(super) fn check_depth(&self, name: &str) -> Result<(), SourceError> {
        if self.depth < DEPTH_MAX {
            return Ok(());
        }
        Err(SourceError::new(name, None, SourceErrorKind::TooDeep { max: DEPTH_MAX }))
    }
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contents")
            .field("len", &self.len)
            .field("limit", &self.limit)
            .field("depth", &self.depth)
            .field("statistics", &self.statistics)
            .finish_non_exhaustive()
    }
}
