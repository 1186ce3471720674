//! The error of a fault.

use squall_core::CallError;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::source::SourceError;
use squall_sys::uffd::RangeError;

/// The reason why a page cannot be used. Clones share one cause: of several threads that wait for one page,
/// all get the error.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PageFault {
    /// The page lies beyond the end of its file.
    BeyondEnd {
        /// The name of the file.
        file: Arc<str>,
        /// The number of the page.
        page: u64,
        /// The number of pages of the file.
        pages: u64,
    },
    /// No page of memory is left: all pages of the pool are in use, and no user gave one back.
    NoMemory {
        /// The name of the file.
        file: Arc<str>,
        /// The number of the page.
        page: u64,
        /// The limit of the pool, in pages.
        max_pages: usize,
    },
    /// The page could not be read or written.
    Source(Arc<SourceError>),
    /// The file was frozen by a copy of it: only its copies may be written.
    Frozen {
        /// The name of the file.
        file: Arc<str>,
    },
    /// The region was unmapped.
    Unmapped {
        /// The first address of the region.
        start: u64,
    },
    /// No region is mapped at the address.
    NoRegion {
        /// The address.
        address: u64,
    },
    /// The offset lies beyond the end of the region.
    BeyondRegion {
        /// The first address of the region.
        start: u64,
        /// The offset in bytes.
        offset: u64,
        /// The length of the region in bytes.
        length: u64,
    },
    /// The region may only be read.
    ReadOnly {
        /// The first address of the region.
        start: u64,
    },
    /// No gap of the address space is long enough, or the range is outside of it.
    NoAddresses {
        /// The length of the range in bytes.
        bytes: u64,
    },
    /// A region has addresses in the range.
    Overlap {
        /// The first address of the range.
        start: u64,
        /// The first address after the range.
        end: u64,
    },
    /// The file has copies or is mapped, and the operation needs one without.
    Mapped {
        /// The first address of the region.
        start: u64,
    },
    /// The calling thread has a page of the region pinned for writing, for which the operation would wait.
    Pinned {
        /// The first address of the region.
        start: u64,
    },
    /// The file cannot grow beyond the length with which its mappable cache was made.
    TooLong {
        /// The wanted length in bytes.
        bytes: u64,
        /// The largest length in bytes.
        most: u64,
    },
    /// The kernel refused to map the page.
    Mapping(RangeError),
    /// An object was destroyed, or refuses calls.
    Call(CallError),
}

impl fmt::Display for PageFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PageFault::BeyondEnd { file, page, pages } => {
                write!(f, "page {page} lies beyond the end of {file}, which has {pages} pages")
            }
            PageFault::NoMemory { file, page, max_pages } => write!(
                f,
                "no memory for page {page} of {file}: all {max_pages} pages of the pool are in use, and no user gave one back"
            ),
            PageFault::Source(error) => error.fmt(f),
            PageFault::Frozen { file } => {
                write!(f, "{file} may not be written, since copies of it were made; write to a copy")
            }
            PageFault::Unmapped { start } => write!(f, "the region at {start:#x} was unmapped"),
            PageFault::NoRegion { address } => write!(f, "no region is mapped at {address:#x}"),
            PageFault::BeyondRegion { start, offset, length } => {
                write!(
                    f,
                    "offset {offset} lies beyond the end of the region at {start:#x}, which has {length} bytes"
                )
            }
            PageFault::NoAddresses { bytes } => {
                write!(f, "the address space has no room for a region of {bytes} bytes there")
            }
            PageFault::Overlap { start, end } => {
                write!(f, "a region has addresses between {start:#x} and {end:#x}; unmap it first")
            }
            PageFault::ReadOnly { start } => write!(f, "the region at {start:#x} may only be read"),
            PageFault::Mapped { start } => {
                write!(
                    f,
                    "the region at {start:#x} is mapped at addresses of this process; unmap those first"
                )
            }
            PageFault::Pinned { start } => {
                write!(
                    f,
                    "this thread has a page of the region at {start:#x} pinned for writing; drop the pin first"
                )
            }
            PageFault::TooLong { bytes, most } => {
                write!(f, "a mappable file cannot grow to {bytes} bytes: it was made for {most}")
            }
            PageFault::Mapping(error) => error.fmt(f),
            PageFault::Call(error) => error.fmt(f),
        }
    }
}

impl Error for PageFault {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            PageFault::Source(error) => error.source(),
            PageFault::Call(error) => error.source(),
            _ => None,
        }
    }
}

impl From<CallError> for PageFault {
    fn from(error: CallError) -> PageFault {
        PageFault::Call(error)
    }
}

impl From<SourceError> for PageFault {
    fn from(error: SourceError) -> PageFault {
        PageFault::Source(Arc::new(error))
    }
}
