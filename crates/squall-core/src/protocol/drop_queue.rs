//! Drop queues: the representatives of ended objects that wait to be dropped on the VP for which they were
//! made.
//!
//! - I1. A representative is in at most one queue, and is put there once. It leaves the queue together with
//!   all the others, in one exchange. So it is taken once, by a thread of its VP or by the reclaimer.
//!
//! Progress: wait-free, except for the compare-exchange of `push`.
//!
//! Source: Appavoo 2005, *Clustered Objects*, §5.4.3 (CO-30).

use squall_sys::sync::atomic::{AtomicPtr, Ordering};
use std::ptr::{self, NonNull};

use super::reps::Rep;
use super::sites;

/// The drop queue of one VP.
#[derive(Debug)]
pub(crate) struct DropQueue(AtomicPtr<Rep>);

impl DropQueue {
    pub(crate) fn new() -> DropQueue {
        DropQueue(AtomicPtr::new(ptr::null_mut()))
    }

    /// Adds `rep`. Returns whether the queue was empty, so that the caller must send a thread to drain it.
    ///
    /// # Safety
    /// `rep` is valid and belongs to the caller alone. So did every `rep` that is in the queue.
    pub(crate) unsafe fn push(&self, rep: NonNull<Rep>) -> bool {
        let mut first = self.0.load(Ordering::Relaxed);
        loop {
            // SAFETY: `rep` is the caller's alone until it is in the queue.
            unsafe { rep.as_ref() }.next.store(first, Ordering::Relaxed);
            // Release: pairs with the acquire in `take`: the taker sees the link and everything done before.
            let order = sites::DROP_PUSH.order(Ordering::Release);
            match self.0.compare_exchange_weak(first, rep.as_ptr(), order, Ordering::Relaxed) {
                Ok(_) => return first.is_null(),
                Err(now) => first = now,
            }
        }
    }

    /// Takes all representatives and passes each to `f`, which may free it.
    ///
    /// # Safety
    /// Every representative in the queue is valid.
    pub(crate) unsafe fn take(&self, mut f: impl FnMut(NonNull<Rep>)) {
        // Acquire: pairs with the release in `push`. The links further down were released by their own
        // pushes, and later exchanges of the same word continue those release sequences.
        let mut next = self.0.swap(ptr::null_mut(), sites::DROP_TAKE.order(Ordering::Acquire));
        while let Some(rep) = NonNull::new(next) {
            // SAFETY: taken, so it belongs to this thread alone (I1).
            next = unsafe { rep.as_ref() }.next.load(Ordering::Relaxed);
            f(rep);
        }
    }
}
