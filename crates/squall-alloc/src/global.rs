//! The allocator of a whole program.

use crate::raw;
use crate::{classes, debug, large};
use std::alloc::{GlobalAlloc, Layout};

/// Squall's allocator, for `#[global_allocator]`.
///
/// It may be used before `main`, while a thread ends, in destructors of thread-locals, and in the child of a `fork`, which may go on
/// to allocate. It is not async-signal-safe: a signal handler must not allocate or free.
///
/// What is freed is believed to be of the layout that it is freed with, as `GlobalAlloc` asks: a block that a [`Pool`](crate::Pool) gave is freed by a pool,
/// and a wrong layout does harm that only builds with debug assertions, and the debug mode, are sure to name.
///
/// # Cost
/// On x86-64, where the size is known when the program is compiled, 14 instructions to allocate and 16 to free; sizes of whole lines 15 on a machine of one node
/// and 20 on one of several. A few more where it is not known. See the crate's header for what a block costs that is not at hand.
/// # Example
/// ```
/// #[global_allocator]
/// static ALLOCATOR: squall_alloc::LocalityAlloc = squall_alloc::LocalityAlloc;
///
/// let words: Vec<String> = "memory near its users".split(' ').map(str::to_owned).collect();
/// assert_eq!(words.len(), 4);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalityAlloc;

/// That of every program with this crate in it, in a build that is to show that it can be: `.ci/run global`.
#[cfg(squall_global_alloc)]
#[global_allocator]
static OF_ALL: LocalityAlloc = LocalityAlloc;

// SAFETY: blocks are of the layout's size and alignment at least (classes/I1), and are given to one user at a time (raw/I2); nothing
// unwinds.
unsafe impl GlobalAlloc for LocalityAlloc {
    #[inline(always)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        raw::take_of_program(layout)
    }

    #[inline(always)]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: passed on.
        unsafe { raw::put_of_program(block, layout) };
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let block = raw::take_of_program(layout);
        if raw::is_of_slab(&layout) && !block.is_null() {
            // SAFETY: our own block of so many bytes.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the alignment is that of a layout, and `GlobalAlloc::realloc` asks that the size be one with it.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        // SAFETY: passed on.
        unsafe { change(block, layout, new) }
    }
}

/// # Safety
/// As for `GlobalAlloc::realloc`, of a general block.
unsafe fn change(block: *mut u8, layout: Layout, new: Layout) -> *mut u8 {
    let class = |layout: Layout| classes::general(layout.size(), layout.align());
    match (raw::is_of_slab(&layout), raw::is_of_slab(&new)) {
        // What frees it then goes by the new layout (raw/I4).
        (true, true) if class(layout) == class(new) && !debug::is_on() => return block,
        (false, false) if layout.align() <= classes::ALIGN_MAX => {
            // SAFETY: passed on.
            return unsafe { large::change(block, layout, new) };
        }
        _ => {}
    }
    let moved = raw::take_of_program(new);
    if !moved.is_null() {
        // SAFETY: two blocks, of at least so many bytes; the old one is given back once.
        unsafe {
            std::ptr::copy_nonoverlapping(block, moved, layout.size().min(new.size()));
            raw::put_of_program(block, layout);
        }
    }
    moved
}
