//! The address space of the allocator: the parts of VPs, the block range, and the tables beside it.
//!
//! Problem: the allocator of a program is called before `main`, by the first allocation, so neither its user
//! nor any allocating code can set it up. Idea: the first slow path reserves all of it as address space.
//! Until then, the fast path reads statics that lead to the slow path.
//!
//! ```text
//! region   zeros | zeros | part of VP 0 | part of VP 1 | ...      1 << PART_SHIFT bytes each
//! part     magazines of the classes | outbox | tail: heap, node
//! arena    the block range: segments of 64 units of 64 KiB; a slab is a run of units
//! map      for each unit, the magazine that its blocks are freed to; a dummy magazine if there is no slab
//! slabs    for each unit, the metadata of the slab that begins there, and the first unit of its slab
//! ```
//!
//! - I1. Everything here is written before [`READY`], once, and stays. No thread has a block before that.
//! - I2. A slot of a table of bases at first holds the address of two parts of zeros, later the address of
//!   the class's magazine in the part of VP 0. Shifted by the number of a VP, or back by one or two parts,
//!   either is the address of a magazine or of zeros.
//! - I3. In the restartable mode a VP is the kernel's number of a processor, and [`AREA_OFFSET`] leads to the
//!   C library's rseq areas. In the locked mode it leads to an area of this library with a negative number,
//!   so that every thread takes the slow path. A VP is only a hint then.
//! - I4. Nothing here allocates except by asking the system for pages.
//!
//! - I5. On a machine of several nodes, the kernel is asked to take the pages of a segment, and of a part,
//!   from its node.
//!
//! Not promised: more blocks than the block range holds. It is twice the machine's memory, or as much as the
//! system reserves. Without restartable sequences it is at most 16 GiB. A limit on addresses halves it at
//! least: half of the limit for a global allocator; otherwise a sixteenth of the remaining addresses, at most
//! 1 GiB.
//! Not promised: that the kernel follows I5. It may refuse the request, and uses another node if the memory
//! of one is full. It is not asked on machines of more than [`NODES_MAX`] nodes, where some nodes share a
//! pool, nor in a virtual topology. If the first allocating thread has its own memory policy (`numactl`,
//! set_mempolicy(2)), that policy holds and there is one pool. The kernel is not asked for segments beyond
//! [`BOUND_SEGMENTS_MAX`]. Automatic NUMA balancing leaves the bound pages where they are.
//! Cost: address space, of which touched pages are memory. The map, the regions, and 36 KiB of `slabs` for
//! each used segment count as memory that the program may want.

use crate::asked::{Asked, asked};
use crate::classes::{
    CAPACITIES, COUNT, GENERAL_CLASSES, GENERAL_SLOTS, LOCAL_CLASSES, LOCAL_SLOTS, OUTBOX_BLOCK_MAX,
    OUTBOX_CAPACITY, SIZES, SLAB_BYTES, SLAB_SHIFT, may_be_kept, units,
};
use crate::growth::Growth;
use crate::heap::{Heap, Land, Slab};
use crate::lock::Lock;
use crate::magazine::{self, Magazine, SLOTS_AT};
use crate::mappings;
use crate::sequence::{PART_SHIFT, SEQUENCES};
use crate::units::{Field, Pool, SEGMENT_UNITS, Segment};
use crate::{debug, faults};
use squall_sys::sync::atomic::{AtomicBool, AtomicIsize, AtomicPtr, AtomicU8, AtomicU32, Ordering};
use squall_sys::sync::cell::UnsafeCell;
use squall_sys::apart::Apart;
use squall_sys::area::{self, Asker};
use squall_sys::{nodes, pages};
use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::ops::Range;

/// The offset from the thread pointer at which the push sequences find the rseq area of their thread
/// (address_space/I3).
pub(crate) static AREA_OFFSET: Apart<AtomicIsize> = Apart::new(AtomicIsize::new(0));
/// The map, minus the number of the first unit of the block range times the size of an element.
pub(crate) static MAP: Apart<AtomicPtr<AtomicPtr<Magazine>>> =
    Apart::new(AtomicPtr::new(std::ptr::null_mut()));

