//! The address space of the allocator: the parts of VPs, the block range, and the tables beside it.
//!
//! Problem: the allocator of a program is called before `main`, by the first allocation, so neither its user
//! nor any allocating code can set it up.
//! Idea: the first slow path reserves all of it as address space. Until then, the fast path reads statics
//! that lead to the slow path.
//!
//! ```text
//! region   zeros | zeros | part of VP 0 | part of VP 1 | ...      1 << PART_SHIFT bytes each
//! part     magazines of the classes | outbox | tail: heap, node
//! range    the block range: segments of 64 units of 64 KiB; a slab is a run of units
//! map      for each unit, the magazine that its blocks are freed to; a dummy magazine if there is no slab
//! slabs    for each unit, the metadata of the slab that begins there, and the first unit of its slab
//! ```
//!
//! - I1. Everything here is written before [`READY`], once, and stays. No thread has a block before that.
//! - I2. A slot of a table of bases at first holds the address of two parts of zeros. Later it holds the
//!   address of the class's magazine in the part of VP 0. The fast path moves that address forward by as many
//!   parts as the number of its VP says, or back by one or two parts. The result is always the address of a
//!   magazine or of zeros.
//! - I3. In the restartable mode a VP is the kernel's number of a processor, and `AREA_OFFSET` is the offset
//!   of the C library's rseq areas. In the locked mode it is the offset of an area of this library with a
//!   negative number, so that every thread takes the slow path. A VP is only a hint then.
//! - I4. The code here allocates only by asking the system for pages.
//! - I5. On a machine of several nodes, the allocator asks the kernel to take the pages of a segment, and of
//!   a part, from its node.
//!
//! Not promised: more blocks than the block range holds. It is twice the machine's memory, or as much as the
//! system reserves. Without restartable sequences it is at most 16 GiB. If the process has a limit on
//! addresses, a global allocator reserves at most half of it. Otherwise the bound is a sixteenth of the
//! remaining addresses, and 1 GiB.
//! Not promised: that the kernel follows I5. The kernel may refuse the request, and uses another node if the
//! memory of one is full. The allocator makes no such request in a virtual topology, or on machines of more
//! than [`NODES_MAX`] nodes, where some nodes share a pool. If the first allocating thread has its own memory
//! policy (`numactl`, set_mempolicy(2)), that policy holds and there is one pool. The allocator makes no
//! request for segments beyond [`BOUND_SEGMENTS_MAX`]. Automatic NUMA balancing leaves the bound pages where
//! they are.
//! Cost: address space, of which touched pages are memory. The map, the regions, and 36 KiB of `slabs` for
//! each used segment count as memory that the program may want.

use crate::classes::{SLAB_BYTES, SLAB_SHIFT, units};
use crate::growth::Growth;
use crate::heap::{FreeError, Heap, Slab, SlabBackend};
use crate::lock::Lock;
use crate::lookup::NO_SLAB;
use crate::magazine::Magazine;
use crate::page_pool::{PagePool, SEGMENT_BYTES, SEGMENT_UNITS, Segment, SegmentBackend};
use crate::part::{KEPT_AT, LONG_AT, MAGAZINES_AT, PART_BYTES, PART_SHIFT, Part};
use crate::remote_free::BlockHomes;
use crate::settings::Mode;
use crate::{debug_table, fatal, faults};
use squall_sys::area::{self, CacheSlot};
use squall_sys::padded::CachePadded;
use squall_sys::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering};
use squall_sys::sync::cell::UnsafeCell;
use squall_sys::{nodes, pages};
use std::io::ErrorKind;
use std::mem::MaybeUninit;

/// The number of parts of zeros before that of VP 0: the kernel's negative processor numbers are -1 and -2.
pub(crate) const ZERO_PARTS: usize = 2;

/// The most nodes that have a pool of their own.
pub(crate) const NODES_MAX: usize = 16;

/// The reserved address space; see the module.
pub(crate) struct AddressSpace {
    pub(crate) range: *mut u8,
    pub(crate) units: usize,
    pub(crate) slabs: *mut Slab,
    pub(crate) segments: *mut Segment,
    pub(crate) map: *mut AtomicPtr<Magazine>,
    pub(crate) region: *mut u8,
    pub(crate) parts: usize,
    pub(crate) mode: Mode,
    /// Whether the kernel restarts sequences on request.
    pub(crate) can_restart: bool,
    pub(crate) debug: bool,
    pub(crate) area_offset: isize,
    /// The number of VPs of a node in a virtual topology.
    pub(crate) vps_of_node: Option<usize>,
    /// The number of memory nodes; 1 if they are not told apart.
    pub(crate) nodes: usize,
    pub(crate) pools: [PagePool; NODES_MAX],
}

