//! Where a block is looked for before there is no memory.
//!
//! Problem: where the system has no pages any more, blocks may be free where who needs one does not look: in the slabs of other VPs'
//! heaps, in their magazines, outboxes and empty slabs, and in slabs that are kept by a block that lies there. So a thread that was moved to another
//! processor would find no memory a moment after it had some. Idea: who would be told so looks there first, whatever it costs.
//!
//! - I1. Who is told that there is no memory has seen each heap without a free block of his class, and each pool of pages without room for
//!   a slab of it, after all that VPs cached had gone home: one after the other, not at one moment. Of a strictly local class, so of his
//!   own heap and of all pools, and then the same of the class of whole lines in each heap.
//! - I2. A strictly local block never comes from another VP's slab: in place of it, one of whole lines, which shares none with anybody.
//!
//! Not promised: what other threads free or take meanwhile, or have in their hands just then. Where the kernel cannot be asked to restart
//! sequences, what VPs cache stays there.
//! Cost: a lock for each VP, and two system calls for each that caches anything: once for what was cached, as what went home stays there.
//! Those who look at once begin behind their own VPs, so that they do not meet at one heap.

use crate::classes::{self, LINES_BYTES, SIZES};
use crate::drain;
use crate::ground::Ground;

/// A block of `class`, or another that serves as well, from anywhere; the heap of `vp` had none. Null if there is no memory.
#[cold]
#[inline(never)]
pub(crate) fn look(ground: &Ground, vp: u32, class: usize) -> *mut u8 {
    let free = in_heaps(ground, vp, class);
    if !free.is_null() {
        return free;
    }
    for (vp, part) in ground.parts_made() {
        if part.holds() {
            // What cannot be emptied stays; it is no reason to leave the others.
            let _ = drain::empty(ground, vp, part);
        }
    }
    for (_, part) in ground.parts_made() {
        part.heap().give_spares(ground, true);
    }
    let again = anew(ground, vp, class);
    if again.is_null() && classes::is_local(class) {
        let lines = classes::general(SIZES[class].next_multiple_of(LINES_BYTES), 1);
        return anew(ground, vp, lines);
    }
    again
}

/// One of this VP's heap, with a new slab if need be, or of another's.
fn anew(ground: &Ground, vp: u32, class: usize) -> *mut u8 {
    let mut block = std::ptr::null_mut();
    ground.part(vp).heap().take(ground, class, 1, |offset, _| block = ground.block(offset));
    if block.is_null() { in_heaps(ground, vp, class) } else { block }
}

/// One of a slab that there is, of this VP's heap alone if it is to be strictly local (I2).
fn in_heaps(ground: &Ground, vp: u32, class: usize) -> *mut u8 {
    let found = if classes::is_local(class) {
        ground.part(vp).heap().reuse(ground, class)
    } else {
        ground.parts_made_behind(vp).find_map(|(_, part)| part.heap().reuse(ground, class))
    };
    found.map_or(std::ptr::null_mut(), |offset| ground.block(offset))
}
