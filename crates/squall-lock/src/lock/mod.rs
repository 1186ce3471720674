//! `Lock<T>`: two bytes, and a release that is a plain store while nobody waits. How: `raw`.

mod guard;
#[cfg(all(test, any(loom, squall_model)))]
mod model;
mod raw;
pub(crate) mod slow;

use crate::deadlock;
use crate::steps::{Steps, Undisturbed};
pub use guard::LockGuard;
use raw::RawLock;
#[cfg(not(loom))]
pub use raw::zeros_are_free;
use squall_sync::cell::UnsafeCell;
use std::fmt;
use std::panic::Location;
use std::time::{Duration, Instant};

/// A lock around a value: two bytes beside it, one atomic operation to take it and a plain store to release it while nobody
/// waits.
///
/// Drawbacks first:
/// - The first thread that sleeps for a lock which nobody slept for lately makes a system call that interrupts every
///   processor on which a thread of this process runs (some microseconds). Releases cost one more atomic operation after that
///   until 64 in a row found nobody asleep; so do the first 9 of a new lock, and all of them where `membarrier` cannot be
///   used. A lock that is fought over all the time costs what a common one does.
/// - No order among those who wait, and no protection against a thread that takes the lock again and again; one that was
///   woken in vain is handed the lock when that can be. For order, take a `ConfigurableLock`.
/// - No poisoning: a thread that panics while it holds the lock releases it, and the next sees the value as it was left. So a
///   reference to it is not `UnwindSafe`, unlike one to `std`'s.
/// - Not for a global allocator, unless nobody ever waits there (`try_lock`): a thread that waits may allocate, in every build.
/// - After the release another thread may have the lock while this one still looks at its two bytes. The borrow of the guard
///   covers that; code that frees a lock's memory by raw pointers must wait until the guard's drop has returned.
///
/// The thread that relocks a lock it holds waits for ever. In debug builds that, and every longer cycle of threads that wait for
/// each other's locks without a limit, panics and names the cycle.
///
/// Progress: taking blocks; the release is wait-free but for a wake-up. A thread that stalls while it holds the lock holds up
/// all who want it. Both take effect at the access to the first byte.
///
/// # Cost
/// Free: a compare-exchange, a store, a load. Where it is contended: a few dozen pauses and a few yields, then sleep.
///
/// # Source
/// See the header of `lock/raw.rs`; the sleep is `parking_lot_core`'s.
///
/// # Example
/// ```
/// use squall_lock::Lock;
///
/// static TOTAL: Lock<u64> = Lock::new(0);
/// std::thread::scope(|threads| {
///     for _ in 0..4 {
///         threads.spawn(|| *TOTAL.lock() += 1);
///     }
/// });
/// assert_eq!(*TOTAL.lock(), 4);
/// ```
/// What a panic left half done must be asked for by name (`AssertUnwindSafe`):
/// ```compile_fail,E0277
/// let total = squall_lock::Lock::new(0);
/// let _ = std::panic::catch_unwind(|| *total.lock() += 1);
/// ```
pub struct Lock<T: ?Sized, S: Steps = Undisturbed> {
    raw: RawLock<S>,
    value: UnsafeCell<T>,
}

// SAFETY: the lock owns its value; to send it is to send the value, and the bytes beside it belong to no thread.
unsafe impl<T: ?Sized + Send, S: Steps> Send for Lock<T, S> {}
// SAFETY: threads that share the lock reach the value one at a time, by a guard that they got from `take` (raw/I1). That
// moves the value between threads, which `Send` allows; no two ever read it at once, so `Sync` is not needed.
unsafe impl<T: ?Sized + Send, S: Steps> Sync for Lock<T, S> {}

impl<T> Lock<T> {
    /// A lock around `value`, which nobody holds.
    #[cfg(not(loom))]
    pub const fn new(value: T) -> Lock<T> {
        Lock::disturbed(value)
    }

    /// A lock around `value`, which nobody holds.
    #[cfg(loom)]
    pub fn new(value: T) -> Lock<T> {
        Lock::disturbed(value)
    }
}

