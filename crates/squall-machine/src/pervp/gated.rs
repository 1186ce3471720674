//! Gated word: the threads of one VP add to it by plain instructions until another thread closes its gate.
//!
//! Problem: a thread adds to a counter and must learn whether it was allowed to, for example a request that
//! enters a service. The check costs time, and so does ordering the check with the thread that forbids.
//!
//! Idea: the restartable sequence compares the VP where it runs with a number in memory anyway. That number
//! is the gate. While the gate is open, the number is the word's VP; while it is closed, it is no VP. The
//! closing thread stores that number, then makes the kernel restart all sequences in flight. The adding
//! thread executes no extra instruction.
//!
//! - I1. `home` is the index of `vp`, or NOWHERE. So a sequence commits only while it runs on `vp`,
//!   undisturbed by others (`pervp/I2`). Only sequences write `local`.
//! - I2. Only atomic instructions write `elsewhere`.
//! - I3. *Closing is exact.* A sequence reads `home` inside. Suppose `home` was NOWHERE when
//!   [`GatedWord::finish_closing`] began. When that call returns, each sequence that read the VP before has
//!   either committed, with its store visible to the caller, or was restarted. A sequence that begins or
//!   restarts later reads NOWHERE, because each processor has passed a full barrier since.
//! - I4. A gate is opened only if the kernel can restart sequences on request (`mode::can_restart`).
//!   Otherwise, and without sequences, all additions are atomic.
//! - I5. An open gate acquires the writes made before it was opened. The sequence reads the Release store of
//!   `open`: on x86-64 by a plain load, on aarch64 by an acquiring load. That the sequences are assembly
//!   makes no difference (see `pervp`).
//!
//! Like the sequences of the [biased word](super::BiasedWord), these never require giving up restartable
//! mode, whichever thread adds from elsewhere.
//!
//! Not promised: a snapshot while a gate is open.
//! Cost: an addition at the gate is eight instructions on x86-64, with one branch and no lock prefix. Closing
//! is a store per word, then one system call for all words, and an interrupt on each processor that runs a
//! thread of the process.
//! Source: Tornado §4; membarrier(2), whose restarting form makes check and store one step for the closing
//! thread.

use super::mode;
use crate::restartable;
use crate::vp::Vp;
use squall_sys::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use squall_sys::membarrier::{self, Unavailable};
use std::fmt;
use std::mem::offset_of;

/// Value of `home` while the gate is closed. It equals no VP, and no negative `cpu_id` of a thread without
/// sequences.
const NOWHERE: u32 = i32::MAX.cast_unsigned();

/// A `u64` count, initially zero, with a gate.
///
/// While the gate is open, the threads of one VP add by plain instructions. Other threads, and all threads
/// while the gate is closed, add atomically.
///
/// # Cost
/// 24 bytes, inside the owner; keep the owner on cache lines that other VPs do not write. `count_at_gate`:
/// eight plain instructions. Progress: wait-free except for restarts, of which the kernel causes one per
/// preemption. A stalled or killed thread delays no other thread. Linearized at the one store.
/// # Example
/// ```
/// use squall_machine::{Vp, pervp::GatedWord};
/// let passed = GatedWord::new(Vp::current());
/// passed.open();
/// for _ in 0..10 {
///     if !passed.count_at_gate() {
///         passed.count(); // the gate is closed, or the thread has moved
///     }
/// }
/// passed.close();
/// if GatedWord::finish_closing().is_ok() {
///     assert!(!passed.count_at_gate());
///     assert_eq!(passed.load(), 10); // exact, since the gate is closed
/// }
/// ```
#[repr(C)]
pub struct GatedWord {
    /// Written by sequences on `vp` (gated/I1).
    local: AtomicU64,
    /// Written atomically (gated/I2).
    elsewhere: AtomicU64,
    /// Written by who opens and closes (gated/I1).
    home: AtomicU32,
    vp: Vp,
}

const _: () = assert!(size_of::<GatedWord>() == 24);
/// From `local`, which the sequences are given, to the gate.
const HOME_AT: usize = offset_of!(GatedWord, home) - offset_of!(GatedWord, local);

impl GatedWord {
    /// A word of zero, whose gate is for the threads on `vp`, and closed.
    ///
    /// # Panics
    /// If `vp` is not below [`Machine::vp_limit`](crate::Machine::vp_limit).
    pub fn new(vp: Vp) -> GatedWord {
        mode::initialise();
        assert!(vp.index() < mode::vp_limit(), "{vp} does not exist");
        GatedWord {
            local: AtomicU64::new(0),
            elsewhere: AtomicU64::new(0),
            home: AtomicU32::new(NOWHERE),
            vp,
        }
    }

