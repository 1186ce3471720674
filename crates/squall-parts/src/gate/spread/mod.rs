//! The request counter spread over processors: a private list of *proxies*, each with its own counts and
//! state.
//!
//! Problem: requests that share one counter slow each other down. Idea: each processor counts on its own
//! proxy, made at its first call. Only the control visits all proxies. Where processors have *gates*,
//! counting and checking for permission are a single step there. The danger is a proxy that is made during a
//! change of state and misses the change.
//!
//! ```text
//! current = head of the list of proxies | FENCED | state     one word, replaced at once
//! proxy   = entered, left (each with a gate), state (| FENCED), next
//! first   = a proxy too, outside the list; its state also says BUSY
//!
//! new proxy: read current; take state, gates and next from it; compare-exchange current, else again
//! enter:     count `entered` at its gate: inside. If the gate is closed or not here:
//!            state == NORMAL; count `entered`; light fence; state == NORMAL: inside.
//!            Else count `left`, wake the control, rejected
//! leave:     (on any proxy, the near one now) count `left` at its gate: done. If closed or not here:
//!            count `left`; light fence; state == NORMAL: done. Else wake the control
//! stop:      first: NORMAL -> STOP|BUSY; current: STOP; first and each proxy in the list at that time:
//!            STOP, gates closed; finish closing; heavy fence;
//!            sleep until the sum of left equals the sum of entered; first: clear BUSY
//! restart:   first: STOP -> STOP|BUSY; current: NORMAL; each proxy: NORMAL, gates open;
//!            first: gates open, then NORMAL, last; wake the requests
//! shutdown:  like stop, to SHUTDOWN; interrupted: like restart, to the previous state
//! ```
//!
//! - I1. The control operations of one counter exclude each other. Each begins with a compare-exchange of
//!   `first`'s state, and ends with a change of that state. So a second stop fails at the compare-exchange,
//!   and cannot slip into an unfinished restart (X-04). A control operation changes gates only before its
//!   end.
//! - I2. Every callable proxy has the state of `current`, except between the two steps of the control. It was
//!   made in that state, or was in the list when the state changed. Its gates are open if the state is NORMAL
//!   without FENCED, and closed otherwise.
//! - I3. *When a stop returns, no request is inside.* A request that passed a gate did so before the closing
//!   was finished, so the later sums include it. For the closing thread, check and count are one step
//!   ([`Tally::finish_closing`]). A request that counts without a gate reads the state afterwards. Its light
//!   fence and the stop's heavy fence are ordered. Either the sums see its count, or it sees the state and
//!   does not go in. (FENCED, without `membarrier`: both are full fences.)
//! - I4. *The sums are no snapshot, and need not be one.* The `left` counts are summed first. Each request in
//!   that sum had entered before, so the later sum of `entered` includes it too. If the two sums are equal,
//!   no request was inside between them. A release fence before each count of `left`, and an acquire fence
//!   between the sums, order this across processors. The list only grows, so the later sum covers at least as
//!   many proxies.
//! - I5. The sums become equal. Once a proxy's gate is closed and its state is visible, its `entered` no
//!   longer grows, however often requests are rejected. A request that was counting at that time counts
//!   `left` too, and then signals. A request that leaves through a gate did so before the closing was
//!   finished, and the first sum includes it; no wake-up is needed. A request that leaves without a gate sees
//!   the state and signals, or is in the sum: the handshake of I3 again.
//! - I6. A proxy is freed with its counter. A proxy without a user is given to the next caller that asks for
//!   one.
//!
//! Not promised: that a request that leaves without having entered is detected at once. The next stop or
//! shutdown finds more `left` than `entered`, and panics. Builds with debug assertions check at each leave.
//! They count a detected request as entered, so that other requests are not blamed.
//! Progress: entering and leaving are wait-free, except during a stop. The control waits for requests, never
//! for a miss: a request inside may have a proxy made, because no lock is held.
//! Cost: entering and leaving are one restartable addition each, if proxies are per processor and the kernel
//! restarts sequences on request. Otherwise each is an atomic addition, with one or two loads of the same
//! lines. A control operation that drains makes two system calls, and reads the lines of each proxy twice.
//! Source: CO-50 to CO-52: Appavoo 2005, §4.1.3, figures 4.6 to 4.10. Differences: a request may leave on
//! another processor than it entered on, so the counts of one proxy alone mean little, and the control waits
//! for all of them together. An entering request does not read a state.

