//! Errors of sources.

use squall_core::CallError;
use squall_objects::pages::PAGE_BYTES;
use std::error::Error;
use std::fmt;
use std::io;

/// The failure of a call of a source: its name, the page and the reason.
#[derive(Debug)]
pub struct SourceError {
    name: Box<str>,
    page: Option<u64>,
    kind: SourceErrorKind,
}

/// The reason of a [`SourceError`].
#[derive(Debug)]
#[non_exhaustive]
pub enum SourceErrorKind {
    /// The page begins at or beyond the end.
    BeyondEnd {
        /// Length of the source in bytes.
        len: u64,
    },
    /// The buffer is not a page.
    WrongSize {
        /// Its bytes.
        bytes: usize,
    },
    /// The source keeps no pages, so it cannot be written.
    KeepsNothing,
    /// Another program cut the file short.
    CutShort {
        /// Length of the source in bytes.
        expected: u64,
        /// Length of the file in bytes.
        found: u64,
    },
    /// The compressed page does not fit below the limit.
    Full {
        /// Bytes of the compressed page.
        needed: u64,
        /// Compressed bytes in memory.
        stored: u64,
        /// The largest number of compressed bytes.
        limit: u64,
    },
    /// The compressed page cannot be decompressed: its memory was overwritten.
    Damaged,
    /// The path is no regular file, but a directory or a device.
    NotAFile,
    /// The file for a swap has contents, which would be lost.
    NotEmpty {
        /// Length of the file in bytes.
        bytes: u64,
    },
    /// The source of the swap has pages that are not zeros, and the replacement cannot keep them.
    HasPages,
    /// Too many sources stand one above the other, because no swap was followed by a migration.
    TooDeep {
        /// The largest number.
        max: u32,
    },
    /// The system refused.
    Io {
        /// The attempt, for example `read`.
        action: &'static str,
        /// The reason.
        error: io::Error,
    },
    /// The object was destroyed, or rejected the call.
    Call(CallError),
    /// The reason of a source of the program's own.
    Other(Box<dyn Error + Send + Sync>),
}

impl SourceError {
    /// Makes an error of the source `name`, at a page if it concerns one.
    pub fn new(name: &str, page: Option<u64>, kind: SourceErrorKind) -> SourceError {
        SourceError { name: name.into(), page, kind }
    }

    /// Returns the name of the source.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the page, if the error concerns one.
    pub fn page(&self) -> Option<u64> {
        self.page
    }

    /// Returns the reason.
    pub fn kind(&self) -> &SourceErrorKind {
        &self.kind
    }
}

impl fmt::Display for SourceErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SourceErrorKind::BeyondEnd { len } => {
                write!(f, "it begins beyond the end, at {len} bytes; set the length first")
            }
            SourceErrorKind::WrongSize { bytes } => {
                write!(f, "the buffer has {bytes} bytes, and a page {}", PAGE_BYTES)
            }
            SourceErrorKind::KeepsNothing => {
                f.write_str("this source keeps no page that is written; keep the page in memory")
            }
            SourceErrorKind::CutShort { expected, found } => write!(
                f,
                "another program cut the file short: it has {found} bytes instead of {expected}; restore it, \
                 or set the length to {found}"
            ),
            SourceErrorKind::Full { needed, stored, limit } => write!(
                f,
                "{needed} compressed bytes do not fit beside {stored} below the limit of {limit}; raise it, \
                 or swap to a file"
            ),
            SourceErrorKind::NotAFile => f.write_str("it is no regular file; open one"),
            SourceErrorKind::NotEmpty { bytes } => write!(
                f,
                "the file for the swap has {bytes} bytes, which would be lost; truncate it, or open another one"
            ),
            SourceErrorKind::HasPages => f.write_str(
                "the old source has pages, and this one cannot keep them; swap to a file, or to \
                 compressed memory",
            ),
            SourceErrorKind::TooDeep { max } => write!(
                f,
                "pages would lie in more than {max} sources, one above the other; migrate them before the next swap"
            ),
            SourceErrorKind::Damaged => f.write_str("its compressed bytes were overwritten in memory"),
            SourceErrorKind::Io { action, error } => write!(f, "cannot {action}: {error}"),
            SourceErrorKind::Call(error) => error.fmt(f),
            SourceErrorKind::Other(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let SourceErrorKind::Call(error) = &self.kind {
            return error.fmt(f);
        }
        write!(f, "source {}", self.name)?;
        if let Some(page) = self.page {
            write!(f, ", page {page}")?;
        }
        write!(f, ": {}", self.kind)
    }
}

impl Error for SourceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.kind {
            SourceErrorKind::Io { error, .. } => Some(error),
            SourceErrorKind::Call(error) => Some(error),
            SourceErrorKind::Other(error) => Some(&**error),
            _ => None,
        }
    }
}

impl From<CallError> for SourceError {
    fn from(error: CallError) -> SourceError {
        SourceError::new("of an object that is gone", None, SourceErrorKind::Call(error))
    }
}