/// The next segment to become usable, for a pool without room.
pub(crate) static GROWTH: CachePadded<Growth> = CachePadded::new(Growth::new());

const UNSET: u8 = 0;
pub(crate) const SET: u8 = 1;
pub(crate) static READY: CachePadded<AtomicU8> = CachePadded::new(AtomicU8::new(UNSET));
pub(crate) static SETUP: Lock = Lock::new();
pub(crate) struct SpaceCell(pub(crate) UnsafeCell<MaybeUninit<AddressSpace>>);
// SAFETY: written once, under `SETUP`, before `READY`; read only after it.
unsafe impl Sync for SpaceCell {}
pub(crate) static SPACE: SpaceCell = SpaceCell(UnsafeCell::new(MaybeUninit::uninit()));

/// Returns the address space if it is set up.
#[inline]
pub(crate) fn if_set_up() -> Option<&'static AddressSpace> {
    // Acquire: pairs with the Release in `set_up`.
    (READY.load(Ordering::Acquire) == SET).then(assume_set_up)
}

/// Returns the address space. The caller has seen `READY` set.
pub(crate) fn assume_set_up() -> &'static AddressSpace {
    // SAFETY: it was written before `READY`, which our callers have seen, and is never written again (I1).
    SPACE.0.with(|space| unsafe { (*space).assume_init_ref() })
}

/// The VP whose caches a thread uses. The thread uses them by restartable sequences, or under the lock of the
/// VP's heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallerVp {
    /// The thread runs sequences on this VP.
    Restartable(u32),
    /// The thread takes the lock of this VP's heap.
    Locked(u32),
}

impl AddressSpace {
    /// The magazine of this class in the part of VP 0.
    pub(crate) fn base(&self, class: usize) -> *mut u8 {
        self.region.wrapping_add(MAGAZINES_AT[class])
    }

    /// Returns the VP of the calling thread.
    pub(crate) fn caller_vp(&self) -> CallerVp {
        // SAFETY: each is one of the two offsets that the function requires.
        let (id, guess) = unsafe { (area::cpu_id(self.area_offset), area::cpu_id_start(area::own_offset())) };
        if self.mode == Mode::Restartable && id >= 0 && (id as usize) < self.parts {
            return CallerVp::Restartable(id.cast_unsigned());
        }
        if guess >= 0 {
            return CallerVp::Locked((guess as usize % self.parts) as u32);
        }
        let (cached, uses_left) = area::own_cache(CacheSlot::Allocator);
        if uses_left > 0 {
            area::set_own_cache(CacheSlot::Allocator, cached, uses_left - 1);
            return CallerVp::Locked((cached as usize % self.parts) as u32);
        }
        let cpu = squall_sys::affinity::current_cpu() % self.parts;
        area::set_own_cache(CacheSlot::Allocator, cpu as u32, USES_PER_QUERY - 1);
        CallerVp::Locked(cpu as u32)
    }

