//! Allocation and free: the fast paths, and the slow paths behind them.
//!
//! ```text
//! take   the VP's magazine --empty--> a batch from its heap --empty--> a slab from the page pool --> system
//!        without memory: a free block of any VP (`last_resort`)
//! put    home here: the magazine --full--> half of it to the heap --slab free--> the page pool --> system
//!        home on this node, whole lines: the magazine --full--> half of it, to each home's heap
//!        any other home: the outbox --full--> all of it, to each home's heap
//! large  a mapping of its own
//! ```
//!
//! - I1. A block up to `SLAB_MAX` with an alignment up to a page comes from a slab; any other block is a
//!   mapping. Size and alignment alone decide, for every placement, so a free decides like the allocation.
//! - I2. A block is in one place: in use, in a magazine, in an outbox, in a batch on some thread's stack, or
//!   free in its slab.
//! - I3. If the system refuses memory, and no block is free (`last_resort/I1`), the answer is null. Cached
//!   blocks may have gone home; otherwise the state is unchanged.
//! - I4. For blocks of the global allocator, size and alignment give the class, even after a resize in place:
//!   such a resize stays within one class (`global`). A free that relies on this does not look at the block.
//!
//! Cost: see `magazine`, `heap`, `page_pool`. Progress: the fast paths are wait-free except for restarts; the
//! slow paths take one lock at a time.

use crate::address_space::{AddressSpace, CallerVp};
use crate::classes::{self, CAPACITIES, LOCAL_MAX, OUTBOX_CAPACITY, SIZES, is_of_slab};
use crate::lookup::{self, GENERAL, LOCAL};
use crate::magazine::{Batch, Magazine, Pile};
use crate::remote_free::{BlockHomes, send_home};
use crate::setup::{self, address_space};
use crate::{bound, debug, debug_table, decay, fatal, large, last_resort, sequence};
use squall_sys::sync::atomic::{AtomicPtr, Ordering};
use std::alloc::Layout;

/// Allocates a general block. Null if there is no memory.
#[inline(always)]
pub(crate) fn take(layout: Layout) -> *mut u8 {
    take_or(layout, take_slow)
}

/// Allocates a general block for the global allocator.
#[inline(always)]
pub(crate) fn take_global(layout: Layout) -> *mut u8 {
    take_or(layout, take_slow_global)
}

#[inline(always)]
fn take_or(layout: Layout, slow: impl FnOnce(Layout) -> *mut u8) -> *mut u8 {
    if classes::is_by_size(&layout) {
        // SAFETY: a slot of a table of bases.
        let block = unsafe { sequence::pop(GENERAL.at(classes::slot(layout.size()))) };
        if !block.is_null() {
            return block;
        }
    }
    slow(layout)
}

/// Allocates a strictly local block.
#[inline(always)]
pub(crate) fn take_local(layout: Layout) -> *mut u8 {
    if layout.size() <= LOCAL_MAX && layout.align() <= classes::STEP_BYTES {
        // SAFETY: a slot of a table of bases.
        let block = unsafe { sequence::pop(LOCAL.at(classes::slot(layout.size()))) };
        if !block.is_null() {
            return block;
        }
        return take_local_slow(layout);
    }
    take_shared(layout)
}

/// Allocates a block of whole pairs of lines.
#[inline(always)]
pub(crate) fn take_shared(layout: Layout) -> *mut u8 {
    take(whole_lines(layout))
}

/// Rounds a layout up to whole pairs of lines.
#[inline(always)]
pub(crate) const fn whole_lines(layout: Layout) -> Layout {
    // A size of 0 counts as 1: the block must be aligned, too.
    let size = if layout.size() == 0 { 1 } else { layout.size() };
    let size = size.next_multiple_of(classes::LINES_BYTES);
    match Layout::from_size_align(size, layout.align()) {
        Ok(layout) => layout,
        Err(_) => layout,
    }
}

