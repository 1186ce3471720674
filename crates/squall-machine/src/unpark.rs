//! Sleep of a thread that waits as a task does: a waker that wakes it.

#[cfg(not(loom))]
use crate::park::time_left;
use squall_sys::sync::{StdArc, thread};
use std::task::{Wake, Waker};
use std::time::Duration;
#[cfg(not(loom))]
use std::time::Instant;

/// Wakes a blocked thread.
pub struct Unpark(thread::Thread);

impl Unpark {
    /// Returns a waker of the calling thread.
    pub fn waker() -> Waker {
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
pub fn park_for(limit: Duration) {
    thread::park_timeout(limit);
}

/// Sleeps until `is_over` returns true after a wake-up, or until `deadline`. The thread left a waker
/// before, and it was not over then.
#[cfg(not(loom))]
pub fn park_until(deadline: Option<Instant>, is_over: impl Fn() -> bool) {
    loop {
        match time_left(deadline) {
            None => thread::park(),
            Some(Duration::ZERO) => return,
            Some(left) => park_for(left),
        }
        if is_over() {
            return;
        }
    }
}

/// A model has no time.
#[cfg(loom)]
pub fn park_for(_: Duration) {
    thread::yield_now();
}
