//! The magazines of a VP: arrays of free blocks, which its threads pop from and push to by restartable
//! sequences.
//!
//! Problem: the fast path of an allocator should have neither locks nor atomic instructions. Idea: a thread
//! that is preempted on its processor starts its sequence over (Linux's restartable sequences). One thread at
//! a time therefore works on the magazines of each processor.
//!
//! - I1. While a magazine of VP v is open, only sequences write it, while they run on v. Each ends in one
//!   store to `count`. It was not interrupted since it read the VP's number, so the values that it read still
//!   hold.
//! - I2. The pointers below `count` are free blocks of the magazine's class with home v. Blocks of whole
//!   lines may have another VP of the same page pool as their home; they were freed on v. An outbox has
//!   blocks of any class and of other VPs. A thread that takes a block by a store to `count` has it alone.
//! - I3. A magazine is closed while `low` is the highest number and `high` is 0: a sequence that has not read
//!   them yet does not commit. The closer (`drain.rs`) may take the blocks after the kernel restarted the
//!   sequences in flight.
//! - I4. Before its VP is set up a magazine is zeros: it looks both empty and full.
//! - I5. The address of a magazine gives its VP ([`VP_AT`]). The magazine itself does not hold the VP's
//!   number. So a thread that frees a block of another VP reads no line that the other VP writes.
//!
//! A thread without a registration has a negative number. It computes an address before the first part, in
//! two parts of zeros (`address_space`). It never touches a magazine, so an atomic form of the operations is
//! unnecessary: it uses the heap of a VP, under its lock.
//!
//! Cost: on x86-64, a pop takes 14 instructions and a push 16, including the lookup of the block's home. If
//! the layout gives the class, a push takes as many, with a shorter chain of dependent loads (`sequence`). If
//! a constant layout shows that the VP may keep the block, a push takes 15 on one memory node, and 20 on
//! several.
//! Source: tcmalloc's per-CPU mode; Bonwick and Adams (2001); `squall-machine`'s `pervp` for the frame of a
//! sequence.

use crate::classes::BATCH_MAX;
use squall_sys::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::mem::MaybeUninit;

/// The head of a magazine. Its slots lie behind it.
#[repr(C, align(16))]
pub(crate) struct Magazine {
    /// The number of blocks in the magazine.
    pub(crate) count: AtomicU32,
    /// A pop needs a count above `low`: 0, or the highest number.
    pub(crate) low: AtomicU32,
    /// A push needs a count below `high`: the capacity, or 0.
    pub(crate) high: AtomicU32,
}

/// The lowest of the sixteen address bits that hold the VP of a magazine. A part has that many bytes, and the
/// part of VP 0 lies at a multiple of [`PARTS_AT`].
pub(crate) const VP_AT: u32 = 16;
/// See [`VP_AT`].
#[cfg(not(loom))]
pub(crate) const PARTS_AT: usize = 1 << 32;
/// The number of VPs that sixteen bits can name.
#[cfg(not(loom))]
pub(crate) const VPS_MAX: usize = 1 << 16;

/// The distance from a magazine to its slots.
pub(crate) const SLOTS_AT: usize = size_of::<Magazine>();
#[cfg(not(loom))]
const _: () = assert!(SLOTS_AT == 16);

impl Magazine {
    /// The slot of this index.
    ///
    /// # Safety
    /// It is within the magazine's room.
    pub(crate) unsafe fn slot(this: *const Magazine, index: usize) -> *const AtomicPtr<u8> {
        // SAFETY: by this function's contract.
        unsafe { this.byte_add(SLOTS_AT).cast::<AtomicPtr<u8>>().add(index) }
    }

    /// The approximate number of blocks in the magazine.
    pub(crate) fn len(&self) -> usize {
        // Relaxed: a statistic.
        self.count.load(Ordering::Relaxed) as usize
    }
}

/// Up to [`BATCH_MAX`] blocks that are moved together.
pub(crate) struct Batch {
    /// Initialized below `len`. To initialize the whole KiB would cost half as much as the work on the
    /// blocks.
    blocks: [MaybeUninit<*mut u8>; BATCH_MAX],
    len: usize,
}

impl Batch {
    #[inline]
    pub(crate) const fn new() -> Batch {
        Batch { blocks: [const { MaybeUninit::uninit() }; BATCH_MAX], len: 0 }
    }

    /// Adds a block behind the others. There is room for [`BATCH_MAX`].
    #[inline]
    pub(crate) fn push(&mut self, block: *mut u8) {
        self.blocks[self.len].write(block);
        self.len += 1;
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len == BATCH_MAX
    }

    #[inline]
    pub(crate) fn blocks(&mut self) -> &mut [*mut u8] {
        let blocks = &mut self.blocks[..self.len];
        // SAFETY: the elements below `len` are initialized.
        unsafe { &mut *(std::ptr::from_mut(blocks) as *mut [*mut u8]) }
    }

    /// Room for up to `most` blocks behind the others. [`grow`](Batch::grow) tells how many were written.
    #[cfg_attr(any(loom, miri, not(target_os = "linux")), allow(dead_code))]
    pub(crate) fn room(&mut self, most: usize) -> &mut [MaybeUninit<*mut u8>] {
        &mut self.blocks[self.len..][..most]
    }

    /// Adds the next `count` blocks.
    ///
    /// # Safety
    /// They were written to [`room`](Batch::room).
    #[cfg_attr(any(loom, miri, not(target_os = "linux")), allow(dead_code))]
    pub(crate) unsafe fn grow(&mut self, count: usize) {
        self.len += count;
    }
}

/// New blocks on their way to a magazine. The first one to be taken is last.
#[cfg(not(loom))]
pub(crate) struct Pile {
    /// Initialized from `first` on (see `Batch`).
    blocks: [MaybeUninit<*mut u8>; BATCH_MAX],
    first: usize,
}

#[cfg(not(loom))]
impl Pile {
    #[inline]
    pub(crate) const fn new() -> Pile {
        Pile { blocks: [const { MaybeUninit::uninit() }; BATCH_MAX], first: BATCH_MAX }
    }

    /// Adds `count` blocks that lie side by side from `block` on. There is room for [`BATCH_MAX`].
    ///
    /// The lines of the blocks are prefetched. If other processors had them, they arrive together, not one by
    /// one at each write.
    #[inline]
    pub(crate) fn put(&mut self, block: *mut u8, size: usize, count: usize) {
        let room = &mut self.blocks[self.first - count..self.first];
        for (index, at) in room.iter_mut().rev().enumerate() {
            let block = block.wrapping_add(index * size);
            squall_sys::prefetch::line_to_write(block);
            at.write(block);
        }
        self.first -= count;
    }

    #[inline]
    pub(crate) fn blocks(&self) -> &[*mut u8] {
        let blocks = &self.blocks[self.first..];
        // SAFETY: the elements from `first` on are initialized.
        unsafe { &*(std::ptr::from_ref(blocks) as *const [*mut u8]) }
    }
}
