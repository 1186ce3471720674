//! Representatives whose object is gone and that wait to be dropped on the VP that made them.
//!
//! - I1. A representative is in one grave at most, is put there once, and leaves it with all the others in one exchange:
//!   it is taken once, whoever comes, its VP's runner or another where that VP is gone.
//!
//! Progress: wait-free but for the compare-exchange of `push`. Source: CO-30.

use squall_sys::sync::atomic::{AtomicPtr, Ordering};
use std::ptr::{self, NonNull};

use super::reps::Rep;
use super::sites;

/// Those of one VP.
#[derive(Debug)]
pub(crate) struct DropQueue(AtomicPtr<Rep>);

impl DropQueue {
    pub(crate) fn new() -> DropQueue {
        DropQueue(AtomicPtr::new(ptr::null_mut()))
    }

    /// Adds `rep`. Returns whether it is the only one, so that somebody must be sent.
    ///
    /// # Safety
    /// `rep` is valid and the caller's alone; so are those that are in the grave.
    pub(crate) unsafe fn push(&self, rep: NonNull<Rep>) -> bool {
        let mut first = self.0.load(Ordering::Relaxed);
        loop {
            // SAFETY: the caller's alone until it is in.
            unsafe { rep.as_ref() }.next.store(first, Ordering::Relaxed);
            // Release: pairs with the acquire in `take`: who takes it sees the link and all that was done before.
            let order = sites::DROP_PUSH.order(Ordering::Release);
            match self.0.compare_exchange_weak(first, rep.as_ptr(), order, Ordering::Relaxed) {
                Ok(_) => return first.is_null(),
                Err(now) => first = now,
            }
        }
    }

    /// Takes all, and gives each to `f`, which may free it.
    ///
    /// # Safety
    /// As of `push`.
    pub(crate) unsafe fn take(&self, mut f: impl FnMut(NonNull<Rep>)) {
        // Acquire: pairs with the release in `push`. The links of those further down were released by their own pushes,
        // which later exchanges of the same word continue.
        let mut next = self.0.swap(ptr::null_mut(), sites::DROP_TAKE.order(Ordering::Acquire));
        while let Some(rep) = NonNull::new(next) {
            // SAFETY: taken, so ours alone (I1).
            next = unsafe { rep.as_ref() }.next.load(Ordering::Relaxed);
            f(rep);
        }
    }
}
