//! The table of debug mode: the requested bytes of each block (`debug/I1`).
//!
//! Cost: four bytes for each sixteen touched bytes of the block range.

use crate::classes::STEP_BYTES;
use crate::{faults, mappings};
use squall_sys::pages;
use squall_sys::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// The table (`debug/I1`). Null until [`begin`] made it.
static TABLE: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());

/// Returns whether the mode is on. False before the first allocation.
#[inline]
pub(crate) fn is_on() -> bool {
    !TABLE.load(Ordering::Relaxed).is_null()
}

/// Makes the table for a block range of `range_bytes`, unless it exists. Returns false if there is no memory.
pub(crate) fn begin(range_bytes: usize) -> bool {
    if is_on() {
        return true;
    }
    let bytes = range_bytes / STEP_BYTES * size_of::<AtomicU32>();
    let Some(table) = faults::allowed().and_then(|()| pages::reserve_table(bytes).ok()) else { return false };
    // AcqRel: pairs with itself in other threads. The reader sees the zeros that the table consists of;
    // nothing else is published.
    let first = TABLE.compare_exchange(
        std::ptr::null_mut(),
        table.as_ptr().cast(),
        Ordering::AcqRel,
        Ordering::Relaxed,
    );
    if first.is_err() {
        // SAFETY: mapped just now; no other thread knows the address.
        unsafe { mappings::unmap(table.as_ptr(), bytes) };
    }
    true
}

/// Makes the table entries for these bytes of the block range usable, before the bytes are. Returns false if
/// there is no memory or no table.
pub(crate) fn commit(offset: usize, bytes: usize) -> bool {
    let table = TABLE.load(Ordering::Relaxed);
    let words = |bytes: usize| bytes / STEP_BYTES;
    // SAFETY: the entries of whole segments, so whole pages of the table, which belong to this caller alone.
    !table.is_null()
        && unsafe {
            pages::commit(table.wrapping_add(words(offset)).cast(), words(bytes) * size_of::<AtomicU32>())
        }
        .is_ok()
}

/// The entry of the block at this offset of the block range.
pub(crate) fn entry(offset: usize) -> &'static AtomicU32 {
    let table = TABLE.load(Ordering::Relaxed);
    // SAFETY: an offset within a segment in use, for which the table has an entry. Zeros are valid entries.
    unsafe { &*table.add(offset / STEP_BYTES) }
}
