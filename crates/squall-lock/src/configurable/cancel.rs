//! Cancellation: ending a wait from another thread.
//!
//! - I1. A wait that starts after [`Cancel::cancel`] ends at once, and a sleeping waiter is woken. A thread
//!   records its place before its last read of the flag. It makes that read under the lock of the queue in
//!   which it will sleep. `cancel` sets the flag before it reads the places and searches their queues. So
//!   `cancel` finds the thread in its queue, or the thread sees the flag.

use squall_sys::sync::atomic::{AtomicBool, Ordering};
use squall_sys::sync::{Mutex, MutexGuard};

use crate::parking::{self, FilterOp, ParkToken, UnparkToken};
use squall_sys::fork::forked;

/// Ends waits for locks. A [`Request`](crate::Request) names the `Cancel` that may end it. One `Cancel` can
/// end many waits, and stays cancelled.
///
/// # Example
/// ```
/// use squall::lock::{Cancel, ConfigurableLock, LockError, Request};
///
/// let lock = ConfigurableLock::new(0);
/// let cancel = Cancel::new();
/// let held = lock.lock();
/// std::thread::scope(|threads| {
///     let waiter = threads.spawn(|| {
///         let request = Request::new().cancel(&cancel);
///         lock.lock_with(&request).map(drop)
///     });
///     cancel.cancel();
///     assert_eq!(waiter.join().unwrap(), Err(LockError::Cancelled));
/// });
/// drop(held);
/// ```
#[derive(Debug, Default)]
pub struct Cancel {
    /// `true` once the requests are cancelled. Written under the lock of `places`.
    cancelled: AtomicBool,
    /// The keys and tokens under which threads sleep, or are about to.
    places: Mutex<Vec<(usize, usize)>>,
}

impl Cancel {
    /// Makes a `Cancel` that has not been used yet.
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// Ends every present and future wait that names this `Cancel`. The calling thread wakes the sleeping
    /// waiters. In the child of a fork, which has no other threads, it wakes no thread.
    pub fn cancel(&self) {
        if forked() {
            return self.set();
        }
        let places = {
            let places = self.places();
            self.set();
            places.clone()
        };
        for (key, token) in places {
            let ours = |parked: ParkToken| {
                if parked.0 == token { FilterOp::Unpark } else { FilterOp::Skip }
            };
            parking::unpark_filter(key, ours, |_| UnparkToken(super::tokens::AGAIN));
        }
    }

    fn set(&self) {
        // Release: pairs with the Acquire of `is_cancelled`, so that a cancelled waiter sees the writes
        // before the cancellation.
        self.cancelled.store(true, Ordering::Release);
    }

    /// Cancels without waking any waiter.
    #[cfg(all(test, any(loom, squall_model)))]
    pub(super) fn cancel_silently(&self) {
        self.set();
    }

    /// Returns whether [`cancel`](Cancel::cancel) was called.
    ///
    /// # Example
    /// ```
    /// let cancel = squall::lock::Cancel::new();
    /// assert!(!cancel.is_cancelled());
    /// cancel.cancel();
    /// assert!(cancel.is_cancelled());
    /// ```
    pub fn is_cancelled(&self) -> bool {
        // Acquire: pairs with the Release of `set`.
        self.cancelled.load(Ordering::Acquire)
    }

    fn places(&self) -> MutexGuard<'_, Vec<(usize, usize)>> {
        // Only a failed allocation can panic under this lock, and it comes before any change.
        self.places.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    /// Records that a thread is about to sleep under this key. Returns false if the wait is already
    /// cancelled.
    pub(super) fn enter(&self, key: usize, token: ParkToken) -> bool {
        let mut places = self.places();
        let may = !self.is_cancelled();
        if may {
            places.push((key, token.0));
        }
        may
    }

    /// Removes the record of a thread that woke up.
    pub(super) fn leave(&self, key: usize, token: ParkToken) {
        let mut places = self.places();
        if let Some(at) = places.iter().position(|place| *place == (key, token.0)) {
            places.swap_remove(at);
        }
    }
}
