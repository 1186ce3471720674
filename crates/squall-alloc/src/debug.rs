//! The debug mode: blocks are poisoned and guarded, and what is freed twice, or was never ours, is named.
//!
//! Asked for by the environment variable `SQUALL_ALLOC_DEBUG=1` before the first allocation. Nothing is cached then, so that the
//! common path is as it is, and all that is checked here is off it. Below all modes a heap notices a block that comes back twice,
//! once it does.
//!
//! - I1. Of each sixteen bytes of the arena at which a block with a user begins, the table says how many bytes were asked for, plus
//!   one; where a block was freed it says [`FREED`]; elsewhere 0.
//! - I2. What lies behind the bytes that were asked for, up to the end of the block, is [`GUARD`] while it has a user; all of a freed
//!   block is [`POISON`], but for pages that went back to the system, which are zeros.
//!
//! - I3. The table of large blocks says of the address of each how many bytes were asked for; where one was freed, [`LARGE_FREED`].
//!   It is read and written under the ground's lock, which a fork holds. Addresses of freed ones are not used again, up to
//!   [`KEPT_MAX`] bytes.
//!
//! Not promised: that large blocks are checked beyond some hundreds of thousands of addresses.
//!
//! In a build without debug assertions who frees an address outside the arena is not told but faults.
//! Cost: two passes over each block; four bytes of table for each sixteen of the arena that are touched.

use crate::classes::{LINES_BYTES, SIZES, SLAB_BYTES, SLAB_MAX, STEP_BYTES};
use crate::ground::{Ground, SETTING, ground};
use crate::raw::{is_of_slab, put_block};
use crate::{faults, large, mappings};
use squall_sys::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use squall_sys::pages;
use std::alloc::Layout;
use std::fmt::Write;

const POISON: u8 = 0xDE;
const FRESH: u8 = 0xA5;
const GUARD: u8 = 0xFD;
/// The least number of guarded bytes, as long as there are larger classes.
const GUARD_BYTES: usize = 16;
const FREED: u32 = u32::MAX;

/// The table (I1); null until there is one.
static TABLE: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());

/// Whether the mode is on. False before the first allocation.
#[inline]
pub(crate) fn is_on() -> bool {
    !TABLE.load(Ordering::Relaxed).is_null()
}

/// Makes the table if there is none. False if there is no memory.
fn begin(ground: &Ground) -> bool {
    if is_on() {
        return true;
    }
    let bytes = ground.units * SLAB_BYTES / STEP_BYTES * size_of::<AtomicU32>();
    let Some(table) = faults::allowed().and_then(|()| pages::reserve_table(bytes).ok()) else { return false };
    // AcqRel: who gets the table sees zeros, which is what it is made of; nothing else is published.
    let first = TABLE.compare_exchange(
        std::ptr::null_mut(),
        table.as_ptr().cast(),
        Ordering::AcqRel,
        Ordering::Relaxed,
    );
    if first.is_err() {
        // SAFETY: mapped just now, and nobody knows it.
        unsafe { mappings::unmap(table.as_ptr(), bytes) };
    }
    true
}

/// Makes the table of these bytes of the arena usable, before they are. False if there is no memory, or no table.
pub(crate) fn commit(offset: usize, bytes: usize) -> bool {
    let table = TABLE.load(Ordering::Relaxed);
    let words = |bytes: usize| bytes / STEP_BYTES;
    // SAFETY: of whole segments, and so of whole pages of the table, which nobody else was given.
    !table.is_null()
        && unsafe {
            pages::commit(table.wrapping_add(words(offset)).cast(), words(bytes) * size_of::<AtomicU32>())
        }
        .is_ok()
}

fn entry(offset: usize) -> &'static AtomicU32 {
    let table = TABLE.load(Ordering::Relaxed);
    // SAFETY: an offset of a segment in use, for which the table has a word; zeros are good ones.
    unsafe { &*table.add(offset / STEP_BYTES) }
}

