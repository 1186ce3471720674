//! What a request does with the proxy that is near: it enters and leaves there. The argument is in the [folder's](super) header.

use super::control::Control;
use super::{Owner, Tally, more_left_than_entered};
use crate::gate::phase::{NORMAL, SHUTDOWN, STATE, STOP};
use crate::gate::{Limits, Refused, sites, wait};
use squall_lock::{Steps, Undisturbed};
use squall_machine::asym;
use squall_sys::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use squall_sys::sync::Arc;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// One gate of a [`SpreadRequests`](super::SpreadRequests), by which the requests of a processor enter and leave: with its counts,
/// on lines that others only read.
///
/// It is reached through a [`LocalRequests`], as long as that exists; the counter keeps it.
#[repr(C, align(128))]
pub struct Gate<T: Tally, S: Steps = Undisturbed, X: Send + Sync = ()> {
    pub(super) entered: T,
    pub(super) left: T,
    /// NORMAL, STOP or SHUTDOWN, and FENCED; of `first` also BUSY.
    pub(super) state: AtomicU32,
    /// Whether somebody uses it.
    pub(super) taken: AtomicBool,
    /// Fixed once it is in the list.
    pub(super) next: *const Gate<T, S, X>,
    /// The counter that keeps this (spread/I6). Fixed.
    pub(super) control: *const Control<T, S, X>,
    pub(super) steps: PhantomData<fn() -> S>,
}

// SAFETY: gates are shared among threads by atomics and `T`, which is `Send + Sync`; `next` leads to another one, and `control` to
// what all of a counter are shared by: atomics, events, and `X`, which is `Send + Sync`.
unsafe impl<T: Tally, S: Steps, X: Send + Sync> Send for Gate<T, S, X> {}
// SAFETY: as above.
unsafe impl<T: Tally, S: Steps, X: Send + Sync> Sync for Gate<T, S, X> {}

impl<T: Tally, S: Steps, X: Send + Sync> Gate<T, S, X> {
    /// A gate in this state, open or closed as it says.
    pub(super) fn new(
        mut tally: impl FnMut() -> T,
        tag: u32,
        next: *const Self,
        control: *const Control<T, S, X>,
    ) -> Self {
        let (entered, left) = (tally(), tally());
        let (state, taken) = (AtomicU32::new(tag), AtomicBool::new(true));
        let gate = Gate { entered, left, state, taken, next, control, steps: PhantomData };
        gate.open_or_close(tag);
        gate
    }

    /// Opens or closes the counts, as a state asks for (spread/I2).
    pub(super) fn open_or_close(&self, tag: u32) {
        if tag == NORMAL {
            self.entered.open();
            self.left.open();
        } else {
            self.entered.close();
            self.left.close();
        }
    }

    /// The control of the counter.
    #[inline]
    pub fn control(&self) -> &Control<T, S, X> {
        // SAFETY: whoever borrows a gate does so from the control's owner, or from a `LocalRequests`, which has a share of that:
        // the control outlives the borrow. It is shared only, from before anybody else had it (`Owner::new`).
        unsafe { &*self.control }
    }

    /// Enters, if it is neither stopped nor shut down.
    ///
    /// # Errors
    /// [`Refused`]: the request has not entered.
    #[inline(always)]
    pub fn try_enter(&self) -> Result<(), Refused> {
        if self.entered.count_at_gate() {
            S::step();
            return Ok(());
        }
        // A way of its own, so that nothing has to be kept over the calls there.
        self.enter_by_state()
    }

    /// The gate is closed, or is not here.
    #[cold]
    #[inline(never)]
    fn enter_by_state(&self) -> Result<(), Refused> {
        // Relaxed: looked at again below. Who is refused here has counted nothing (spread/I5).
        match self.state.load(Ordering::Relaxed) & STATE {
            STOP => return Err(Refused::Stopped),
            SHUTDOWN => return Err(Refused::ShutDown),
            _ => self.entered.count(),
        }
        S::step();
        if !sites::PROXY_ENTER_LIGHT.is_weak() {
            // Partner: the heavy fence of the control (spread/I3).
            asym::light();
        }
        // Acquire: pairs with the Release of a restart: a request sees what was done while it was stopped.
        if self.state.load(sites::PROXY_ENTER_ACQUIRE.order(Ordering::Acquire)) == NORMAL {
            return Ok(());
        }
        self.look_again()
    }