    /// Points the calling thread's fast path to its own area, so that it no longer stores to the shared
    /// [`UNREGISTERED`](crate::sequence::UNREGISTERED). In the locked mode that is this library's area, which
    /// runs no sequences (I3).
    pub(crate) fn register_area(&self) {
        #[cfg(all(
            target_os = "linux",
            any(target_arch = "x86_64", target_arch = "aarch64"),
            target_pointer_width = "64",
            not(miri),
            not(squall_tsan)
        ))]
        // SAFETY: one of the two offsets that the function requires.
        if i64::from(unsafe { area::cpu_id(self.area_offset) }) < self.parts as i64 {
            crate::sequence::thread_area::set_current(area::at(self.area_offset).cast());
        }
    }

    /// The part of this VP, made or not.
    #[inline(always)]
    fn part_at(&self, vp: u32) -> Part {
        // SAFETY: callers pass VPs below `parts`. Their parts lie at the start of the region, which stays
        // mapped.
        unsafe { Part::new(self.region.wrapping_add((vp as usize) << PART_SHIFT)) }
    }

    /// Returns the part of this VP, which is below `parts`, and makes it first if needed.
    pub(crate) fn part(&self, vp: u32) -> Part {
        let part = self.part_at(vp);
        let tail = part.tail();
        // Acquire: pairs with the Release in `make`.
        if tail.ready.load(Ordering::Acquire) == 0 {
            // A fork holds the setup lock, so the set of parts does not change during one.
            SETUP.with(|| self.make(part, vp));
        }
        part
    }

    fn make(&self, part: Part, vp: u32) {
        let tail = part.tail();
        if tail.ready.load(Ordering::Relaxed) == 1 {
            return;
        }
        // The binding comes before the first write: pages are placed when they are touched, and do not move.
        let node = self.find_node(vp);
        self.bind(part.start(), PART_BYTES, node);
        tail.node.store(node, Ordering::Relaxed);
        tail.heap.with_mut(|heap| {
            // SAFETY: no thread reads it before `ready`, and we hold the lock.
            unsafe { (*heap).write(Heap::new(vp, crate::classes::SPARES_MAX)) };
        });
        if self.mode == Mode::Restartable {
            part.open();
        }
        // Release: pairs with the Acquire in `part` and `parts_made_of`.
        tail.ready.store(1, Ordering::Release);
    }

    /// The parts that were made, with their VPs.
    pub(crate) fn parts_made(&self) -> impl Iterator<Item = (u32, Part)> {
        self.parts_made_of(0..self.parts as u32)
    }

    /// The parts that were made, in a circle that ends with this VP.
    pub(crate) fn parts_made_behind(&self, vp: u32) -> impl Iterator<Item = (u32, Part)> {
        self.parts_made_of((vp + 1..self.parts as u32).chain(0..=vp))
    }

    fn parts_made_of(&self, vps: impl Iterator<Item = u32>) -> impl Iterator<Item = (u32, Part)> {
        vps.filter_map(|vp| {
            let part = self.part_at(vp);
            // Acquire: pairs with the Release in `make`.
            (part.tail().ready.load(Ordering::Acquire) == 1).then_some((vp, part))
        })
    }

    /// Returns the offset of a block in the block range, if it lies there.
    #[inline]
    pub(crate) fn offset(&self, block: *mut u8) -> Option<usize> {
        let offset = block.addr().wrapping_sub(self.range.addr());
        (offset < self.units * SLAB_BYTES).then_some(offset)
    }

    #[inline]
    pub(crate) fn block(&self, offset: usize) -> *mut u8 {
        self.range.wrapping_add(offset)
    }

    /// Returns the first unit of the slab at this offset.
    #[inline]
    pub(crate) fn first_unit(&self, offset: usize) -> u32 {
        let unit = (offset >> SLAB_SHIFT) as u32;
        // SAFETY: a unit of the block range.
        unsafe { Slab::first(self.slab(unit)) }
    }

    /// Returns the class of the slab at this offset.
    ///
    /// # Safety
    /// The caller has a block of the slab.
    #[inline]
    pub(crate) unsafe fn class_at(&self, offset: usize) -> usize {
        // SAFETY: passed on.
        unsafe { Slab::class(self.slab(self.first_unit(offset))) }
    }

    /// Returns the magazine that blocks at this offset are freed to; null if there is no slab.
    #[inline]
    pub(crate) fn magazine_at(&self, offset: usize) -> *const Magazine {
        // SAFETY: a unit of the block range has an element. Relaxed: a thread with a block has seen the
        // stores before it was given out.
        let magazine: *const Magazine =
            unsafe { &*self.map.add(offset >> SLAB_SHIFT) }.load(Ordering::Relaxed);
        if std::ptr::eq(magazine, &raw const *NO_SLAB) { std::ptr::null() } else { magazine }
    }

    /// Returns whether the segment at this offset was ever used.
    pub(crate) fn is_in_use(&self, offset: usize) -> bool {
        // SAFETY: a unit of the block range has an element; from the first use on it is not null.
        !unsafe { &*self.map.add(offset >> SLAB_SHIFT) }.load(Ordering::Relaxed).is_null()
    }

    /// Returns the VP of this magazine (`magazine/I5`).
    #[inline]
    pub(crate) fn vp_of(&self, magazine: *const Magazine) -> u32 {
        ((magazine.addr() - self.region.addr()) >> PART_SHIFT) as u32
    }

    /// Returns the offset of a magazine in its part. In the locked mode, parts begin at any address.
    #[inline]
    fn place(&self, magazine: *const Magazine) -> usize {
        (magazine.addr() - self.region.addr()) & (PART_BYTES - 1)
    }

    /// Returns whether the blocks of this magazine may wait in an outbox, by its address.
    #[inline]
    pub(crate) fn may_wait(&self, magazine: *const Magazine) -> bool {
        !LONG_AT.contains(&self.place(magazine))
    }

    /// Returns whether other VPs of the node may keep the blocks of this magazine, by its address.
    #[inline]
    pub(crate) fn may_be_kept(&self, magazine: *const Magazine) -> bool {
        KEPT_AT.contains(&self.place(magazine))
    }

    /// Returns whether these two VPs are of one node. Their parts were made.
    pub(crate) fn is_near(&self, vp: u32, other: u32) -> bool {
        self.is_of_one_node() || self.node(vp) == self.node(other)
    }

    /// Returns whether all VPs are of one node.
    pub(crate) fn is_of_one_node(&self) -> bool {
        self.nodes == 1 && self.vps_of_node.is_none_or(|vps| vps >= self.parts)
    }

    /// Returns this VP's magazine of the class that the given magazine, of any VP, has.
    pub(crate) fn same_of(&self, magazine: *const Magazine, vp: u32) -> *const Magazine {
        let at = ((vp as usize) << PART_SHIFT) + self.place(magazine);
        self.region.wrapping_add(at).cast_const().cast()
    }

    /// Enters the dummy magazine in the map for this unit, which has no slab.
    fn set_no_slab(&self, unit: usize) {
        // SAFETY: a unit of the block range has an element. Relaxed: only threads without a block of the unit
        // may read it.
        unsafe { &*self.map.add(unit) }.store((&raw const *NO_SLAB).cast_mut(), Ordering::Relaxed);
    }

    /// Returns the pool of this VP's node. Its part was made.
    fn node(&self, vp: u32) -> u32 {
        // Relaxed: written before the part was ready, and never again.
        self.part_at(vp).tail().node.load(Ordering::Relaxed)
    }

    /// Asks the system for the node of this VP.
    fn find_node(&self, vp: u32) -> u32 {
        if let Some(vps) = self.vps_of_node {
            return (vp as usize / vps % NODES_MAX) as u32;
        }
        if self.nodes <= 1 {
            return 0;
        }
        if faults::alternate_nodes() {
            return vp % 2;
        }
        let current = || pages::current_place().map_or(0, |(_, node)| node);
        let node = nodes::of_processor(vp as usize, self.nodes).unwrap_or_else(current) % NODES_MAX;
        node as u32
    }

    /// Asks for pages of this node (I5). After a refusal, each page lies on the node of the thread that
    /// touches it first. If the kernel permits no such requests at all, the process makes no further ones.
    fn bind(&self, at: *mut u8, bytes: usize, node: u32) {
        if !self.binds() {
            return;
        }
        if let Err(error) = nodes::prefer(at, bytes, node as usize)
            && matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::Unsupported)
        {
            // Relaxed, here and in `binds`: a hint.
            UNASKED.store(true, Ordering::Relaxed);
        }
    }

    fn binds(&self) -> bool {
        (2..=NODES_MAX).contains(&self.nodes) && !UNASKED.load(Ordering::Relaxed)
    }

    /// Asks for the pages of a large block from the node of this VP.
    pub(crate) fn bind_near(&self, at: *mut u8, bytes: usize, vp: u32) {
        if self.binds() {
            // A made part knows its node.
            self.part(vp);
            self.bind(at, bytes, self.node(vp));
        }
    }

    /// Makes a segment usable, with the metadata of its slabs.
    fn commit(&self, number: usize, node: u32) -> bool {
        const UNIT: usize = pages::UNIT_BYTES;
        let range = self.range.wrapping_add(number * SEGMENT_BYTES);
        let first = number * SEGMENT_UNITS * size_of::<Slab>() / UNIT * UNIT;
        let end = ((number + 1) * SEGMENT_UNITS * size_of::<Slab>()).next_multiple_of(UNIT);
        // SAFETY: a segment of the block range, which belongs to this caller alone. The pages of the table
        // around its metadata are whole, and may be usable already.
        let done = unsafe {
            pages::commit(self.slabs.cast::<u8>().wrapping_add(first), end - first).is_ok()
                && faults::allowed().is_some()
                && (!self.debug || debug_table::commit(number * SEGMENT_BYTES, SEGMENT_BYTES))
                && pages::commit(range, SEGMENT_BYTES).is_ok()
        };
        if done && number < BOUND_SEGMENTS_MAX {
            self.bind(range, SEGMENT_BYTES, node);
        }
        done
    }
}