mod control;
mod gate;
mod tally;

pub use control::Control;
pub use gate::{Gate, LocalRequests};
pub use tally::Tally;

use super::TaskPlace;
use super::phase::{BUSY, NORMAL, STATE};
use control::word_of;
use squall_lock::{NoSteps, Steps};
use squall_machine::asym;
use squall_machine::park::EventCount;
use squall_sys::sync::atomic::AtomicPtr;
#[cfg(not(loom))]
use squall_sys::sync::atomic::{AtomicBool, Ordering};
use squall_sys::sync::{Arc, Mutex};
use std::fmt;
use std::ptr::{self, NonNull};

/// Requests make full fences, and gates stay closed. A bit of `current` and of the states of proxies, beside
/// those of `phase`.
const FENCED: u32 = 8;
/// The bits of `current` that are not part of the pointer.
const TAG: u32 = STATE | FENCED;
const _: () =
    assert!(TAG & BUSY == 0 && (TAG as usize) < align_of::<Gate<squall_sys::sync::atomic::AtomicU64>>());

/// Owns a control and keeps it at its address, which its gates contain.
struct Owner<T: Tally, S: Steps, X: Send + Sync>(NonNull<Control<T, S, X>>);

// SAFETY: the pointer owns a box with a control. Threads may share the control, and the last owner drops it.
unsafe impl<T: Tally, S: Steps, X: Send + Sync> Send for Owner<T, S, X> {}
// SAFETY: the pointer owns a box with a control, which threads may share.
unsafe impl<T: Tally, S: Steps, X: Send + Sync> Sync for Owner<T, S, X> {}

impl<T: Tally, S: Steps, X: Send + Sync> Owner<T, S, X> {
    fn new(kept: X, tally: impl FnMut() -> T, fenced: bool) -> Owner<T, S, X> {
        let tag = if fenced { NORMAL | FENCED } else { NORMAL };
        let control = Control {
            current: AtomicPtr::new(word_of(ptr::null(), tag)),
            first: Gate::new(tally, tag, ptr::null(), ptr::null()),
            drained: EventCount::new(),
            turn: EventCount::new(),
            tasks: TaskPlace::new(),
            counting_back: Mutex::new(()),
            kept,
        };
        let mut control = NonNull::from(Box::leak(Box::new(control)));
        let address = control.as_ptr().cast_const();
        // SAFETY: the pointer is from a box, and no other thread has it yet.
        unsafe { control.as_mut().first.control = address };
        Owner(control)
    }

    fn control(&self) -> &Control<T, S, X> {
        // SAFETY: the pointer is from a box. The control stays in place until the drop, and is only shared.
        unsafe { self.0.as_ref() }
    }
}

