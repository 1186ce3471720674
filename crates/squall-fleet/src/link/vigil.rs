//! Sleeps that the end of the peer must interrupt.
//!
//! - I1. A thread counts itself, fences, and looks at the state before it sleeps. The thread that ends the
//!   link changes the state, fences, and looks at the count. So one of the two sees the other.
//! - I2. A thread that was counted is woken until it has left: it may have been about to sleep.
//!
//! Source: `connection.rs` of squall-call.

use crate::sites;
use squall_sys::sync::atomic::{AtomicU32, Ordering, fence};

/// Threads that may sleep on one word.
#[derive(Debug, Default)]
pub(crate) struct Sleepers(AtomicU32);

impl Sleepers {
    /// Runs `sleep`, which gets a function that returns whether the thread must not sleep.
    pub(crate) fn sleep(&self, has_ended: impl Fn() -> bool, sleep: impl FnOnce(&dyn Fn() -> bool)) {
        self.0.fetch_add(1, Ordering::Relaxed);
        sleep(&|| {
            if !sites::VIGIL_SLEEP.is_weak() {
                // Partner: the fence in `wake` (I1).
                fence(Ordering::SeqCst);
            }
            has_ended()
        });
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Called after the state has changed, until it returns true: no thread sleeps any more.
    pub(crate) fn wake(&self, wake: impl FnOnce()) -> bool {
        if !sites::VIGIL_WAKE.is_weak() {
            // Partner: the fence in `sleep` (I1).
            fence(Ordering::SeqCst);
        }
        if self.0.load(Ordering::Relaxed) == 0 {
            return true;
        }
        wake();
        false
    }
}