/// The part of VP 0 if all VPs may keep one another's blocks; null if nodes have to be compared.
static NEAR: Apart<AtomicPtr<u8>> = Apart::new(AtomicPtr::new(std::ptr::null_mut()));

/// The dummy magazine of units without a slab: it looks full, so a free there comes to the slow path. It has
/// no room, whichever VP its address suggests. On lines of its own, because many remote frees read it.
static NOWHERE: Apart<Magazine> =
    Apart::new(Magazine { count: AtomicU32::new(0), low: AtomicU32::new(0), high: AtomicU32::new(0) });

/// Bytes of a part.
const PART_BYTES: usize = 1 << PART_SHIFT;
/// The number of parts of zeros before that of VP 0: the kernel's negative processor numbers are -1 and -2.
const NOBODYS: usize = 2;

#[repr(C, align(128))]
struct Zeros([AtomicU32; 32]);
static ZEROS: Zeros = Zeros([const { AtomicU32::new(0) }; 32]);

/// Bases, by the slots of sizes (address_space/I2).
#[repr(C, align(128))]
pub(crate) struct Bases<const N: usize>([AtomicPtr<u8>; N]);

impl<const N: usize> Bases<N> {
    const fn new() -> Bases<N> {
        // Before the first slow path, only the number -1 is added: that of `NOBODY`.
        Bases(
            [const { AtomicPtr::new((&raw const ZEROS).cast_mut().cast::<u8>().wrapping_add(PART_BYTES)) };
                N],
        )
    }

    #[inline(always)]
    pub(crate) fn at(&self, slot: usize) -> &AtomicPtr<u8> {
        &self.0[slot]
    }
}

pub(crate) static GENERAL: Bases<GENERAL_SLOTS> = Bases::new();
pub(crate) static LOCAL: Bases<LOCAL_SLOTS> = Bases::new();

const fn magazines() -> [usize; COUNT + 1] {
    let (mut at, mut end, mut kept) = ([0; COUNT + 1], 0, false);
    // The magazines of blocks that may be kept come last, so that an address shows this property.
    loop {
        let mut class = 0;
        while class < COUNT {
            if may_be_kept(class) == kept {
                at[class] = end;
                end += SLOTS_AT + (CAPACITIES[class] * 8).next_multiple_of(16);
            }
            class += 1;
        }
        if kept {
            at[COUNT] = end;
            return at;
        }
        kept = true;
    }
}

/// The offset of each class's magazine in a part; the last element is the outbox.
const MAGAZINES_AT: [usize; COUNT + 1] = magazines();
/// The offsets of magazines whose blocks another VP of the node may keep.
const KEPT_AT: Range<usize> = places(0);
/// The offsets among them of magazines with blocks too long for an outbox.
const LONG_AT: Range<usize> = places(OUTBOX_BLOCK_MAX);

/// The offsets of the magazines with blocks that may be kept and are longer than `bytes`: the last ones.
const fn places(bytes: usize) -> Range<usize> {
    let (mut first, mut class) = (MAGAZINES_AT[COUNT], 0);
    while class < COUNT {
        let is_in = may_be_kept(class) && SIZES[class] > bytes;
        if is_in && MAGAZINES_AT[class] < first {
            first = MAGAZINES_AT[class];
        }
        // All magazines behind the first one qualify.
        assert!(is_in || MAGAZINES_AT[class] < first);
        class += 1;
    }
    first..MAGAZINES_AT[COUNT]
}
// The offset of the dummy magazine is not in the range.
const _: () = assert!(KEPT_AT.start > 0);
const TAIL_AT: usize = (MAGAZINES_AT[COUNT] + SLOTS_AT + OUTBOX_CAPACITY * 8).next_multiple_of(128);
const _: () = assert!(TAIL_AT + size_of::<Tail>() <= PART_BYTES);

/// The end of a part, which any thread may use.
#[repr(C, align(128))]
struct Tail {
    /// 1: the other fields are initialized.
    ready: AtomicU32,
    /// The node of the VP.
    node: AtomicU32,
    /// The heap's event number at the previous decay pass (`decay`).
    seen: AtomicU32,
    heap: UnsafeCell<MaybeUninit<Heap>>,
}

/// The most nodes that have a pool of their own.
pub(crate) const NODES_MAX: usize = 16;