    /// The request has been counted, and saw that it may not be admitted, or needs a full fence.
    #[cold]
    #[inline(never)]
    fn look_again(&self) -> Result<(), Refused> {
        S::step();
        if !sites::PROXY_ENTER_FULL.is_weak() {
            // Partner: the heavy fence of the control (spread/I3).
            fence(Ordering::SeqCst);
        }
        // Acquire: as in `enter_by_state`.
        let state = self.state.load(sites::PROXY_ENTER_ACQUIRE.order(Ordering::Acquire)) & STATE;
        if state == NORMAL {
            return Ok(());
        }
        self.count_out();
        Err(if state == STOP { Refused::Stopped } else { Refused::ShutDown })
    }

    /// Leaves: a request that entered by this gate, or by another of the same counter.
    ///
    /// # Panics
    /// In builds with debug assertions, if more requests have left than entered; nothing has changed then. In others the next
    /// stop or shutdown does.
    #[inline(always)]
    pub fn leave(&self) {
        self.count_out();
        if cfg!(debug_assertions) && self.control().inside_at_most() < 0 {
            self.count_back();
        }
    }

    /// In builds with debug assertions, after a request has left: more left than entered. The one that this thread's is taken
    /// for is counted as if it had entered, and reported; the others are not blamed for it.
    #[cold]
    fn count_back(&self) {
        let control = self.control();
        // So that of two that see one too many only one counts it back.
        let turn = control.counting_back.lock().unwrap_or_else(|poison| poison.into_inner());
        if control.inside_at_most() < 0 {
            self.entered.count();
            drop(turn);
            more_left_than_entered();
        }
    }

    #[inline(always)]
    pub(super) fn count_out(&self) {
        if !sites::PROXY_LEAVE_RELEASE.is_weak() {
            // Release: pairs with the acquire fence between the sums (spread/I4). No instruction on x86-64.
            fence(Ordering::Release);
        }
        if !self.left.count_at_gate() {
            self.count_out_by_state();
        }
    }

    /// The gate is closed, or is not here.
    #[cold]
    #[inline(never)]
    fn count_out_by_state(&self) {
        self.left.count();
        S::step();
        if !sites::PROXY_LEAVE_LIGHT.is_weak() {
            // Partner: the heavy fence of the control (spread/I5).
            asym::light();
        }
        if self.state.load(Ordering::Relaxed) == NORMAL {
            return;
        }
        if !sites::PROXY_LEAVE_FULL.is_weak() {
            // Partner: the heavy fence of the control (spread/I5).
            fence(Ordering::SeqCst);
        }
        S::step();
        if self.state.load(Ordering::Relaxed) & STATE != NORMAL {
            self.control().drained.signal(u32::MAX);
        }
    }

    /// Sleeps while it is stopped, or until its limits are over.
    #[cold]
    pub fn await_turn(&self, limits: Limits<'_>) {
        // Relaxed: who goes on enters, with its own ordering.
        let is_over = || self.state.load(Ordering::Relaxed) & STATE != STOP;
        let _ = wait::<S>(&self.control().turn, is_over, limits);
    }
}

impl<T: Tally, S: Steps, X: Send + Sync> fmt::Debug for Gate<T, S, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("requests", self.control()).finish_non_exhaustive()
    }
}

/// A processor's part of a [`SpreadRequests`](super::SpreadRequests): for a representative. It leads to a [`Gate`], which nobody
/// else is given while it exists.
pub struct LocalRequests<T: Tally, S: Steps = Undisturbed, X: Send + Sync = ()> {
    /// One of `owner`'s.
    pub(super) gate: NonNull<Gate<T, S, X>>,
    pub(super) owner: Arc<Owner<T, S, X>>,
}

// SAFETY: the pointer stands for a shared reference to a gate, which threads may share.
unsafe impl<T: Tally, S: Steps, X: Send + Sync> Send for LocalRequests<T, S, X> {}
// SAFETY: as above.
unsafe impl<T: Tally, S: Steps, X: Send + Sync> Sync for LocalRequests<T, S, X> {}

impl<T: Tally, S: Steps, X: Send + Sync> std::ops::Deref for LocalRequests<T, S, X> {
    type Target = Gate<T, S, X>;

    #[inline(always)]
    fn deref(&self) -> &Gate<T, S, X> {
        // SAFETY: a gate of `owner`'s, which is kept as long as that (spread/I6).
        unsafe { self.gate.as_ref() }
    }
}

impl<T: Tally, S: Steps, X: Send + Sync> Drop for LocalRequests<T, S, X> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire of the next who takes it.
        self.taken.store(false, Ordering::Release);
    }
}

impl<T: Tally, S: Steps, X: Send + Sync> fmt::Debug for LocalRequests<T, S, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalRequests").field("requests", self.owner.control()).finish_non_exhaustive()
    }
}
