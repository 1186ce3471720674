//! What the allocator stands on: the parts of the VPs, the arena, and the tables beside it.
//!
//! Problem: an allocator that serves the whole program is called before `main`, by the first thing that anybody does, so it can
//! neither be set up by its user nor set itself up with anything that allocates. Idea: all of it is address space that is reserved
//! at the first slow path; until then the fast path reads statics that lead it there.
//!
//! ```text
//! region   zeros | zeros | part of VP 0 | part of VP 1 | ...      1 << PART_SHIFT bytes each
//! part     magazines of the classes | outbox | tail: heap, node
//! arena    segments of 64 units of 64 KiB; a slab is a run of units
//! map      for each unit, the magazine that its blocks are freed to; one that is nobody's where there is no slab
//! slabs    for each unit, what is known of the slab that begins there, and which that is
//! ```
//!
//! - I1. Everything here is set before [`READY`], once, and stays. No thread has a block before that.
//! - I2. The slots of a table of bases are at first the address of two parts of zeros, then of the class's magazine in the part of
//!   VP 0; shifted by a VP's number, or by one or two parts back, either is an address of a magazine or of zeros.
//! - I3. In the mode of sequences a VP is the kernel's number of a processor, and [`AREA_OFFSET`] leads to the C library's areas. In
//!   the other it leads to our own block, whose number is negative, so that everybody takes the slow path: there a VP is only a hint.
//! - I4. Nothing here allocates but by asking the system for pages.
//!
//! - I5. On a machine of several nodes, the kernel is asked to take the pages of a segment, and of a part, from its node.
//!
//! Not promised: more than the arena holds (twice the machine's memory, of address space, or what the system would reserve; without
//! restartable sequences 16 GiB at most. Where a process may have only so many addresses, half of those if the arena is for all blocks
//! of the program, and otherwise a sixteenth of those that are left, and 1 GiB at most). That the kernel does what I5 asks: it may refuse to
//! be asked, and where a node's memory is full it takes another's. On machines of more than [`NODES_MAX`] nodes it is not asked, and
//! some share a pool; in a virtual topology there are no nodes to ask for. Where the thread that allocates first has a policy of its
//! own for its memory (`numactl`, set_mempolicy(2)), that one holds: there is one pool then. It is not asked for segments beyond
//! [`BOUND_SEGMENTS_MAX`]. What it was asked for it leaves where it is: automatic NUMA balancing passes it by.
//! Cost: address space, of which memory is what is touched, and what the program may want are the map, the regions, and 36 KiB of
//! `slabs` for each segment in use.

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

/// Where the sequences that put blocks back find the area of their thread, from the thread pointer (I3).
pub(crate) static AREA_OFFSET: Apart<AtomicIsize> = Apart::new(AtomicIsize::new(0));
/// The map, less the number of the arena's first unit times the size of its elements.
pub(crate) static MAP: Apart<AtomicPtr<AtomicPtr<Magazine>>> =
    Apart::new(AtomicPtr::new(std::ptr::null_mut()));

/// The part of VP 0, where all VPs may keep each other's blocks; null where it has to be asked who is near.
static NEAR: Apart<AtomicPtr<u8>> = Apart::new(AtomicPtr::new(std::ptr::null_mut()));

/// Where units lead that are of no slab: who frees a block there finds it full, and so comes to the slow path.
/// Whatever VP its address seems to be of, it has no room. On lines of its own: many frees of others' blocks look there.
static NOWHERE: Apart<Magazine> =
    Apart::new(Magazine { count: AtomicU32::new(0), low: AtomicU32::new(0), high: AtomicU32::new(0) });

/// Bytes of a part.
const PART_BYTES: usize = 1 << PART_SHIFT;
/// So many parts of zeros lie before that of VP 0: the kernel's negative numbers are -1 and -2.
const NOBODYS: usize = 2;

#[repr(C, align(128))]
struct Zeros([AtomicU32; 32]);
static ZEROS: Zeros = Zeros([const { AtomicU32::new(0) }; 32]);

/// Bases by the slots of sizes (I2).
#[repr(C, align(128))]
pub(crate) struct Bases<const N: usize>([AtomicPtr<u8>; N]);