/// The way in which blocks are cached.
///
/// # Example
/// ```
/// if squall_alloc::mode() == Some(squall_alloc::Mode::Locked) {
///     eprintln!("no restartable sequences: each allocation takes a lock");
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In magazines of each VP, by restartable sequences.
    Restartable,
    /// Not cached: each call takes the lock of its VP's heap.
    Locked,
}

/// The reserved address space; see the module.
pub(crate) struct Ground {
    pub(crate) arena: *mut u8,
    pub(crate) units: usize,
    slabs: *mut Slab,
    segments: *mut Segment,
    map: *mut AtomicPtr<Magazine>,
    region: *mut u8,
    pub(crate) parts: usize,
    pub(crate) mode: Mode,
    /// Whether the kernel restarts sequences on request.
    pub(crate) can_restart: bool,
    pub(crate) debug: bool,
    area_offset: isize,
    /// The number of VPs of a node in a virtual topology.
    vps_of_node: Option<usize>,
    /// The number of memory nodes; 1 if they are not told apart.
    nodes: usize,
    pub(crate) pools: [Pool; NODES_MAX],
}

/// The next segment to become usable, for a pool without room.
pub(crate) static GROWTH: Apart<Growth> = Apart::new(Growth::new());

const UNSET: u8 = 0;
const SET: u8 = 1;
static READY: Apart<AtomicU8> = Apart::new(AtomicU8::new(UNSET));
pub(crate) static SETTING: Lock = Lock::new();
/// Whether [`pretend_restartable`] was called before the first use.
static PRETENDED: AtomicBool = AtomicBool::new(false);

/// Whether the allocator serves the program's own blocks: [`LocalityAlloc`](crate::LocalityAlloc) was called
/// before the address space was set up.
static OF_PROGRAM: AtomicBool = AtomicBool::new(false);

/// Records a call of the global allocator.
pub(crate) fn note_of_program() {
    // Relaxed, both: as at the reads.
    if READY.load(Ordering::Relaxed) != SET {
        OF_PROGRAM.store(true, Ordering::Relaxed);
    }
}

/// For instruments that count, in a process without restartable sequences: runs the instructions of the
/// sequences on this thread's own area, as processor `cpu`. The kernel does not restart them. Returns false
/// if the process has allocated in another mode already.
///
/// # Safety
/// No other thread of the process, and no signal handler, ever runs on that processor in the view of this
/// allocator or of per-VP operations. From now on, each thread that allocates calls this first.
#[doc(hidden)]
pub unsafe fn pretend_restartable(cpu: u32) -> bool {
    PRETENDED.store(true, Ordering::Relaxed);
    let pretends = |ground: &Ground| ground.mode == Mode::Restartable && (cpu as usize) < ground.parts;
    if !SEQUENCES || !ground().is_some_and(pretends) {
        return false;
    }
    // SAFETY: passed on.
    unsafe { area::pretend_registered(cpu.cast_signed()) };
    true
}

struct Place(UnsafeCell<MaybeUninit<Ground>>);
// SAFETY: written once, under `SETTING`, before `READY`; read only after it.
unsafe impl Sync for Place {}
static GROUND: Place = Place(UnsafeCell::new(MaybeUninit::uninit()));

/// Returns the address space, and sets it up first if needed. `None` if the system cannot reserve it.
#[inline]
pub(crate) fn ground() -> Option<&'static Ground> {
    // Acquire: pairs with the Release in `set`.
    if READY.load(Ordering::Acquire) == SET || SETTING.with(set) { Some(given()) } else { None }
}

/// Returns the address space if it is set up.
#[inline]
pub(crate) fn known() -> Option<&'static Ground> {
    // Acquire: pairs with the Release in `set`.
    (READY.load(Ordering::Acquire) == SET).then(given)
}

fn given() -> &'static Ground {
    // SAFETY: it was written before `READY`, which our callers have seen, and is never written again (I1).
    GROUND.0.with(|ground| unsafe { (*ground).assume_init_ref() })
}

