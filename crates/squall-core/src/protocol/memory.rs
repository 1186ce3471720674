//! The memory of roots and representatives.
//!
//! Problem: a representative exists so that its VP writes memory that no other VP touches. An ordinary
//! allocator puts it beside earlier allocations of the thread that made it, and on that thread's node.
//!
//! Idea: the users of a representative are known when it is made: the VPs of its cluster. So its memory comes
//! from their heap, whichever thread makes it.
//!
//! - I1. A block returns to its origin. Its layout and its class tell whether `alloc` asked a pool for it. If
//!   so, the block's address tells whether the pool supplied it, or the program's allocator because the pool
//!   had no memory.
//! - I2. With [`RepMemory::ByCluster`] a representative is in strictly local memory of its VP, on lines of
//!   its own (64 bytes). Not even another object's representative of that VP shares them, since other VPs
//!   read and write the links from a representative to its peers. If its cluster has several VPs, it is on
//!   pairs of lines of its own, near that VP.
//! - I3. A block with an alignment of [`LINES`] or more comes from the pool of shared memory; any other block
//!   of an object comes from the program's allocator. So an object with a value of that alignment comes from
//!   the pool, too.
//!
//! Not promised: the right home when the pools have no memory and the program's allocator has some. That
//! happens when the arena is full, or the system refuses memory (see `squall_alloc`). The block then still
//! has lines of its own. A block of more than 512 KiB, or aligned to more than a page, always comes from the
//! program's allocator: its address could not tell its origin.
//!
//! Under Miri, and in builds with `--cfg squall_asan` or `--cfg squall_tsan`, all memory comes from the
//! program's allocator, which those tools watch. A sanitizer in a build without its flag sees one range of
//! addresses with all blocks in it. It then misses accesses beyond the end of a representative, or after its
//! free. The same holds for memory from [`RepContext::pool`](crate::RepContext::pool).
//!
//! Cost: for `ByCluster`, the cost of the locality allocator. It takes a lock if the maker is not on the VP,
//! or if the cluster has several VPs. Padding to whole lines costs a representative at most 63 bytes.
//!
//! Source: K42's allocation classes (`DEFINE_LOCALSTRICT_NEW`, `DEFINE_GLOBALPADDED_NEW`); Gamsa et al. 1999,
//! *Tornado*, §4.

use squall_alloc::{Arena, Placement, is_of_slab, owns};
use squall_machine::{Cluster, Clusters, Vp};
use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;

/// The origin of the memory of a class's representatives: [`Root::REP_MEMORY`](crate::Root::REP_MEMORY).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RepMemory {
    /// The heap of the VP that a representative is made for. If its cluster is this VP alone, the memory is
    /// strictly local, on lines of its own (64 bytes). Otherwise it is on pairs of lines of its own.
    ByCluster,
    /// The heap of the VP that a representative is made for, on pairs of lines of its own (128 bytes). For
    /// representatives that VPs of other clusters write, too. In the allocator's debug mode
    /// (`SQUALL_ALLOC_DEBUG`), the heap of the VP where it is made.
    OwnLines,
    /// The program's allocator.
    Program,
}

/// Whether the pools are used. They are not if a tool watches the memory of the program's allocator.
const POOLS: bool = !cfg!(any(miri, squall_asan, squall_tsan));

/// Returns the arena for a representative of `cluster` that is made for `vp`.
pub(crate) fn pool(clusters: &Clusters, cluster: Cluster, vp: Vp) -> Arena {
    let number = vp.index() as u32;
    let is_alone = clusters.members(cluster).len() == 1;
    Arena::new(if is_alone { Placement::LocalOf(number) } else { Placement::Near(number) })
}

/// The alignment of a block with a line to itself.
const LINE: usize = 64;
/// The alignment of a block with pairs of lines to itself.
pub(crate) const LINES: usize = 128;

/// The layout of a block with lines of this length to itself.
const fn by_lines(layout: Layout, line: usize) -> Layout {
    match layout.align_to(line) {
        Ok(layout) => layout.pad_to_align(),
        Err(_) => panic!("the object is larger than the address space"),
    }
}

