//! Biased word: a word with plain additions on one VP, and atomic additions from all others.
//!
//! Problem: a count that serves one processor, for example a representative's, is added to by that
//! processor's threads almost always. Now and then a thread is moved between finding the count and adding.
//! That rare case forces an atomic instruction on all additions.
//!
//! Idea: use two words. One belongs to the VP and its restartable sequences. The other takes additions from
//! threads that are elsewhere or have no sequences. The value is the sum.
//!
//! - I1. Only restartable sequences write `local`, and they commit only while they run on `vp`. So no
//!   sequence disturbs another (`pervp/I2`), in every mode of the process.
//! - I2. Only atomic instructions write `elsewhere`.
//! - I3. An addition goes to one of the two words, once: the sequence either commits or leaves by the
//!   fallback.
//!
//! It follows that this word never requires giving up restartable mode (`pervp/I4`). A thread without
//! sequences adds to `elsewhere` while others go on with theirs. A sequence that commits after the mode was
//! given up is still correct.
//!
//! Not promised: a snapshot. A virtual topology has no sequences, so every addition goes to `elsewhere`. It
//! then costs an atomic addition, and is as local as the object that holds the word.
//! Cost: eight instructions on x86-64, with one branch and no lock prefix. [`PerVpWord`](super::PerVpWord)
//! takes the same number; it needs no object per VP, but touches a table of its own. From elsewhere: one
//! atomic addition more.
//! Source: Tornado §4; biased locks (Kawachiya et al., OOPSLA 2002) for the asymmetry.

use super::mode;
use crate::restartable;
use crate::vp::Vp;
use squall_sys::sync::atomic::{AtomicU64, Ordering};
use std::fmt;

/// A `u64`, initially zero, with plain additions on one VP and atomic additions from all others.
///
/// It suits the representative of a VP or of its cluster. For one object with a word on *every* VP, use
/// [`PerVpWord`](super::PerVpWord).
///
/// # Cost
/// 24 bytes, inside the owner; keep the owner on cache lines that other VPs do not write. `add` on the word's
/// VP: eight plain instructions; from elsewhere one atomic addition more. Progress: wait-free except for
/// restarts, of which the kernel causes one per preemption. (An atomic addition is lock-free on processors
/// without that instruction.) A stalled or killed thread delays no other thread. Linearized at the one store.
/// # Example
/// ```
/// use squall::{Vp, pervp::BiasedWord};
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
    /// Written only by sequences on `vp` (biased/I1).
    local: AtomicU64,
    /// Written only by atomic instructions (biased/I2).
    elsewhere: AtomicU64,
    vp: Vp,
}

const _: () = assert!(size_of::<BiasedWord>() == 24);

impl BiasedWord {
    /// Creates a word of zero, biased to `vp`.
    ///
    /// # Panics
    /// If `vp` is not below [`Machine::vp_limit`](crate::Machine::vp_limit).
    pub fn new(vp: Vp) -> BiasedWord {
        mode::initialise();
        assert!(
            vp.index() < mode::vp_limit(),
            "{vp} does not exist; VP indices are below {}",
            mode::vp_limit()
        );
        BiasedWord { local: AtomicU64::new(0), elsewhere: AtomicU64::new(0), vp }
    }

    /// Returns the VP that adds by plain instructions.
    #[inline]
    pub fn vp(&self) -> Vp {
        self.vp
    }

    /// Adds `n`, wrapping. To subtract, add `n.wrapping_neg()`.
    ///
    /// # Example
    /// ```
    /// use squall::{Vp, pervp::BiasedWord};
    ///
    /// let level = BiasedWord::new(Vp::current());
    /// level.add(10);
    /// level.add(3_u64.wrapping_neg());
    /// assert_eq!(level.load(), 7);
    /// ```
    #[inline(always)]
    pub fn add(&self, n: u64) {
        // SAFETY: of `restartable!`: 1. one store, which is the last instruction. 2. Only `{tmp}` changes. 3.
        // No address is formed with `{part}`. 4. Only this word's sequences write `local` (biased/I1). It is
        // aligned, and `self` keeps it alive during the sequence. `new` has chosen the mode.
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

    /// Adds `n`, wrapping, like [`add`](BiasedWord::add). If the addition came from elsewhere, also calls
    /// `note`.
    ///
    /// # Example
    /// ```
    /// use squall::{Vp, pervp::BiasedWord};
    ///
    /// let word = BiasedWord::new(Vp::current());
    /// word.add_and_note(1, || println!("this addition came from elsewhere"));
    /// ```
    #[inline(always)]
    pub fn add_and_note(&self, n: u64, note: impl FnOnce()) {
        // SAFETY: as in `add`.
        unsafe {
            restartable! {
                on: self.vp,
                in: [local = self.local.as_ptr(), n = n],
                x86_64: ["add qword ptr [{local}], {n}"],
                aarch64: ["ldr {tmp}, [{local}]", "add {tmp}, {tmp}, {n}", "str {tmp}, [{local}]"],
                fallback: self.add_from_elsewhere_and(n, note),
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn add_from_elsewhere_and(&self, n: u64, note: impl FnOnce()) {
        self.add_from_elsewhere(n);
        note();
    }

    #[cold]
    #[inline(never)]
    fn add_from_elsewhere(&self, n: u64) {
        // Relaxed: no order is promised.
        self.elsewhere.fetch_add(n, Ordering::Relaxed);
    }

    /// Returns the sum of all additions, wrapping. It contains every addition that happened before, including
    /// the caller's own. Of concurrent additions it may contain any subset, even a later one without an
    /// earlier one.
    ///
    /// # Cost
    /// Two loads of one line. Wait-free.
    #[inline]
    pub fn load(&self) -> u64 {
        // Relaxed: no order is promised. The sequences' stores act as relaxed ones (see `pervp`).
        self.added_here().wrapping_add(self.added_elsewhere())
    }

    /// Returns the part of the sum that threads on the word's VP added.
    #[inline]
    pub fn added_here(&self) -> u64 {
        self.local.load(Ordering::Relaxed)
    }

    /// Returns the part of the sum that came from elsewhere: from threads that were not on the word's VP, or
    /// had no restartable sequences. It is a sensor of sharing that is free while only one VP
    /// adds.
    ///
    /// # Example
    /// ```
    /// use squall::{Vp, pervp::BiasedWord};
    ///
    /// let word = BiasedWord::new(Vp::current());
    /// word.add(4);
    /// assert_eq!(word.added_here() + word.added_elsewhere(), 4);
    /// ```
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
