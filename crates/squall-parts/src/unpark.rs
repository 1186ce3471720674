//! Sleep of a thread that waits as a task does: a waker that wakes it.

use squall_sys::sync::{StdArc, thread};
use std::task::{Wake, Waker};
use std::time::Duration;

/// Wakes a blocked thread.
pub(crate) struct Unpark(thread::Thread);

impl Unpark {
    /// Returns a waker of the calling thread.
    pub(crate) fn waker() -> Waker {
        Waker::from(StdArc::new(Unpark(thread::current())))
    }
}

impl Wake for Unpark {
    fn wake(self: StdArc<Self>) {
        self.0.unpark();
    }
}

/// Sleeps until the thread's waker wakes it, or until `limit` has passed.
#[cfg(not(loom))]
pub(crate) fn park_for(limit: Duration) {
    thread::park_timeout(limit);
}

/// A model has no time.
#[cfg(loom)]
pub(crate) fn park_for(_: Duration) {
    thread::yield_now();
}
