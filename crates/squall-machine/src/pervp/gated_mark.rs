//! Gated mark: a thread on one VP marks itself inside by plain instructions, until another thread closes
//! the gate.
//!
//! Problem: a lock that the threads of one VP take nearly always still costs them an atomic instruction.
//! Idea: the mark is set by a restartable sequence that finds the gate open and the mark clear. Two threads
//! of the VP never set it both, since the kernel restarts the sequence of one when the other runs. A thread
//! elsewhere closes the gate, makes the kernel restart all sequences in flight, and waits until the mark is
//! clear.
//!
//! - I1. `home` is the index of `vp`, or NOWHERE, as in a [gated word](super::GatedWord).
//! - I2. Only sequences on `vp` set the mark, and only if they read it clear. Only the thread that set it
//!   clears it. So at most one thread has the mark.
//! - I3. After `close` has returned, no sequence sets the mark until the gate is opened again, and the caller
//!   sees a mark that was set before (`gated/I3`, on one processor).
//! - I4. The sequence acquires the writes of the thread that cleared the mark, and those made before the
//!   gate was opened: two acquiring loads, plain ones on x86-64.
//!
//! Cost: ten instructions on x86-64, with two branches and no lock prefix; `clear` is a store.
//! Source: as for the gated word. Our own: the sequence takes a lock.

use super::gated::NOWHERE;
use super::mode;
use crate::restartable;
use crate::vp::Vp;
use squall_sys::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use squall_sys::{membarrier, rseq};
use std::mem::offset_of;

/// Whether the kernel has refused to restart sequences. Then no gate is opened again.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// A mark that one thread has at a time, with a gate. While the gate is open, threads of one VP may set it.
///
/// # Cost
/// 12 bytes, inside the owner. `set_at_gate`: ten plain instructions. Progress: wait-free except for
/// restarts. Linearized at the one store.
///
/// # Example
/// ```
/// use squall::{Vp, pervp::GatedMark};
///
/// let mark = GatedMark::new(Vp::current());
/// mark.open();
/// if mark.set_at_gate() {
///     assert!(!mark.set_at_gate()); // it is set already
///     mark.clear();
/// }
/// mark.close();
/// assert!(!mark.set_at_gate() && !mark.is_set());
/// ```
#[derive(Debug)]
#[repr(C)]
pub struct GatedMark {
    /// 1 while a thread has the mark (I2).
    mark: AtomicU32,
    /// Written by the threads that open and close the gate (I1).
    home: AtomicU32,
    vp: Vp,
}

/// Distance in bytes from `mark`, the address that the sequence gets, to the gate.
const HOME_AT: usize = offset_of!(GatedMark, home) - offset_of!(GatedMark, mark);

impl GatedMark {
    /// Creates a clear mark with a closed gate for the threads on `vp`.
    ///
    /// # Panics
    /// If `vp` is not below [`Machine::vp_limit`](crate::Machine::vp_limit).
    pub fn new(vp: Vp) -> GatedMark {
        mode::initialise();
        assert!(
            vp.index() < mode::vp_limit(),
            "{vp} does not exist; VP indices are below {}",
            mode::vp_limit()
        );
        GatedMark { mark: AtomicU32::new(0), home: AtomicU32::new(NOWHERE), vp }
    }

    /// Returns the VP whose threads set the mark.
    #[inline]
    pub fn vp(&self) -> Vp {
        self.vp
    }

    /// Opens the gate and returns true, if it can be closed again and the process runs restartable
    /// sequences. Else it stays closed. The mark must be clear.
    ///
    /// A thread that sets the mark sees the caller's earlier writes.
    pub fn open(&self) -> bool {
        // Relaxed: a late reader opens a gate once more, and closes it by the same means.
        let can_open = mode::can_restart() && !mode::is_settled() && !REFUSED.load(Ordering::Relaxed);
        if can_open {
            // Release: pairs with the acquiring load in the sequence (I4). The cast keeps the value: the
            // index is below the limit.
            self.home.store(self.vp.index() as u32, Ordering::Release);
        }
        can_open
    }

    /// Closes the gate. After it returns, no thread sets the mark until the gate is opened again, and a
    /// mark that is set is seen by [`is_set`](GatedMark::is_set).
    ///
    /// If the kernel now refuses a request that it granted before, since the process has entered a sandbox,
    /// the caller runs once on each processor instead, and then pauses. No gate is opened after that. One
    /// risk remains: a sequence in flight on a virtual processor that stands still for longer than the
    /// pause.
    ///
    /// # Cost
    /// A system call, and an interrupt of the mark's processor if it runs a thread of this process. Once
    /// after a refusal: some tens of milliseconds.
    pub fn close(&self) {
        // Relaxed: the fence orders it.
        self.home.store(NOWHERE, Ordering::Relaxed);
        // Partner: the barrier that the mark's processor passes in the call (I3).
        fence(Ordering::SeqCst);
        // Only sequences on this processor set the mark (I2).
        if membarrier::restart_on(self.vp.index()).is_err() {
            REFUSED.store(true, Ordering::Relaxed);
            rseq::restart_everywhere(mode::vp_limit());
        }
    }

