//! Recycled: ended objects, kept whole for the next objects of their VP.
//!
//! Problem: an object needs an id of its VP and a block of memory, which together cost several times what the object itself
//! does when each comes from a list of its own and from the allocator. Idea: when an object ends, its block keeps the slot
//! it had, and both are handed on at once.
//!
//! - I1. A husk is the block of an object that ended, whose `id` is the one that its next object will have: its slot, under
//!   the generation that the slot names. Nobody uses it.
//! - I2. It is in the magazine of its slot's home for blocks of its size, or taken by one creator.
//!
//! A block that is given to the allocator instead leaves its slot to the list in `ground`.
//!
//! Not promised: that there is one. A magazine holds [`KEPT`]; while it is full, or looks so, ids and blocks part.
//! Cost: to take or keep one, a dozen instructions. Source: Tornado §5.3 counts on per-processor pools for ids and memory;
//! Bonwick's magazines.

use squall_machine::Vp;
use squall_machine::pervp::{OutOfMemory, PerVpMagazine};
use std::alloc::Layout;
use std::ptr::NonNull;

use crate::protocol::id::Id;
use crate::protocol::memory;
use crate::protocol::object::Object;

/// Whether there are any: not where a tool watches memory for uses after free, unless it is asked to watch husks instead.
const KEEPS: bool = cfg!(squall_husks) || !cfg!(any(miri, squall_asan));
/// Recycled of one size that a VP keeps: as many as objects end between two grace periods of a thread.
const KEPT: usize = if cfg!(miri) { 32 } else { 2048 };
/// Larger blocks are not kept.
const BYTES_MAX: usize = 256;
/// Blocks are rounded up to a multiple of this, less [`RIM`].
const STEP: usize = 16;
/// What allocators commonly keep beside each block: so rounding up takes nothing that they would not have taken.
const RIM: usize = 8;
const SIZES: usize = BYTES_MAX / STEP;

/// The husks of all VPs.
pub(crate) struct Recycled([PerVpMagazine; SIZES]);

/// Which magazine is for blocks of this layout.
const fn size_class(layout: Layout) -> Option<usize> {
    let steps = (layout.size() + RIM).div_ceil(STEP);
    if KEEPS && steps <= SIZES && layout.align() <= STEP { Some(steps - 1) } else { None }
}

/// The layout of the blocks in this magazine.
const fn layout_of(class: usize) -> Layout {
    match Layout::from_size_align((class + 1) * STEP - RIM, STEP) {
        Ok(layout) => layout,
        Err(_) => unreachable!(),
    }
}

/// The layout of a block for an object of this one.
pub(crate) const fn room(layout: Layout) -> Layout {
    match size_class(layout) {
        Some(class) => layout_of(class),
        None => layout,
    }
}

impl Recycled {
    pub(crate) fn try_new() -> Result<Recycled, OutOfMemory> {
        let mut magazines = Vec::with_capacity(SIZES);
        for _ in 0..SIZES {
            magazines.push(PerVpMagazine::try_new(if KEEPS { KEPT } else { 0 })?);
        }
        magazines.try_into().map(Recycled).map_err(|_| unreachable!("so many were made"))
    }

    /// Takes a husk of the VP where the caller is: a block with [`room`] for this layout, and the id of the next object in
    /// it, both the caller's.
    #[inline(always)]
    pub(crate) fn take(&self, layout: Layout) -> Option<(Id, NonNull<u8>)> {
        let block = self.0[size_class(layout)?].pop()?;
        // SAFETY: what is in a magazine is a husk (I1), ours alone now (I2).
        Some((unsafe { (*block.cast::<Object>().as_ptr()).id }, block.cast()))
    }

    /// Keeps the block of an object that ended, for the next one under `id`. Returns whether it did: not for a caller who is
    /// not on `home`.
    ///
    /// # Safety
    /// The block has [`room`] for this layout, begins with an [`Object`], and is the caller's. `home` is that of the slot, and
    /// the slot names the id's generation.
    #[inline(always)]
    pub(crate) unsafe fn keep(&self, block: NonNull<Object>, layout: Layout, id: Id, home: Vp) -> bool {
        let Some(class) = size_class(layout) else { return false };
        // SAFETY: the caller's own.
        unsafe { (&raw mut (*block.as_ptr()).id).write(id) };
        self.0[class].push_on(home, block.cast())
    }

    /// Takes a husk of any size of the VP where the caller is apart: the block is freed. Returns the id, which is the
    /// caller's, and how many bytes the block had.
    pub(crate) fn free_one(&self) -> Option<(Id, usize)> {
        self.0.iter().enumerate().find_map(|(class, kept)| {
            let block = kept.pop()?.cast::<Object>();
            let layout = layout_of(class);
            // SAFETY: what is in a magazine is a husk (I1), ours alone now (I2), of the magazine's layout, as which it was taken
            // (`room`).
            unsafe {
                let id = (*block.as_ptr()).id;
                memory::give(block.cast(), layout);
                Some((id, layout.size()))
            }
        })
    }

    /// Bytes of the blocks that are kept on this VP, about.
    pub(crate) fn bytes_on(&self, vp: Vp) -> usize {
        self.0.iter().enumerate().map(|(class, kept)| kept.len_on(vp) * layout_of(class).size()).sum()
    }
}
