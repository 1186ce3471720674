//! Statics of the fast path: the way from a size or an address to a magazine.
//!
//! The fast path reads only these statics and the magazine. Before the address space is set up, they lead
//! each thread to the slow path (`address_space/I2`).
//!
//! Cost: one or two loads for each operation.

use crate::classes::{GENERAL_SLOTS, LOCAL_SLOTS, SLAB_SHIFT};
use crate::magazine::Magazine;
use crate::part::{KEPT_AT, PART_BYTES};
use squall_sys::padded::CachePadded;
use squall_sys::sync::atomic::{AtomicIsize, AtomicPtr, AtomicU32, Ordering};

/// The offset from the thread pointer at which the push sequences find the rseq area of their thread
/// (address_space/I3).
pub(crate) static AREA_OFFSET: CachePadded<AtomicIsize> = CachePadded::new(AtomicIsize::new(0));
/// The map, minus the number of the first unit of the block range times the size of an element.
pub(crate) static MAP: CachePadded<AtomicPtr<AtomicPtr<Magazine>>> =
    CachePadded::new(AtomicPtr::new(std::ptr::null_mut()));

/// The part of VP 0 if all VPs may keep one another's blocks; null if nodes have to be compared.
pub(crate) static NEAR: CachePadded<AtomicPtr<u8>> = CachePadded::new(AtomicPtr::new(std::ptr::null_mut()));

/// The dummy magazine of units without a slab: it looks full, so a free there comes to the slow path. It has
/// no room, so the VP that its address yields does not matter. On lines of its own, because many remote frees
/// read it.
pub(crate) static NO_SLAB: CachePadded<Magazine> =
    CachePadded::new(Magazine { count: AtomicU32::new(0), low: AtomicU32::new(0), high: AtomicU32::new(0) });

#[repr(C, align(128))]
struct Zeros([AtomicU32; 32]);
static ZEROS: Zeros = Zeros([const { AtomicU32::new(0) }; 32]);

/// Bases, by the slots of sizes (address_space/I2).
#[repr(C, align(128))]
pub(crate) struct Bases<const N: usize>([AtomicPtr<u8>; N]);

impl<const N: usize> Bases<N> {
    const fn new() -> Bases<N> {
        // Before the first slow path, only the number -1 is added: that of `UNREGISTERED`.
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

/// Returns the address, in the part of VP 0, of the magazine that may keep this block on whichever VP frees
/// it. `None` if the block may not be kept, or if nodes have to be compared
/// ([`AddressSpace::is_near`](crate::address_space::AddressSpace::is_near)).
///
/// # Safety
/// The contract of [`push_home`](crate::sequence::push_home).
#[inline(always)]
pub(crate) unsafe fn magazine_to_keep(block: *mut u8) -> Option<*mut u8> {
    // Relaxed, both, and of the element: a thread with a block has seen the stores before it was given out.
    let (near, map) = (NEAR.load(Ordering::Relaxed), MAP.load(Ordering::Relaxed));
    if near.is_null() {
        return None;
    }
    // SAFETY: the unit of a block has an element.
    let home = unsafe { &*map.wrapping_add(block.addr() >> SLAB_SHIFT) }.load(Ordering::Relaxed);
    let at = home.addr() & (PART_BYTES - 1);
    (KEPT_AT.contains(&at) && !std::ptr::eq(home, &raw const *NO_SLAB)).then(|| near.wrapping_add(at))
}

/// Returns whether any VP that frees a block of whole lines may keep it, without a comparison of nodes.
#[inline(always)]
pub(crate) fn is_one_node() -> bool {
    // Relaxed: as in `magazine_to_keep`.
    !NEAR.load(Ordering::Relaxed).is_null()
}