impl<const N: usize> Bases<N> {
    const fn new() -> Bases<N> {
        // Only the number -1 is ever added before the first slow path: that of `NOBODY`.
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
    // Those of blocks that may be kept come last, so that a magazine's place says whether its are such.
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

/// Where the magazine of each class lies in a part, and behind them the outbox.
const MAGAZINES_AT: [usize; COUNT + 1] = magazines();
/// The magazines of blocks that another VP of the node may keep.
const KEPT_AT: Range<usize> = places(0);
/// Of those, the ones of blocks too long to wait in an outbox.
const LONG_AT: Range<usize> = places(OUTBOX_BLOCK_MAX);

/// Where the magazines are of blocks that may be kept and are longer than `bytes`: the last ones.
const fn places(bytes: usize) -> Range<usize> {
    let (mut first, mut class) = (MAGAZINES_AT[COUNT], 0);
    while class < COUNT {
        let is_in = may_be_kept(class) && SIZES[class] > bytes;
        if is_in && MAGAZINES_AT[class] < first {
            first = MAGAZINES_AT[class];
        }
        // None comes behind that is not one of them.
        assert!(is_in || MAGAZINES_AT[class] < first);
        class += 1;
    }
    first..MAGAZINES_AT[COUNT]
}
// Where a unit leads to nothing is no place of one that is kept.
const _: () = assert!(KEPT_AT.start > 0);
const TAIL_AT: usize = (MAGAZINES_AT[COUNT] + SLOTS_AT + OUTBOX_CAPACITY * 8).next_multiple_of(128);
const _: () = assert!(TAIL_AT + size_of::<Tail>() <= PART_BYTES);

/// The end of a part, which any thread may use.
#[repr(C, align(128))]
struct Tail {
    /// 1: what is below was made.
    ready: AtomicU32,
    /// Of the VP.
    node: AtomicU32,
    /// What the heap's number was when idle VPs were last looked for (`decay`).
    seen: AtomicU32,
    heap: UnsafeCell<MaybeUninit<Heap>>,
}

/// Nodes that have a pool of their own.
pub(crate) const NODES_MAX: usize = 16;

/// How blocks are cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In magazines of each VP, by restartable sequences.
    Restartable,
    /// Not at all: each call takes the lock of its VP's heap.
    Locked,
}

/// See the module.
pub(crate) struct Ground {
    pub(crate) arena: *mut u8,
    pub(crate) units: usize,
    slabs: *mut Slab,
    segments: *mut Segment,
    map: *mut AtomicPtr<Magazine>,
    region: *mut u8,
    pub(crate) parts: usize,
    pub(crate) mode: Mode,
    /// Whether the kernel restarts sequences when it is asked to.
    pub(crate) can_restart: bool,
    pub(crate) debug: bool,
    area_offset: isize,
    /// In a virtual topology, how many VPs a node has.
    vps_of_node: Option<usize>,
    /// How many nodes of memory there are; 1 where none are told apart.
    nodes: usize,
    pub(crate) pools: [Pool; NODES_MAX],
}

/// Which segment is made usable next, by whoever finds no room in his pool.
pub(crate) static GROWTH: Apart<Growth> = Apart::new(Growth::new());

const UNSET: u8 = 0;
const SET: u8 = 1;
static READY: Apart<AtomicU8> = Apart::new(AtomicU8::new(UNSET));
pub(crate) static SETTING: Lock = Lock::new();
/// Whether [`pretend_restartable`] was called before the first use.
static PRETENDED: AtomicBool = AtomicBool::new(false);

/// Whether the program's own blocks come from here: [`LocalityAlloc`](crate::LocalityAlloc) was asked for one before the ground was laid.
static OF_PROGRAM: AtomicBool = AtomicBool::new(false);

/// Notes it.
pub(crate) fn note_of_program() {
    // Relaxed, both: as where it is read.
    if READY.load(Ordering::Relaxed) != SET {
        OF_PROGRAM.store(true, Ordering::Relaxed);
    }
}

/// For instruments that count, in a process without restartable sequences: runs the sequences' instructions on this thread's own
/// block, as processor `cpu`. Nothing restarts them. False if the process has allocated in another mode already.
///
/// # Safety
/// No other thread of the process, and no signal handler, is ever on that processor, as far as this allocator or per-VP operations
/// can tell; from here on each thread that allocates calls this first.
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

/// The ground; `None` if the system has not even the address space for it.
#[inline]
pub(crate) fn ground() -> Option<&'static Ground> {
    // Acquire: pairs with the Release in `set`.
    if READY.load(Ordering::Acquire) == SET || SETTING.with(set) { Some(given()) } else { None }
}