/// Returns the address, in the part of VP 0, of the magazine that may keep this block on whichever VP frees
/// it. `None` if the block may not be kept, or if nodes have to be compared ([`AddressSpace::is_near`]).
///
/// # Safety
/// As for [`push_home`](crate::sequence::push_home).
#[inline(always)]
pub(crate) unsafe fn place_to_keep(block: *mut u8) -> Option<*mut u8> {
    // Relaxed, both, and of the element: a thread with a block has seen the stores before it was given out.
    let (near, map) = (NEAR.load(Ordering::Relaxed), MAP.load(Ordering::Relaxed));
    if near.is_null() {
        return None;
    }
    // SAFETY: the unit of a block has an element.
    let home = unsafe { &*map.wrapping_add(block.addr() >> SLAB_SHIFT) }.load(Ordering::Relaxed);
    let at = home.addr() & (PART_BYTES - 1);
    (KEPT_AT.contains(&at) && !std::ptr::eq(home, &raw const *NOWHERE)).then(|| near.wrapping_add(at))
}

/// Returns whether any VP that frees a block of whole lines may keep it, without a comparison of nodes.
#[inline(always)]
pub(crate) fn all_are_near() -> bool {
    // Relaxed: as in `place_to_keep`.
    !NEAR.load(Ordering::Relaxed).is_null()
}

/// Bytes of a segment.
pub(crate) const SEGMENT_BYTES: usize = SEGMENT_UNITS * SLAB_BYTES;

/// Sets the address space up. Returns false if there are no addresses.
fn set() -> bool {
    // Relaxed: we hold the lock, as the writer did.
    if READY.load(Ordering::Relaxed) == SET {
        return true;
    }
    // Relaxed, both: a caller that recorded a fact sets the address space up itself, or comes after another
    // thread did.
    let asked = asked(PRETENDED.load(Ordering::Relaxed), OF_PROGRAM.load(Ordering::Relaxed));
    let Some(ground) = lay(&asked) else { return false };
    let first_unit = ground.arena.addr() >> SLAB_SHIFT;
    let biased = ground.map.wrapping_sub(first_unit);
    GROUND.0.with_mut(|place| {
        // SAFETY: no thread reads it before `READY`, and we hold the lock, so no other thread writes it.
        unsafe { (*place).write(ground) };
    });
    let ground = given();
    for (slot, class) in GENERAL_CLASSES.iter().enumerate() {
        // Release, here and below: pairs with the loads of the sequences, which read through the stored
        // address (a dependency).
        GENERAL.at(slot).store(ground.base(*class as usize), Ordering::Release);
    }
    for (slot, class) in LOCAL_CLASSES.iter().enumerate() {
        // Release: as above.
        LOCAL.at(slot).store(ground.base(*class as usize), Ordering::Release);
    }
    if ground.mode == Mode::Restartable && !ground.debug && ground.is_of_one_node() {
        // Release: as above; a thread with a block has seen this store.
        NEAR.store(ground.region, Ordering::Release);
    }
    // Release: as above, both.
    MAP.store(biased, Ordering::Release);
    AREA_OFFSET.store(ground.area_offset, Ordering::Release);
    // Without the handlers, a fork while another thread holds a lock leaves a child that may wait forever.
    // The failure cannot be reported.
    let _ = pages::at_fork(crate::fork::prepare, crate::fork::parent, crate::fork::child);
    // Release: pairs with the Acquire in `address_space` and `known`.
    READY.store(SET, Ordering::Release);
    true
}

