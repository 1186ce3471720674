//! The part of a VP: its magazines, its outbox and its heap, at fixed offsets.
//!
//! A part is zeros at first: magazines that look both empty and full (`magazine/I4`), and a tail that is not
//! ready. The region of all parts is in `address_space`.
//!
//! Cost: 64 KiB of address space for each VP, of which touched pages are memory.

use crate::classes::{CAPACITIES, COUNT, OUTBOX_BLOCK_MAX, OUTBOX_CAPACITY, SIZES, may_be_kept};
use crate::heap::Heap;
use crate::magazine::{Magazine, SLOTS_AT, VP_AT};
use squall_sys::sync::atomic::{AtomicU32, Ordering};
use squall_sys::sync::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ops::Range;

/// The distance between the parts of neighbouring VPs, as a binary logarithm.
pub(crate) const PART_SHIFT: u32 = VP_AT;
/// Bytes of a part.
pub(crate) const PART_BYTES: usize = 1 << PART_SHIFT;

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
pub(crate) const MAGAZINES_AT: [usize; COUNT + 1] = magazines();
/// The offsets of magazines with blocks that another VP of the node may keep.
pub(crate) const KEPT_AT: Range<usize> = places(0);
/// The offsets among them of magazines with blocks too long for an outbox.
pub(crate) const LONG_AT: Range<usize> = places(OUTBOX_BLOCK_MAX);

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
// A null entry of the map has the offset 0, outside the range.
const _: () = assert!(KEPT_AT.start > 0);
const TAIL_AT: usize = (MAGAZINES_AT[COUNT] + SLOTS_AT + OUTBOX_CAPACITY * 8).next_multiple_of(128);
const _: () = assert!(TAIL_AT + size_of::<Tail>() <= PART_BYTES);

/// The end of a part, which any thread may use.
#[repr(C, align(128))]
pub(crate) struct Tail {
    /// 1: the other fields are initialized.
    pub(crate) ready: AtomicU32,
    /// The NUMA node of the VP.
    pub(crate) node: AtomicU32,
    /// The heap's event number at the previous decay pass (`decay`).
    seen: AtomicU32,
    pub(crate) heap: UnsafeCell<MaybeUninit<Heap>>,
}

/// The part of a VP: its magazines, outbox and heap.
#[derive(Clone, Copy)]
pub(crate) struct Part(*mut u8);

impl Part {
    /// Creates the handle of a part.
    ///
    /// # Safety
    /// `start` is the start of a part within the block range, which stays mapped for as long as the process.
    pub(crate) unsafe fn new(start: *mut u8) -> Part {
        Part(start)
    }

    /// Returns the address of the part.
    pub(crate) fn start(self) -> *mut u8 {
        self.0
    }

    pub(crate) fn tail(&self) -> &'static Tail {
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
