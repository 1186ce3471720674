//! Reading the kernel's files below a root, so that the whole of `topology` runs on recorded trees as on `/`.
//!
//! - I1. An absent file is `None`, a present one that cannot be understood is an error that names it. Which file may
//!   be absent, and what is assumed then, is decided by the caller.
//!
//! Not promised: that two reads see one moment. Processors come and go between them; `sysfs` copes.

use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Longest file that is read. The longest that Linux makes of those we want is a mount table.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// `ENODEV`: what a sysfs file gives whose processor went offline after it was opened.
const ENODEV: i32 = 19;

/// Reads machine descriptions below a root directory.
///
/// # Example
/// ```
/// use squall_machine::topology::Reader;
///
/// let topology = Reader::system().topology().expect("this machine's own files are well-formed");
/// assert!(!topology.possible().is_empty());
/// ```
#[derive(Clone, Debug)]
pub struct Reader {
    root: PathBuf,
}

impl Reader {
    /// The reader of the machine we run on: its root is `/`.
    pub fn system() -> Reader {
        Reader::at("/")
    }

    /// A reader of the tree below `root`, which holds `sys` and `proc` as `/` does.
    pub fn at(root: impl Into<PathBuf>) -> Reader {
        Reader { root: root.into() }
    }

    /// The path under our root of a path given without its leading slash, or with it.
    pub(super) fn path(&self, file: impl AsRef<Path>) -> PathBuf {
        let file = file.as_ref();
        self.root.join(file.strip_prefix("/").unwrap_or(file))
    }

    /// The content of a file; `None` if it is not there or not ours to read.
    pub(super) fn text(&self, file: impl AsRef<Path>) -> Result<Option<String>, ReadError> {
        let path = self.path(file);
        let mut bytes = Vec::new();
        let read = File::open(&path).and_then(|f| f.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
        match read {
            Ok(length) if length as u64 > FILE_BYTES_MAX => {
                Err(ReadError::new(path, format!("is longer than {FILE_BYTES_MAX} bytes")))
            }
            Ok(_) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(e) if is_absence(&e) => Ok(None),
            Err(e) => Err(ReadError::new(path, e.to_string())),
        }
    }

    /// The content of a file that holds one value; `None` if the file is not there.
    pub(super) fn value<T: FromStr<Err: fmt::Display>>(
        &self,
        file: impl AsRef<Path>,
    ) -> Result<Option<T>, ReadError> {
        let file = file.as_ref();
        let Some(text) = self.text(file)? else { return Ok(None) };
        match text.trim().parse() {
            Ok(value) => Ok(Some(value)),
            Err(e) => Err(self.malformed(file, format!("holds `{}`: {e}", super::shorten(text.trim())))),
        }
    }

    /// The numbers n for which `directory` has an entry `<prefix>n`, ascending; `None` if there is no directory.
    pub(super) fn numbered(
        &self,
        directory: impl AsRef<Path>,
        prefix: &str,
    ) -> Result<Option<Vec<u32>>, ReadError> {
        let path = self.path(directory);
        let entries = match std::fs::read_dir(&path).and_then(Iterator::collect::<Result<Vec<_>, _>>) {
            Ok(entries) => entries,
            Err(e) if is_absence(&e) => return Ok(None),
            Err(e) => return Err(ReadError::new(path, e.to_string())),
        };
        let number = |name: &str| {
            let digits = name.strip_prefix(prefix)?;
            digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
        };
        let mut numbers: Vec<u32> =
            entries.iter().filter_map(|e| e.file_name().to_str().and_then(number)).collect();
        numbers.sort_unstable();
        Ok(Some(numbers))
    }

    /// The error that `file` holds something we do not understand.
    pub(super) fn malformed(&self, file: impl AsRef<Path>, reason: impl Into<String>) -> ReadError {
        ReadError::new(self.path(file), reason)
    }
}

fn is_absence(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied)
        || error.raw_os_error() == Some(ENODEV)
}

/// A file that is there but cannot be read or understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadError {
    path: PathBuf,
    reason: String,
}

impl ReadError {
    fn new(path: PathBuf, reason: impl Into<String>) -> ReadError {
        ReadError { path, reason: reason.into() }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path.display(), self.reason)
    }
}

impl std::error::Error for ReadError {}
