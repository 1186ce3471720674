//! Recycled blocks: the memory of ended objects, kept with their slots for the next objects of their VP.
//!
//! Problem: an object needs an id of its VP and a block of memory. If one comes from a list and the other
//! from the allocator, both together cost several times as much as the object itself.
//!
//! Idea: when an object ends, its block keeps its slot. The next object gets both in one step.
//!
//! - I1. A recycled block is the block of an ended object. Its `id` is the id of its next object: the slot
//!   with the slot's present generation. No thread uses it.
//! - I2. It is in the magazine of its slot's home for blocks of its size, or taken by one creator.
//!
//! A block that is freed to the allocator instead leaves its slot to the free list in `tables.rs`.
//!
//! Not promised: that a recycled block is available. A magazine has [`KEPT`] blocks. While it is full, or
//! seems full, an ended object frees its id and its block separately. So does an object that ends on another
//! VP than its home, for example because its thread has moved. Its id goes home under the lock of a list.
//!
//! Cost: a dozen instructions to take or keep a block.
//!
//! Source: Gamsa et al. 1999, *Tornado*, §5.3, which relies on per-processor pools for ids and memory;
//! Bonwick and Adams 2001, *Magazines and Vmem*.

use squall_machine::Vp;
use squall_machine::pervp::{OutOfMemory, PerVpMagazine};
use std::alloc::Layout;
use std::ptr::NonNull;

use crate::protocol::id::Id;
use crate::protocol::memory;
use crate::protocol::object::Object;

/// Whether blocks are recycled: always, except under tools that detect uses after free. The build flag `--cfg
/// squall_recycle` enables recycling there, too.
const KEEPS: bool = cfg!(squall_recycle) || !cfg!(any(miri, squall_asan));
/// Recycled blocks of one size that a VP keeps: enough for the objects that end between two grace periods of
/// a thread.
const KEPT: usize = if cfg!(miri) { 32 } else { 2048 };
/// Larger blocks are not recycled.
const BYTES_MAX: usize = 256;
/// Blocks are rounded up to a multiple of this, less [`RIM`].
const STEP: usize = 16;
/// The bytes that allocators commonly keep beside each block: so the rounded block costs no more than before.
const RIM: usize = 8;
const SIZES: usize = BYTES_MAX / STEP;

/// The recycled blocks of all VPs.
pub(crate) struct Recycled([PerVpMagazine; SIZES]);

/// The index of the magazine for blocks of this layout.
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

/// The layout to allocate for an object of this layout.
pub(crate) const fn room(layout: Layout) -> Layout {
    match size_class(layout) {
        Some(class) => layout_of(class),
        None => layout,
    }
}

impl Recycled {
    pub(crate) fn try_new() -> Result<Recycled, OutOfMemory> {
        let mut magazines = Vec::new();
        magazines.try_reserve_exact(SIZES).map_err(|_| OutOfMemory {
            reserve_bytes: SIZES * size_of::<PerVpMagazine>(),
            cause: std::io::ErrorKind::OutOfMemory.into(),
        })?;
        for _ in 0..SIZES {
            magazines.push(PerVpMagazine::try_new(if KEEPS { KEPT } else { 0 })?);
        }
        magazines
            .try_into()
            .map(Recycled)
            .map_err(|_| unreachable!("the number of recycled-block magazines is not {SIZES}"))
    }

    /// Takes a recycled block of the current VP, with [`room`] for this layout. Returns it with the id of the
    /// next object in it; both belong to the caller.
    #[inline(always)]
    pub(crate) fn take(&self, layout: Layout) -> Option<(Id, NonNull<u8>)> {
        let block = self.0[size_class(layout)?].pop()?;
        // SAFETY: blocks in a magazine are recycled (I1), and this one belongs to the caller now (I2).
        Some((unsafe { (*block.cast::<Object>().as_ptr()).id }, block.cast()))
    }

    /// Keeps the block of an ended object, for the next object under `id`. Returns false if the caller does
    /// not run on `home`, or if the magazine is full.
    ///
    /// # Safety
    /// The block has [`room`] for this layout, begins with an [`Object`], and is the caller's. `home` is the
    /// home of the slot, and the slot has the id's generation.
    #[inline(always)]
    pub(crate) unsafe fn keep(&self, block: NonNull<Object>, layout: Layout, id: Id, home: Vp) -> bool {
        let Some(class) = size_class(layout) else { return false };
        // SAFETY: the block is the caller's own.
        unsafe { (&raw mut (*block.as_ptr()).id).write(id) };
        self.0[class].push_on(home, block.cast())
    }

    /// Frees a recycled block of any size of the current VP. Returns its id, which belongs to the caller, and
    /// the number of bytes freed.
    pub(crate) fn free_one(&self) -> Option<(Id, usize)> {
        self.0.iter().enumerate().find_map(|(class, kept)| {
            let block = kept.pop()?.cast::<Object>();
            let layout = layout_of(class);
            // SAFETY: blocks in a magazine are recycled (I1), and this one belongs to us now (I2). It was
            // allocated with the layout of the magazine (`room`).
            unsafe {
                let id = (*block.as_ptr()).id;
                memory::give(block.cast(), layout);
                Some((id, layout.size()))
            }
        })
    }

    /// Approximate bytes of the recycled blocks of this VP.
    pub(crate) fn bytes_on(&self, vp: Vp) -> usize {
        self.0.iter().enumerate().map(|(class, kept)| kept.len_on(vp) * layout_of(class).size()).sum()
    }
}