/// Frees a block of any placement.
///
/// # Safety
/// The block was allocated for this layout, and has no users any more.
#[inline(always)]
pub(crate) unsafe fn put(block: *mut u8, layout: Layout) {
    if cfg!(debug_assertions) && debug_table::is_on() {
        // SAFETY: passed on.
        return unsafe { put_checked(block, layout) };
    }
    if is_of_slab(&layout) {
        // SAFETY: passed on; the block is of a slab (I1).
        unsafe { sequence::push_home(block, put_slow) };
    } else {
        // SAFETY: passed on.
        unsafe { large::put(block, layout) };
    }
}

/// Checks a block in debug mode and frees it.
///
/// # Safety
/// The contract of [`put`], except that a block may break it in the ways that the debug tables detect. Such a
/// block ends the process with a message.
unsafe fn put_checked(block: *mut u8, layout: Layout) {
    let Some(space) = address_space() else { return };
    if is_of_slab(&layout) {
        debug::check(space, block, Some(layout));
        return put_block(space, block);
    }
    if space.offset(block).is_some() {
        fatal::die(format_args!(
            "the block at {block:p} is freed with {} bytes, more than a block of a slab has",
            layout.size()
        ));
    }
    // SAFETY: passed on.
    unsafe { large::put(block, layout) };
}

/// Frees a block of the global allocator. Its layout gives the class. A block that this VP may keep goes to
/// the VP's magazine of the block's class. The block's home is not looked up.
///
/// # Safety
/// The block was allocated for this layout by [`take_global`], and has no users any more.
#[inline(always)]
pub(crate) unsafe fn put_global(block: *mut u8, layout: Layout) {
    if cfg!(debug_assertions) && debug_table::is_on() {
        // SAFETY: passed on.
        return unsafe { put_checked(block, layout) };
    }
    if !classes::is_by_size(&layout) {
        // SAFETY: passed on.
        return unsafe { put(block, layout) };
    }
    let place = GENERAL.at(classes::slot(layout.size()));
    if classes::is_of_lines(&layout) && lookup::is_one_node() {
        if cfg!(debug_assertions) {
            // SAFETY: as in `put`; the check is for callers that break the contract.
            let kept = unsafe { lookup::magazine_to_keep(block) };
            // Relaxed: as in `magazine_to_keep`.
            if kept != Some(place.load(Ordering::Relaxed)) {
                return fatal::foreign_free(block);
            }
        }
        // The next user writes the block. If another processor wrote it before, its line arrives meanwhile.
        squall_sys::prefetch::line_to_write(block);
        // SAFETY: a block without users, of the class that its layout gives (I4).
        if !unsafe { sequence::push_here(place, block) } {
            // SAFETY: passed on.
            unsafe { put_slow(block) };
        }
        return;
    }
    // SAFETY: passed on; the block is of a slab (I1), and of the class that its layout gives (I4).
    unsafe { sequence::push_home_of(place, block, put_slow) };
}

// `.ci/run global` searches test programs for this name.
#[cold]
#[inline(never)]
fn take_slow_global(layout: Layout) -> *mut u8 {
    setup::note_global();
    let block = take_slow(layout);
    if block.is_null() && is_of_slab(&layout) {
        bound::report_full();
    }
    block
}

#[cold]
#[inline(never)]
pub(crate) fn take_slow(layout: Layout) -> *mut u8 {
    let Some(space) = address_space() else { return std::ptr::null_mut() };
    if !is_of_slab(&layout) {
        return large::take(layout);
    }
    if space.debug {
        // A request for whole lines stays one with its guard.
        let lines = if layout.size().is_multiple_of(classes::LINES_BYTES) { classes::LINES_BYTES } else { 1 };
        return debug::take(space, layout, |space, size| {
            take_class(space, classes::general(size, layout.align().max(lines)))
        });
    }
    take_class(space, classes::general(layout.size(), layout.align()))
}

/// The class of strictly local blocks for `size` bytes, or a class of whole lines for larger sizes.
fn local_class(size: usize) -> usize {
    match size {
        0..=LOCAL_MAX => classes::LOCAL_CLASSES[classes::slot(size)] as usize,
        _ => classes::general(size.next_multiple_of(classes::LINES_BYTES), 1),
    }
}

#[cold]
#[inline(never)]
fn take_local_slow(layout: Layout) -> *mut u8 {
    let Some(space) = address_space() else { return std::ptr::null_mut() };
    if space.debug {
        return debug::take(space, layout, |space, size| take_class(space, local_class(size)));
    }
    take_class(space, local_class(layout.size()))
}