/// The segments for which the kernel is asked for pages of their node. Each may become a mapping of its own.
/// A process usually may have 65,530 mappings, and the program needs some, too. Pages of later segments
/// (beyond 32 GiB of blocks) lie where they are touched first.
const BOUND_SEGMENTS_MAX: usize = 8192;

/// Whether the kernel forbids this process to ask for pages of a node, as in most containers.
static UNASKED: AtomicBool = AtomicBool::new(false);

/// The number of times that a thread without restartable sequences uses one answer of the kernel.
const USES_PER_QUERY: u32 = 64;

impl SlabBackend for AddressSpace {
    #[inline]
    fn slab(&self, unit: u32) -> *mut Slab {
        self.slabs.wrapping_add(unit as usize)
    }

    fn take_units(&self, count: usize, home: u32) -> Option<u32> {
        /// The number of searches while other threads are about to put units into the pool.
        const ROUNDS_MAX: usize = 64;
        let node = self.node(home);
        let near = self.pools[node as usize].take(self, node, count);
        // If the node has no units, and there are no new ones, units of another node serve.
        let others = |own| (0..NODES_MAX as u32).filter(move |other| own || *other != node);
        let reuse = |other: u32| self.pools[other as usize].reuse(self, count);
        let mut found = near.or_else(|| others(false).find_map(reuse));
        for _ in 0..ROUNDS_MAX {
            if found.is_some() || !self.pools.iter().any(|pool| pool.is_moving()) {
                break;
            }
            squall_sys::sync::thread::yield_now();
            found = others(true).find_map(reuse);
        }
        found
    }

