//! Memory-mapped files. A killed process leaves everything that it wrote.
//!
//! - I1. A [`Chunk`] is mapped as long as it exists, and its bytes of the file are allocated. A store cannot
//!   fail for want of space.

use std::ffi::{CStr, c_int, c_void};

use crate::keeper;

/// Alignment of file parts: a multiple of the page size of every machine (4, 16 or 64 KiB on aarch64).
pub(crate) const GRAIN: usize = 64 << 10;

unsafe extern "C" {
    fn munmap(address: *mut c_void, length: usize) -> c_int;
}

/// A mapped part of a file.
#[derive(Debug)]
pub(crate) struct Chunk {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: the memory is not bound to a thread; the chunk owns the mapping.
unsafe impl Send for Chunk {}

impl Chunk {
    /// Maps `bytes` bytes of a file from `offset`, a multiple of [`GRAIN`]. The range is allocated, and zero
    /// where it is new. If `new` is set, the file must not exist; otherwise it must.
    pub(crate) fn map(name: &CStr, offset: usize, bytes: usize, new: bool) -> Result<Chunk, isize> {
        debug_assert!(
            offset.is_multiple_of(GRAIN),
            "offset {offset} of a chunk is not a multiple of {GRAIN}"
        );
        keeper::map(name, offset, bytes, new).map(|start| Chunk { start, bytes })
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
        // SAFETY: `map` created this mapping, or a fork inherited it at the same address. Holders of pointers
        // into it hold the chunk.
        unsafe { munmap(self.start.cast(), self.bytes) };
    }
}
