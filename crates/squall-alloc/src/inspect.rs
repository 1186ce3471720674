//! Inspection of the allocator, and release of all idle memory.
//!
//! Cost: a lock for each VP and class that is inspected. The result is allocated like any other memory.

use crate::address_space::{AddressSpace, NODES_MAX, if_set_up};
use crate::classes::{COUNT, OUTBOX_BLOCK_MAX, SIZES, SLAB_BYTES, SPARE_UNITS};
use crate::page_pool::PoolUnits;
use crate::settings::Mode;
use crate::setup::address_space;
use crate::{large, mappings};

/// The figures of one size class on one VP.
///
/// # Example
/// ```
/// use squall::alloc::{Arena, Placement};
///
/// let value = Arena::new(Placement::Local).place([0u8; 100])?;
/// let stats = squall::alloc::stats().expect("there is memory");
/// let classes = stats.vps.iter().flat_map(|vp| &vp.classes);
/// let used: u64 = classes.filter(|class| class.is_local).map(|class| class.used_count).sum();
/// assert!(used >= 1);
/// # drop(value);
/// # Ok::<(), squall::alloc::OutOfMemory>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassStats {
    /// Bytes of a block.
    pub block_bytes: usize,
    /// Whether the blocks of the class are strictly local.
    pub is_local: bool,
    /// The number of slabs.
    pub slabs_count: u64,
    /// Blocks in use, here or elsewhere, and blocks in the outboxes of other VPs. Concurrent calls make the
    /// number inexact. If VPs of a node keep blocks of whole lines for one another, the owner of such a block
    /// is unknown: then only the sum over all VPs is exact.
    pub used_count: u64,
    /// Blocks in the VP's cache: its own, and blocks of whole lines that were freed there.
    pub cached_count: u64,
    /// The number of times that the VP's cache was filled since the program began.
    pub fills_count: u64,
    /// Blocks that went back to slabs since the program began.
    pub returned_count: u64,
    /// Blocks among the returned ones that other VPs sent home.
    pub sent_home_count: u64,
}

/// The figures of one VP.
///
/// # Example
/// ```
/// let stats = squall::alloc::stats().expect("there is memory");
/// for vp in &stats.vps {
///     println!("VP {}: {} bytes cached, {} classes", vp.vp, vp.cached_bytes(), vp.classes.len());
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VpStats {
    /// The number of the VP.
    pub vp: u32,
    /// The classes that the VP ever used.
    pub classes: Vec<ClassStats>,
    /// Blocks of other VPs that wait here to be sent home.
    pub outbox_count: u64,
    /// Bytes of the empty slabs that the VP keeps, at most [`SPARE_BYTES`](crate::SPARE_BYTES).
    pub spare_bytes: u64,
}

impl VpStats {
    /// Bytes of the blocks that the VP caches for reuse.
    ///
    /// # Example
    /// ```
    /// let stats = squall::alloc::stats().expect("there is memory");
    /// let cached: u64 = stats.vps.iter().map(|vp| vp.cached_bytes()).sum();
    /// println!("{cached} bytes are cached");
    /// ```
    pub fn cached_bytes(&self) -> u64 {
        self.classes.iter().map(|class| class.cached_count * class.block_bytes as u64).sum()
    }

    /// The most bytes that the waiting blocks of other VPs may have. Together with
    /// [`cached_bytes`](VpStats::cached_bytes) at most [`BOUND_BYTES`](crate::BOUND_BYTES).
    pub fn outbox_bytes_max(&self) -> u64 {
        self.outbox_count * OUTBOX_BLOCK_MAX as u64
    }
}

/// The figures of the whole allocator, as [`stats`] returns them.
///
/// # Example
/// ```
/// let stats = squall::alloc::stats().expect("there is memory");
/// let used: usize = stats.nodes.iter().map(|node| node.used_bytes()).sum();
/// println!("{used} bytes in slabs, {} in large blocks", stats.large_bytes);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocStats {
    /// The way in which blocks are cached.
    pub mode: Mode,
    /// The VPs that ever allocated.
    pub vps: Vec<VpStats>,
    /// Pages by NUMA node, in units of 64 KiB. Nodes beyond the last one with pages are left out.
    pub nodes: Vec<PoolUnits>,
    /// The number of large blocks, each a mapping.
    pub large_count: usize,
    /// Bytes of the large blocks.
    pub large_bytes: usize,
    /// Bytes of the address ranges of freed large blocks that could not be unmapped yet. They hold no memory,
    /// and the allocator retries the unmapping.
    pub unmapped_later_bytes: usize,
}

/// Returns the current figures of the allocator, or `None` if there is no memory at all. The figures are read
/// one after the other, not at one moment.
///
/// # Example
/// ```
/// let _value = squall::alloc::Arena::new(squall::alloc::Placement::General).place(1u64)?;
/// let stats = squall::alloc::stats().expect("there is memory");
/// assert!(!stats.vps.is_empty());
/// # Ok::<(), squall::alloc::OutOfMemory>(())
/// ```
pub fn stats() -> Option<AllocStats> {
    address_space().map(collect)
}

/// Like [`stats`], but also returns `None` if this allocator was never used.
///
/// # Example
/// ```
/// if let Some(stats) = squall::alloc::stats_if_used() {
///     println!("{} VPs allocated", stats.vps.len());
/// }
/// ```
pub fn stats_if_used() -> Option<AllocStats> {
    if_set_up().map(collect)
}