/// Allocates a strictly local block of `vp`, at most [`LOCAL_MAX`] bytes and aligned to at most
/// [`LINE_BYTES`](classes::LINE_BYTES). The block is from that heap, even if the caller moves meanwhile.
/// Without other memory, whole lines of another heap replace it (`last_resort/I2`).
pub(crate) fn take_local_of(space: &AddressSpace, vp: u32, layout: Layout) -> *mut u8 {
    // The alignment is that of a step or a line, so the class of a multiple of it is a multiple, too
    // (`classes/I4`).
    let rounded = |size: usize| size.max(1).next_multiple_of(layout.align());
    if space.debug {
        return debug::take(space, layout, |space, size| take_on(space, vp, local_class(rounded(size))));
    }
    let size = rounded(layout.size());
    if space.caller_vp() == CallerVp::Restartable(vp)
        && let Ok(rounded) = Layout::from_size_align(size, 1)
    {
        let block = take_local(rounded);
        if block.is_null() || space.home_of(block) == Some(vp) {
            return block;
        }
        // The thread moved meanwhile, or the block is whole lines: kept by this VP, or a replacement for a
        // strictly local one.
        let own = take_on(space, vp, local_class(size));
        // SAFETY: our own block of a slab.
        let serves = space.offset(block).is_some_and(|at| !classes::is_local(unsafe { space.class_at(at) }));
        if own.is_null() && serves {
            return block;
        }
        // The block goes home at once: in the magazine, the next allocation would find it.
        put_many(space, vp, None, false, block);
        return own;
    }
    take_on(space, vp, local_class(size))
}

/// Allocates a block of `class` near the calling thread.
fn take_class(space: &AddressSpace, class: usize) -> *mut u8 {
    space.register_area();
    match space.caller_vp() {
        CallerVp::Locked(vp) => take_on(space, vp, class),
        CallerVp::Restartable(vp) => {
            // On the first call of this thread, the registration was all that was missing.
            let base = AtomicPtr::new(space.base(class));
            // SAFETY: like the slots of the tables.
            let block = unsafe { sequence::pop(&base) };
            if block.is_null() { refill(space, vp, class) } else { block }
        }
    }
}

/// Allocates a block of `class` from the heap of `vp`, under its lock; without memory there, from anywhere.
pub(crate) fn take_on(space: &AddressSpace, vp: u32, class: usize) -> *mut u8 {
    let mut block = std::ptr::null_mut();
    space.part(vp).heap().take(space, class, 1, |offset, _| block = space.block(offset));
    decay::tick(space);
    if block.is_null() { last_resort::search(space, vp, class) } else { block }
}

/// Takes a batch from the heap of the VP that the thread was on. Returns one block and puts the others into
/// its magazine.
fn refill(space: &AddressSpace, vp: u32, class: usize) -> *mut u8 {
    let part = space.part(vp);
    // Relaxed: a hint. A closed magazine (`magazine/I3`) has no room, and all but one block would go home
    // again at once.
    let is_closed = part.magazine(class).high.load(Ordering::Relaxed) == 0;
    let most = if is_closed { 1 } else { (CAPACITIES[class] / 2).clamp(1, classes::BATCH_MAX) };
    let mut pile = Pile::new();
    part.heap().take(space, class, most, |offset, count| pile.put(space.block(offset), SIZES[class], count));
    let Some((block, blocks)) = pile.blocks().split_last() else {
        return last_resort::search(space, vp, class);
    };
    if !blocks.is_empty() {
        // SAFETY: the magazine of their class and home; the blocks are ours, and at least one.
        let put = unsafe { sequence::push_many(part.magazine(class), blocks) };
        // Blocks are left over if the thread moved or other threads filled the magazine.
        if put < blocks.len() {
            let mut batch = Batch::new();
            blocks[put..].iter().for_each(|block| batch.push(*block));
            send_home(space, vp, &mut batch);
        }
    }
    decay::tick(space);
    *block
}

