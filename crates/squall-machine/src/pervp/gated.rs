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
//! is a store per word, then one system call for all words, which interrupts each processor that runs a
//! thread of the process.
//! Source: Tornado §4; membarrier(2): its restarting form makes check and store one step for the closing
//! thread.

use super::mode;
use crate::restartable;
use crate::vp::Vp;
use squall_sys::membarrier::{self, Unavailable};
use squall_sys::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::fmt;
use std::mem::offset_of;

/// Value of `home` while the gate is closed. It equals no VP, and no negative `cpu_id` of a thread without
/// sequences.
pub(super) const NOWHERE: u32 = i32::MAX.cast_unsigned();

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
/// use squall::{Vp, pervp::GatedWord};
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
    /// Written only by sequences on `vp` (gated/I1).
    local: AtomicU64,
    /// Written only by atomic instructions (gated/I2).
    elsewhere: AtomicU64,
    /// Written by the threads that open and close the gate (gated/I1).
    home: AtomicU32,
    vp: Vp,
}

const _: () = assert!(size_of::<GatedWord>() == 24);
/// Distance in bytes from `local`, the address that the sequences get, to the gate.
const HOME_AT: usize = offset_of!(GatedWord, home) - offset_of!(GatedWord, local);

impl GatedWord {
    /// Creates a word of zero with a closed gate for the threads on `vp`.
    ///
    /// # Panics
    /// If `vp` is not below [`Machine::vp_limit`](crate::Machine::vp_limit).
    pub fn new(vp: Vp) -> GatedWord {
        mode::initialise();
        assert!(
            vp.index() < mode::vp_limit(),
            "{vp} does not exist; VP indices are below {}",
            mode::vp_limit()
        );
        GatedWord {
            local: AtomicU64::new(0),
            elsewhere: AtomicU64::new(0),
            home: AtomicU32::new(NOWHERE),
            vp,
        }
    }

    /// Returns the VP that adds by plain instructions.
    #[inline]
    pub fn vp(&self) -> Vp {
        self.vp
    }

    /// Opens the gate if [`finish_closing`](GatedWord::finish_closing) can close it again; else the gate
    /// stays closed.
    ///
    /// A thread that adds at the gate sees the caller's earlier writes.
    pub fn open(&self) {
        if mode::can_restart() {
            // Release: pairs with the acquiring load in the sequence (I5). The cast keeps the value: the
            // index is below the limit.
            self.home.store(self.vp.index() as u32, Ordering::Release);
        }
    }

    /// Closes the gate. Additions in flight may still commit until
    /// [`finish_closing`](GatedWord::finish_closing) has returned.
    pub fn close(&self) {
        // Relaxed: `finish_closing` orders it.
        self.home.store(NOWHERE, Ordering::Relaxed);
    }

    /// Waits until the gates that were closed before this call are unused. After it returns, no thread adds
    /// at such a gate in this process. The caller's later sums contain every addition made at these gates.
    ///
    /// # Errors
    /// [`Unavailable`] if the kernel now refuses a request that it granted before, because the process has
    /// entered a sandbox. Sequences that were in flight when the gate was closed, and undisturbed since, may
    /// then still add.
    /// # Cost
    /// A system call, and an interrupt on each other processor that runs a thread of this process. Free in a
    /// process in which gates are never open.
    pub fn finish_closing() -> Result<(), Unavailable> {
        mode::initialise();
        if !mode::can_restart() {
            return Ok(());
        }
        // The caller closed the gates before. Partner: the barrier that each processor passes in the call.
        fence(Ordering::SeqCst);
        membarrier::restart_all()
    }

    /// Adds one, wrapping, and returns true, if the gate is open and the calling thread is on the word's VP.
    /// Else returns false without adding.
    #[inline(always)]
    #[must_use = "if false, the gate is closed or the thread is elsewhere, and the caller must count otherwise"]
    #[allow(unused_assignments, reason = "a build without sequences evaluates only the fallback")]
    pub fn count_at_gate(&self) -> bool {
        let mut here = true;
        // SAFETY: of `restartable!`: 1. one store, which is the last instruction. 2. Only `{tmp}` changes. 3.
        // No address is formed with `{part}`. 4. As for 5: only this sequence writes `local`, on one VP
        // (gated/I1); `new` has chosen the mode. 5. `home` lies HOME_AT bytes behind `local` in the same
        // object. The pointer's provenance covers that object, and `self` keeps it alive during the sequence.
        // `home` is `vp` or NOWHERE; NOWHERE is positive, and no VP because no machine has so many.
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

    /// Adds one, wrapping, from any VP, whether the gate is open or closed.
    ///
    /// # Cost
    /// An atomic addition.
    ///
    /// # Example
    /// ```
    /// use squall::{Vp, pervp::GatedWord};
    ///
    /// let requests = GatedWord::new(Vp::current());
    /// requests.count();
    /// assert_eq!((requests.added_elsewhere(), requests.load()), (1, 1));
    /// ```
    #[inline]
    pub fn count(&self) {
        // Relaxed: no order is promised.
        self.elsewhere.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the sum, wrapping. It contains every addition that happened before, including the caller's
    /// own. Of concurrent additions it may contain any subset, even a later one without an earlier one.
    ///
    /// # Cost
    /// Two loads of one line. Wait-free.
    #[inline]
    pub fn load(&self) -> u64 {
        self.added_at_gate().wrapping_add(self.added_elsewhere())
    }

    /// Returns the part of the sum that was added at the gate.
    #[inline]
    pub fn added_at_gate(&self) -> u64 {
        // Relaxed: no order is promised. The sequences' stores act as relaxed ones (see `pervp`).
        self.local.load(Ordering::Relaxed)
    }

    /// Returns the part of the sum that was added elsewhere, or while the gate was closed.
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
