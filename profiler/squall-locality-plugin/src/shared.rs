//! Files that are written as memory, so that a process that is killed leaves all it wrote.
//!
//! - I1. A [`Chunk`] is mapped for as long as it exists, and its bytes of the file are allocated: a store cannot fail for
//!   want of space.

use std::ffi::{CStr, c_int, c_void};

use crate::keeper;

/// Parts of files begin at multiples of this: of the page of every machine, which may be of 4, 16 or 64 KiB (aarch64).
pub(crate) const GRAIN: usize = 64 << 10;

unsafe extern "C" {
    fn munmap(address: *mut c_void, length: usize) -> c_int;
}

/// A part of a file, as memory.
#[derive(Debug)]
pub(crate) struct Chunk {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: memory without an owner's thread; whoever has the chunk has what it maps.
unsafe impl Send for Chunk {}

impl Chunk {
    /// The `bytes` of the file of this name from `offset` on, which is a multiple of [`GRAIN`], allocated and zero where they are
    /// new; of a file that must be new, or of one that is there.
    pub(crate) fn map(name: &CStr, offset: usize, bytes: usize, new: bool) -> Result<Chunk, isize> {
        debug_assert!(offset.is_multiple_of(GRAIN), "an offset that any machine can map");
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
        // SAFETY: this mapping was made by `map`, or inherited from where it was, and whoever holds pointers into it holds
        // the chunk.
        unsafe { munmap(self.start.cast(), self.bytes) };
    }
}
