//! The global allocator.

use crate::{classes, debug_table, large, raw};
use std::alloc::{GlobalAlloc, Layout};

/// Squall's allocator for `#[global_allocator]`.
///
/// It may be used before `main`, while a thread ends, and in destructors of thread-locals. The child of a
/// `fork` may go on to allocate. It is not async-signal-safe: a signal handler must not allocate or free.
///
/// A block must be freed with the layout it was allocated with, as `GlobalAlloc` requires. A block from an
/// [`Arena`](crate::Arena) must be freed by an `Arena`. A wrong layout corrupts memory; only builds with
/// debug assertions and the debug mode are certain to report it.
///
/// # Cost
/// On x86-64, for a size that is a compile-time constant: 14 instructions to allocate and 16 to free. For
/// sizes of whole lines, a free takes 15 instructions on a machine of one node, and 20 on one of several. For
/// other sizes a few more. The crate documentation describes the slow paths.
///
/// # Example
/// ```
/// #[global_allocator]
/// static ALLOCATOR: squall::alloc::LocalityAlloc = squall::alloc::LocalityAlloc;
///
/// let words: Vec<String> = "memory near its users".split(' ').map(str::to_owned).collect();
/// assert_eq!(words.len(), 4);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalityAlloc;

/// The global allocator of every program that contains this crate, in builds that test it (`.ci/run global`).
#[cfg(squall_global_alloc)]
#[global_allocator]
static OF_ALL: LocalityAlloc = LocalityAlloc;

// SAFETY: a block has at least the size and alignment of its layout (classes/I1), and has one user at a time
// (raw/I2); no function here unwinds.
unsafe impl GlobalAlloc for LocalityAlloc {
    #[inline(always)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        raw::take_global(layout)
    }

    #[inline(always)]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: passed on.
        unsafe { raw::put_global(block, layout) };
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let block = raw::take_global(layout);
        if classes::is_of_slab(&layout) && !block.is_null() {
            // SAFETY: our own block of so many bytes.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the alignment is that of a layout, and `GlobalAlloc::realloc` requires the new size to be
        // valid with it.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        // SAFETY: passed on.
        unsafe { change(block, layout, new) }
    }
}

/// Resizes a general block, in place or by moving it.
///
/// # Safety
/// The contract of `GlobalAlloc::realloc`, for a general block.
unsafe fn change(block: *mut u8, layout: Layout, new: Layout) -> *mut u8 {
    let class = |layout: Layout| classes::general(layout.size(), layout.align());
    match (classes::is_of_slab(&layout), classes::is_of_slab(&new)) {
        // The later free uses the new layout (raw/I4).
        (true, true) if class(layout) == class(new) && !debug_table::is_on() => return block,
        (false, false) if layout.align() <= classes::ALIGN_MAX => {
            // SAFETY: passed on.
            return unsafe { large::change(block, layout, new) };
        }
        _ => {}
    }
    let moved = raw::take_global(new);
    if !moved.is_null() {
        // SAFETY: two blocks of at least so many bytes; the old one is freed once.
        unsafe {
            std::ptr::copy_nonoverlapping(block, moved, layout.size().min(new.size()));
            raw::put_global(block, layout);
        }
    }
    moved
}