/// The ground, once there is one.
#[inline]
pub(crate) fn known() -> Option<&'static Ground> {
    // Acquire: as in `ground`.
    (READY.load(Ordering::Acquire) == SET).then(given)
}

fn given() -> &'static Ground {
    // SAFETY: it was written before `READY`, which our callers have seen, and is never written again (I1).
    GROUND.0.with(|ground| unsafe { (*ground).assume_init_ref() })
}

/// Where the part of VP 0 has the magazine that this block may be kept in by whichever VP frees it. `None` also where that has to be asked
/// ([`Ground::is_near`]).
///
/// # Safety
/// As for [`push_home`](crate::sequence::push_home).
#[inline(always)]
pub(crate) unsafe fn place_to_keep(block: *mut u8) -> Option<*mut u8> {
    // Relaxed, both, and of the element: who has a block has seen what was stored before it was given out.
    let (near, map) = (NEAR.load(Ordering::Relaxed), MAP.load(Ordering::Relaxed));
    if near.is_null() {
        return None;
    }
    // SAFETY: the unit of a block has an element.
    let home = unsafe { &*map.wrapping_add(block.addr() >> SLAB_SHIFT) }.load(Ordering::Relaxed);
    let at = home.addr() & (PART_BYTES - 1);
    (KEPT_AT.contains(&at) && !std::ptr::eq(home, &raw const *NOWHERE)).then(|| near.wrapping_add(at))
}

/// Whether whichever VP frees a block may keep it if it is whole lines, and nobody has to be asked who is near.
#[inline(always)]
pub(crate) fn all_are_near() -> bool {
    // Relaxed: as in `place_to_keep`.
    !NEAR.load(Ordering::Relaxed).is_null()
}

/// Bytes of a segment.
pub(crate) const SEGMENT_BYTES: usize = SEGMENT_UNITS * SLAB_BYTES;

/// Sets the ground. False if there is no address space.
fn set() -> bool {
    // Relaxed: we hold the lock, which whoever set it held.
    if READY.load(Ordering::Relaxed) == SET {
        return true;
    }
    // Relaxed, both: who lays the ground for a caller that noted it is itself, or another one who came first.
    let asked = asked(PRETENDED.load(Ordering::Relaxed), OF_PROGRAM.load(Ordering::Relaxed));
    let Some(ground) = lay(&asked) else { return false };
    let first_unit = ground.arena.addr() >> SLAB_SHIFT;
    let biased = ground.map.wrapping_sub(first_unit);
    GROUND.0.with_mut(|place| {
        // SAFETY: nobody reads it before `READY`, and nobody else writes it: we hold the lock.
        unsafe { (*place).write(ground) };
    });
    let ground = given();
    for (slot, class) in GENERAL_CLASSES.iter().enumerate() {
        // Release, here and below: pairs with the loads of the sequences, by the dependency of what they read through it.
        GENERAL.at(slot).store(ground.base(*class as usize), Ordering::Release);
    }
    for (slot, class) in LOCAL_CLASSES.iter().enumerate() {
        // Release: as above.
        LOCAL.at(slot).store(ground.base(*class as usize), Ordering::Release);
    }
    if ground.mode == Mode::Restartable && !ground.debug && ground.is_of_one_node() {
        // Release: as above; who has a block has seen what is here.
        NEAR.store(ground.region, Ordering::Release);
    }
    // Release: as above, both.
    MAP.store(biased, Ordering::Release);
    AREA_OFFSET.store(ground.area_offset, Ordering::Release);
    // Without it a fork while another thread holds a lock leaves a child that may wait for ever; there is nobody to tell.
    let _ = pages::at_fork(crate::fork::prepare, crate::fork::parent, crate::fork::child);
    // Release: pairs with the Acquire in `ground`.
    READY.store(SET, Ordering::Release);
    true
}

