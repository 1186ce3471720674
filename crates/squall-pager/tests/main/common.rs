//! Helpers that several tests use.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A file that is removed at the end of its test.
pub(crate) struct TempFile(PathBuf);

impl TempFile {
    /// Makes a file with these bytes, in a folder.
    pub(crate) fn in_folder(folder: &Path, bytes: &[u8]) -> TempFile {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("squall-pager-{}-{number}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        TempFile(path)
    }

    pub(crate) fn new(bytes: &[u8]) -> TempFile {
        TempFile::in_folder(&std::env::temp_dir(), bytes)
    }

    /// Opens the file for reading and writing.
    pub(crate) fn open(&self) -> File {
        File::options().read(true).write(true).open(&self.0).unwrap()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        // The folder may be gone.
        let _ = std::fs::remove_file(&self.0);
    }
}
