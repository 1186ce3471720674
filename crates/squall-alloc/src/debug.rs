//! Debug mode: poisons and guards blocks, and reports double frees and foreign frees.
//!
//! The environment variable `SQUALL_ALLOC_DEBUG=1`, set before the first allocation, turns the mode on. The
//! mode caches no blocks, so the fast path stays as it is and all checks are off it. In every mode, a heap
//! notices a double free when the block returns to it.
//!
//! - I1. The table has an entry for each sixteen bytes of the block range. The entry at the beginning of a
//!   block in use holds the requested bytes plus one. At a freed block it holds [`FREED`], elsewhere 0.
//! - I2. In a block in use, the bytes behind the requested ones are [`GUARD`]. All bytes of a freed block are
//!   [`POISON`], or zero if its pages went back to the system.
//!
//! - I3. The table of large blocks holds the requested bytes for each address, or [`LARGE_FREED`] after the
//!   free. It is read and written under the setup lock, which a fork holds. Addresses of freed blocks are not
//!   reused, up to [`KEPT_MAX`] bytes.
//!
//! Not promised: checks of large blocks beyond some hundreds of thousands of addresses.
//!
//! In a build without debug assertions, a free of an address outside the block range faults instead of being
//! reported.
//! Cost: two passes over each block; four bytes of table for each sixteen touched bytes of the block range.

use crate::address_space::{AddressSpace, SETUP};
use crate::classes::{LINES_BYTES, SIZES, SLAB_BYTES, SLAB_MAX, STEP_BYTES};
use crate::debug_table::{begin, entry};
use crate::fatal::{die, double_free, foreign_free};
use squall_sys::pages;
use squall_sys::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::alloc::Layout;

const POISON: u8 = 0xDE;
const FRESH: u8 = 0xA5;
const GUARD: u8 = 0xFD;
/// The least number of guarded bytes, except in the largest class.
const GUARD_BYTES: usize = 16;
const FREED: u32 = u32::MAX;

/// Allocates a guarded block through `of` and checks that a previously freed block was not written.
pub(crate) fn take(
    space: &AddressSpace,
    layout: Layout,
    of: impl FnOnce(&AddressSpace, usize) -> *mut u8,
) -> *mut u8 {
    if !begin(space.units * SLAB_BYTES) {
        return std::ptr::null_mut();
    }
    let block = of(space, (layout.size() + GUARD_BYTES).min(SLAB_MAX));
    if block.is_null() {
        return block;
    }
    let offset = block.addr() - space.range.addr();
    // SAFETY: the block is ours.
    let room = SIZES[unsafe { space.class_at(offset) }];
    // Relaxed, here and below: a lock handed the block from thread to thread.
    if entry(offset).load(Ordering::Relaxed) == FREED {
        // SAFETY: the block has `room` bytes, all written when it was freed.
        let bytes = unsafe { std::slice::from_raw_parts(block, room) };
        if let Some(at) = bytes.iter().position(|byte| *byte != POISON && *byte != 0) {
            die(format_args!(
                "byte {at} of the freed block at {block:p} was written (class of {room} bytes)"
            ));
        }
    }
    entry(offset).store(layout.size() as u32 + 1, Ordering::Relaxed);
    // SAFETY: the block has `room` bytes, at least the requested ones.
    unsafe {
        block.write_bytes(FRESH, layout.size());
        block.add(layout.size()).write_bytes(GUARD, room - layout.size());
    }
    block
}

/// Returns whether a request for `asked` bytes got `size`. A request for whole lines is rounded up.
fn is_size(asked: usize, size: usize) -> bool {
    asked == size || asked.max(1).next_multiple_of(LINES_BYTES) == size
}