/// Reserves all of it, with a smaller arena if need be.
fn lay(asked: &Asked) -> Option<Ground> {
    let (region, region_bytes, mode) = lay_region(asked)?;
    // Where somebody has said where memory is to come from, we say nothing.
    let nodes = if asked.vps_of_node.is_some() || nodes::has_policy() { 1 } else { faults::nodes() };
    let mut bytes = asked.arena_bytes;
    while bytes >= SEGMENT_BYTES {
        let units = bytes / SLAB_BYTES;
        let segments_bytes = units / SEGMENT_UNITS * size_of::<Segment>();
        let (slabs_bytes, map_bytes) = (units * size_of::<Slab>(), units * size_of::<*mut Magazine>());
        // The largest by far is made usable with the segments: more may be reserved than there is memory for.
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
                // In the mode of locks a thread's number must be negative (I3).
                area_offset: if mode == asked.mode { asked.area_offset } else { area::own_offset() },
                vps_of_node: asked.vps_of_node,
                nodes,
                pools: [const { Pool::new() }; NODES_MAX],
            });
        }
        for (at, bytes) in &mut tables {
            if let Some(at) = at.take() {
                // SAFETY: mapped just now, and nobody knows it.
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

/// Pages for a table, which are not touched yet, or cannot be until they are committed.
fn table(bytes: usize, is_reserved: bool) -> Option<*mut u8> {
    faults::allowed()?;
    let bytes = bytes.next_multiple_of(pages::UNIT_BYTES);
    let table = if is_reserved { pages::reserve_table(bytes) } else { pages::map_table(bytes) };
    table.ok().map(|at| at.as_ptr())
}

/// The region, its bytes, and the mode that it allows: sequences need one at a place of which addresses tell the VP (`magazine/I5`).
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
            // SAFETY: as above, and nobody knows it.
            unsafe { mappings::unmap(at.as_ptr(), bytes) };
        }
    }
    Some((table(bytes, false)?, bytes, Mode::Locked))
}

/// On which VP a thread is, and what it may do there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Here {
    /// It runs sequences on it.
    Sequences(u32),
    /// It takes the lock of its heap.
    Locked(u32),
}

/// A VP's part.
#[derive(Clone, Copy)]
pub(crate) struct Part(*mut u8);

impl Part {
    fn tail(&self) -> &'static Tail {
        // SAFETY: within the part, zeros at first, which is a good tail; parts stay.
        unsafe { &*self.0.add(TAIL_AT).cast::<Tail>() }
    }

    pub(crate) fn magazine(&self, class: usize) -> &'static Magazine {
        // SAFETY: within the part; zeros are a good magazine.
        unsafe { &*self.0.add(MAGAZINES_AT[class]).cast::<Magazine>() }
    }

    pub(crate) fn outbox(&self) -> &'static Magazine {
        self.magazine(COUNT)
    }

    pub(crate) fn heap(&self) -> &'static Heap {
        // SAFETY: a part that anybody has was made (`Ground::part`), and its heap stays.
        self.tail().heap.with(|heap| unsafe { (*heap).assume_init_ref() })
    }

    /// Opens all its magazines.
    pub(crate) fn open(&self) {
        for (class, capacity) in CAPACITIES.into_iter().chain([OUTBOX_CAPACITY]).enumerate() {
            let magazine = self.magazine(class);
            magazine.low.store(0, Ordering::Relaxed);
            // Release: pairs with the sequences' load, on whose processor it shows with all before it.
            magazine.high.store(capacity as u32, Ordering::Release);
        }
    }

    /// Whether any of its magazines has a block.
    pub(crate) fn holds(&self) -> bool {
        (0..=COUNT).any(|class| self.magazine(class).len() > 0)
    }

    /// Notes the heap's number, under the lock of turns; what it was before.
    pub(crate) fn seen(&self, events: u32) -> u32 {
        // Relaxed: by one thread at a time.
        self.tail().seen.swap(events, Ordering::Relaxed)
    }
}

impl Ground {
    /// The magazine of this class in the part of VP 0.
    pub(crate) fn base(&self, class: usize) -> *mut u8 {
        self.region.wrapping_add(MAGAZINES_AT[class])
    }

