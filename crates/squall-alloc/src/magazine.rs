//! The magazines of a VP: arrays of free blocks, which its threads take from and put into by restartable sequences.
//!
//! Problem: the common path of an allocator may have no lock and no atomic instruction. Idea: a thread that is disturbed by another
//! on its processor begins again (Linux's restartable sequences), so that on each processor one thread at a time is at a magazine.
//!
//! - I1. While it is open, a magazine of VP v is written by sequences only, while they run on v. Each ends in one store to `count`,
//!   undisturbed since it read the VP's number, so that what it read still holds there.
//! - I2. The pointers below `count` are free blocks of the magazine's class whose home is v; where they are whole lines, v or another VP
//!   of its pool of pages, and were freed on v; of the outbox, of any class and other VPs. Whoever takes one by a store to `count` has it alone.
//! - I3. A magazine is closed while `low` is the highest number and `high` is 0: then no sequence that has not read them yet commits.
//!   Who closed it (`drain.rs`) may take what is in it once the kernel has restarted the sequences in flight.
//! - I4. Where nothing was prepared yet a magazine is zeros: empty, and full.
//! - I5. Of which VP a magazine is its address says ([`VP_AT`]), and nothing in it: so whoever frees a block of another VP reads nothing
//!   that is written there.
//!
//! A thread without a registration has a negative number, and finds itself before the first part, in two parts of zeros (`ground`).
//! It never touches a magazine, so that no thread ever needs an atomic form: it goes to the heap of a VP, under its lock.
//!
//! Cost: on x86-64, a block is taken by 14 instructions and put back by 16, what finds the block's home included (where the layout tells the
//! class, by as many that wait for less: see `sequence`). Where a layout that is known when the program is compiled says that it may be
//! kept: by 15 if there is one node of memory, and by 20 if there are several.
//! Source: tcmalloc's per-CPU mode; Bonwick and Adams (2001); `squall-machine`'s `pervp` for the frame of a sequence.

use crate::classes::BATCH_MAX;
use squall_sys::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::mem::MaybeUninit;

/// The head of a magazine; its slots lie behind it.
#[repr(C, align(16))]
pub(crate) struct Magazine {
    /// Blocks in it.
    pub(crate) count: AtomicU32,
    /// As many are not given out: none, or all.
    pub(crate) low: AtomicU32,
    /// As many have room.
    pub(crate) high: AtomicU32,
}

/// The number of its VP are sixteen bits of a magazine's address, from this one on: parts are so long, and that of VP 0 lies at a
/// multiple of [`PARTS_AT`].
pub(crate) const VP_AT: u32 = 16;
/// See [`VP_AT`].
#[cfg(not(loom))]
pub(crate) const PARTS_AT: usize = 1 << 32;
/// VPs that have numbers of so many bits.
#[cfg(not(loom))]
pub(crate) const VPS_MAX: usize = 1 << 16;

/// From a magazine to its slots.
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

    /// How many are in it, about.
    pub(crate) fn len(&self) -> usize {
        // Relaxed: a number for people.
        self.count.load(Ordering::Relaxed) as usize
    }
}

/// A few blocks on their way.
pub(crate) struct Batch {
    /// Initialized below `len`: a KiB that nobody reads would cost as much to write as half of the blocks cost.
    blocks: [MaybeUninit<*mut u8>; BATCH_MAX],
    len: usize,
}

impl Batch {
    #[inline]
    pub(crate) const fn new() -> Batch {
        Batch { blocks: [const { MaybeUninit::uninit() }; BATCH_MAX], len: 0 }
    }

    /// Puts one in, behind the others. There is room for [`BATCH_MAX`].
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
        // SAFETY: those below `len` are initialized.
        unsafe { &mut *(std::ptr::from_mut(blocks) as *mut [*mut u8]) }
    }

    /// Room for up to `most` behind the others; what `grow` then says is in it.
    #[cfg_attr(any(loom, miri), allow(dead_code))]
    pub(crate) fn room(&mut self, most: usize) -> &mut [MaybeUninit<*mut u8>] {
        &mut self.blocks[self.len..][..most]
    }

    /// Has so many more.
    ///
    /// # Safety
    /// They were written to [`room`](Batch::room).
    #[cfg_attr(any(loom, miri), allow(dead_code))]
    pub(crate) unsafe fn grow(&mut self, count: usize) {
        self.len += count;
    }
}

/// Blocks on their way to who takes them: the first to be taken is last.
#[cfg(not(loom))]
pub(crate) struct Pile {
    /// Initialized from `first` on (`Batch`).
    blocks: [MaybeUninit<*mut u8>; BATCH_MAX],
    first: usize,
}

#[cfg(not(loom))]
impl Pile {
    #[inline]
    pub(crate) const fn new() -> Pile {
        Pile { blocks: [const { MaybeUninit::uninit() }; BATCH_MAX], first: BATCH_MAX }
    }

    /// Puts so many blocks in that lie side by side from this one on. There is room for [`BATCH_MAX`].
    ///
    /// Their lines are asked for: if others had them, they come all at once, and not each when it is written, one after the other.
    #[inline]
    pub(crate) fn put(&mut self, block: *mut u8, size: usize, count: usize) {
        let room = &mut self.blocks[self.first - count..self.first];
        for (index, at) in room.iter_mut().rev().enumerate() {
            let block = block.wrapping_add(index * size);
            squall_sys::fetch::line_to_write(block);
            at.write(block);
        }
        self.first -= count;
    }

    #[inline]
    pub(crate) fn blocks(&self) -> &[*mut u8] {
        let blocks = &self.blocks[self.first..];
        // SAFETY: those from `first` on are initialized.
        unsafe { &*(std::ptr::from_ref(blocks) as *const [*mut u8]) }
    }
}
