//! The request counter spread over processors: a private list of *proxies*, each with counts and a state of its own.
//!
//! Problem: requests that share one counter pay for each other. Idea: each processor counts on a proxy of its own, made when it
//! calls first; only the control goes to all. Counting and asking whether one may are one step, at the *gates* of the counts,
//! where processors have them. What must not happen: that a proxy made meanwhile misses a change of state.
//!
//! ```text
//! current = head of the list of proxies | FENCED | state     one word, replaced at once
//! proxy   = entered, left (each with a gate), state (| FENCED), next
//! first   = a proxy too, outside the list; its state also says BUSY
//!
//! new proxy:  read current; state, gates and next as read there; compare-exchange of current, else again
//! enter:      count `entered` at its gate: in. Where that is closed, or not here:
//!             state == NORMAL; count `entered`; light fence; state == NORMAL: in. Else count `left`, wake the control, refused
//! leave:      (on whatever proxy is near now) count `left` at its gate: done. Where that is closed, or not here:
//!             count `left`; light fence; state == NORMAL: done. Else wake the control
//! stop:       first: NORMAL -> STOP|BUSY; current: STOP; first and each proxy of the list as it was then: STOP, gates closed;
//!             finish closing; heavy fence; until all that left are as many as all that entered: sleep; first: not BUSY
//! restart:    first: STOP -> STOP|BUSY; current: NORMAL; each proxy: NORMAL, gates open; first: gates open, then NORMAL, last;
//!             wake the requests
//! shutdown:   as stop, to SHUTDOWN; interrupted: as a restart, to the state before
//! ```
//!
//! - I1. The control operations of one counter exclude each other: each begins by a compare-exchange of `first`'s state, and
//!   ends there. So a second stop fails there, and none slips into a restart that is half done (X-04). All that a control
//!   operation does to gates it does before its end.
//! - I2. Every proxy that can be called has the state of `current`, but for the moment between the two steps of the control: it
//!   was born in it, or was in the list when it was changed. Its gates are open if that is NORMAL, without FENCED, and closed
//!   otherwise.
//! - I3. *Nobody is inside when a stop returns.* Who comes through a gate did so before the closing was finished, and is in the
//!   sums that follow: check and count are one step for whoever closes ([`Tally::finish_closing`]). Who counts elsewhere looks at
//!   the state afterwards: of its light fence and the heavy one of the stop, the first in their order decides: its count is visible
//!   to the sums, or it sees the state and does not go in. (FENCED, where `membarrier` is not used: both are full fences.)
//! - I4. *The sums are no snapshot, and need be none.* Those who left are summed first. All that are in that sum had entered
//!   before, and are in the later sum of those who entered; so if the two are equal nobody was inside between them. A release
//!   fence before each count of `left`, and an acquire fence between the sums, carry this over processors. A list only grows,
//!   so the later sum is over no fewer proxies.
//! - I5. The sums become equal: once a proxy's gate is closed and its state is seen, nothing is added to its `entered`, however
//!   often requests are refused; the counts that were under way are balanced by who made them, who then signals. Who leaves by a
//!   gate did so before the closing was finished, and is in the first sum: there is nobody to be woken. Who leaves elsewhere sees
//!   the state, and signals, or is in the sum: the handshake of I3 again.
//! - I6. A proxy is freed with its counter. One whose user is gone is taken by the next that asks.
//!
//! Not promised: that a request that leaves without having entered is noticed when it does; the next stop or shutdown finds
//! more that left than entered, and panics. Builds with debug assertions look each time, and count one that they found as if it
//! had entered, so that it is not laid to the others.
//! Progress: entering and leaving are wait-free, but for a stop. The control waits for requests, never for a miss: whoever is
//! inside may have a proxy made, since nothing is locked.
//! Cost: entering and leaving are a restartable addition each, and nothing else, where proxies are per processor and the kernel
//! restarts sequences when it is asked to; else an atomic addition each, and two loads and one of the same lines. A control
//! operation that drains: two system calls, and two looks at the lines of each proxy.
//! Source: CO-50 to CO-52: Appavoo 2005, §4.1.3, figures 4.6 to 4.10. Otherwise than there: requests may leave on another
//! processor than they entered on, so that the counts of one proxy mean nothing by themselves, and the control waits for
//! all of them at once; and who enters does not look at a state.

mod control;
mod gate;
mod tally;

pub use control::Control;
pub use gate::{Gate, LocalRequests};
pub use tally::Tally;

use super::phase::{BUSY, NORMAL, STATE};
use squall_lock::{Steps, Undisturbed};
use control::word_of;
use squall_machine::asym;
use squall_machine::park::EventCount;
use squall_sys::sync::atomic::AtomicPtr;
#[cfg(not(loom))]
use squall_sys::sync::atomic::{AtomicBool, Ordering};
use squall_sys::sync::{Arc, Mutex};
use std::fmt;
use std::ptr::{self, NonNull};

/// Requests make full fences, and gates stay closed. A bit of `current` and of the states of proxies, beside those of `phase`.
const FENCED: u32 = 8;
/// What of `current` is no pointer.
const TAG: u32 = STATE | FENCED;
const _: () = assert!(TAG & BUSY == 0 && (TAG as usize) < align_of::<Gate<squall_sys::sync::atomic::AtomicU64>>());

/// What keeps a control where it is, as its gates have its address.
struct Owner<T: Tally, S: Steps, X: Send + Sync>(NonNull<Control<T, S, X>>);