    /// Where the calling thread is.
    pub(crate) fn here(&self) -> Here {
        // SAFETY: one of the two offsets that these ask for.
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

    /// Lets the calling thread's fast path find its area, lest it store to [`NOBODY`](crate::sequence::NOBODY), which all share. In the
    /// mode of locks it is its own block, by which it runs no sequences (I3).
    pub(crate) fn arm(&self) {
        #[cfg(all(
            target_os = "linux",
            any(target_arch = "x86_64", target_arch = "aarch64"),
            target_pointer_width = "64",
            not(miri),
            not(squall_tsan)
        ))]
        // SAFETY: one of the two offsets that this asks for.
        if i64::from(unsafe { area::cpu_id(self.area_offset) }) < self.parts as i64 {
            crate::sequence::mine::set_current(area::at(self.area_offset).cast());
        }
    }

    /// The part of this VP, which is below `parts`; made if it was not.
    pub(crate) fn part(&self, vp: u32) -> Part {
        let part = Part(self.region.wrapping_add((vp as usize) << PART_SHIFT));
        let tail = part.tail();
        // Acquire: pairs with the Release below.
        if tail.ready.load(Ordering::Acquire) == 0 {
            // The ground's lock, which a fork holds: the parts that there are stay the same during one.
            SETTING.with(|| self.make(part, vp));
        }
        part
    }

    fn make(&self, part: Part, vp: u32) {
        let tail = part.tail();
        if tail.ready.load(Ordering::Relaxed) == 1 {
            return;
        }
        // Before anything is written there: pages come from where they are to be as they are touched, and are not moved.
        let node = self.find_node(vp);
        self.bind(part.0, PART_BYTES, node);
        tail.node.store(node, Ordering::Relaxed);
        tail.heap.with_mut(|heap| {
            // SAFETY: nobody reads it before `ready`; we hold the lock.
            unsafe { (*heap).write(Heap::new(vp, crate::classes::SPARES_MAX)) };
        });
        if self.mode == Mode::Restartable {
            part.open();
        }
        // Release: pairs with the Acquire in `part` and `parts_made`.
        tail.ready.store(1, Ordering::Release);
    }

    /// The parts that were made, with their VPs.
    pub(crate) fn parts_made(&self) -> impl Iterator<Item = (u32, Part)> {
        self.parts_made_of(0..self.parts as u32)
    }

    /// The same, in a circle that ends with this VP.
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

    /// Where a block lies in the arena, if it does.
    #[inline]
    pub(crate) fn offset(&self, block: *mut u8) -> Option<usize> {
        let offset = block.addr().wrapping_sub(self.arena.addr());
        (offset < self.units * SLAB_BYTES).then_some(offset)
    }

    #[inline]
    pub(crate) fn block(&self, offset: usize) -> *mut u8 {
        self.arena.wrapping_add(offset)
    }

    /// The first unit of the slab that this offset lies in.
    #[inline]
    pub(crate) fn first_unit(&self, offset: usize) -> u32 {
        let unit = (offset >> SLAB_SHIFT) as u32;
        // SAFETY: a unit of the arena.
        unsafe { Slab::first(self.slab(unit)) }
    }

    /// The class of the slab that this offset lies in.
    ///
    /// # Safety
    /// The caller has a block of it.
    #[inline]
    pub(crate) unsafe fn class_at(&self, offset: usize) -> usize {
        // SAFETY: passed on.
        unsafe { Slab::class(self.slab(self.first_unit(offset))) }
    }

    /// The magazine that blocks at this offset are freed to; null if there is no slab.
    #[inline]
    pub(crate) fn magazine_at(&self, offset: usize) -> *const Magazine {
        // SAFETY: a unit of the arena has an element. Relaxed: who has a block has seen what was stored before it was given out.
        let magazine: *const Magazine =
            unsafe { &*self.map.add(offset >> SLAB_SHIFT) }.load(Ordering::Relaxed);
        if std::ptr::eq(magazine, &raw const *NOWHERE) { std::ptr::null() } else { magazine }
    }

    /// Whether this offset lies in a segment that was ever used.
    pub(crate) fn is_in_use(&self, offset: usize) -> bool {
        // SAFETY: a unit of the arena has an element; from the first use on it leads somewhere or nowhere.
        !unsafe { &*self.map.add(offset >> SLAB_SHIFT) }.load(Ordering::Relaxed).is_null()
    }

    /// Of which VP this magazine is (`magazine/I5`).
    #[inline]
    pub(crate) fn vp_of(&self, magazine: *const Magazine) -> u32 {
        ((magazine.addr() - self.region.addr()) >> PART_SHIFT) as u32
    }

    /// Where in its part a magazine lies. With locks, parts begin anywhere.
    #[inline]
    fn place(&self, magazine: *const Magazine) -> usize {
        (magazine.addr() - self.region.addr()) & (PART_BYTES - 1)
    }

    /// Whether the blocks of this magazine are ones that may wait in an outbox; its address says that, too.
    #[inline]
    pub(crate) fn may_wait(&self, magazine: *const Magazine) -> bool {
        !LONG_AT.contains(&self.place(magazine))
    }

    /// Whether blocks of this magazine may be kept by other VPs of the node; its address says that, too.
    #[inline]
    pub(crate) fn may_be_kept(&self, magazine: *const Magazine) -> bool {
        KEPT_AT.contains(&self.place(magazine))
    }

    /// Whether these VPs, whose parts were made, are of one node.
    pub(crate) fn is_near(&self, vp: u32, other: u32) -> bool {
        self.is_of_one_node() || self.node(vp) == self.node(other)
    }

    /// Whether there is one node for all VPs.
    fn is_of_one_node(&self) -> bool {
        self.nodes == 1 && self.vps_of_node.is_none_or(|vps| vps >= self.parts)
    }

    /// The magazine of this VP for the blocks of that one, which is of whatever VP.
    pub(crate) fn same_of(&self, magazine: *const Magazine, vp: u32) -> *const Magazine {
        let at = ((vp as usize) << PART_SHIFT) + self.place(magazine);
        self.region.wrapping_add(at).cast_const().cast()
    }

    /// Has a unit lead nowhere.
    fn lead_nowhere(&self, unit: usize) {
        // SAFETY: a unit of the arena has an element. Relaxed: for who looks up what he has no block of.
        unsafe { &*self.map.add(unit) }.store((&raw const *NOWHERE).cast_mut(), Ordering::Relaxed);
    }

    /// The pool of the node of this VP, whose part was made.
    fn node(&self, vp: u32) -> u32 {
        // Relaxed: written before the part was ready, and never again.
        Part(self.region.wrapping_add((vp as usize) << PART_SHIFT)).tail().node.load(Ordering::Relaxed)
    }

    /// As `node`, asked of the system.
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

    /// Asks for pages of this node (I5). Where the kernel refuses they come from where they are touched first; where it does not
    /// let itself be asked at all it is not asked again.
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

    /// The same of a mapping of its own, and of the node of this VP.
    pub(crate) fn bind_near(&self, at: *mut u8, bytes: usize, vp: u32) {
        if self.binds() {
            // Its node is known from there on.
            self.part(vp);
            self.bind(at, bytes, self.node(vp));
        }
    }

    /// Makes a segment usable, and what is known of its slabs.
    fn commit(&self, number: usize, node: u32) -> bool {
        const UNIT: usize = pages::UNIT_BYTES;
        let arena = self.arena.wrapping_add(number * SEGMENT_BYTES);
        let first = number * SEGMENT_UNITS * size_of::<Slab>() / UNIT * UNIT;
        let end = ((number + 1) * SEGMENT_UNITS * size_of::<Slab>()).next_multiple_of(UNIT);
        // SAFETY: a segment of the arena, which nobody else was given; and whole pages of the table around what is of it, which may
        // be usable already.
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

/// Segments of which the kernel is asked for pages of their node. Each may be a mapping for itself then, of which a process may
/// have 65,530 as a rule, and the program needs some, too. Of those that come behind (beyond 32 GiB of blocks), pages lie where they
/// are touched first.
const BOUND_SEGMENTS_MAX: usize = 8192;

/// Whether the kernel has said that this process may not ask for pages of a node, as in most containers.
static UNASKED: AtomicBool = AtomicBool::new(false);

/// How often a thread that has no restartable sequences uses one answer of the kernel.
const USES_PER_QUESTION: u32 = 64;

impl Land for Ground {
    #[inline]
    fn slab(&self, unit: u32) -> *mut Slab {
        self.slabs.wrapping_add(unit as usize)
    }

    fn take_units(&self, count: usize, home: u32) -> Option<u32> {
        /// How often it is looked again where units are on their way.
        const ROUNDS_MAX: usize = 64;
        let node = self.node(home);
        let near = self.pools[node as usize].take(self, node, count);
        // Where its own node has none, and there are no new ones, those of others are better than nothing.
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
            // SAFETY: units of the arena, which are the caller's.
            unsafe {
                Slab::set_first(self.slab(at as u32), unit);
                // Release: pairs with whatever hands a block of these units from thread to thread.
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
        // SAFETY: free units of a segment in use: nobody needs what is in them.
        unsafe { pages::discard(self.arena.wrapping_add((unit as usize) << SLAB_SHIFT), count << SLAB_SHIFT) }
            .is_ok()
    }
}
