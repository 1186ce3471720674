//! Ending a wait from another thread.
//!
//! - I1. A wait that begins after [`Cancel::cancel`] does not begin; one that sleeps then is woken. A thread notes its place before it
//!   looks at the flag for the last time, under the lock of the queue in which it is going to sleep; the flag is set before the
//!   places are read and their queues searched. So either it is found in its queue, or it sees the flag.

use squall_sys::sync::atomic::{AtomicBool, Ordering};
use squall_sys::sync::{Mutex, MutexGuard};

use crate::parking::{self, FilterOp, ParkToken, UnparkToken};

/// Ends waits for locks: those that name it in their `Request`. One can end many, and for good.
#[derive(Debug, Default)]
pub struct Cancel {
    /// Set under the lock of the places.
    cancelled: AtomicBool,
    /// The keys and tokens under which threads sleep, or are about to.
    places: Mutex<Vec<(usize, usize)>>,
}

impl Cancel {
    /// One that has not been used yet.
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// Ends every wait that names this one, and all that will.
    pub fn cancel(&self) {
        let places = {
            let places = self.places();
            self.set();
            places.clone()
        };
        for (key, token) in places {
            let ours = |parked: ParkToken| {
                if parked.0 == token { FilterOp::Unpark } else { FilterOp::Skip }
            };
            parking::unpark_filter(key, ours, |_| UnparkToken(super::raw::AGAIN));
        }
    }

    fn set(&self) {
        // Release: pairs with the acquire of `is_cancelled`: what led to the cancellation is seen by whom it stops.
        self.cancelled.store(true, Ordering::Release);
    }

    /// Cancels, and wakes nobody.
    #[cfg(all(test, any(loom, squall_model)))]
    pub(super) fn cancel_silently(&self) {
        self.set();
    }

    /// Whether it was used.
    pub fn is_cancelled(&self) -> bool {
        // Acquire: pairs with the release of `set`.
        self.cancelled.load(Ordering::Acquire)
    }

    fn places(&self) -> MutexGuard<'_, Vec<(usize, usize)>> {
        // Nothing panics under this lock but a failed allocation, before anything is changed.
        self.places.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    /// Notes that a thread is about to sleep under this key. False if it must not.
    pub(super) fn enter(&self, key: usize, token: ParkToken) -> bool {
        let mut places = self.places();
        let may = !self.is_cancelled();
        if may {
            places.push((key, token.0));
        }
        may
    }

    /// It woke up.
    pub(super) fn leave(&self, key: usize, token: ParkToken) {
        let mut places = self.places();
        if let Some(at) = places.iter().position(|place| *place == (key, token.0)) {
            places.swap_remove(at);
        }
    }
}