/// Checks a block that is freed, and poisons it. `layout`: that of the free, if known.
pub(crate) fn check(space: &AddressSpace, block: *mut u8, layout: Option<Layout>) {
    let Some(offset) = space.offset(block) else { return foreign_free(block) };
    if !offset.is_multiple_of(STEP_BYTES) || space.magazine_at(offset).is_null() {
        // Perhaps the block was in a slab that is gone.
        let may_be = offset.is_multiple_of(STEP_BYTES) && space.is_in_use(offset);
        if may_be && entry(offset).load(Ordering::Relaxed) == FREED {
            return double_free(block);
        }
        return foreign_free(block);
    }
    let size = match entry(offset).swap(FREED, Ordering::Relaxed) {
        0 => return foreign_free(block),
        FREED => return double_free(block),
        size => size as usize - 1,
    };
    // SAFETY: a block in use, which its user passes to us.
    let class = unsafe { space.class_at(offset) };
    if let Some(layout) = layout
        && !is_size(layout.size(), size)
    {
        die(format_args!(
            "the block at {block:p} was allocated with {size} bytes and is freed with {}",
            layout.size()
        ));
    }
    // SAFETY: the block has so many bytes, all written in `take` or by its user.
    let guard = unsafe { std::slice::from_raw_parts(block.add(size), SIZES[class] - size) };
    if let Some(at) = guard.iter().position(|byte| *byte != GUARD) {
        die(format_args!(
            "the block at {block:p} has {size} bytes, and the guard behind them was written at byte {}",
            size + at
        ));
    }
    // SAFETY: as above.
    unsafe { block.write_bytes(POISON, SIZES[class]) };
}

const LARGE_FREED: usize = usize::MAX;
/// The binary logarithm of the number of entries of the large table.
const LARGES_SHIFT: u32 = 20;
/// The number of entries, from the one of its address on, in which a block is searched for.
const LARGE_PROBES: usize = 64;
/// Bytes of freed large blocks that keep their addresses.
const KEPT_MAX: usize = 1 << 40;

/// An entry of the large table. Zeros are an empty entry.
#[derive(Default)]
struct Large {
    at: AtomicUsize,
    bytes: AtomicUsize,
}

/// The table of large blocks (I3). Null until it is made.
static LARGES: AtomicPtr<Large> = AtomicPtr::new(std::ptr::null_mut());
static KEPT: AtomicUsize = AtomicUsize::new(0);

/// The entry of the large block at `at`, or an empty one. `None` if all candidates are occupied or there is
/// no table. The caller holds the lock.
fn large_entry(at: usize) -> Option<&'static Large> {
    // Relaxed, here and below: the lock protects the table.
    let table = LARGES.load(Ordering::Relaxed);
    if table.is_null() {
        return None;
    }
    let first = (at as u64 >> 12).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - LARGES_SHIFT);
    (0..LARGE_PROBES).find_map(|look| {
        // SAFETY: within the table, in which zeros are valid entries. The table stays mapped.
        let entry = unsafe { &*table.add((first as usize + look) & ((1 << LARGES_SHIFT) - 1)) };
        let found = entry.at.load(Ordering::Relaxed);
        (found == 0 || found == at).then_some(entry)
    })
}

/// Records a large block that is given out. Returns false if there is no memory for the table.
pub(crate) fn large_taken(block: *mut u8, bytes: usize) -> bool {
    SETUP.with(|| {
        if LARGES.load(Ordering::Relaxed).is_null() {
            let table = pages::map_table(size_of::<Large>() << LARGES_SHIFT);
            let Ok(table) = table else { return false };
            LARGES.store(table.as_ptr().cast(), Ordering::Relaxed);
        }
        if let Some(entry) = large_entry(block.addr()) {
            entry.at.store(block.addr(), Ordering::Relaxed);
            entry.bytes.store(bytes, Ordering::Relaxed);
        }
        true
    })
}

/// Checks a large block that is resized or, if `is_freed`, freed.
pub(crate) fn large_check(block: *mut u8, layout: Layout, is_freed: bool) {
    SETUP.with(|| {
        let Some(entry) = large_entry(block.addr()) else { return };
        if entry.at.load(Ordering::Relaxed) == 0 {
            return foreign_free(block);
        }
        let bytes = entry.bytes.load(Ordering::Relaxed);
        if bytes == LARGE_FREED {
            return double_free(block);
        }
        if !is_size(layout.size(), bytes) {
            die(format_args!(
                "the block at {block:p} was allocated with {bytes} bytes and is freed with {}",
                layout.size()
            ));
        }
        if is_freed {
            entry.bytes.store(LARGE_FREED, Ordering::Relaxed);
        }
    });
}

/// Gives the memory of a freed large block back and keeps its addresses mapped. Returns false if the
/// addresses are not kept.
///
/// # Safety
/// The block is a whole mapping without users.
pub(crate) unsafe fn large_kept(block: *mut u8, bytes: usize) -> bool {
    // Relaxed: an approximate count.
    if KEPT.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) > KEPT_MAX {
        KEPT.fetch_sub(bytes, Ordering::Relaxed);
        return false;
    }
    // SAFETY: passed on.
    unsafe { pages::release_keep_reserved(block, bytes) }.is_ok()
}