impl<T: Tally, S: Steps, X: Send + Sync> Drop for Owner<T, S, X> {
    fn drop(&mut self) {
        // SAFETY: the pointer is from the box made in `new`, and is freed once. A borrower of a gate has a
        // share of this owner.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// A request counter that is spread over processors: its central part, for the root of an object. The
/// [module](super) describes its behaviour and its rules.
///
/// Each representative has a [`LocalRequests`] of it, where requests enter and leave. The control operations
/// are methods of [`Control`]. `T` is the type of a count; for a representative of one VP it is
/// [`GatedWord`](squall_machine::pervp::GatedWord). `X` is a value of the user that the counter
/// [keeps](Control::kept).
///
/// # Example
/// ```
/// use squall::parts::gate::{Limits, Rejected, SpreadRequests};
/// use squall::{Vp, pervp::GatedWord};
///
/// let requests = SpreadRequests::new(|| GatedWord::new(Vp::current()));
/// let (here, there) = (requests.first(), requests.local(|| GatedWord::new(Vp::current())));
/// here.try_enter().unwrap();
/// there.leave(); // through another representative
/// requests.stop(Limits::NONE).unwrap();
/// assert_eq!(there.try_enter(), Err(Rejected::Stopped));
/// ```
pub struct SpreadRequests<T: Tally, S: Steps = NoSteps, X: Send + Sync = ()> {
    owner: Arc<Owner<T, S, X>>,
}

impl<T: Tally> SpreadRequests<T> {
    /// Makes a counter that admits requests. `tally` makes a count of zero; it is called twice.
    pub fn new(tally: impl FnMut() -> T) -> SpreadRequests<T> {
        SpreadRequests::with_steps(tally)
    }
}

impl<T: Tally, X: Send + Sync> SpreadRequests<T, NoSteps, X> {
    /// Like [`SpreadRequests::new`], with a value that the counter [keeps](Control::kept).
    ///
    /// # Example
    /// ```
    /// use squall::parts::gate::SpreadRequests;
    /// use std::sync::atomic::AtomicU64;
    ///
    /// let requests = SpreadRequests::with("uploads", || AtomicU64::new(0));
    /// assert_eq!(*requests.first().control().kept(), "uploads");
    /// ```
    pub fn with(kept: X, tally: impl FnMut() -> T) -> SpreadRequests<T, NoSteps, X> {
        SpreadRequests { owner: Arc::new(Owner::new(kept, tally, is_fenced())) }
    }
}

impl<T: Tally, S: Steps> SpreadRequests<T, S> {
    /// Like [`SpreadRequests::new`], with the steps `S` of a stress test.
    #[doc(hidden)]
    pub fn with_steps(tally: impl FnMut() -> T) -> SpreadRequests<T, S> {
        SpreadRequests::of(tally, is_fenced())
    }

    /// Makes a counter with requests that make full fences (`fenced`) or light ones.
    pub(super) fn of(tally: impl FnMut() -> T, fenced: bool) -> SpreadRequests<T, S> {
        SpreadRequests { owner: Arc::new(Owner::new((), tally, fenced)) }
    }
}

/// Set once `membarrier`, which worked before, was refused: then gates can no longer be closed.
#[cfg(not(loom))]
static REFUSED: AtomicBool = AtomicBool::new(false);

/// Returns whether requests must make full fences.
#[cfg(not(loom))]
fn is_fenced() -> bool {
    // Relaxed: a counter made in spite of REFUSED finds out by itself.
    asym::mode() != asym::Mode::Membarrier || REFUSED.load(Ordering::Relaxed)
}

#[cfg(loom)]
fn is_fenced() -> bool {
    asym::mode() != asym::Mode::Membarrier
}

impl<T: Tally, S: Steps, X: Send + Sync> SpreadRequests<T, S, X> {
    /// Returns the gate of the first representative.
    pub fn first(&self) -> LocalRequests<T, S, X> {
        LocalRequests { gate: NonNull::from(&self.first), owner: self.owner.clone() }
    }

    /// Returns a gate for a further representative, in the counter's present state. `tally` makes a count of
    /// zero. It is called twice, or not at all if a gate without a user is available.
    ///
    /// # Example
    /// ```
    /// use squall::parts::gate::SpreadRequests;
    /// use std::sync::atomic::AtomicU64;
    ///
    /// let requests = SpreadRequests::new(|| AtomicU64::new(0));
    /// let local = requests.local(|| AtomicU64::new(0)); // one per processor
    /// local.try_enter().unwrap();
    /// assert_eq!(requests.inside(), 1);
    /// local.leave();
    /// ```
    pub fn local(&self, tally: impl FnMut() -> T) -> LocalRequests<T, S, X> {
        self.local_where(|_| true, tally)
    }

    /// Like [`local`](SpreadRequests::local), but reuses a gate without a user only if it `fits`.
    pub fn local_where(&self, fits: impl Fn(&T) -> bool, tally: impl FnMut() -> T) -> LocalRequests<T, S, X> {
        let gate = NonNull::from(self.proxy(fits, tally));
        LocalRequests { gate, owner: self.owner.clone() }
    }
}

impl<T: Tally, S: Steps, X: Send + Sync> std::ops::Deref for SpreadRequests<T, S, X> {
    type Target = Control<T, S, X>;

    #[inline]
    fn deref(&self) -> &Control<T, S, X> {
        self.owner.control()
    }
}

impl<T: Tally, S: Steps, X: Send + Sync> fmt::Debug for SpreadRequests<T, S, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpreadRequests").field("requests", &**self).finish()
    }
}

#[cold]
#[track_caller]
fn more_left_than_entered() -> ! {
    panic!("more requests left a gate than entered it: one had not entered, or left twice")
}

#[cfg(all(test, not(loom)))]
mod tests;
