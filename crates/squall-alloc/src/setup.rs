//! Setup: reserves the address space at the first slow path of the process.
//!
//! Problem: the first allocation of a program may come before `main`, from any thread. Idea: each slow path
//! asks for the address space, and the first one reserves it under the setup lock (`address_space/I1`).
//!
//! Cost: some twenty system calls, once; one load for each later slow path.

use crate::address_space::{AddressSpace, NODES_MAX, READY, SET, SETUP, SPACE, ZERO_PARTS, assume_set_up};
use crate::classes::{GENERAL_CLASSES, LOCAL_CLASSES, SLAB_BYTES, SLAB_SHIFT};
use crate::heap::Slab;
use crate::lookup::{AREA_OFFSET, GENERAL, LOCAL, MAP, NEAR};
use crate::magazine::{self, Magazine};
use crate::page_pool::{PagePool, SEGMENT_BYTES, SEGMENT_UNITS, Segment};
use crate::part::PART_BYTES;
use crate::sequence::SEQUENCES;
use crate::settings::{Mode, Settings, settings};
use crate::{faults, fork, mappings};
use squall_sys::area;
use squall_sys::sync::atomic::{AtomicBool, Ordering};
use squall_sys::{nodes, pages};

/// Whether [`pretend_restartable`] was called before the first use.
static PRETENDED: AtomicBool = AtomicBool::new(false);

/// Whether the allocator serves the program's own blocks: [`LocalityAlloc`](crate::LocalityAlloc) was called
/// before the address space was set up.
static IS_GLOBAL: AtomicBool = AtomicBool::new(false);

/// Records a call of the global allocator.
pub(crate) fn note_global() {
    // Relaxed, both: as at the reads.
    if READY.load(Ordering::Relaxed) != SET {
        IS_GLOBAL.store(true, Ordering::Relaxed);
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
    let pretends = |space: &AddressSpace| space.mode == Mode::Restartable && (cpu as usize) < space.parts;
    if !SEQUENCES || !address_space().is_some_and(pretends) {
        return false;
    }
    // SAFETY: passed on.
    unsafe { area::pretend_registered(cpu.cast_signed()) };
    true
}

/// Returns the address space, and sets it up first if needed. `None` if the system cannot reserve it.
#[inline]
pub(crate) fn address_space() -> Option<&'static AddressSpace> {
    // Acquire: pairs with the Release in `set_up`.
    if READY.load(Ordering::Acquire) == SET || SETUP.with(set_up) { Some(assume_set_up()) } else { None }
}

/// Sets the address space up. Returns false if there are no addresses.
fn set_up() -> bool {
    // Relaxed: we hold the lock, as the writer did.
    if READY.load(Ordering::Relaxed) == SET {
        return true;
    }
    // Relaxed, both: a caller that recorded a fact sets the address space up itself, or comes after another
    // thread did.
    let settings = settings(PRETENDED.load(Ordering::Relaxed), IS_GLOBAL.load(Ordering::Relaxed));
    let Some(space) = reserve(&settings) else { return false };
    let first_unit = space.range.addr() >> SLAB_SHIFT;
    let biased = space.map.wrapping_sub(first_unit);
    SPACE.0.with_mut(|place| {
        // SAFETY: no thread reads it before `READY`, and we hold the lock, so no other thread writes it.
        unsafe { (*place).write(space) };
    });
    let space = assume_set_up();
    for (slot, class) in GENERAL_CLASSES.iter().enumerate() {
        // Release, here and below: pairs with the loads of the sequences, which read through the stored
        // address (a dependency).
        GENERAL.at(slot).store(space.base(*class as usize), Ordering::Release);
    }
    for (slot, class) in LOCAL_CLASSES.iter().enumerate() {
        // Release: as above.
        LOCAL.at(slot).store(space.base(*class as usize), Ordering::Release);
    }
    if space.mode == Mode::Restartable && !space.debug && space.is_of_one_node() {
        // Release: as above; a thread with a block has seen this store.
        NEAR.store(space.region, Ordering::Release);
    }
    // Release: as above, both.
    MAP.store(biased, Ordering::Release);
    AREA_OFFSET.store(space.area_offset, Ordering::Release);
    // Without the handlers, a fork while another thread holds a lock leaves a child that may wait forever.
    // The failure cannot be reported.
    let _ = pages::at_fork(Some(fork::prepare), Some(fork::parent), Some(fork::child));
    // Release: pairs with the Acquire in `address_space` and `if_set_up`.
    READY.store(SET, Ordering::Release);
    true
}

/// Reserves the address space, with a smaller block range if needed.
fn reserve(settings: &Settings) -> Option<AddressSpace> {
    let (region, region_bytes, mode) = reserve_region(settings)?;
    // A memory policy of the thread has precedence.
    let nodes = if settings.vps_of_node.is_some() || nodes::has_policy() { 1 } else { faults::nodes() };
    let mut bytes = settings.range_bytes;
    while bytes >= SEGMENT_BYTES {
        let units = bytes / SLAB_BYTES;
        let segments_bytes = units / SEGMENT_UNITS * size_of::<Segment>();
        let (slabs_bytes, map_bytes) = (units * size_of::<Slab>(), units * size_of::<*mut Magazine>());
        // The largest table is made usable segment by segment, because the reservation may exceed the memory.
        let sizes = [(slabs_bytes, true), (segments_bytes, false), (map_bytes, false)];
        let mut tables = sizes.map(|(bytes, reserved)| (table(bytes, reserved), bytes));
        let range = faults::allowed().and_then(|()| pages::reserve(bytes, SEGMENT_BYTES).ok());
        if let ([(Some(slabs), _), (Some(segments), _), (Some(map), _)], Some(range)) = (&tables, range) {
            return Some(AddressSpace {
                range: range.as_ptr(),
                units,
                slabs: slabs.cast(),
                segments: segments.cast(),
                map: map.cast(),
                region: region.wrapping_add(ZERO_PARTS * PART_BYTES),
                parts: settings.parts,
                mode,
                can_restart: settings.can_restart,
                debug: settings.debug,
                // In the locked mode a thread's number must be negative (`address_space/I3`).
                area_offset: if mode == settings.mode { settings.area_offset } else { area::own_offset() },
                vps_of_node: settings.vps_of_node,
                nodes,
                pools: [const { PagePool::new() }; NODES_MAX],
            });
        }
        for (at, bytes) in &mut tables {
            if let Some(at) = at.take() {
                // SAFETY: mapped just now; no other thread knows the address.
                unsafe { mappings::unmap(at, bytes.next_multiple_of(pages::UNIT_BYTES)) };
            }
        }
        if let Some(range) = range {
            // SAFETY: as above.
            unsafe { mappings::unmap(range.as_ptr(), bytes) };
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
fn reserve_region(settings: &Settings) -> Option<(*mut u8, usize, Mode)> {
    let bytes = (ZERO_PARTS + settings.parts) * PART_BYTES;
    if settings.mode == Mode::Restartable && settings.parts <= magazine::VPS_MAX {
        faults::allowed()?;
        if let Ok(at) = pages::reserve_at(bytes, ZERO_PARTS * PART_BYTES, magazine::PARTS_AT) {
            // SAFETY: reserved just now, all of it.
            if unsafe { pages::commit(at.as_ptr(), bytes) }.is_ok() {
                pages::advise_table(at, bytes);
                return Some((at.as_ptr(), bytes, Mode::Restartable));
            }
            // SAFETY: as above; no other thread knows the address.
            unsafe { mappings::unmap(at.as_ptr(), bytes) };
        }
    }
    Some((table(bytes, false)?, bytes, Mode::Locked))
}
