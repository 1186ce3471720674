//! One word that is biased to one VP: plain additions there, atomic ones from everywhere else.
//!
//! Problem: what serves one processor, a representative's count say, is added to by that processor's threads all day and
//! by a stray one now and then: a thread that was moved between finding it and adding. The stray one forces an atomic
//! instruction on all. Idea: two words. One belongs to the VP and its restartable sequences, the other to whoever is
//! not there, or has no sequences; the value is the sum.
//!
//! - I1. `local` is written by restartable sequences alone, which commit only while they run on `vp`. So each of them is
//!   undisturbed by the others (`pervp/I2`), whatever mode the process is in.
//! - I2. `elsewhere` is written by atomic instructions alone.
//! - I3. An addition goes to one of the two, once: the sequence either commits or leaves by the fallback.
//! - I4. `alarm` is a count that may lose steps: it decides when to ring, never what the value is.
//!
//! It follows that nothing here ever needs the restartable mode to be given up (`pervp/I4`): a thread without sequences
//! adds to `elsewhere` while others go on with theirs, and a sequence that were to commit after the mode was given up
//! would still be right.
//!
//! Not promised: a snapshot. In a virtual topology, where there are no sequences, every addition goes to `elsewhere`; it
//! is then as dear as an atomic, and as local as the object that holds the word.
//! Cost: eight instructions on x86-64 (the same count as [`PerVpWord`](super::PerVpWord), which needs no object per VP but
//! touches a table of its own), one branch among them, no lock prefix. Elsewhere: that, and one atomic addition.
//! Source: Tornado §4; biased locks (Kawachiya et al., OOPSLA 2002) for the asymmetry.

use super::mode;
use crate::restartable;
use crate::vp::Vp;
use squall_sys::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::fmt;

/// A `u64`, zero at first, that the threads of one VP add to by plain instructions, and others atomically.
///
/// For the representative of a VP or of its cluster; a word of *every* VP in one object is [`PerVpWord`](super::PerVpWord).
///
/// # Cost
/// 24 bytes, wherever its owner lies: keep that on lines that other VPs do not write. `add` on the word's VP: eight plain
/// instructions; from elsewhere one atomic addition more. Progress: wait-free, but for restarts, of which the kernel
/// causes one per preemption (an atomic addition is lock-free where the processor has none). A stalled or killed thread
/// holds up nobody. Linearized at the one store.
/// # Example
/// ```
/// use squall_machine::{Vp, pervp::BiasedWord};
/// let hits = BiasedWord::new(Vp::current());
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| (0..1000).for_each(|_| hits.add(1)));
///     }
/// });
/// assert_eq!(hits.load(), 4000);
/// ```
#[repr(C)]
pub struct BiasedWord {
    /// Written by sequences on `vp` (biased/I1).
    local: AtomicU64,
    /// Written atomically (biased/I2).
    elsewhere: AtomicU64,
    vp: Vp,
    /// Additions from elsewhere until the alarm rings; zero: it does not ring (biased/I4).
    alarm: AtomicU32,
}

const _: () = assert!(size_of::<BiasedWord>() == 24);

impl BiasedWord {
    /// A word of zero, biased to `vp`.
    ///
    /// # Panics
    /// If `vp` is not below [`Machine::vp_limit`](crate::Machine::vp_limit).
    pub fn new(vp: Vp) -> BiasedWord {
        mode::initialise();
        assert!(vp.index() < mode::vp_limit(), "{vp} does not exist");
        BiasedWord { local: AtomicU64::new(0), elsewhere: AtomicU64::new(0), vp, alarm: AtomicU32::new(0) }
    }

    /// The VP that adds by plain instructions.
    #[inline]
    pub fn vp(&self) -> Vp {
        self.vp
    }

    /// Adds `n`, wrapping. To subtract, add `n.wrapping_neg()`.
    #[inline(always)]
    pub fn add(&self, n: u64) {
        // SAFETY: of `restartable!`: 1. one store, which is the last instruction. 2. Only `{tmp}` changes. 3. Nothing is
        // formed with `{part}`. 4. `local` is written here only (biased/I1), it is aligned and outlives the sequence as
        // `self` does, and `new` has chosen the mode.
        unsafe {
            restartable! {
                on: self.vp,
                in: [local = self.local.as_ptr(), n = n],
                x86_64: ["add qword ptr [{local}], {n}"],
                aarch64: ["ldr {tmp}, [{local}]", "add {tmp}, {tmp}, {n}", "str {tmp}, [{local}]"],
                fallback: self.add_from_elsewhere(n),
            }
        }
    }

    /// As [`add`](BiasedWord::add); when it has added from elsewhere, and the [alarm](BiasedWord::set_alarm) is due, calls
    /// `ring`. On the word's VP it is the same as `add`.
    #[inline(always)]
    pub fn add_or_ring(&self, n: u64, ring: impl FnOnce()) {
        // SAFETY: as in `add`.
        unsafe {
            restartable! {
                on: self.vp,
                in: [local = self.local.as_ptr(), n = n],
                x86_64: ["add qword ptr [{local}], {n}"],
                aarch64: ["ldr {tmp}, [{local}]", "add {tmp}, {tmp}, {n}", "str {tmp}, [{local}]"],
                fallback: self.add_from_elsewhere_and(n, ring),
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn add_from_elsewhere_and(&self, n: u64, ring: impl FnOnce()) {
        self.add_from_elsewhere(n);
        let left = self.alarm.load(Ordering::Relaxed);
        if left != 0 {
            // A load and a store: counts may be lost to others, but somebody stores the zero that he rings for.
            self.alarm.store(left - 1, Ordering::Relaxed);
            if left == 1 {
                ring();
            }
        }
    }

    /// Has [`add_or_ring`](BiasedWord::add_or_ring) ring after about so many additions from elsewhere, once or a few times
    /// where several count down together; zero: never, which is how a word begins.
    pub fn set_alarm(&self, after: u32) {
        self.alarm.store(after, Ordering::Relaxed);
    }

    /// Additions from elsewhere until the alarm rings, about; zero if it rang, or was never set.
    pub fn alarm(&self) -> u32 {
        self.alarm.load(Ordering::Relaxed)
    }

    #[cold]
    #[inline(never)]
    fn add_from_elsewhere(&self, n: u64) {
        // Relaxed: no order is promised.
        self.elsewhere.fetch_add(n, Ordering::Relaxed);
    }

    /// The sum of all additions, wrapping. It has every addition that happened before, the calling thread's own among
    /// them; of those that run meanwhile it may have any, a later one without an earlier one too.
    ///
    /// # Cost
    /// Two loads of one line. Wait-free.
    #[inline]
    pub fn load(&self) -> u64 {
        // Relaxed: no order is promised. The sequences' stores act as relaxed ones (see `pervp`).
        self.added_here().wrapping_add(self.added_elsewhere())
    }

    /// What of it the word's VP added.
    #[inline]
    pub fn added_here(&self) -> u64 {
        self.local.load(Ordering::Relaxed)
    }

    /// What of it came from threads that were not on the word's VP, or had no restartable sequences: a sensor of sharing
    /// that costs nothing where there is none.
    #[inline]
    pub fn added_elsewhere(&self) -> u64 {
        self.elsewhere.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for BiasedWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BiasedWord").field("vp", &self.vp).field("sum", &self.load()).finish()
    }
}