    /// Returns whether the gate is open. Only the threads that open and close it can rely on the answer.
    #[inline]
    pub fn is_open(&self) -> bool {
        // Relaxed: the caller orders it, if it opens and closes the gate.
        self.home.load(Ordering::Relaxed) != NOWHERE
    }

    /// Sets the mark and returns true, if the gate is open, the calling thread is on the mark's VP, and no
    /// thread has the mark. The caller then sees all writes of the thread that had it before.
    #[inline(always)]
    #[must_use = "if true, the thread has the mark and must clear it"]
    #[allow(unused_assignments, reason = "a build without sequences evaluates only the fallback")]
    pub fn set_at_gate(&self) -> bool {
        let mut set = true;
        // SAFETY: of `restartable!`: 1. one store, which is the last instruction. 2. Only `{tmp}` and the
        // flags change; a jump to the fallback leaves without the store. 3. No address is formed with
        // `{part}`. 4. As for 5: only sequences on one VP write 1 to `mark`, and `new` has chosen the mode.
        // `clear` writes 0, and only while the mark is 1, when no sequence stores (I2). 5. `home` lies
        // HOME_AT bytes behind `mark` in the same object. The pointer's provenance covers that object, and
        // `self` keeps it alive during the sequence. `home` is `vp` or NOWHERE; NOWHERE is positive, and no
        // VP because no machine has so many.
        unsafe {
            restartable! {
                gate: [std::ptr::from_ref(self).cast::<u64>().cast_mut(), HOME_AT],
                in: [],
                x86_64: [
                    "cmp dword ptr [{gate}], 0",
                    "jne {fallback}",
                    "mov dword ptr [{gate}], 1",
                ],
                aarch64: [
                    "ldar {tmp:w}, [{gate}]",
                    "cbnz {tmp:w}, {fallback}",
                    "mov {tmp:w}, #1",
                    "str {tmp:w}, [{gate}]",
                ],
                fallback: set = false,
            }
        }
        set
    }

    /// Clears the mark. Only the thread that set it may call this.
    #[inline(always)]
    pub fn clear(&self) {
        // Release: pairs with the acquiring load of the next sequence (I4), and with `is_set`.
        self.mark.store(0, Ordering::Release);
    }

    /// Returns whether a thread has the mark. If not, the caller sees the writes of the last one that had it.
    #[inline]
    pub fn is_set(&self) -> bool {
        // Acquire: pairs with the Release of `clear`.
        self.mark.load(Ordering::Acquire) != 0
    }
}

#[cfg(all(test, not(any(loom, squall_model))))]
mod tests {
    use super::*;

    /// Runs `f` in a thread that stays on one processor, with a mark for it. The argument says whether
    /// gates open there.
    fn stay(f: impl FnOnce(&GatedMark, bool) + Send) {
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let allowed = squall_sys::affinity::allowed().unwrap_or_default();
                let stays =
                    allowed.first().is_some_and(|&it| squall_sys::affinity::restrict_to(&[it]).is_ok());
                let mark = GatedMark::new(Vp::current());
                let opens = mode::can_restart() && !mode::is_settled();
                f(&mark, stays && opens && !crate::machine().is_virtual());
            });
        });
    }

    #[test]
    fn a_thread_on_the_vp_sets_the_mark_while_the_gate_is_open() {
        stay(|mark, opens| {
            assert!(!mark.set_at_gate() && !mark.is_open());
            assert!(mark.open() || !opens);
            assert_eq!(mark.set_at_gate(), opens);
            assert_eq!((mark.is_set(), mark.set_at_gate()), (opens, false));
            mark.clear();
            mark.close();
            assert!(!mark.set_at_gate() && !mark.is_set());
        });
    }

    #[test]
    fn a_thread_elsewhere_does_not_set_the_mark() {
        stay(|mark, opens| {
            if mode::vp_limit() > 1 && opens {
                let elsewhere = GatedMark::new(Vp::new(u32::from(mark.vp() == Vp::new(0))));
                assert!(elsewhere.open() && !elsewhere.set_at_gate());
            }
        });
    }
}
