//! Blocking forms of waits: a thread polls a wait as a task does, and sleeps between the polls.
//!
//! - I1. A poll that is pending has left the waker where the next wake-up finds it. So the thread sleeps only
//!   until the wait can go on, or until its time is up.
//! - I2. A thread that slept polls once more before it gives up. So a wake-up in time counts, although the
//!   thread runs late. The caller cancels a wait that gave up.
//!
//! Cost: an allocation for the waker. Look for an answer without a wait before.

use crate::unpark::{Unpark, park_for};
use squall_sys::sync::thread;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// Blocks the thread until `poll` is ready.
pub(crate) fn block<R>(mut poll: impl FnMut(&Waker) -> Poll<R>) -> R {
    let waker = Unpark::waker();
    loop {
        if let Poll::Ready(answer) = poll(&waker) {
            return answer;
        }
        thread::park();
    }
}

/// Blocks the thread until `poll` is ready, for at most `limit`. Returns the answer if it came in time.
pub(crate) fn block_for<R>(limit: Duration, mut poll: impl FnMut(&Waker) -> Poll<R>) -> Option<R> {
    // A limit beyond the clock's end never passes.
    let Some(end) = Instant::now().checked_add(limit) else { return Some(block(poll)) };
    let waker = Unpark::waker();
    loop {
        if let Poll::Ready(answer) = poll(&waker) {
            return Some(answer);
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        park_for(left);
    }
}
