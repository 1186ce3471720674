//! The switch by which any thread allows or forbids the reclaimer, and waits for the calls that it runs.
//!
//! Problem: once a program has forbidden the reclaimer, no deferred call may run on the reclaimer thread. So
//! the program must wait until that thread has ended the calls that it had begun. Idea: one word says whether
//! the reclaimer is allowed and whether it runs calls. So each side makes one atomic step, and needs no
//! handshake with fences.
//!
//! ```text
//! begin a turn: RUNNING -> TURN. In any other state the reclaimer takes no call
//! end a turn:   TURN -> RUNNING, STOPPING -> PAUSED; wake the waiters
//! forbid:       RUNNING -> PAUSED, TURN -> STOPPING; then sleep while STOPPING
//! allow:        PAUSED -> RUNNING, STOPPING -> TURN
//! ```
//!
//! - I1. When a thread has forbidden the reclaimer and waited, no turn is open until the next permission. All
//!   effects of the calls in earlier turns happen before the return of the wait. *Argument.* A turn begins
//!   only in RUNNING, and is open only in TURN and STOPPING. The waiter leaves in another state, or after
//!   another thread gave the permission. It reads the store that ended the turn, or a later one of the same
//!   chain of exchanges.
//! - I2. All that a thread did before it allowed the reclaimer happens before the calls of later turns.
//! - I3. A waiter is woken: the end of each turn signals after its exchange (`park/I1`).
//!
//! Not promised: a wait that ends if the waiter itself holds up a call of the turn. The callers of
//! [`Switch::wait_turn_end`] exclude the cases that they can see.
//! Progress: the reclaimer's steps are lock-free. A wait blocks on the calls of one turn, never on readers.
//! Cost: two exchanges and a signal per turn.

use squall_machine::park::EventCount;
use squall_sys::sync::atomic::{AtomicU8, Ordering};

use super::sites;

/// No thread has asked yet whether the reclaimer is allowed.
pub(crate) const UNASKED: u8 = 0;
/// Forbidden before the thread was started.
pub(crate) const OFF: u8 = 1;
/// Allowed, but the thread has not been started.
pub(crate) const ALLOWED: u8 = 2;
/// The thread exists and is allowed.
pub(crate) const RUNNING: u8 = 3;
/// The system refused to start the thread.
pub(crate) const FAILED: u8 = 4;
/// The thread exists and is forbidden.
pub(crate) const PAUSED: u8 = 5;
/// Like [`RUNNING`], and a turn is open.
pub(crate) const TURN: u8 = 6;
/// Like [`PAUSED`], but a turn that began before is open.
pub(crate) const STOPPING: u8 = 7;

/// The reclaimer's state, and the place to wait for the end of a turn.
pub(crate) struct Switch {
    state: AtomicU8,
    ended: EventCount,
}

/// A span in which the reclaimer runs calls. Dropping it ends the turn.
pub(crate) struct Turn<'a>(&'a Switch);

impl Switch {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Switch {
        Switch { state: AtomicU8::new(UNASKED), ended: EventCount::new() }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Switch {
        Switch { state: AtomicU8::new(UNASKED), ended: EventCount::new() }
    }

    /// Returns the state.
    pub(crate) fn state(&self) -> u8 {
        self.state.load(Ordering::Relaxed)
    }

    /// Makes the first decision, unless another thread has decided before.
    pub(crate) fn decide(&self, allowed: bool) {
        let state = if allowed { ALLOWED } else { OFF };
        // AcqRel: as in `set`.
        let _ = self.state.compare_exchange(UNASKED, state, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Allows or forbids the reclaimer. Returns the state before.
    pub(crate) fn set(&self, allowed: bool) -> u8 {
        let change = |state| match (state, allowed) {
            (TURN | STOPPING, true) => TURN,
            (TURN | STOPPING, false) => STOPPING,
            (RUNNING | PAUSED, true) => RUNNING,
            (RUNNING | PAUSED, false) => PAUSED,
            (_, true) => ALLOWED,
            (_, false) => OFF,
        };
        // Acquire: pairs with the release that ends a turn (I1). Release: pairs with the acquire that begins
        // one (I2). Both also order the state changes one after the other.
        let old = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| Some(change(state)));
        old.unwrap_or_else(|state| state)
    }

    /// Notes that the thread is being started. Returns whether the caller must start it.
    pub(crate) fn start(&self) -> bool {
        // AcqRel: as in `set`; the thread that makes this exchange starts the reclaimer.
        self.state.compare_exchange(ALLOWED, RUNNING, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Notes that the system refused to start the thread.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn fail(&self) {
        // Release: pairs with the exchange in `set`.
        self.state.store(FAILED, Ordering::Release);
    }

    /// Begins a turn, unless the reclaimer is forbidden. Called by the reclaimer only.
    #[must_use]
    pub(crate) fn begin_turn(&self) -> Option<Turn<'_>> {
        // Acquire: pairs with the release in `set` (I2).
        let order = sites::TURN_ACQUIRE.order(Ordering::Acquire);
        let began = self.state.compare_exchange(RUNNING, TURN, order, Ordering::Relaxed);
        // Lazily: a turn that did not begin must not end.
        began.is_ok().then(|| Turn(self))
    }

    /// Waits until no turn is open that began before the reclaimer was forbidden. Does not wait for the next
    /// turns if another thread has allowed the reclaimer since.
    pub(crate) fn wait_turn_end(&self) {
        loop {
            let seen = self.ended.prepare();
            // Acquire: pairs with the release that ends a turn (I1).
            if self.state.load(Ordering::Acquire) != STOPPING {
                return;
            }
            self.ended.wait(seen, None);
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let change = |state| Some(if state == STOPPING { PAUSED } else { RUNNING });
        // Release: pairs with the acquires in `set` and `wait_turn_end` (I1).
        let order = sites::TURN_RELEASE.order(Ordering::Release);
        let _ = self.0.state.fetch_update(order, Ordering::Relaxed, change);
        self.0.ended.signal(u32::MAX);
    }
}
