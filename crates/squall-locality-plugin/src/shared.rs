//! Files that are written as memory, so that a process that is killed leaves all it wrote.
//!
//! - I1. A [`Chunk`] is mapped for as long as it exists, and its bytes of the file are allocated: a store cannot fail for
//!   want of space.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

const READ_AND_WRITE: c_int = 3;
const SHARED: c_int = 1;

unsafe extern "C" {
    fn mmap(
        address: *mut c_void,
        length: usize,
        protection: c_int,
        flags: c_int,
        file: c_int,
        offset: i64,
    ) -> *mut c_void;
    fn munmap(address: *mut c_void, length: usize) -> c_int;
    fn posix_fallocate(file: c_int, offset: i64, length: i64) -> c_int;
}

/// A part of a file, as memory.
#[derive(Debug)]
pub(crate) struct Chunk {
    start: *mut u8,
    bytes: usize,
}

impl Chunk {
    /// The `bytes` of `file` from `offset` on, both multiples of a page, allocated and zero where they are new.
    pub(crate) fn map(file: &File, offset: usize, bytes: usize) -> io::Result<Chunk> {
        let range = |n: usize| i64::try_from(n).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge));
        let (from, length) = (range(offset)?, range(bytes)?);
        // SAFETY: it takes numbers only.
        let error = unsafe { posix_fallocate(file.as_raw_fd(), from, length) };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        // SAFETY: a new mapping, where the kernel likes, of a file that is open; nothing that exists is replaced.
        let start =
            unsafe { mmap(std::ptr::null_mut(), bytes, READ_AND_WRITE, SHARED, file.as_raw_fd(), from) };
        if start as isize == -1 {
            return Err(io::Error::last_os_error());
        }
        Ok(Chunk { start: start.cast(), bytes })
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: this mapping was made by `map`, and whoever holds pointers into it holds the chunk.
        unsafe { munmap(self.start.cast(), self.bytes) };
    }
}