impl<T, S: Steps> Lock<T, S> {
    /// As [`Lock::new`], with something that happens at each step.
    #[doc(hidden)]
    #[cfg(not(loom))]
    pub const fn disturbed(value: T) -> Lock<T, S> {
        Lock { raw: RawLock::new(), value: UnsafeCell::new(value) }
    }

    /// As [`Lock::new`], with something that happens at each step.
    #[doc(hidden)]
    #[cfg(loom)]
    pub fn disturbed(value: T) -> Lock<T, S> {
        Lock { raw: RawLock::new(), value: UnsafeCell::new(value) }
    }

    /// Ends the lock and returns the value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized, S: Steps> Lock<T, S> {
    /// Takes the lock, and waits as long as that takes.
    ///
    /// # Panics
    /// In debug builds, if this wait can never end: the thread holds the lock itself, or threads that wait for locks without a
    /// limit form a cycle. The message names the cycle.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> LockGuard<'_, T, S> {
        if !self.raw.take() {
            self.lock_slowly();
        }
        self.guard()
    }

    /// Takes the lock if it is free.
    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> Option<LockGuard<'_, T, S>> {
        // The look first: an attempt in vain would take the line from the holder.
        // Not `then`: within a closure the caller is no longer known, and a report of a deadlock would name this line.
        if !self.raw.is_held() && self.raw.take() { Some(self.guard()) } else { None }
    }

    /// Not public: the same without the look, for whoever most likely finds it free.
    #[doc(hidden)]
    #[inline(always)]
    #[track_caller]
    pub fn __try_lock_unseen(&self) -> Option<LockGuard<'_, T, S>> {
        if self.raw.take() { Some(self.guard()) } else { None }
    }

    /// Takes the lock, or gives up after `limit`.
    #[inline]
    #[track_caller]
    pub fn try_lock_for(&self, limit: Duration) -> Option<LockGuard<'_, T, S>> {
        // A limit beyond the clock's end is none.
        let deadline = || Instant::now().checked_add(limit);
        if self.raw.take() || self.take_until(deadline()) { Some(self.guard()) } else { None }
    }

    /// Takes the lock, or gives up when `deadline` has passed. A deadline in the past still takes a lock that is free.
    #[inline]
    #[track_caller]
    pub fn try_lock_until(&self, deadline: Instant) -> Option<LockGuard<'_, T, S>> {
        if self.raw.take() || self.take_until(Some(deadline)) { Some(self.guard()) } else { None }
    }

    /// Whether somebody holds the lock now. By the time of the answer it may be otherwise.
    pub fn is_locked(&self) -> bool {
        self.raw.is_held()
    }

    /// The value, without taking the lock: nobody else can have a reference to it.
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: the pointer is that of a live value, and `&mut self` is the only reference to the lock, so no guard lives
        // but forgotten ones, through which nobody reaches the value.
        unsafe { &mut *self.value.with_mut(|value| value) }
    }

    /// Gives the lock the name under which a report of a deadlock shows it. For locks that live long: the name stays with the
    /// address. Does nothing in release builds.
    pub fn set_name(&self, name: &'static str) {
        deadlock::name(self.raw.address(), name);
    }

    /// The guard of the lock that this thread has just taken.
    #[inline(always)]
    #[track_caller]
    fn guard(&self) -> LockGuard<'_, T, S> {
        deadlock::acquired(self.raw.address(), Location::caller());
        LockGuard::new(self)
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn lock_slowly(&self) {
        if !self.raw.spin() {
            deadlock::waits(self.raw.address(), || self.raw.sleep(None));
        }
    }

    #[cold]
    #[inline(never)]
    fn take_until(&self, deadline: Option<Instant>) -> bool {
        self.raw.spin() || self.raw.sleep(deadline)
    }
}

impl<T: Default> Default for Lock<T> {
    fn default() -> Lock<T> {
        Lock::new(T::default())
    }
}

impl<T> From<T> for Lock<T> {
    fn from(value: T) -> Lock<T> {
        Lock::new(value)
    }
}

impl<T: ?Sized + fmt::Debug, S: Steps> fmt::Debug for Lock<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Lock");
        match self.try_lock() {
            Some(value) => shown.field("value", &&*value),
            None => shown.field("value", &format_args!("<locked>")),
        };
        shown.finish()
    }
}
