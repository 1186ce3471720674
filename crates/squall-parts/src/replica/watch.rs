//! Who waits for something to change: wakers, and whoever wakes them.
//!
//! Problem: changes are announced to those who wait, threads and tasks alike, and cost nothing where nobody does.
//! Idea: who waits leaves a waker, and looks again; who has changed something looks whether there is any. Each has a fence between
//! the two, so that one of them sees the other.
//!
//! - I1. `waiting` is not zero while `wakers` is not empty; it is changed under the lock.
//! - I2. No code of a waker runs under the lock.
//! - I3. Each waker that was taken is woken, whatever others do.
//!
//! Not promised: that a wake-up means a change. Cost: [`Watch::wake`] is a fence and a load while nobody waits.

use squall_sys::sync::atomic::{AtomicUsize, Ordering, fence};
use squall_sys::sync::{Mutex, MutexGuard};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::Waker;

use crate::replica::sites;

/// Those who wait for the next change of something. Used by subscriptions; each wake-up takes all of them.
pub struct Watch {
    waiting: AtomicUsize,
    wakers: Mutex<Wakers>,
}

#[derive(Default)]
struct Wakers {
    /// By the ticket under which each was left.
    left: Vec<(u64, Waker)>,
    tickets: u64,
}

impl Watch {
    /// Nobody waits.
    pub fn new() -> Watch {
        Watch { waiting: AtomicUsize::new(0), wakers: Mutex::new(Wakers::default()) }
    }

    fn lock(&self) -> MutexGuard<'_, Wakers> {
        // Nothing panics under this lock but a failed allocation, which leaves the list whole.
        self.wakers.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    /// Leaves a waker, in place of the one that was left under `ticket`, if any, and returns its ticket. Look for the change
    /// *after* this: one that comes later than that look wakes.
    pub fn leave(&self, ticket: Option<u64>, waker: &Waker) -> u64 {
        let waker = waker.clone();
        let mut wakers = self.lock();
        let earlier = ticket.and_then(|ticket| wakers.left.iter_mut().find(|(left, _)| *left == ticket));
        let (ticket, replaced) = match earlier {
            Some((ticket, place)) => (*ticket, Some(std::mem::replace(place, waker))),
            None => {
                wakers.tickets += 1;
                let ticket = wakers.tickets;
                wakers.left.push((ticket, waker));
                (ticket, None)
            }
        };
        // Relaxed: the fence is behind it.
        self.waiting.store(wakers.left.len(), Ordering::Relaxed);
        drop(wakers);
        drop(replaced);
        // Pairs with the fence in `wake`: either the caller sees the change, or who made it sees the waker.
        if !sites::WATCH.is_weak() {
            fence(Ordering::SeqCst);
        }
        ticket
    }

    /// Takes the waker of this ticket back, if it is still there.
    pub fn take_back(&self, ticket: u64) {
        let mut wakers = self.lock();
        let place = wakers.left.iter().position(|(left, _)| *left == ticket);
        let taken = place.map(|place| wakers.left.swap_remove(place));
        // Relaxed: who reads an older count looks in vain.
        self.waiting.store(wakers.left.len(), Ordering::Relaxed);
        drop(wakers);
        drop(taken);
    }

    /// Wakes all who wait, after something has changed.
    ///
    /// # Panics
    /// If a waker does: with what the first of them panicked with, after all were woken.
    pub fn wake(&self) {
        // Pairs with the fence in `leave`.
        if !sites::WAKE.is_weak() {
            fence(Ordering::SeqCst);
        }
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.wake_all();
        }
    }

    #[cold]
    fn wake_all(&self) {
        let mut wakers = self.lock();
        let left = std::mem::take(&mut wakers.left);
        // Relaxed: as in `take_back`.
        self.waiting.store(0, Ordering::Relaxed);
        drop(wakers);
        let mut first = None;
        for (_, waker) in left {
            // Nothing of ours is in the midst of a change here (I2).
            match catch_unwind(AssertUnwindSafe(|| waker.wake())) {
                Err(payload) if first.is_none() => first = Some(payload),
                // Its drop may panic, too: what that panics with is leaked.
                Err(payload) => std::mem::forget(catch_unwind(AssertUnwindSafe(|| drop(payload)))),
                Ok(()) => {}
            }
        }
        if let Some(payload) = first {
            resume_unwind(payload);
        }
    }
}

impl Default for Watch {
    fn default() -> Watch {
        Watch::new()
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}