    fn give_units(&self, unit: u32, count: usize) {
        for at in unit as usize..unit as usize + count {
            self.set_no_slab(at);
        }
        // SAFETY: the units are of a slab until they are given back below.
        let node = unsafe { crate::page_pool::node_of(self, unit) };
        self.pools[node as usize].give(self, unit, count);
    }

    fn set_home(&self, unit: u32, count: usize, home: u32, class: usize) {
        debug_assert_eq!(count, units(class));
        let magazine: *const Magazine = self.part_at(home).magazine(class);
        for at in unit as usize..unit as usize + count {
            // SAFETY: units of the block range, which belong to the caller.
            unsafe {
                Slab::set_first(self.slab(at as u32), unit);
                // Release: pairs with the Acquire through which another thread receives a block of these
                // units.
                (*self.map.add(at)).store(magazine.cast_mut(), Ordering::Release);
            }
        }
    }
}

impl SegmentBackend for AddressSpace {
    fn segment(&self, number: u32) -> *mut Segment {
        self.segments.wrapping_add(number as usize)
    }

    fn new_segment(&self, node: u32) -> Option<u32> {
        faults::allowed()?;
        let number = GROWTH.grow(self.units / SEGMENT_UNITS, |number| {
            let done = self.commit(number, node);
            if done {
                (number * SEGMENT_UNITS..(number + 1) * SEGMENT_UNITS)
                    .for_each(|unit| self.set_no_slab(unit));
            }
            done
        });
        number.map(|number| number as u32)
    }

    fn discard(&self, unit: u32, count: usize) -> bool {
        // SAFETY: free units of a segment in use: their content is no longer needed.
        unsafe { pages::discard(self.range.wrapping_add((unit as usize) << SLAB_SHIFT), count << SLAB_SHIFT) }
            .is_ok()
    }
}

impl BlockHomes for AddressSpace {
    #[inline]
    fn home_of(&self, block: *mut u8) -> Option<u32> {
        let magazine = self.magazine_at(self.offset(block)?);
        (!magazine.is_null()).then(|| self.vp_of(magazine))
    }

    #[inline]
    fn are_together(&self, block: *mut u8, other: *mut u8) -> bool {
        // Both blocks are in one unit.
        (block.addr() ^ other.addr()) >> SLAB_SHIFT == 0
    }

    fn put_on(&self, home: u32, blocks: &[*mut u8], sent_home: bool) {
        self.part(home).heap().put(
            self,
            self.range.addr(),
            blocks,
            sent_home,
            |offset| self.first_unit(offset),
            |block, wrong| match wrong {
                FreeError::DoubleFree => fatal::double_free(block),
                FreeError::NotABlock => fatal::foreign_free(block),
            },
        );
    }

    fn foreign(&self, block: *mut u8) {
        fatal::foreign_free(block);
    }
}
