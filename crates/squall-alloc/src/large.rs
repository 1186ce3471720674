//! Large blocks: one mapping each, directly from the system and directly back.
//!
//! - I1. A large block is a mapping of its size, rounded up to pages, without other content. The end that a
//!   shrink cuts off is no longer part of the block, mapped or not (`mappings/I1`).
//!
//! Cost: a system call each, and the page faults of the first touch.

use crate::address_space::if_set_up;
use crate::classes::is_of_slab;
use crate::{debug, faults, mappings};
use squall_sys::pages;
use squall_sys::sync::atomic::{AtomicUsize, Ordering};
use std::alloc::Layout;

static COUNT: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of mapped large blocks, and their bytes.
pub(crate) fn mapped() -> (usize, usize) {
    (COUNT.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed))
}

/// Returns whether large blocks are recorded and checked (`debug/I3`).
fn is_debug() -> bool {
    if_set_up().is_some_and(|space| space.debug)
}

fn rounded(layout: &Layout) -> Option<usize> {
    // Pages have at most 64 KiB. The unused end of a mapping costs no memory.
    let page = if cfg!(target_arch = "x86_64") { 4096 } else { pages::UNIT_BYTES };
    layout.size().max(1).checked_next_multiple_of(page)
}

/// Allocates a zeroed block. Null if there is no memory.
pub(crate) fn take(layout: Layout) -> *mut u8 {
    debug_assert!(!is_of_slab(&layout));
    let mapped = rounded(&layout).and_then(|bytes| {
        faults::allowed()?;
        let at = mappings::map(bytes, layout.align())?;
        if is_debug() && !debug::large_taken(at.as_ptr(), layout.size()) {
            // SAFETY: mapped just now; no other thread knows the address.
            unsafe { mappings::unmap(at.as_ptr(), bytes) };
            return None;
        }
        COUNT.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(bytes, Ordering::Relaxed);
        Some(at.as_ptr())
    });
    mapped.unwrap_or(std::ptr::null_mut())
}

/// Frees a large block.
///
/// # Safety
/// The block was allocated for this layout, and has no users any more.
#[cold]
#[inline(never)]
pub(crate) unsafe fn put(block: *mut u8, layout: Layout) {
    let Some(bytes) = rounded(&layout) else { return };
    let is_debug = is_debug();
    if is_debug {
        debug::large_check(block, layout, true);
    }
    COUNT.fetch_sub(1, Ordering::Relaxed);
    BYTES.fetch_sub(bytes, Ordering::Relaxed);
    // SAFETY: as below.
    if is_debug && unsafe { debug::large_kept(block, bytes) } {
        return;
    }
    // SAFETY: a mapping of our own, whole (I1).
    unsafe { mappings::unmap(block, bytes) };
}

/// Resizes a large block to another large size. Null if there is no memory to grow; the block then stays as
/// it was. In debug mode every resize moves the block, so a shrink may fail, too.
///
/// # Safety
/// The contract of [`put`], if it succeeds; `layout` is aligned to a page at most.
pub(crate) unsafe fn change(block: *mut u8, layout: Layout, new: Layout) -> *mut u8 {
    let (Some(old_bytes), Some(new_bytes)) = (rounded(&layout), rounded(&new)) else {
        return std::ptr::null_mut();
    };
    if is_debug() {
        debug::large_check(block, layout, false);
        // SAFETY: passed on.
        return unsafe { to_another(block, layout, new) };
    }
    if new_bytes <= old_bytes {
        // SAFETY: the unused end of a mapping of our own. A failed unmapping is recorded for later, so a
        // shrink never fails.
        unsafe { end(block.wrapping_add(new_bytes), old_bytes - new_bytes) };
        return block;
    }
    if faults::allowed().is_none() {
        return std::ptr::null_mut();
    }
    mappings::tsan_end();
    // SAFETY: a mapping of our own, whole (I1).
    let moved = unsafe { pages::remap(block, old_bytes, new_bytes) };
    mappings::tsan_begin();
    if let Ok(at) = moved {
        BYTES.fetch_add(new_bytes - old_bytes, Ordering::Relaxed);
        return at.as_ptr();
    }
    // The kernel cannot move a mapping that the program split by changing a part of it.
    // SAFETY: passed on.
    unsafe { to_another(block, layout, new) }
}

/// Gives the last bytes of a block back: whole pages, or zero bytes.
///
/// # Safety
/// The contract of [`mappings::unmap`].
unsafe fn end(at: *mut u8, bytes: usize) {
    if bytes > 0 {
        BYTES.fetch_sub(bytes, Ordering::Relaxed);
        // SAFETY: passed on.
        unsafe { mappings::unmap(at, bytes) };
    }
}

/// Resizes like [`change`], by copying to a new block.
///
/// # Safety
/// The contract of [`change`].
unsafe fn to_another(block: *mut u8, layout: Layout, new: Layout) -> *mut u8 {
    let moved = take(new);
    if !moved.is_null() {
        // SAFETY: two mappings of at least so many bytes; the old one is freed once.
        unsafe {
            std::ptr::copy_nonoverlapping(block, moved, layout.size().min(new.size()));
            put(block, layout);
        }
    }
    moved
}
