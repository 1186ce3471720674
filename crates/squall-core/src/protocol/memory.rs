//! Where the memory of roots and representatives comes from.
//!
//! Problem: a representative is there so that its VP writes what no other VP touches; from an ordinary allocator it lies beside whatever
//! the thread that made it allocated before, and on that thread's node. Idea: who is to touch it is known when it is made: the VPs of
//! its cluster. So its memory is taken from their heap, whoever makes it.
//!
//! - I1. A block goes back to where it came from: its layout, and what its class says of it, tell whether a pool was asked; where one was,
//!   its address tells whether that pool gave it, or the program's allocator did because the pool had none.
//! - I2. With [`RepMemory::ByCluster`] a representative lies in strictly local memory of its VP, on lines of its own (64 bytes): not even
//!   the next object's representative of that VP shares them, as what leads from one to its peers is read, and written, by other VPs.
//!   Where its cluster has several VPs it lies on pairs of lines of its own, near that VP.
//! - I3. A block aligned to [`LINES`] or more is of the pool of shared memory, any other block of an object is the program's allocator's:
//!   its layout says which. So an object whose value asks for that alignment is of the pool, too.
//!
//! Not promised: that it is at home, where the pools have no memory and the program's allocator has (its arena is full, or the system
//! refuses: `squall_alloc`); lines of its own it has there, too. What is too long for a slab of theirs (512 KiB), or aligned to more than
//! a page, is the program's allocator's always: no address would tell whose it is.
//! Below Miri, and in builds with the flags `squall_asan` and `squall_tsan` (`--cfg`), all of it is the program's allocator's, which
//! those watch. A build with a sanitizer and without its flag sees one block of addresses where all of it lies: it finds no use of a
//! representative, or of what came from [`RepContext::pool`](crate::RepContext::pool), beyond its end or after it was freed.
//! Cost: of `ByCluster` that of the locality allocator, with a lock where the maker is not on the VP, and for clusters of several. Lines
//! of its own cost a representative 63 bytes at most.
//! Source: K42's allocation classes (`DEFINE_LOCALSTRICT_NEW`, `DEFINE_GLOBALPADDED_NEW`); Tornado §4.

use squall_alloc::{Arena, Placement, is_of_slab, owns};
use squall_machine::{Cluster, Clusters, Vp};
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Where the memory of a class's representatives comes from: [`Root::REP_MEMORY`](crate::Root::REP_MEMORY).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RepMemory {
    /// From the heap of the VP that a representative is made for: strictly local, on lines of its own (64 bytes), where its cluster is
    /// this VP alone; otherwise on pairs of lines of its own.
    ByCluster,
    /// On pairs of lines of its own (128 bytes), from the heap of the VP that it is made for: for representatives that VPs of other
    /// clusters write, too. In the allocator's debug mode (`SQUALL_ALLOC_DEBUG`) from the heap of the VP where it is made.
    OwnLines,
    /// From the program's allocator, wherever that takes it.
    Program,
}

/// Whether there are pools: not where a tool watches the memory that the program's allocator gives.
const POOLS: bool = !cfg!(any(miri, squall_asan, squall_tsan));

/// For whom a representative is.
pub(crate) fn pool(clusters: &Clusters, cluster: Cluster, vp: Vp) -> Arena {
    let number = vp.index() as u32;
    let is_alone = clusters.members(cluster).len() == 1;
    Arena::new(if is_alone { Placement::LocalOf(number) } else { Placement::Near(number) })
}

/// What a block is aligned to that has a line to itself.
const LINE: usize = 64;
/// And what one is that has pairs of them.
pub(crate) const LINES: usize = 128;

/// The layout of a block with lines of this length to itself.
const fn by_lines(layout: Layout, line: usize) -> Layout {
    match layout.align_to(line) {
        Ok(layout) => layout.pad_to_align(),
        Err(_) => panic!("an object of more bytes than there are addresses"),
    }
}

/// The layout of a block with pairs of lines to itself.
pub(crate) const fn whole_lines(layout: Layout) -> Layout {
    by_lines(layout, LINES)
}

/// Whether a pool is asked for an object's block of this layout (I3).
#[inline]
const fn is_of_lines(layout: Layout) -> bool {
    POOLS && layout.align() >= LINES && is_of_slab(&layout)
}

/// Room for an object's block, which is not of size 0. Where there is no memory the program ends.
pub(crate) fn take(layout: Layout) -> NonNull<u8> {
    take_from(is_of_lines(layout).then_some(Arena::new(Placement::Shared)), layout)
}

/// Gives it back.
///
/// # Safety
/// From `take`, of the same layout; nobody uses it any more.
#[inline]
pub(crate) unsafe fn give(block: NonNull<u8>, layout: Layout) {
    // SAFETY: passed on; the layout says the same as when it was taken.
    unsafe { give_to(is_of_lines(layout), block, layout) };
}

/// A block of a pool, or where that has none or none is asked, of the program's allocator. Where there is no memory the program ends.
#[inline]
fn take_from(pool: Option<Arena>, layout: Layout) -> NonNull<u8> {
    if let Some(block) = pool.and_then(|pool| pool.allocate(layout).ok()) {
        return block;
    }
    // SAFETY: the layout is not of size 0: it holds an object, or an owner.
    NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout))
}

/// Gives a block back to whom it is of; `asked`: a pool was asked for it.
///
/// # Safety
/// From `take_from`, of this layout, of which a slab has blocks if a pool was asked; once. Nobody uses it any more.
#[inline]
unsafe fn give_to(asked: bool, block: NonNull<u8>, layout: Layout) {
    // Also where the program's allocator is the pools' own: then its blocks of the arena may go by either way.
    if asked && owns(block.as_ptr()) {
        // SAFETY: 1. It lies in the arena, where nothing lies but what pools gave (I1); for this layout, once. 2. The caller's promise.
        unsafe { Arena::new(Placement::General).free(block, layout) };
    } else {
        // SAFETY: from `alloc`, for this layout, once: no pool was asked, or what pools give of this layout lies in the arena.
        unsafe { dealloc(block.as_ptr(), layout) };
    }
}

impl RepMemory {
    /// The layout of a representative's block with what lies on its lines (I2), from what is in it.
    pub(crate) const fn room(self, layout: Layout) -> Layout {
        match self {
            _ if !POOLS => layout,
            RepMemory::ByCluster => by_lines(layout, LINE),
            RepMemory::OwnLines => by_lines(layout, LINES),
            RepMemory::Program => layout,
        }
    }

    /// Whether a pool is asked for a block of this layout.
    const fn is_of_pools(self, layout: Layout) -> bool {
        POOLS && !matches!(self, RepMemory::Program) && is_of_slab(&layout)
    }

    /// Room for a representative of `cluster` that is made for `vp`; the layout is one of [`room`](RepMemory::room). Where there is no
    /// memory the program ends, as where a `Box` finds none.
    pub(crate) fn take(self, layout: Layout, clusters: &Clusters, cluster: Cluster, vp: Vp) -> NonNull<u8> {
        let pool = self.is_of_pools(layout).then(|| match self {
            RepMemory::OwnLines => Arena::new(Placement::Near(vp.index() as u32)),
            _ => pool(clusters, cluster, vp),
        });
        take_from(pool, layout)
    }

    /// Gives it back.
    ///
    /// # Safety
    /// From `take`, of the same `RepMemory` and layout; nobody uses it any more.
    pub(crate) unsafe fn give(self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: passed on; it says the same as when it was taken.
        unsafe { give_to(self.is_of_pools(layout), block, layout) };
    }
}
