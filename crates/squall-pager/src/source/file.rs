//! The store in a file.
//!
//! - I1. Bytes at or beyond the length of the source are neither read nor written.
//! - I2. A file that is shorter than the source was cut short by another program. A read of lost bytes fails,
//!   and so does each write: it would put zeros in the place of the lost bytes.
//!
//! Not promised: another program that cuts the file in the middle of a write is not noticed by that write.

use std::fs::File;
use std::io::{self, ErrorKind};

use super::contents::{bytes_within, offset_of};
use super::error::SourceErrorKind;
use super::interface::Filled;
use super::layers::Store;

/// A regular file.
pub(super) struct FileStore {
    file: File,
    name: Box<str>,
}

/// Makes the error of an attempt.
fn failed(action: &'static str) -> impl Fn(io::Error) -> SourceErrorKind {
    move |error| SourceErrorKind::Io { action, error }
}

impl FileStore {
    pub(super) fn new(file: File, name: &str) -> FileStore {
        FileStore { file, name: name.into() }
    }

    /// Returns the length of the file.
    pub(super) fn len(&self) -> Result<u64, SourceErrorKind> {
        let metadata = self.file.metadata().map_err(failed("ask for the length of the file"))?;
        if metadata.is_file() { Ok(metadata.len()) } else { Err(SourceErrorKind::NotAFile) }
    }

    /// Refuses a file that is shorter than the source (I2).
    fn check(&self, expected: u64) -> Result<(), SourceErrorKind> {
        let found = self.len()?;
        if found < expected { Err(SourceErrorKind::CutShort { expected, found }) } else { Ok(()) }
    }
}

impl Store for FileStore {
    fn name(&self) -> &str {
        &self.name
    }

    fn begin(&self, len: u64) -> Result<(), SourceErrorKind> {
        match self.len()? {
            0 => self.file.set_len(len).map_err(failed("set the length of the file")),
            bytes => Err(SourceErrorKind::NotEmpty { bytes }),
        }
    }

    fn is_blank(&self, len: u64) -> bool {
        len == 0
    }

    fn has_zeros(&self, _: u64) -> bool {
        false
    }

    fn fill(&self, page: u64, into: &mut [u8], len: u64) -> Result<Filled, SourceErrorKind> {
        let (bytes, zeros) = into.split_at_mut(bytes_within(page, len));
        let (mut done, offset) = (0, offset_of(page));
        while done < bytes.len() {
            match read_at(&self.file, &mut bytes[done..], offset + done as u64) {
                Ok(0) => {
                    // The file may be longer again by now.
                    let found = self.len()?.min(offset + done as u64);
                    return Err(SourceErrorKind::CutShort { expected: len, found });
                }
                Ok(more) => done += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(failed("read the page")(error)),
            }
        }
        zeros.fill(0);
        Ok(Filled::Read)
    }

    fn write(&self, page: u64, bytes: &[u8], len: u64) -> Result<(), SourceErrorKind> {
        self.check(len)?;
        let (mut done, offset) = (0, offset_of(page));
        while done < bytes.len() {
            match write_at(&self.file, &bytes[done..], offset + done as u64) {
                Ok(0) => return Err(failed("write the page")(ErrorKind::WriteZero.into())),
                Ok(more) => done += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(failed("write the page")(error)),
            }
        }
        Ok(())
    }

    fn set_len(&self, old: u64, new: u64) -> Result<(), SourceErrorKind> {
        self.check(old.min(new))?;
        self.file.set_len(new).map_err(failed("set the length of the file"))
    }

    fn forget(&self, _: u64) {}

    fn sync(&self) -> Result<(), SourceErrorKind> {
        self.file.sync_all().map_err(failed("sync the file"))
    }

    fn stored_bytes(&self, len: u64) -> u64 {
        len
    }
}

#[cfg(unix)]
fn read_at(file: &File, into: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, into, offset)
}

#[cfg(unix)]
fn write_at(file: &File, from: &[u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::write_at(file, from, offset)
}

#[cfg(windows)]
fn read_at(file: &File, into: &mut [u8], offset: u64) -> io::Result<usize> {
    match std::os::windows::fs::FileExt::seek_read(file, into, offset) {
        // Of an offset beyond the end. Unix returns 0.
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(0),
        other => other,
    }
}

#[cfg(windows)]
fn write_at(file: &File, from: &[u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_write(file, from, offset)
}
