//! Magazines: one bounded stack of pointers per VP.
//!
//! Problem: a per-processor cache of free blocks could use a list. But popped nodes of a list must stay
//! readable, so blocks could never be freed, and a list does not know its length. Idea: the pointers are in
//! an array beside their count. They are never dereferenced, and the array's end is the bound.
//!
//! - I1. The first `count` words behind the head hold pointers that were pushed and not yet popped.
//! - I2. A pushed pointer is popped once, by one thread, or is still there when the magazine is dropped.
//!
//! A sequence stores its pointer first and the count last. If it is cut short in between, it has written a
//! word above the count, which no thread reads. The atomic form locks the count, by one bit of it, for a few
//! instructions. It never waits for that lock: a locked magazine counts as empty, or as full.
//!
//! Source: Bonwick and Adams, "Magazines and Vmem" (USENIX 2001); tcmalloc's per-CPU caches for the layout.

use super::alloc::{self, OutOfMemory};
use super::word::clear;
use super::{atomic, restart};
use crate::vp::Vp;
use squall_sys::sync::atomic::Ordering;
use std::ptr::NonNull;

/// Words in front of the pointers: the count.
const HEAD_WORDS: usize = 1;
const WORD_BYTES: usize = size_of::<u64>();

/// One bounded stack of pointers per VP: a cache of blocks that may be freed at any time, also on other VPs.
///
/// A magazine may report that it is empty or full although it is not. Users need another source of blocks for
/// that case, as for a magazine that is really empty or full.
///
/// # Cost
/// A word per pointer and VP, in pages that exist only where they were touched. `push_on` and `pop` are a
/// dozen plain instructions, and access no line that another VP writes. Progress: wait-free except for
/// restarts. The atomic form is wait-free too, but while a thread is preempted in it, its VP's magazine is
/// unusable. Linearized at the store to the count.
///
/// # Example
/// ```
/// use squall::{Vp, pervp::PerVpMagazine};
/// use std::ptr::NonNull;
///
/// let mut magazine = PerVpMagazine::try_new(16).unwrap();
/// let block = NonNull::from(Box::leak(Box::new([0_u8; 64]))).cast();
/// let kept = magazine.push_on(Vp::current(), block);
/// let mut blocks = Vec::new();
/// magazine.drain(|_vp, block| blocks.push(block));
/// assert_eq!(blocks.len(), usize::from(kept));
/// // SAFETY: the block came from a `Box`, and the magazine no longer holds it.
/// drop(unsafe { Box::from_raw(block.cast::<[u8; 64]>().as_ptr()) });
/// ```
#[derive(Debug)]
pub struct PerVpMagazine {
    home: NonNull<u64>,
    capacity: usize,
}

// SAFETY: the words are accessed atomically or by sequences, from any thread (`pervp/I1`). Pointers are
// handed out as raw pointers, so their use is unsafe code of the users.
unsafe impl Send for PerVpMagazine {}
// SAFETY: as for `Send`.
unsafe impl Sync for PerVpMagazine {}

impl PerVpMagazine {
    /// Largest capacity of a magazine, in pointers.
    pub const CAPACITY_MAX: usize = alloc::PART_BYTES / WORD_BYTES - HEAD_WORDS;

    /// Creates an empty magazine on every VP, with room for `capacity` pointers each.
    ///
    /// # Errors
    /// [`OutOfMemory`] if there is no address space left.
    /// # Panics
    /// If `capacity` is more than [`CAPACITY_MAX`](PerVpMagazine::CAPACITY_MAX).
    pub fn try_new(capacity: usize) -> Result<PerVpMagazine, OutOfMemory> {
        assert!(
            capacity <= PerVpMagazine::CAPACITY_MAX,
            "a magazine of {capacity} pointers is too large: at most {} fit",
            PerVpMagazine::CAPACITY_MAX
        );
        Ok(PerVpMagazine { home: alloc::allocate(Self::bytes(capacity), WORD_BYTES)?.cast(), capacity })
    }

    const fn bytes(capacity: usize) -> usize {
        (HEAD_WORDS + capacity) * WORD_BYTES
    }

    /// Pushes `pointer` on `vp`. Returns false, without pushing, if the magazine is full or the thread is not
    /// on that VP. A thread that pops the pointer sees the caller's earlier writes.
    #[inline]
    pub fn push_on(&self, vp: Vp, pointer: NonNull<()>) -> bool {
        // SAFETY: our extent is a head and `capacity` words.
        unsafe { restart::put(self.home, vp, self.capacity, pointer) }
    }

    /// Pops the pointer that was pushed last on the VP where the thread is. Returns `None` if the magazine is
    /// empty or locked.
    #[inline]
    pub fn pop(&self) -> Option<NonNull<()>> {
        // SAFETY: our extent is a head and words.
        NonNull::new(unsafe { restart::take(self.home) })
    }

    /// Returns the approximate number of pointers on `vp`.
    ///
    /// # Panics
    /// If `vp` is not below [`Machine::vp_limit`](crate::Machine::vp_limit).
    pub fn len_on(&self, vp: Vp) -> usize {
        assert!(vp.index() < alloc::parts(), "{vp} does not exist; VP indices are below {}", alloc::parts());
        // SAFETY: our extent begins with the count; `vp` is below the limit.
        let count = unsafe { atomic::word(self.home, vp) }.load(Ordering::Relaxed);
        (count & !atomic::LOCKED) as usize
    }

    /// Removes every pointer of every VP, last pushed first within a VP, and passes each to `f`.
    ///
    /// If `f` panics, the remaining pointers stay in the magazine.
    pub fn drain(&mut self, mut f: impl FnMut(Vp, NonNull<()>)) {
        for vp in (0..alloc::parts() as u32).map(Vp::new) {
            // SAFETY: our extent begins with the count; `vp` is below the limit.
            let count = unsafe { atomic::word(self.home, vp) };
            // Relaxed, here and below: we own the magazine. In the child of a fork, a thread that no longer
            // exists may have left it locked.
            count.fetch_and(!atomic::LOCKED, Ordering::Relaxed);
            while let Some(index) = count.load(Ordering::Relaxed).checked_sub(1) {
                count.store(index, Ordering::Relaxed);
                // SAFETY: the index was below the count.
                let pointer = unsafe { atomic::pointer(self.home, vp, index as usize) };
                NonNull::new(pointer.load(Ordering::Relaxed)).into_iter().for_each(|pointer| f(vp, pointer));
            }
        }
    }
}

impl Drop for PerVpMagazine {
    /// Forgets the pointers that are still in the magazine.
    fn drop(&mut self) {
        // SAFETY: no other thread has the extent any more, and all of it is words.
        unsafe {
            clear(self.home, HEAD_WORDS + self.capacity);
            alloc::release(self.home.cast(), Self::bytes(self.capacity));
        }
    }
}
