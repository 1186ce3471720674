//! Blocks by the calls of `GlobalAlloc`, for crates without unsafe code: any alignment, zeroed, and resized.

use squall::alloc::LocalityAlloc;
use std::alloc::{GlobalAlloc, Layout};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// A block of the locality allocator with all its bytes written.
pub struct Owned {
    at: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns its bytes.
unsafe impl Send for Owned {}

impl Owned {
    /// Allocates a block for this layout and fills it with `value`. Returns no block if memory is exhausted
    /// or the layout is empty.
    pub fn filled(layout: Layout, value: u8) -> Option<Owned> {
        if layout.size() == 0 {
            return None;
        }
        // SAFETY: not of size 0.
        let at = NonNull::new(unsafe { LocalityAlloc.alloc(layout) })?;
        // SAFETY: our own block of this size.
        unsafe { at.write_bytes(value, layout.size()) };
        Some(Owned { at, layout })
    }

    /// Allocates a block that the allocator promises to be zeroed. Returns no block if memory is exhausted or
    /// the layout is empty.
    pub fn zeroed(layout: Layout) -> Option<Owned> {
        if layout.size() == 0 {
            return None;
        }
        // SAFETY: not of size 0.
        let at = NonNull::new(unsafe { LocalityAlloc.alloc_zeroed(layout) })?;
        Some(Owned { at, layout })
    }

    /// Resizes the block to `size` bytes, at least one. Old bytes stay as far as they fit; new ones are
    /// `value`. Returns false if memory is exhausted; the block is then unchanged.
    pub fn resize(&mut self, size: usize, value: u8) -> bool {
        let old = self.layout.size();
        let Ok(layout) = Layout::from_size_align(size.max(1), self.layout.align()) else { return false };
        // SAFETY: our own block, for its layout; the new one is good, and not of size 0.
        let at = unsafe { LocalityAlloc.realloc(self.at.as_ptr(), self.layout, layout.size()) };
        let Some(at) = NonNull::new(at) else { return false };
        (self.at, self.layout) = (at, layout);
        if layout.size() > old {
            // SAFETY: our own block of this size.
            unsafe { at.add(old).write_bytes(value, layout.size() - old) };
        }
        true
    }

    /// The requested layout.
    pub fn layout(&self) -> Layout {
        self.layout
    }
}

impl Deref for Owned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: our own block of this size, all of them written.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.layout.size()) }
    }
}

impl DerefMut for Owned {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: our own block of this size, all of them written.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.layout.size()) }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: our own block, for its layout, freed once.
        unsafe { LocalityAlloc.dealloc(self.at.as_ptr(), self.layout) };
    }
}

impl fmt::Debug for Owned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes aligned to {} at {:p}", self.layout.size(), self.layout.align(), self.at)
    }
}