// SAFETY: it stands for a box with a control, which threads may share, and the last of them drops.
unsafe impl<T: Tally, S: Steps, X: Send + Sync> Send for Owner<T, S, X> {}
// SAFETY: as above.
unsafe impl<T: Tally, S: Steps, X: Send + Sync> Sync for Owner<T, S, X> {}

impl<T: Tally, S: Steps, X: Send + Sync> Owner<T, S, X> {
    fn new(kept: X, tally: impl FnMut() -> T, fenced: bool) -> Owner<T, S, X> {
        let tag = if fenced { NORMAL | FENCED } else { NORMAL };
        let control = Control {
            current: AtomicPtr::new(word_of(ptr::null(), tag)),
            first: Gate::new(tally, tag, ptr::null(), ptr::null()),
            drained: EventCount::new(),
            turn: EventCount::new(),
            counting_back: Mutex::new(()),
            kept,
        };
        let mut control = NonNull::from(Box::leak(Box::new(control)));
        let address = control.as_ptr().cast_const();
        // SAFETY: from a box, and nobody else has it yet.
        unsafe { control.as_mut().first.control = address };
        Owner(control)
    }

    fn control(&self) -> &Control<T, S, X> {
        // SAFETY: from a box, in place until the drop, and shared only.
        unsafe { self.0.as_ref() }
    }
}

impl<T: Tally, S: Steps, X: Send + Sync> Drop for Owner<T, S, X> {
    fn drop(&mut self) {
        // SAFETY: from a box in `new`, once; whoever borrows a gate has a share of this.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// A request counter that is spread over processors: the part that there is one of, for the root of an object. What it does,
/// and the rules: the [module](super).
///
/// Each representative has a [`LocalRequests`] of it, by which requests enter and leave; what the control does are methods of
/// [`Control`]. `T` is what counts: for a representative of one VP, [`GatedWord`](squall_machine::pervp::GatedWord). `X` is what its
/// user [keeps](Control::kept) with it.
///
/// # Example
/// ```
/// use squall_lock::requests::{Limits, Refused, SpreadRequests};
/// use squall_machine::{Vp, pervp::GatedWord};
///
/// let requests = SpreadRequests::new(|| GatedWord::new(Vp::current()));
/// let (here, there) = (requests.first(), requests.local(|| GatedWord::new(Vp::current())));
/// here.try_enter().unwrap();
/// there.leave(); // by another representative than it entered
/// requests.stop(Limits::NONE).unwrap();
/// assert_eq!(there.try_enter(), Err(Refused::Stopped));
/// ```
pub struct SpreadRequests<T: Tally, S: Steps = Undisturbed, X: Send + Sync = ()> {
    owner: Arc<Owner<T, S, X>>,
}

impl<T: Tally> SpreadRequests<T> {
    /// A counter that admits requests. `tally` makes a count of zero, and is called twice.
    pub fn new(tally: impl FnMut() -> T) -> SpreadRequests<T> {
        SpreadRequests::disturbed(tally)
    }
}

impl<T: Tally, X: Send + Sync> SpreadRequests<T, Undisturbed, X> {
    /// As [`SpreadRequests::new`], with something that is [kept](Control::kept).
    pub fn with(kept: X, tally: impl FnMut() -> T) -> SpreadRequests<T, Undisturbed, X> {
        SpreadRequests { owner: Arc::new(Owner::new(kept, tally, is_fenced())) }
    }
}

impl<T: Tally, S: Steps> SpreadRequests<T, S> {
    /// As [`SpreadRequests::new`], with something that happens at each step.
    #[doc(hidden)]
    pub fn disturbed(tally: impl FnMut() -> T) -> SpreadRequests<T, S> {
        SpreadRequests::of(tally, is_fenced())
    }

    /// A counter whose requests make full fences, or light ones.
    pub(super) fn of(tally: impl FnMut() -> T, fenced: bool) -> SpreadRequests<T, S> {
        SpreadRequests { owner: Arc::new(Owner::new((), tally, fenced)) }
    }
}

/// Set once `membarrier`, which worked before, was refused: what a gate is closed with is refused with it.
#[cfg(not(loom))]
static REFUSED: AtomicBool = AtomicBool::new(false);

/// Whether requests have to make full fences.
#[cfg(not(loom))]
fn is_fenced() -> bool {
    // Relaxed: a counter that is made in spite of it finds out anew.
    asym::mode() != asym::Mode::Membarrier || REFUSED.load(Ordering::Relaxed)
}

#[cfg(loom)]
fn is_fenced() -> bool {
    asym::mode() != asym::Mode::Membarrier
}

impl<T: Tally, S: Steps, X: Send + Sync> SpreadRequests<T, S, X> {
    /// The counts of the first representative.
    pub fn first(&self) -> LocalRequests<T, S, X> {
        LocalRequests { gate: NonNull::from(&self.first), owner: self.owner.clone() }
    }

    /// The counts of a further representative, in the state that the counter has now. `tally` makes a count of zero, and is
    /// called twice, or not at all where counts that nobody uses any more are at hand.
    pub fn local(&self, tally: impl FnMut() -> T) -> LocalRequests<T, S, X> {
        self.local_where(|_| true, tally)
    }

    /// As [`local`](SpreadRequests::local); counts that nobody uses any more are taken only where they fit.
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
    panic!("more requests left a request counter than entered it: one had not entered, or left twice")
}

#[cfg(all(test, not(loom)))]
mod tests;
