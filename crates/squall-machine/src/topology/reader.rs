//! Reads the kernel's files below a root directory, so that all of `topology` also runs on recorded trees.
//!
//! - I1. An absent file is `None`; a present file that cannot be understood is an error that names it. The
//!   caller decides which file may be absent, and which value is then assumed.
//!
//! Not promised: two reads may see different moments, because processors come and go. `sysfs` copes with
//! that.

use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Length limit of a file, in bytes. The longest file that is read is a mount table.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// `ENODEV`: the result of reading a sysfs file after its processor went offline.
const ENODEV: i32 = 19;

/// Reads machine descriptions below a root directory.
///
/// # Example
/// ```
/// use squall::topology::Reader;
///
/// let topology = Reader::system().topology().expect("this machine's own files are well-formed");
/// assert!(!topology.possible().is_empty());
/// ```
#[derive(Clone, Debug)]
pub struct Reader {
    root: PathBuf,
}

impl Reader {
    /// Returns a reader of the real machine, with root `/`.
    pub fn system() -> Reader {
        Reader::at("/")
    }

    /// Returns a reader of the tree below `root`, which holds `sys` and `proc` as `/` does.
    ///
    /// # Example
    /// ```
    /// use squall::topology::Reader;
    ///
    /// // A tree without any file: the VPs are then virtual.
    /// let topology = Reader::at("/nonexistent").topology_or_flat();
    /// assert!(topology.is_virtual());
    /// ```
    pub fn at(root: impl Into<PathBuf>) -> Reader {
        Reader { root: root.into() }
    }

    /// Resolves `file` below the root. A leading slash in `file` is ignored.
    pub(super) fn path(&self, file: impl AsRef<Path>) -> PathBuf {
        let file = file.as_ref();
        self.root.join(file.strip_prefix("/").unwrap_or(file))
    }

    /// Reads a file as text. Returns `None` if the file is absent or access is denied.
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

    /// Reads a file that holds one value. Returns `None` if the file is absent.
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

    /// Lists the numbers n for which `directory` has an entry `<prefix>n`, ascending. Returns `None` if the
    /// directory is absent.
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

    /// Builds the error for a malformed `file`.
    pub(super) fn malformed(&self, file: impl AsRef<Path>, reason: impl Into<String>) -> ReadError {
        ReadError::new(self.path(file), reason)
    }
}

fn is_absence(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied)
        || error.raw_os_error() == Some(ENODEV)
}

/// Error: a file is present but cannot be read or understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadError {
    path: PathBuf,
    reason: String,
}

impl ReadError {
    fn new(path: PathBuf, reason: impl Into<String>) -> ReadError {
        ReadError { path, reason: reason.into() }
    }

    /// Returns the path of the file.
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