/// A line of text without allocating.
struct Line {
    bytes: [u8; 256],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let len = text.len().min(self.bytes.len() - self.len);
        self.bytes[self.len..][..len].copy_from_slice(&text.as_bytes()[..len]);
        self.len += len;
        Ok(())
    }
}

#[cold]
pub(crate) fn die(what: std::fmt::Arguments<'_>) -> ! {
    let mut line = Line { bytes: [0; 256], len: 0 };
    let _ = writeln!(line, "squall-alloc: {what}");
    pages::complain(&line.bytes[..line.len]);
    std::process::abort();
}

/// Ends the program over a block that is no block of ours.
#[cold]
pub(crate) fn foreign(block: *mut u8) {
    die(format_args!("foreign free: no block of ours begins at {block:p}"));
}

/// Ends the program over a block that was freed twice.
#[cold]
pub(crate) fn twice(block: *mut u8) {
    die(format_args!("double free of the block at {block:p}"));
}

/// A block with guards, and nothing of old in it.
pub(crate) fn take(ground: &Ground, layout: Layout, of: impl FnOnce(&Ground, usize) -> *mut u8) -> *mut u8 {
    if !begin(ground) {
        return std::ptr::null_mut();
    }
    let block = of(ground, (layout.size() + GUARD_BYTES).min(SLAB_MAX));
    if block.is_null() {
        return block;
    }
    let offset = block.addr() - ground.arena.addr();
    // SAFETY: the block is ours.
    let room = SIZES[unsafe { ground.class_at(offset) }];
    // Relaxed, here and below: the block was handed from thread to thread by a lock.
    if entry(offset).load(Ordering::Relaxed) == FREED {
        // SAFETY: the block has so many bytes, which were written when it was freed.
        let bytes = unsafe { std::slice::from_raw_parts(block, room) };
        if let Some(at) = bytes.iter().position(|byte| *byte != POISON && *byte != 0) {
            die(format_args!(
                "byte {at} of the free block at {block:p} was written, of a class of {room} bytes"
            ));
        }
    }
    entry(offset).store(layout.size() as u32 + 1, Ordering::Relaxed);
    // SAFETY: the block has `room` bytes, at least as many as were asked for.
    unsafe {
        block.write_bytes(FRESH, layout.size());
        block.add(layout.size()).write_bytes(GUARD, room - layout.size());
    }
    block
}

/// Checks a block and frees it.
///
/// # Safety
/// What may be checked here need not hold.
pub(crate) unsafe fn put(block: *mut u8, layout: Layout) {
    let Some(ground) = ground() else { return };
    if is_of_slab(&layout) {
        check(ground, block, Some(layout));
        return put_block(ground, block);
    }
    if ground.offset(block).is_some() {
        die(format_args!("the block at {block:p} is freed with {} bytes, too many for it", layout.size()));
    }
    // SAFETY: passed on.
    unsafe { large::put(block, layout) };
}

/// As [`put`] where the layout is not at hand.
///
/// # Safety
/// As for [`put`].
pub(crate) unsafe fn put_unasked(ground: &Ground, block: *mut u8) {
    check(ground, block, None);
    put_block(ground, block);
}

/// Whether who asked for so many bytes got `size`: of a block of whole lines that was rounded up.
fn is_size(asked: usize, size: usize) -> bool {
    asked == size || asked.max(1).next_multiple_of(LINES_BYTES) == size
}