/// Frees a block of a slab out of line.
///
/// # Safety
/// The contract of [`put`], for a block of a slab.
#[cold]
#[inline(never)]
unsafe fn put_slow(block: *mut u8) {
    // SAFETY: as in `put`.
    if let Some(place) = unsafe { lookup::magazine_to_keep(block) } {
        // SAFETY: a block without users, of that magazine's class.
        if unsafe { sequence::push_here(&AtomicPtr::new(place), block) } {
            return;
        }
    }
    // SAFETY: passed on.
    unsafe { put_slower(block) };
}

/// Frees a block that the magazine of this VP could not take.
///
/// # Safety
/// The contract of [`put_slow`].
#[inline(never)]
unsafe fn put_slower(block: *mut u8) {
    let Some(space) = address_space() else { return };
    if space.debug {
        debug::check(space, block, None);
    }
    put_block(space, block);
}

/// Frees a block that belongs to the caller, by its home.
pub(crate) fn put_block(space: &AddressSpace, block: *mut u8) {
    let vp = match space.caller_vp() {
        CallerVp::Restartable(vp) => vp,
        CallerVp::Locked(vp) => return put_many(space, vp, None, false, block),
    };
    let Some(offset) = space.offset(block) else { return fatal::foreign_free(block) };
    let home = space.magazine_at(offset);
    if home.is_null() {
        return fatal::foreign_free(block);
    }
    let (part, home_vp, may_be_kept) = (space.part(vp), space.vp_of(home), space.may_be_kept(home));
    if home_vp == vp || may_be_kept && space.is_near(home_vp, vp) {
        let own = space.same_of(home, vp);
        // On the first call of this thread, the registration was all that was missing. If nodes had to be
        // compared, the block may be kept here.
        // SAFETY: a magazine of this VP, even if the thread moved, of this block's class; the block is ours.
        if home_vp != vp && unsafe { sequence::push(own, block) } {
            return;
        }
        // SAFETY: the class of a slab, of which we have a block.
        let half = CAPACITIES[unsafe { space.class_at(offset) }] / 2;
        return put_many(space, vp, Some((own, half.min(classes::BATCH_MAX - 1))), !may_be_kept, block);
    }
    // A long block goes home at once and alone.
    if !space.may_wait(home) {
        return put_many(space, vp, None, false, block);
    }
    let outbox = &raw const *part.outbox();
    // SAFETY: a magazine of this VP, even if the thread moved; the block is ours.
    if !unsafe { sequence::push(outbox, block) } {
        put_many(space, vp, Some((outbox, OUTBOX_CAPACITY - 1)), false, block);
    }
}

/// Sends a block home, together with blocks of a full magazine, up to the number in `full`. `is_home`: the
/// home of all of them is `vp`. Out of line, because the batch is a KiB of stack, and most remote frees do
/// not need it.
#[cold]
#[inline(never)]
fn put_many(
    space: &AddressSpace,
    vp: u32,
    full: Option<(*const Magazine, usize)>,
    is_home: bool,
    block: *mut u8,
) {
    let mut batch = Batch::new();
    if let Some((full, most)) = full.filter(|(_, most)| *most > 0) {
        // SAFETY: a magazine of this VP, even if the thread moved; the batch has room for one more.
        unsafe { sequence::pop_many(full, &mut batch, most) };
    }
    batch.push(block);
    if is_home {
        // The blocks of that magazine have their home there, too (`magazine/I2`).
        space.put_on(vp, batch.blocks(), false);
    } else {
        send_home(space, vp, &mut batch);
    }
    decay::tick(space);
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::page_pool::support;

    #[test]
    fn in_locked_mode_threads_share_no_area() {
        const TEST: &str = "raw::tests::in_locked_mode_threads_share_no_area";
        if !support::is_child() {
            return support::must_pass(TEST, &[("SQUALL_RSEQ", "off")]);
        }
        let block = take(Layout::new::<u64>());
        assert!(!block.is_null());
        assert_eq!(address_space().unwrap().mode, crate::settings::Mode::Locked);
        if sequence::SEQUENCES {
            assert!(!std::ptr::addr_eq(sequence::thread_area::current(), &raw const sequence::UNREGISTERED));
        }
        // SAFETY: freed once.
        unsafe { put(block, Layout::new::<u64>()) };
    }
}
