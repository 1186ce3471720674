//! Where the memory of roots and representatives comes from.
//!
//! Problem: a representative is there so that its VP writes what no other VP touches; from an ordinary allocator it lies beside whatever
//! the thread that made it allocated before, and on that thread's node. Idea: who is to touch it is known when it is made: the VPs of
//! its cluster. So its memory is taken from their heap, whoever makes it.
//!
//! - I1. A block goes back to where it came from: the class says which that is, and says the same at every time.
//! - I2. With [`RepMemory::ByCluster`] a representative shares no line with anything but strictly local memory of its VP, and with nothing
//!   at all where its cluster has several VPs.
//!
//! - I3. A block of [`LINES`] is of the pool of shared memory, any other block of an object is the program's allocator's: its layout says
//!   which, and whoever ends it knows that.
//!
//! Not promised: I2 where a root answers a miss with another cluster's representative, or peers look at each other: those lines are read
//! from elsewhere. Below sanitizers and Miri all of it is the program's allocator's, which they watch.
//! Cost: of `ByCluster` that of the locality allocator, with a lock where the maker is not on the VP, and for clusters of several.
//! Source: K42's allocation classes (`DEFINE_LOCALSTRICT_NEW`, `DEFINE_GLOBALPADDED_NEW`); Tornado §4.

use squall_alloc::{Placement, Pool};
use squall_machine::{Cluster, Clusters, Vp};
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Where the memory of a class's representatives comes from: [`Root::REP_MEMORY`](crate::Root::REP_MEMORY).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RepMemory {
    /// From the heap of the VP that a representative is made for: strictly local, packed with others of that VP, where its cluster is
    /// this VP alone; otherwise on lines of its own.
    ByCluster,
    /// On lines of its own (pairs of them, 128 bytes), from the heap of the VP that it is made for: for representatives that VPs of other
    /// clusters write, too.
    OwnLines,
    /// From the program's allocator, wherever that takes it.
    Program,
}

/// Whether there are pools: not where a tool watches the memory that the program's allocator gives.
const POOLS: bool = !cfg!(any(miri, squall_asan, squall_tsan));

/// For whom a representative is.
pub(crate) fn pool(clusters: &Clusters, cluster: Cluster, vp: Vp) -> Pool {
    let number = vp.index() as u32;
    let is_alone = clusters.members(cluster).len() == 1;
    Pool::new(if is_alone { Placement::LocalOf(number) } else { Placement::Near(number) })
}

/// What a block is aligned to that has lines to itself.
const LINES: usize = 128;

/// The layout of a block with lines to itself.
pub(crate) const fn whole_lines(layout: Layout) -> Layout {
    match layout.align_to(LINES) {
        Ok(layout) => layout.pad_to_align(),
        Err(_) => panic!("an object of more bytes than there are addresses"),
    }
}

/// Whether an object's block of this layout is of a pool (I3).
#[inline]
const fn is_of_lines(layout: Layout) -> bool {
    POOLS && layout.align() == LINES
}

/// Room for an object's block, which is not of size 0. Where there is no memory the program ends.
pub(crate) fn take(layout: Layout) -> NonNull<u8> {
    let block = if is_of_lines(layout) {
        Pool::new(Placement::Shared).allocate(layout).ok()
    } else {
        // SAFETY: the layout is not of size 0: it holds an object.
        NonNull::new(unsafe { alloc(layout) })
    };
    block.unwrap_or_else(|| handle_alloc_error(layout))
}

/// Gives it back.
///
/// # Safety
/// From `take`, of the same layout; nobody uses it any more.
#[inline]
pub(crate) unsafe fn give(block: NonNull<u8>, layout: Layout) {
    if is_of_lines(layout) {
        // SAFETY: 1. From a pool, for this layout (I3), once. 2. The caller's promise.
        unsafe { Pool::new(Placement::Shared).free(block, layout) };
    } else {
        // SAFETY: from `alloc`, for this layout (I3), once.
        unsafe { dealloc(block.as_ptr(), layout) };
    }
}

impl RepMemory {
    const fn is_of_pools(self) -> bool {
        POOLS && !matches!(self, RepMemory::Program)
    }

    /// Room for a representative of `cluster` that is made for `vp`. Where there is no memory the program ends, as where a `Box` finds none.
    pub(crate) fn take(self, layout: Layout, clusters: &Clusters, cluster: Cluster, vp: Vp) -> NonNull<u8> {
        let block = if self.is_of_pools() {
            let pool = match self {
                RepMemory::OwnLines => Pool::new(Placement::Near(vp.index() as u32)),
                _ => pool(clusters, cluster, vp),
            };
            pool.allocate(layout).ok()
        } else {
            // SAFETY: the layout is not of size 0: it holds an owner.
            NonNull::new(unsafe { alloc(layout) })
        };
        block.unwrap_or_else(|| handle_alloc_error(layout))
    }

    /// Gives it back.
    ///
    /// # Safety
    /// From `take`, of the same `RepMemory` and layout; nobody uses it any more.
    pub(crate) unsafe fn give(self, block: NonNull<u8>, layout: Layout) {
        if self.is_of_pools() {
            // SAFETY: 1. From a pool, for this layout (I1), once. 2. The caller's promise.
            unsafe { Pool::new(Placement::General).free(block, layout) };
        } else {
            // SAFETY: from `alloc`, for this layout (I1), once.
            unsafe { dealloc(block.as_ptr(), layout) };
        }
    }
}