/// Reserves the address space, with a smaller block range if needed.
fn lay(asked: &Asked) -> Option<Ground> {
    let (region, region_bytes, mode) = lay_region(asked)?;
    // A memory policy of the thread has precedence.
    let nodes = if asked.vps_of_node.is_some() || nodes::has_policy() { 1 } else { faults::nodes() };
    let mut bytes = asked.arena_bytes;
    while bytes >= SEGMENT_BYTES {
        let units = bytes / SLAB_BYTES;
        let segments_bytes = units / SEGMENT_UNITS * size_of::<Segment>();
        let (slabs_bytes, map_bytes) = (units * size_of::<Slab>(), units * size_of::<*mut Magazine>());
        // The largest table is made usable segment by segment, because the reservation may exceed the memory.
        let sizes = [(slabs_bytes, true), (segments_bytes, false), (map_bytes, false)];
        let mut tables = sizes.map(|(bytes, reserved)| (table(bytes, reserved), bytes));
        let arena = faults::allowed().and_then(|()| pages::reserve(bytes, SEGMENT_BYTES).ok());
        if let ([(Some(slabs), _), (Some(segments), _), (Some(map), _)], Some(arena)) = (&tables, arena) {
            return Some(Ground {
                arena: arena.as_ptr(),
                units,
                slabs: slabs.cast(),
                segments: segments.cast(),
                map: map.cast(),
                region: region.wrapping_add(NOBODYS * PART_BYTES),
                parts: asked.parts,
                mode,
                can_restart: asked.can_restart,
                debug: asked.debug,
                // In the locked mode a thread's number must be negative (I3).
                area_offset: if mode == asked.mode { asked.area_offset } else { area::own_offset() },
                vps_of_node: asked.vps_of_node,
                nodes,
                pools: [const { Pool::new() }; NODES_MAX],
            });
        }
        for (at, bytes) in &mut tables {
            if let Some(at) = at.take() {
                // SAFETY: mapped just now; no other thread knows the address.
                unsafe { mappings::unmap(at, bytes.next_multiple_of(pages::UNIT_BYTES)) };
            }
        }
        if let Some(arena) = arena {
            // SAFETY: as above.
            unsafe { mappings::unmap(arena.as_ptr(), bytes) };
        }
        bytes /= 2;
    }
    // SAFETY: as above.
    unsafe { mappings::unmap(region, region_bytes) };
    None
}

/// Maps untouched pages for a table, or reserves pages that have to be committed first.
fn table(bytes: usize, is_reserved: bool) -> Option<*mut u8> {
    faults::allowed()?;
    let bytes = bytes.next_multiple_of(pages::UNIT_BYTES);
    let table = if is_reserved { pages::reserve_table(bytes) } else { pages::map_table(bytes) };
    table.ok().map(|at| at.as_ptr())
}

/// Returns the region, its bytes, and the resulting mode. Sequences need a region at a place where addresses
/// give the VP (`magazine/I5`).
fn lay_region(asked: &Asked) -> Option<(*mut u8, usize, Mode)> {
    let bytes = (NOBODYS + asked.parts) * PART_BYTES;
    if asked.mode == Mode::Restartable && asked.parts <= magazine::VPS_MAX {
        faults::allowed()?;
        if let Ok(at) = pages::reserve_at(bytes, NOBODYS * PART_BYTES, magazine::PARTS_AT) {
            // SAFETY: reserved just now, all of it.
            if unsafe { pages::commit(at.as_ptr(), bytes) }.is_ok() {
                pages::plain(at, bytes);
                return Some((at.as_ptr(), bytes, Mode::Restartable));
            }
            // SAFETY: as above; no other thread knows the address.
            unsafe { mappings::unmap(at.as_ptr(), bytes) };
        }
    }
    Some((table(bytes, false)?, bytes, Mode::Locked))
}

/// The VP of a thread, and the way in which the thread uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Here {
    /// The thread runs sequences on this VP.
    Sequences(u32),
    /// The thread takes the lock of this VP's heap.
    Locked(u32),
}

/// The part of a VP: its magazines, outbox and heap.
#[derive(Clone, Copy)]
pub(crate) struct Part(*mut u8);

impl Part {
    fn tail(&self) -> &'static Tail {
        // SAFETY: within the part, zeros at first, which are a valid tail; parts stay mapped.
        unsafe { &*self.0.add(TAIL_AT).cast::<Tail>() }
    }

    pub(crate) fn magazine(&self, class: usize) -> &'static Magazine {
        // SAFETY: within the part; zeros are a valid magazine.
        unsafe { &*self.0.add(MAGAZINES_AT[class]).cast::<Magazine>() }
    }

    pub(crate) fn outbox(&self) -> &'static Magazine {
        self.magazine(COUNT)
    }

    pub(crate) fn heap(&self) -> &'static Heap {
        // SAFETY: a part is handed out only after it was made (`AddressSpace::part`), and its heap stays.
        self.tail().heap.with(|heap| unsafe { (*heap).assume_init_ref() })
    }

    /// Opens all magazines.
    pub(crate) fn open(&self) {
        for (class, capacity) in CAPACITIES.into_iter().chain([OUTBOX_CAPACITY]).enumerate() {
            let magazine = self.magazine(class);
            magazine.low.store(0, Ordering::Relaxed);
            // Release: pairs with the sequences' load; that processor sees all earlier stores with it.
            magazine.high.store(capacity as u32, Ordering::Release);
        }
    }

    /// Returns whether any magazine has a block.
    pub(crate) fn holds(&self) -> bool {
        (0..=COUNT).any(|class| self.magazine(class).len() > 0)
    }

    /// Records the heap's event number, under the lock of passes. Returns the previous number.
    pub(crate) fn seen(&self, events: u32) -> u32 {
        // Relaxed: one thread at a time.
        self.tail().seen.swap(events, Ordering::Relaxed)
    }
}

