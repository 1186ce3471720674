//! Last resort: the search for a free block before an allocation fails.
//!
//! Problem: if the system has no more pages, other VPs may still have free blocks in their slabs, magazines,
//! outboxes and spare slabs. One cached block may keep a whole slab from the pool. A thread that moves to
//! another processor would lose access to memory that it could use before. Idea: before an allocation fails,
//! its thread searches all these places, at any cost.
//!
//! - I1. An allocation fails only after two steps. The thread sends the blocks of all caches home. Then it
//!   visits each heap and each page pool, one after the other. No heap had a free block of the class, and no
//!   pool had room for a slab of it. For a strictly local class, the thread searched its own heap and all
//!   pools. Then it searched every heap for the class of whole lines.
//! - I2. A strictly local block never comes from a slab of another VP. If its own heap has none, the thread
//!   gets a block of whole lines. Such a block shares no line with any other block.
//!
//! Not promised: blocks that other threads free, take or hold meanwhile. If the kernel cannot restart
//! sequences, the cached blocks of VPs stay cached. Cost: a lock for each VP, and two system calls for each
//! VP with cached blocks. The system calls are paid once, because the blocks stay at home. Each thread begins
//! its search at the VP after its own, so threads that search at the same time spread over the heaps.

use crate::address_space::AddressSpace;
use crate::classes::{self, LINES_BYTES, SIZES};
use crate::drain;

/// Finds a block of `class`, or of a class that can replace it, in any heap. The heap of `vp` has no free
/// block. Returns null if there is no memory.
#[cold]
#[inline(never)]
pub(crate) fn search(space: &AddressSpace, vp: u32, class: usize) -> *mut u8 {
    let free = in_heaps(space, vp, class);
    if !free.is_null() {
        return free;
    }
    for (vp, part) in space.parts_made() {
        if part.holds() {
            // A VP that cannot be drained keeps its blocks. The loop still drains the other VPs.
            let _ = drain::drain(space, vp, part);
        }
    }
    for (_, part) in space.parts_made() {
        part.heap().give_spares(space, true);
    }
    let again = with_new_slab(space, vp, class);
    if again.is_null() && classes::is_local(class) {
        let lines = classes::general(SIZES[class].next_multiple_of(LINES_BYTES), 1);
        return with_new_slab(space, vp, lines);
    }
    again
}

/// Takes a block from the heap of `vp`, with a new slab if needed, or from another heap.
fn with_new_slab(space: &AddressSpace, vp: u32, class: usize) -> *mut u8 {
    let mut block = std::ptr::null_mut();
    space.part(vp).heap().take(space, class, 1, |offset, _| block = space.block(offset));
    if block.is_null() { in_heaps(space, vp, class) } else { block }
}

/// Takes a block from an existing slab. A strictly local block comes from the heap of `vp` alone (I2).
fn in_heaps(space: &AddressSpace, vp: u32, class: usize) -> *mut u8 {
    let found = if classes::is_local(class) {
        space.part(vp).heap().reuse(space, class)
    } else {
        space.parts_made_behind(vp).find_map(|(_, part)| part.heap().reuse(space, class))
    };
    found.map_or(std::ptr::null_mut(), |offset| space.block(offset))
}
