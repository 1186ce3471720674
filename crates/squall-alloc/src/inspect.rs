//! Looking at the allocator, and having it give back what is idle.
//!
//! Cost: a lock for each VP and class that is looked at; the list of what was found is allocated like anything else.

use crate::classes::{COUNT, OUTBOX_BLOCK_MAX, SIZES, SLAB_BYTES, SPARE_UNITS};
use crate::ground::{Ground, NODES_MAX, ground, known};
use crate::units::PoolUnits;
use crate::{large, mappings};

pub use crate::ground::Mode;

/// What a VP has of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassStats {
    /// Bytes of a block.
    pub block_bytes: usize,
    /// Whether its blocks are strictly local ones.
    pub is_local: bool,
    /// Slabs.
    pub slabs_count: u64,
    /// Blocks with users, here or elsewhere, and those in other VPs' outboxes; off by what is on its way while others allocate. Of
    /// blocks of whole lines that one VP of a node keeps in its cache for others it is not known whose they are: of all VPs together it is
    /// right.
    pub used_count: u64,
    /// Blocks in the VP's cache: its own, or of whole lines those that were freed there.
    pub cached_count: u64,
    /// How often the VP's cache was filled since the program began, and how many blocks went back to slabs.
    pub fills_count: u64,
    /// See `fills_count`.
    pub returned_count: u64,
    /// How many of these other VPs sent home.
    pub sent_home_count: u64,
}

/// What a VP has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VpStats {
    /// Its number.
    pub vp: u32,
    /// The classes that it ever used.
    pub classes: Vec<ClassStats>,
    /// Blocks of other VPs that wait here to be sent home.
    pub outbox_count: u64,
    /// Bytes of empty slabs that it keeps, at most [`SPARE_BYTES`](crate::SPARE_BYTES).
    pub spare_bytes: u64,
}

impl VpStats {
    /// Bytes of the blocks that the VP caches to give out again.
    pub fn cached_bytes(&self) -> u64 {
        self.classes.iter().map(|class| class.cached_count * class.block_bytes as u64).sum()
    }

    /// Bytes of others' blocks that wait here to be sent home, at most. With [`cached_bytes`](VpStats::cached_bytes) it is at most
    /// [`BOUND_BYTES`](crate::BOUND_BYTES).
    pub fn outbox_bytes_max(&self) -> u64 {
        self.outbox_count * OUTBOX_BLOCK_MAX as u64
    }
}

/// What the allocator has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats {
    /// How blocks are cached.
    pub mode: Mode,
    /// The VPs that ever allocated.
    pub vps: Vec<VpStats>,
    /// Pages by NUMA node, in units of 64 KiB; nodes beyond the last that has any are left out.
    pub nodes: Vec<PoolUnits>,
    /// Large blocks, each a mapping.
    pub large_count: usize,
    /// Their bytes.
    pub large_bytes: usize,
    /// Bytes of addresses of freed large blocks that the system had no memory to end the mapping of. They cost none, and are tried
    /// again.
    pub unmapped_later_bytes: usize,
}

/// What the allocator has now: a look at one thing after the other, not at one moment. `None` if there is no memory at all.
pub fn stats() -> Option<Stats> {
    ground().map(look)
}

/// As [`stats`], but `None` as well where nobody has allocated yet.
pub fn stats_if_used() -> Option<Stats> {
    known().map(look)
}

fn look(ground: &Ground) -> Stats {
    // By classes: blocks that VPs keep for others, beyond what is out of their own heaps.
    let mut kept = [0; COUNT];
    let mut vps: Vec<VpStats> = ground
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
    let mut nodes: Vec<PoolUnits> = ground.pools.iter().take(NODES_MAX).map(|pool| pool.units()).collect();
    while nodes.last().is_some_and(|units| units.all == 0) {
        nodes.pop();
    }
    let (large_count, large_bytes) = large::mapped();
    let unmapped_later_bytes = mappings::later_bytes();
    Stats { mode: ground.mode, vps, nodes, large_count, large_bytes, unmapped_later_bytes }
}

/// How blocks are cached in this process. `None` if there is no memory at all.
pub fn mode() -> Option<Mode> {
    Some(ground()?.mode)
}

/// How many bytes the block at this address has room for, if it is one of a slab: what a `malloc` of the C library's kind needs.
///
/// # Safety
/// The address is that of a block in use, or of none of ours.
#[doc(hidden)]
pub unsafe fn room_of(block: *mut u8) -> Option<usize> {
    let ground = known()?;
    let offset = ground.offset(block)?;
    // SAFETY: by this function's contract somebody has a block there.
    Some(SIZES[unsafe { ground.class_at(offset) }])
}

/// Whether this address is one of the arena: whatever lies there is of a slab of this allocator, and nothing else ever does.
///
/// Of a block of a layout for which [`is_of_slab`](crate::is_of_slab) is true it says whether a pool gave it, or somebody else. Whoever
/// was handed a block knows the ground that it is of.
#[doc(hidden)]
pub fn owns(address: *const u8) -> bool {
    known().is_some_and(|ground| ground.offset(address.cast_mut()).is_some())
}

/// For tests: of which VP's heap the block is that this address lies within, and of which node's pool its pages, if it is one of a slab.
///
/// # Safety
/// The address is within a block in use, or in none of ours.
#[doc(hidden)]
pub unsafe fn home_of(block: *mut u8) -> Option<(u32, u32)> {
    let ground = known()?;
    let offset = ground.offset(block)?;
    let magazine = ground.magazine_at(offset);
    if magazine.is_null() {
        return None;
    }
    // SAFETY: by this function's contract somebody has a block there, so its units are of a slab.
    let node = unsafe { crate::units::node_of(ground, ground.first_unit(offset)) };
    Some((ground.vp_of(magazine), node))
}

/// Gives back to the system what nobody uses, now: every VP's cache is sent home, and free pages go.
///
/// For a program that knows that it is idle; otherwise what is idle is given back little by little, see [`decay`](crate::decay()).
/// Meanwhile other threads allocate and free as ever, but those of a VP that is being emptied find its cache empty and full, and go to
/// its heap for each block: as long as two system calls take and its blocks' way home, microseconds where the processors are awake and
/// this thread is not preempted meanwhile.
///
/// Returns whether all caches were emptied: not where the kernel cannot restart sequences (see [`mode`] and `membarrier`).
///
/// # Cost
/// Two system calls for each VP that ever allocated, and one for each run of pages.
pub fn trim() -> bool {
    let Some(ground) = known() else { return true };
    let mut all = true;
    for (vp, part) in ground.parts_made() {
        all &= ground.mode == Mode::Locked || crate::drain::empty(ground, vp, part);
    }
    for (_, part) in ground.parts_made() {
        part.heap().give_spares(ground, true);
    }
    for pool in &ground.pools {
        pool.purge(ground, 0, usize::MAX);
    }
    mappings::again();
    all
}