fn collect(space: &AddressSpace) -> AllocStats {
    // By class: blocks that VPs keep for other VPs, beyond the blocks that are out of their own heaps.
    let mut kept = [0; COUNT];
    let mut vps: Vec<VpStats> = space
        .parts_made()
        .map(|(vp, part)| {
            let counts = part.heap().counts();
            let classes = (0..COUNT).filter_map(|class| {
                let (counts, cached) = (counts[class], part.magazine(class).len() as u64);
                kept[class] += cached.saturating_sub(counts.out);
                (counts.takes > 0 || cached > 0).then(|| ClassStats {
                    block_bytes: SIZES[class],
                    is_local: crate::classes::is_local(class),
                    slabs_count: counts.slabs,
                    used_count: counts.out.saturating_sub(cached),
                    cached_count: cached,
                    fills_count: counts.takes,
                    returned_count: counts.puts,
                    sent_home_count: counts.sent_home,
                })
            });
            let spare_bytes = u64::from(part.heap().spares()) * (SPARE_UNITS * SLAB_BYTES) as u64;
            VpStats { vp, classes: classes.collect(), outbox_count: part.outbox().len() as u64, spare_bytes }
        })
        .collect();
    for class in vps.iter_mut().flat_map(|vp| &mut vp.classes) {
        let of_class =
            |at: &usize| SIZES[*at] == class.block_bytes && crate::classes::is_local(*at) == class.is_local;
        if let Some(kept) = (0..COUNT).find(of_class).map(|at| &mut kept[at]) {
            let others = class.used_count.min(*kept);
            class.used_count -= others;
            *kept -= others;
        }
    }
    let mut nodes: Vec<PoolUnits> = space.pools.iter().take(NODES_MAX).map(|pool| pool.units()).collect();
    while nodes.last().is_some_and(|units| units.all == 0) {
        nodes.pop();
    }
    let (large_count, large_bytes) = large::mapped();
    let unmapped_later_bytes = mappings::deferred_bytes();
    AllocStats { mode: space.mode, vps, nodes, large_count, large_bytes, unmapped_later_bytes }
}

/// Returns the way in which this process caches blocks, or `None` if there is no memory at all.
///
/// # Example
/// ```
/// use squall::alloc::{Mode, mode};
///
/// match mode().expect("there is memory") {
///     Mode::Restartable => println!("each processor has caches"),
///     Mode::Locked => println!("each call takes a lock"),
/// }
/// ```
pub fn mode() -> Option<Mode> {
    Some(address_space()?.mode)
}

/// Returns the usable bytes of the block at this address, if it is in a slab. A C-style `malloc` needs this.
///
/// # Safety
/// The address is that of a block in use, or does not belong to this allocator.
#[doc(hidden)]
pub unsafe fn room_of(block: *mut u8) -> Option<usize> {
    let space = if_set_up()?;
    let offset = space.offset(block)?;
    // SAFETY: by this function's contract the block has a user.
    Some(SIZES[unsafe { space.class_at(offset) }])
}

/// Returns whether this address lies in the block range. Memory there always belongs to a slab of this
/// allocator.
///
/// For a block with a layout for which [`is_of_slab`](crate::is_of_slab) is true, the answer tells whether an
/// arena allocated it. A thread that received a block sees the address space of that block.
#[doc(hidden)]
pub fn owns(address: *const u8) -> bool {
    if_set_up().is_some_and(|space| space.offset(address.cast_mut()).is_some())
}

/// For tests: returns the home of the block at this address, a VP, and the node of its page pool. Only
/// blocks of slabs have a home.
///
/// # Safety
/// The address is within a block in use, or does not belong to this allocator.
#[doc(hidden)]
pub unsafe fn home_of(block: *mut u8) -> Option<(u32, u32)> {
    let space = if_set_up()?;
    let offset = space.offset(block)?;
    let magazine = space.magazine_at(offset);
    if magazine.is_null() {
        return None;
    }
    // SAFETY: by this function's contract the block has a user, so its units are of a slab.
    let node = unsafe { crate::page_pool::node_of(space, space.first_unit(offset)) };
    Some((space.vp_of(magazine), node))
}

/// Gives all idle memory back to the system now: sends the caches of every VP home, and releases all free
/// pages.
///
/// Call it in a program that knows that it is idle. Otherwise the allocator gives idle memory back little by
/// little, see [`decay`](crate::decay()). Other threads go on to allocate and free meanwhile. While a VP is
/// drained, its threads find their caches both empty and full, and use the heap for each block. A drain takes
/// two system calls and the return of the blocks: microseconds, if the processors are awake and this thread
/// is not preempted.
///
/// Returns whether all caches were emptied. False if the kernel cannot restart sequences (see [`mode`] and
/// `membarrier`).
///
/// # Cost
/// Two system calls for each VP that ever allocated, and one for each run of pages.
///
/// # Example
/// ```
/// let block = vec![0u8; 100_000];
/// drop(block);
/// let emptied = squall::alloc::trim();
/// println!("all caches emptied: {emptied}");
/// ```
pub fn trim() -> bool {
    let Some(space) = if_set_up() else { return true };
    let mut all = true;
    for (vp, part) in space.parts_made() {
        all &= space.mode == Mode::Locked || crate::drain::drain(space, vp, part);
    }
    for (_, part) in space.parts_made() {
        part.heap().give_spares(space, true);
    }
    for pool in &space.pools {
        pool.purge(space, 0, usize::MAX);
    }
    mappings::retry();
    all
}