    /// The VP that adds by plain instructions.
    #[inline]
    pub fn vp(&self) -> Vp {
        self.vp
    }

    /// Opens the gate, where [`finish_closing`](GatedWord::finish_closing) could close it again; else it stays closed.
    ///
    /// Who adds at the gate sees what the caller did before.
    pub fn open(&self) {
        if mode::can_restart() {
            // Release: pairs with the load in the sequence, which acquires (I5). It fits: it is below the limit.
            self.home.store(self.vp.index() as u32, Ordering::Release);
        }
    }

    /// Closes the gate: additions that are under way may still come through, until
    /// [`finish_closing`](GatedWord::finish_closing) has returned.
    pub fn close(&self) {
        // Relaxed: `finish_closing` orders it.
        self.home.store(NOWHERE, Ordering::Relaxed);
    }

    /// When this returns, nobody adds at a gate of this process that was closed before it was called, and what was added there is
    /// in all later sums of the caller.
    ///
    /// # Errors
    /// [`Unavailable`] if the kernel refuses now what it did before: a sandbox was entered. Sequences that were under way when the
    /// gate was closed, and were not disturbed since, may still add.
    /// # Cost
    /// A system call, and an interrupt on each other processor that runs a thread of this process; nothing where gates are never
    /// open.
    pub fn finish_closing() -> Result<(), Unavailable> {
        mode::initialise();
        if !mode::can_restart() {
            return Ok(());
        }
        // The gates were closed before. Partner: the barrier that each processor passes in the call.
        fence(Ordering::SeqCst);
        membarrier::restart_all()
    }

    /// Adds one, wrapping, if the gate is open and the calling thread is on the word's VP; else does nothing, and says so.
    #[inline(always)]
    #[must_use = "nothing was added where the gate is closed, or elsewhere"]
    #[allow(unused_assignments, reason = "where there are no sequences the fallback is all there is")]
    pub fn count_at_gate(&self) -> bool {
        let mut here = true;
        // SAFETY: of `restartable!`: 1. one store, which is the last instruction. 2. Only `{tmp}` changes. 3. Nothing is formed
        // with `{part}`. 4. As 5: `local` is written here only, on one VP (gated/I1); `new` has chosen the mode. 5. `home` lies
        // so far behind `local`, in one object, which the pointer may be used for, and which outlives the sequence as `self` does;
        // it is `vp` or NOWHERE, which is positive, and no VP as no machine has so many.
        unsafe {
            restartable! {
                gate: [std::ptr::from_ref(self).cast::<u64>().cast_mut(), HOME_AT],
                in: [],
                x86_64: ["add qword ptr [{gate}], 1"],
                aarch64: ["ldr {tmp}, [{gate}]", "add {tmp}, {tmp}, #1", "str {tmp}, [{gate}]"],
                fallback: here = false,
            }
        }
        here
    }

    /// Adds one, wrapping, from wherever the calling thread is, whether the gate is open or not.
    ///
    /// # Cost
    /// An atomic addition.
    #[inline]
    pub fn count(&self) {
        // Relaxed: no order is promised.
        self.elsewhere.fetch_add(1, Ordering::Relaxed);
    }

    /// The sum, wrapping. It has every addition that happened before, the calling thread's own among
    /// them; of those that run meanwhile it may have any, a later one without an earlier one too.
    ///
    /// # Cost
    /// Two loads of one line. Wait-free.
    #[inline]
    pub fn load(&self) -> u64 {
        self.added_at_gate().wrapping_add(self.added_elsewhere())
    }

    /// What of it was added at the gate.
    #[inline]
    pub fn added_at_gate(&self) -> u64 {
        // Relaxed: no order is promised. The sequences' stores act as relaxed ones (see `pervp`).
        self.local.load(Ordering::Relaxed)
    }

    /// What of it was added elsewhere, or while the gate was closed.
    #[inline]
    pub fn added_elsewhere(&self) -> u64 {
        self.elsewhere.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for GatedWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = self.home.load(Ordering::Relaxed) != NOWHERE;
        f.debug_struct("GatedWord")
            .field("vp", &self.vp)
            .field("open", &open)
            .field("sum", &self.load())
            .finish()
    }
}