/// The layout of a block with pairs of lines to itself.
pub(crate) const fn whole_lines(layout: Layout) -> Layout {
    by_lines(layout, LINES)
}

/// Returns whether a pool is asked for an object's block of this layout (I3).
#[inline]
const fn is_of_lines(layout: Layout) -> bool {
    POOLS && layout.align() >= LINES && is_of_slab(&layout)
}

/// Allocates an object's block, of a size above 0. Returns `None` if there is no memory.
pub(crate) fn try_take(layout: Layout) -> Option<NonNull<u8>> {
    take_from(is_of_lines(layout).then_some(Arena::new(Placement::Shared)), layout)
}

/// Frees an object's block.
///
/// # Safety
/// The block came from `try_take` with the same layout, and is no longer used.
#[inline]
pub(crate) unsafe fn give(block: NonNull<u8>, layout: Layout) {
    // SAFETY: the caller's promise; the layout says the same as when the block was allocated.
    unsafe { give_to(is_of_lines(layout), block, layout) };
}

/// Allocates a block from a pool, or from the program's allocator if no pool is given or the pool has no
/// memory. Returns `None` if there is no memory at all.
#[inline]
fn take_from(pool: Option<Arena>, layout: Layout) -> Option<NonNull<u8>> {
    if let Some(block) = pool.and_then(|pool| pool.allocate(layout).ok()) {
        return Some(block);
    }
    // SAFETY: the size is above 0: the layout has an object or an owner.
    NonNull::new(unsafe { alloc(layout) })
}

/// Frees a block to its origin. `asked`: a pool was asked for it.
///
/// # Safety
/// The block came from `take_from` with this layout, is freed once, and is no longer used. If a pool was
/// asked, a slab has blocks of this layout.
#[inline]
unsafe fn give_to(asked: bool, block: NonNull<u8>, layout: Layout) {
    // True also if the program's allocator is that of the pools: its blocks in the arena may then take either
    // path.
    if asked && owns(block.as_ptr()) {
        // SAFETY: 1. The block is in the arena, which has only blocks of pools (I1), and is freed once with
        // its layout. 2. The caller's promise.
        unsafe { Arena::new(Placement::General).free(block, layout) };
    } else {
        // SAFETY: from `alloc`, with this layout, freed once: no pool was asked, or blocks of pools with this
        // layout are in the arena.
        unsafe { dealloc(block.as_ptr(), layout) };
    }
}

impl RepMemory {
    /// The layout of a representative's block with the rest of its lines (I2), given the layout of its
    /// content.
    pub(crate) const fn room(self, layout: Layout) -> Layout {
        match self {
            _ if !POOLS => layout,
            RepMemory::ByCluster => by_lines(layout, LINE),
            RepMemory::OwnLines => by_lines(layout, LINES),
            RepMemory::Program => layout,
        }
    }

    /// Returns whether a pool is asked for a block of this layout.
    const fn is_of_pools(self, layout: Layout) -> bool {
        POOLS && !matches!(self, RepMemory::Program) && is_of_slab(&layout)
    }

    /// Allocates a representative of `cluster` that is made for `vp`, with a layout from
    /// [`room`](RepMemory::room). Returns `None` if there is no memory.
    pub(crate) fn try_take(
        self,
        layout: Layout,
        clusters: &Clusters,
        cluster: Cluster,
        vp: Vp,
    ) -> Option<NonNull<u8>> {
        let pool = self.is_of_pools(layout).then(|| match self {
            RepMemory::OwnLines => Arena::new(Placement::Near(vp.index() as u32)),
            _ => pool(clusters, cluster, vp),
        });
        take_from(pool, layout)
    }

    /// Frees a representative's block.
    ///
    /// # Safety
    /// The block came from `try_take` with the same `RepMemory` and layout, and is no longer used.
    pub(crate) unsafe fn give(self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise; `is_of_pools` says the same as when the block was allocated.
        unsafe { give_to(self.is_of_pools(layout), block, layout) };
    }
}
