//! Waiting for changes: the wakers of threads and tasks that wait, and the thread that wakes them.
//!
//! Problem: a change is announced to waiting threads and tasks, at no cost while there are no waiters.
//! Idea: a waiter registers a waker and then checks for the change again. A changing thread checks for
//! waiters after its change. Each has a fence between its two steps, so that at least one of them sees the
//! other.
//!
//! - I1. `waiting` is not zero while `wakers` is not empty; it changes under the lock.
//! - I2. No code of a waker runs under the lock.
//! - I3. Each waker that was taken is woken, even if another one panics.
//! - I4. A child of a fork has no waiters, and registers no waker: the lock may be held there for ever.
//!
//! Not promised: a wake-up need not mean a change. Cost: [`Watch::wake`] is a fence and a load while there
//! are no waiters.

use squall_sys::fork::forked;
use squall_sys::sync::atomic::{AtomicUsize, Ordering, fence};
use squall_sys::sync::{Mutex, MutexGuard};
use std::fmt;
use std::task::Waker;

use crate::drops::Drops;
use crate::replica::sites;

/// The waiters for the next change of an object. Used by subscriptions; each wake-up wakes all waiters.
///
/// ```
/// use squall::parts::replica::Watch;
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use std::task::{Wake, Waker};
///
/// #[derive(Default)]
/// struct Bell(AtomicBool);
/// impl Wake for Bell {
///     fn wake(self: Arc<Bell>) {
///         self.0.store(true, Ordering::Relaxed);
///     }
/// }
///
/// let (watch, bell) = (Watch::new(), Arc::new(Bell::default()));
/// watch.register(None, &Waker::from(bell.clone()));
/// // Check for the change here, then wait.
/// watch.wake(); // the changing thread
/// assert!(bell.0.load(Ordering::Relaxed));
/// ```
pub struct Watch {
    waiting: AtomicUsize,
    wakers: Mutex<Wakers>,
}

#[derive(Default)]
struct Wakers {
    /// Wakers with their tickets, in the order of the tickets.
    left: Vec<(u64, Waker)>,
    tickets: u64,
}

impl Wakers {
    /// Returns the place of the waker with this ticket.
    fn place(&self, ticket: u64) -> Option<usize> {
        self.left.binary_search_by_key(&ticket, |(left, _)| *left).ok()
    }
}

impl Watch {
    /// Returns a watch without waiters.
    pub fn new() -> Watch {
        Watch { waiting: AtomicUsize::new(0), wakers: Mutex::new(Wakers::default()) }
    }

    fn lock(&self) -> MutexGuard<'_, Wakers> {
        // Only a failed allocation can panic under this lock, which leaves the list intact.
        self.wakers.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    /// Registers a waker, in place of the one with this ticket, if any. Returns its ticket. Check for the
    /// change *after* this call: a later change wakes the waker.
    pub fn register(&self, ticket: Option<u64>, waker: &Waker) -> u64 {
        if forked() {
            return ticket.unwrap_or(0);
        }
        let waker = waker.clone();
        let mut wakers = self.lock();
        let (ticket, replaced) = match ticket.and_then(|ticket| wakers.place(ticket)) {
            Some(place) => {
                let (ticket, left) = &mut wakers.left[place];
                (*ticket, Some(std::mem::replace(left, waker)))
            }
            None => {
                wakers.tickets += 1;
                let ticket = wakers.tickets;
                wakers.left.push((ticket, waker));
                (ticket, None)
            }
        };
        // Relaxed: the fence comes after it.
        self.waiting.store(wakers.left.len(), Ordering::Relaxed);
        drop(wakers);
        drop(replaced);
        // Pairs with the fence in `wake`: either the caller sees the change, or the changing thread sees the
        // waker.
        if !sites::WATCH.is_weak() {
            fence(Ordering::SeqCst);
        }
        ticket
    }

    /// Removes the waker with this ticket, if it is still registered.
    ///
    /// ```
    /// use squall::parts::replica::Watch;
    /// use std::task::Waker;
    /// let watch = Watch::new();
    /// let ticket = watch.register(None, Waker::noop());
    /// watch.unregister(ticket);
    /// ```
    pub fn unregister(&self, ticket: u64) {
        if forked() {
            return;
        }
        let mut wakers = self.lock();
        let taken = wakers.place(ticket).map(|place| wakers.left.remove(place));
        // Relaxed: a thread that loads an older count makes a useless search.
        self.waiting.store(wakers.left.len(), Ordering::Relaxed);
        drop(wakers);
        drop(taken);
    }

    /// Returns the number of waiters, approximately.
    #[cfg(all(feature = "directories", not(loom)))]
    pub(crate) fn waiters(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Wakes all waiters. Call it after the change.
    ///
    /// # Panics
    /// If a waker panics. All wakers are called first; the first panic then goes on, unless the thread is
    /// panicking already.
    pub fn wake(&self) {
        // Pairs with the fence in `register`.
        if !sites::WAKE.is_weak() {
            fence(Ordering::SeqCst);
        }
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.wake_all();
        }
    }

    #[cold]
    fn wake_all(&self) {
        if forked() {
            return;
        }
        let mut wakers = self.lock();
        let left = std::mem::take(&mut wakers.left);
        // Relaxed: as in `unregister`.
        self.waiting.store(0, Ordering::Relaxed);
        drop(wakers);
        // No state of the watch is half changed here (I2). The first panic goes on after the last call.
        Drops::default().each(left, |(_, waker)| waker.wake());
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