fn check(ground: &Ground, block: *mut u8, layout: Option<Layout>) {
    let Some(offset) = ground.offset(block) else { return foreign(block) };
    if !offset.is_multiple_of(STEP_BYTES) || ground.magazine_at(offset).is_null() {
        // Perhaps it was one, in a slab that is gone.
        let may_be = offset.is_multiple_of(STEP_BYTES) && ground.is_in_use(offset);
        if may_be && entry(offset).load(Ordering::Relaxed) == FREED {
            return twice(block);
        }
        return foreign(block);
    }
    let size = match entry(offset).swap(FREED, Ordering::Relaxed) {
        0 => return foreign(block),
        FREED => return twice(block),
        size => size as usize - 1,
    };
    // SAFETY: a block with a user, who is giving it to us.
    let class = unsafe { ground.class_at(offset) };
    if let Some(layout) = layout
        && !is_size(layout.size(), size)
    {
        die(format_args!("the block at {block:p} has {size} bytes and is freed with {}", layout.size()));
    }
    // SAFETY: the block has so many bytes, all written in `take` or by its user.
    let guard = unsafe { std::slice::from_raw_parts(block.add(size), SIZES[class] - size) };
    if let Some(at) = guard.iter().position(|byte| *byte != GUARD) {
        die(format_args!("the block at {block:p} has {size} bytes, and byte {} was written", size + at));
    }
    // SAFETY: as above.
    unsafe { block.write_bytes(POISON, SIZES[class]) };
}

const LARGE_FREED: usize = usize::MAX;
/// Entries of the table of large blocks, as a power of two.
const LARGES_SHIFT: u32 = 20;
/// So many entries from that of its address on a block may be found in.
const LARGE_LOOKS: usize = 64;
/// Bytes of freed large blocks whose addresses are kept from use.
const KEPT_MAX: usize = 1 << 40;

/// An entry; zeros where there is none.
#[derive(Default)]
struct Large {
    at: AtomicUsize,
    bytes: AtomicUsize,
}

/// The table (I3); null until there is one.
static LARGES: AtomicPtr<Large> = AtomicPtr::new(std::ptr::null_mut());
static KEPT: AtomicUsize = AtomicUsize::new(0);

/// The entry of a large block at `at`, or one that is empty; `None` where there is no room for it. The caller holds the lock.
fn large_entry(at: usize) -> Option<&'static Large> {
    // Relaxed, here and below: all of it is under the lock.
    let table = LARGES.load(Ordering::Relaxed);
    if table.is_null() {
        return None;
    }
    let first = (at as u64 >> 12).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - LARGES_SHIFT);
    (0..LARGE_LOOKS).find_map(|look| {
        // SAFETY: within the table, whose zeros are good entries; it stays.
        let entry = unsafe { &*table.add((first as usize + look) & ((1 << LARGES_SHIFT) - 1)) };
        let found = entry.at.load(Ordering::Relaxed);
        (found == 0 || found == at).then_some(entry)
    })
}

/// Notes a large block that is given out. False if there is no memory to note it.
pub(crate) fn large_taken(block: *mut u8, bytes: usize) -> bool {
    SETTING.with(|| {
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

/// Checks a large block that is used or, if so said, freed now.
pub(crate) fn large_check(block: *mut u8, layout: Layout, is_freed: bool) {
    SETTING.with(|| {
        let Some(entry) = large_entry(block.addr()) else { return };
        if entry.at.load(Ordering::Relaxed) == 0 {
            return foreign(block);
        }
        let bytes = entry.bytes.load(Ordering::Relaxed);
        if bytes == LARGE_FREED {
            return twice(block);
        }
        if !is_size(layout.size(), bytes) {
            die(format_args!("the block at {block:p} has {bytes} bytes and is freed with {}", layout.size()));
        }
        if is_freed {
            entry.bytes.store(LARGE_FREED, Ordering::Relaxed);
        }
    });
}

/// Gives the memory of a large block back that was freed, but keeps its addresses. False if that is not done.
///
/// # Safety
/// It is a whole mapping that nobody uses any more.
pub(crate) unsafe fn large_kept(block: *mut u8, bytes: usize) -> bool {
    // Relaxed: a number, and about right is enough.
    if KEPT.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) > KEPT_MAX {
        KEPT.fetch_sub(bytes, Ordering::Relaxed);
        return false;
    }
    // SAFETY: passed on.
    unsafe { pages::forbid(block, bytes) }.is_ok()
}