impl Ground {
    /// The magazine of this class in the part of VP 0.
    pub(crate) fn base(&self, class: usize) -> *mut u8 {
        self.region.wrapping_add(MAGAZINES_AT[class])
    }

    /// Returns the VP of the calling thread.
    pub(crate) fn here(&self) -> Here {
        // SAFETY: each is one of the two offsets that the function requires.
        let (id, guess) = unsafe { (area::cpu_id(self.area_offset), area::cpu_id_start(area::own_offset())) };
        if self.mode == Mode::Restartable && id >= 0 && (id as usize) < self.parts {
            return Here::Sequences(id.cast_unsigned());
        }
        if guess >= 0 {
            return Here::Locked((guess as usize % self.parts) as u32);
        }
        let (cached, uses_left) = area::own_cache(Asker::Allocator);
        if uses_left > 0 {
            area::set_own_cache(Asker::Allocator, cached, uses_left - 1);
            return Here::Locked((cached as usize % self.parts) as u32);
        }
        let cpu = squall_sys::affinity::current_cpu() % self.parts;
        area::set_own_cache(Asker::Allocator, cpu as u32, USES_PER_QUESTION - 1);
        Here::Locked(cpu as u32)
    }

    /// Points the calling thread's fast path to its own area, so that it no longer stores to the shared
    /// [`NOBODY`](crate::sequence::NOBODY). In the locked mode that is this library's area, which runs no
    /// sequences (I3).
    pub(crate) fn arm(&self) {
        #[cfg(all(
            target_os = "linux",
            any(target_arch = "x86_64", target_arch = "aarch64"),
            target_pointer_width = "64",
            not(miri),
            not(squall_tsan)
        ))]
        // SAFETY: one of the two offsets that the function requires.
        if i64::from(unsafe { area::cpu_id(self.area_offset) }) < self.parts as i64 {
            crate::sequence::mine::set_current(area::at(self.area_offset).cast());
        }
    }

    /// Returns the part of this VP, which is below `parts`, and makes it first if needed.
    pub(crate) fn part(&self, vp: u32) -> Part {
        let part = Part(self.region.wrapping_add((vp as usize) << PART_SHIFT));
        let tail = part.tail();
        // Acquire: pairs with the Release in `make`.
        if tail.ready.load(Ordering::Acquire) == 0 {
            // A fork holds the setup lock, so the set of parts does not change during one.
            SETTING.with(|| self.make(part, vp));
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
        self.bind(part.0, PART_BYTES, node);
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
            let part = Part(self.region.wrapping_add((vp as usize) << PART_SHIFT));
            // Acquire: pairs with the Release in `make`.
            (part.tail().ready.load(Ordering::Acquire) == 1).then_some((vp, part))
        })
    }

    /// Returns the offset of a block in the block range, if it lies there.
    #[inline]
    pub(crate) fn offset(&self, block: *mut u8) -> Option<usize> {
        let offset = block.addr().wrapping_sub(self.arena.addr());
        (offset < self.units * SLAB_BYTES).then_some(offset)
    }

    #[inline]
    pub(crate) fn block(&self, offset: usize) -> *mut u8 {
        self.arena.wrapping_add(offset)
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
        if std::ptr::eq(magazine, &raw const *NOWHERE) { std::ptr::null() } else { magazine }
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
    fn is_of_one_node(&self) -> bool {
        self.nodes == 1 && self.vps_of_node.is_none_or(|vps| vps >= self.parts)
    }

    /// Returns this VP's magazine of the class that the given magazine, of any VP, has.
    pub(crate) fn same_of(&self, magazine: *const Magazine, vp: u32) -> *const Magazine {
        let at = ((vp as usize) << PART_SHIFT) + self.place(magazine);
        self.region.wrapping_add(at).cast_const().cast()
    }

    /// Lets a unit lead to the dummy magazine.
    fn lead_nowhere(&self, unit: usize) {
        // SAFETY: a unit of the block range has an element. Relaxed: only threads without a block of the unit
        // may read it.
        unsafe { &*self.map.add(unit) }.store((&raw const *NOWHERE).cast_mut(), Ordering::Relaxed);
    }

    /// Returns the pool of this VP's node. Its part was made.
    fn node(&self, vp: u32) -> u32 {
        // Relaxed: written before the part was ready, and never again.
        Part(self.region.wrapping_add((vp as usize) << PART_SHIFT)).tail().node.load(Ordering::Relaxed)
    }

    /// Asks the system for the node of this VP.
    fn find_node(&self, vp: u32) -> u32 {
        if let Some(vps) = self.vps_of_node {
            return (vp as usize / vps % NODES_MAX) as u32;
        }
        if self.nodes <= 1 {
            return 0;
        }
        if faults::are_apart() {
            return vp % 2;
        }
        let current = || pages::current_place().map_or(0, |(_, node)| node);
        let node = nodes::of_processor(vp as usize, self.nodes).unwrap_or_else(current) % NODES_MAX;
        node as u32
    }

    /// Asks for pages of this node (I5). After a refusal, pages lie where they are touched first. If the
    /// kernel permits no such request at all, the process makes no more.
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
        let arena = self.arena.wrapping_add(number * SEGMENT_BYTES);
        let first = number * SEGMENT_UNITS * size_of::<Slab>() / UNIT * UNIT;
        let end = ((number + 1) * SEGMENT_UNITS * size_of::<Slab>()).next_multiple_of(UNIT);
        // SAFETY: a segment of the block range, which belongs to this caller alone, and whole pages of the
        // table around its metadata, which may be usable already.
        let done = unsafe {
            pages::commit(self.slabs.cast::<u8>().wrapping_add(first), end - first).is_ok()
                && faults::allowed().is_some()
                && (!self.debug || debug::commit(number * SEGMENT_BYTES, SEGMENT_BYTES))
                && pages::commit(arena, SEGMENT_BYTES).is_ok()
        };
        if done && number < BOUND_SEGMENTS_MAX {
            self.bind(arena, SEGMENT_BYTES, node);
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
const USES_PER_QUESTION: u32 = 64;

impl Land for Ground {
    #[inline]
    fn slab(&self, unit: u32) -> *mut Slab {
        self.slabs.wrapping_add(unit as usize)
    }

    fn take_units(&self, count: usize, home: u32) -> Option<u32> {
        /// The number of searches while units are on their way.
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
            self.lead_nowhere(at);
        }
        // SAFETY: the units are of a slab until they are given back below.
        let node = unsafe { crate::units::node_of(self, unit) };
        self.pools[node as usize].give(self, unit, count);
    }

    fn direct(&self, unit: u32, count: usize, home: u32, class: usize) {
        debug_assert_eq!(count, units(class));
        let magazine: *const Magazine =
            Part(self.region.wrapping_add((home as usize) << PART_SHIFT)).magazine(class);
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

impl Field for Ground {
    fn segment(&self, number: u32) -> *mut Segment {
        self.segments.wrapping_add(number as usize)
    }

    fn new_segment(&self, node: u32) -> Option<u32> {
        faults::allowed()?;
        let number = GROWTH.grow(self.units / SEGMENT_UNITS, |number| {
            let done = self.commit(number, node);
            if done {
                (number * SEGMENT_UNITS..(number + 1) * SEGMENT_UNITS)
                    .for_each(|unit| self.lead_nowhere(unit));
            }
            done
        });
        number.map(|number| number as u32)
    }

    fn discard(&self, unit: u32, count: usize) -> bool {
        // SAFETY: free units of a segment in use: their content is no longer needed.
        unsafe { pages::discard(self.arena.wrapping_add((unit as usize) << SLAB_SHIFT), count << SLAB_SHIFT) }
            .is_ok()
    }
}
