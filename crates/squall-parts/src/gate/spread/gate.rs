//! The part of requests: they enter and leave through the near proxy. The argument is in the
//! [folder's](super) header.

use super::control::Control;
use super::{Owner, Tally, more_left_than_entered};
use crate::gate::phase::{NORMAL, SHUTDOWN, STATE, STOP};
use crate::gate::{Limits, Rejected, await_turn, sites};
use squall_lock::{NoSteps, Steps};
use squall_machine::asym;
use squall_sys::sync::Arc;
use squall_sys::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// A gate of a [`SpreadRequests`](super::SpreadRequests). The requests of one processor enter and leave
/// through it. Its counts lie on lines that other processors only read.
///
/// A [`LocalRequests`] gives access to it. The counter owns it.
#[repr(C, align(128))]
pub struct Gate<T: Tally, S: Steps = NoSteps, X: Send + Sync = ()> {
    pub(super) entered: T,
    pub(super) left: T,
    /// NORMAL, STOP or SHUTDOWN, and FENCED; for `first` also BUSY.
    pub(super) state: AtomicU32,
    /// True while the gate has a user.
    pub(super) taken: AtomicBool,
    /// The next gate; fixed once this one is in the list.
    pub(super) next: *const Gate<T, S, X>,
    /// The counter that owns this gate (spread/I6). Fixed.
    pub(super) control: *const Control<T, S, X>,
    pub(super) steps: PhantomData<fn() -> S>,
}

// SAFETY: threads share gates through atomics and `T`, which is `Send + Sync`. `next` leads to another gate.
// `control` leads to the shared part of the counter: atomics, events, and `X`, which is `Send + Sync`.
unsafe impl<T: Tally, S: Steps, X: Send + Sync> Send for Gate<T, S, X> {}
// SAFETY: threads share gates through atomics, `T` and the control, which are all `Sync`.
unsafe impl<T: Tally, S: Steps, X: Send + Sync> Sync for Gate<T, S, X> {}

impl<T: Tally, S: Steps, X: Send + Sync> Gate<T, S, X> {
    /// Makes a gate in this state, with its counts open or closed accordingly.
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

    /// Opens or closes the counts according to the state in `tag` (spread/I2).
    pub(super) fn open_or_close(&self, tag: u32) {
        if tag == NORMAL {
            self.entered.open();
            self.left.open();
        } else {
            self.entered.close();
            self.left.close();
        }
    }

    /// Returns the control of the counter.
    #[inline]
    pub fn control(&self) -> &Control<T, S, X> {
        // SAFETY: a gate is borrowed from the control's owner, or from a `LocalRequests`, which has a share
        // of that owner. So the control outlives the borrow. It has only been shared since before another
        // thread had it (`Owner::new`).
        unsafe { &*self.control }
    }

    /// Enters, if the counter is neither stopped nor shut down.
    ///
    /// # Errors
    /// [`Rejected`]: the request did not enter.
    ///
    /// # Example
    /// ```
    /// use squall::parts::gate::{Limits, Rejected, SpreadRequests};
    /// use std::sync::atomic::AtomicU64;
    ///
    /// let requests = SpreadRequests::new(|| AtomicU64::new(0));
    /// let gate = requests.first();
    /// gate.try_enter().unwrap();
    /// gate.leave();
    /// requests.stop(Limits::NONE).unwrap();
    /// assert_eq!(gate.try_enter(), Err(Rejected::Stopped));
    /// ```
    #[inline(always)]
    pub fn try_enter(&self) -> Result<(), Rejected> {
        if self.entered.count_at_gate() {
            S::step();
            return Ok(());
        }
        // Out of line, so that the fast path saves no registers for the calls there.
        self.enter_by_state()
    }

    /// Enters by the state, for a caller that finds the gate closed or runs on another processor.
    #[cold]
    #[inline(never)]
    fn enter_by_state(&self) -> Result<(), Rejected> {
        // Relaxed: read again below. A request rejected here has not touched the count (spread/I5).
        match self.state.load(Ordering::Relaxed) & STATE {
            STOP => return Err(Rejected::Stopped),
            SHUTDOWN => return Err(Rejected::ShutDown),
            _ => self.entered.count(),
        }
        S::step();
        if !sites::PROXY_ENTER_LIGHT.is_weak() {
            // Light fence: pairs with the heavy fence of the control (spread/I3).
            asym::light();
        }
        // Acquire: pairs with the Release of a restart, so that a request sees the changes made during the
        // stop.
        if self.state.load(sites::PROXY_ENTER_ACQUIRE.order(Ordering::Acquire)) == NORMAL {
            return Ok(());
        }
        self.look_again()
    }

