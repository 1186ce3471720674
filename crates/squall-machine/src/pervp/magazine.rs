//! Bounded stacks of pointers of each VP.
//!
//! Problem: a cache of free blocks per processor wants what a list gives, but a list's nodes must stay readable after they
//! were popped, so blocks could never be freed, and a list does not know how long it is. Idea: the pointers lie in an
//! array beside their count. Nothing is read through them, and the bound is the array's end.
//!
//! - I1. Of the words behind the head, as many as the count says hold pointers that were put in and not taken out.
//! - I2. A pointer that is put in is taken out once, by one thread, or is in when the magazine is dropped.
//!
//! A sequence stores its pointer first and the count last; cut short between, it has written a word above the count, which
//! nobody reads. The atomic form locks the count, by a bit of it, for a few instructions and never waits for it: to find it
//! locked is to find the magazine empty, or full.
//!
//! Source: Bonwick and Adams, "Magazines and Vmem" (USENIX 2001); tcmalloc's per-CPU caches for the layout.

use super::alloc::{self, OutOfMemory};
use super::word::clear;
use super::{atomic, restart};
use crate::vp::Vp;
use squall_sys::sync::atomic::Ordering;
use std::ptr::NonNull;

/// The count.
const HEAD_WORDS: usize = 1;
const WORD_BYTES: usize = size_of::<u64>();

/// A stack of at most so many pointers on each VP: a cache of blocks that may be freed at any time, elsewhere too.
///
/// A magazine may say that it is empty, or full, when it is not: a cache's users have another way then.
///
/// # Cost
/// A word per pointer and VP, in pages that exist where they were touched. `push_on` and `pop`: a dozen plain instructions,
/// no access to a line that another VP writes. Progress: wait-free but for restarts; so is the atomic form, in which a
/// preempted thread makes its VP's magazine useless to others for that long. Linearized at the store to the count.
#[derive(Debug)]
pub struct PerVpMagazine {
    home: NonNull<u64>,
    capacity: usize,
}

// SAFETY: the words are accessed atomically or by sequences, from whatever thread (`pervp/I1`); what may be done with the
// pointers is their users' matter, who must be unsafe to use them.
unsafe impl Send for PerVpMagazine {}
// SAFETY: as above.
unsafe impl Sync for PerVpMagazine {}

impl PerVpMagazine {
    /// The most pointers that a magazine can have room for.
    pub const CAPACITY_MAX: usize = alloc::PART_BYTES / WORD_BYTES - HEAD_WORDS;

    /// An empty magazine on every VP, with room for `capacity` pointers each.
    ///
    /// # Errors
    /// [`OutOfMemory`] if there is no address space left.
    /// # Panics
    /// If `capacity` is more than [`CAPACITY_MAX`](PerVpMagazine::CAPACITY_MAX).
    pub fn try_new(capacity: usize) -> Result<PerVpMagazine, OutOfMemory> {
        assert!(capacity <= PerVpMagazine::CAPACITY_MAX, "a magazine of {capacity} pointers is too large");
        Ok(PerVpMagazine { home: alloc::allocate(Self::bytes(capacity), WORD_BYTES)?.cast(), capacity })
    }

    const fn bytes(capacity: usize) -> usize {
        (HEAD_WORDS + capacity) * WORD_BYTES
    }

    /// Puts `pointer` in on `vp`. Returns whether it is in: not where it is full, nor when the thread is not on that VP.
    /// What the thread wrote before, who pops it sees.
    #[inline]
    pub fn push_on(&self, vp: Vp, pointer: NonNull<()>) -> bool {
        // SAFETY: our extent is a head and so many words.
        unsafe { restart::put(self.home, vp, self.capacity, pointer) }
    }

    /// Takes the pointer that was put in last on the VP where the thread is.
    #[inline]
    pub fn pop(&self) -> Option<NonNull<()>> {
        // SAFETY: our extent is a head and words.
        NonNull::new(unsafe { restart::take(self.home) })
    }

    /// How many are in on `vp`, about.
    ///
    /// # Panics
    /// If `vp` is not below [`Machine::vp_limit`](crate::Machine::vp_limit).
    pub fn len_on(&self, vp: Vp) -> usize {
        assert!(vp.index() < alloc::parts(), "{vp} does not exist");
        // SAFETY: our extent begins with the count; `vp` is below the limit.
        let count = unsafe { atomic::word(self.home, vp) }.load(Ordering::Relaxed);
        (count & !atomic::LOCKED) as usize
    }

    /// Takes every pointer of every VP, those of a VP last to first, and gives each to `f`.
    ///
    /// If `f` panics, the pointers not yet given stay in.
    pub fn drain(&mut self, mut f: impl FnMut(Vp, NonNull<()>)) {
        for vp in (0..alloc::parts() as u32).map(Vp::new) {
            // SAFETY: our extent begins with the count; `vp` is below the limit.
            let count = unsafe { atomic::word(self.home, vp) };
            // Relaxed, here and below: we have the magazine to ourselves. In the child of a fork it may have been locked by a
            // thread that is not there any more.
            count.fetch_and(!atomic::LOCKED, Ordering::Relaxed);
            while let Some(index) = count.load(Ordering::Relaxed).checked_sub(1) {
                count.store(index, Ordering::Relaxed);
                // SAFETY: it was below the count.
                let pointer = unsafe { atomic::pointer(self.home, vp, index as usize) };
                NonNull::new(pointer.load(Ordering::Relaxed)).into_iter().for_each(|pointer| f(vp, pointer));
            }
        }
    }
}

impl Drop for PerVpMagazine {
    /// Forgets the pointers that are still in.
    fn drop(&mut self) {
        // SAFETY: nobody else has the extent any more, and all of it is words.
        unsafe {
            clear(self.home, HEAD_WORDS + self.capacity);
            alloc::release(self.home.cast(), Self::bytes(self.capacity));
        }
    }
}