    /// Continues for a request that was counted, and saw that it may not enter or needs a full fence.
    #[cold]
    #[inline(never)]
    fn look_again(&self) -> Result<(), Rejected> {
        S::step();
        if !sites::PROXY_ENTER_FULL.is_weak() {
            // Full fence: pairs with the heavy fence of the control (spread/I3).
            fence(Ordering::SeqCst);
        }
        // Acquire: pairs with the Release of a restart.
        let state = self.state.load(sites::PROXY_ENTER_ACQUIRE.order(Ordering::Acquire)) & STATE;
        if state == NORMAL {
            return Ok(());
        }
        self.count_out();
        Err(if state == STOP { Rejected::Stopped } else { Rejected::ShutDown })
    }

    /// Counts a request out. The request may have entered through this gate or another gate of the same
    /// counter.
    ///
    /// # Panics
    /// In builds with debug assertions, if more requests left than entered. The counter is then unchanged. In
    /// other builds the next stop or shutdown panics.
    #[inline(always)]
    pub fn leave(&self) {
        self.count_out();
        if cfg!(debug_assertions) && self.control().inside_at_most() < 0 {
            self.count_back();
        }
    }

    /// Handles more leaves than entries, after a leave in builds with debug assertions. Counts the leaving
    /// request as entered, and reports it, so that other requests are not blamed.
    #[cold]
    fn count_back(&self) {
        let control = self.control();
        // If two threads see one leave too many, only one of them counts it back.
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
            // Release fence: pairs with the acquire fence between the sums (spread/I4). No instruction on
            // x86-64.
            fence(Ordering::Release);
        }
        if !self.left.count_at_gate() {
            self.count_out_by_state();
        }
    }

    /// Leaves by the state, for a caller that finds the gate closed or runs on another processor.
    #[cold]
    #[inline(never)]
    fn count_out_by_state(&self) {
        self.left.count();
        S::step();
        if !sites::PROXY_LEAVE_LIGHT.is_weak() {
            // Light fence: pairs with the heavy fence of the control (spread/I5).
            asym::light();
        }
        if self.state.load(Ordering::Relaxed) == NORMAL {
            return;
        }
        if !sites::PROXY_LEAVE_FULL.is_weak() {
            // Full fence: pairs with the heavy fence of the control (spread/I5).
            fence(Ordering::SeqCst);
        }
        S::step();
        if self.state.load(Ordering::Relaxed) & STATE != NORMAL {
            self.control().signal_drained();
        }
    }

    /// Sleeps while the counter is stopped, or until the limits end the wait.
    #[cold]
    pub fn await_turn(&self, limits: Limits<'_>) {
        // Relaxed: the thread then enters with its own ordering.
        let is_over = || self.state.load(Ordering::Relaxed) & STATE != STOP;
        await_turn::<S>(&self.control().turn, is_over, limits);
    }
}

impl<T: Tally, S: Steps, X: Send + Sync> fmt::Debug for Gate<T, S, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("requests", self.control()).finish_non_exhaustive()
    }
}

/// One processor's part of a [`SpreadRequests`](super::SpreadRequests), for a representative. It has a
/// pointer to a [`Gate`] and is the gate's only user.
///
/// # Example
/// ```
/// use squall::parts::gate::{LocalRequests, SpreadRequests};
/// use std::sync::atomic::AtomicU64;
///
/// struct Representative {
///     requests: LocalRequests<AtomicU64>,
/// }
///
/// let requests = SpreadRequests::new(|| AtomicU64::new(0));
/// let rep = Representative { requests: requests.local(|| AtomicU64::new(0)) };
/// assert!(rep.requests.try_enter().is_ok());
/// rep.requests.leave();
/// ```
pub struct LocalRequests<T: Tally, S: Steps = NoSteps, X: Send + Sync = ()> {
    /// A gate of `owner`.
    pub(super) gate: NonNull<Gate<T, S, X>>,
    pub(super) owner: Arc<Owner<T, S, X>>,
}

// SAFETY: the pointer stands for a shared reference to a gate, which threads may share.
unsafe impl<T: Tally, S: Steps, X: Send + Sync> Send for LocalRequests<T, S, X> {}
// SAFETY: the pointer stands for a shared reference to a gate, which threads may share.
unsafe impl<T: Tally, S: Steps, X: Send + Sync> Sync for LocalRequests<T, S, X> {}

impl<T: Tally, S: Steps, X: Send + Sync> std::ops::Deref for LocalRequests<T, S, X> {
    type Target = Gate<T, S, X>;

    #[inline(always)]
    fn deref(&self) -> &Gate<T, S, X> {
        // SAFETY: the gate belongs to `owner`, which keeps it as long as it lives (spread/I6).
        unsafe { self.gate.as_ref() }
    }
}

impl<T: Tally, S: Steps, X: Send + Sync> Drop for LocalRequests<T, S, X> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire of the next user that takes the gate.
        self.taken.store(false, Ordering::Release);
    }
}

impl<T: Tally, S: Steps, X: Send + Sync> fmt::Debug for LocalRequests<T, S, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalRequests").field("requests", self.owner.control()).finish_non_exhaustive()
    }
}
