//! `Lock<T>`: two bytes beside the value; an unlock without waiters is a plain store. The protocol is in
//! `raw`.

mod guard;
#[cfg(all(test, any(loom, squall_model)))]
mod model;
mod raw;
pub(crate) mod slow;

use crate::deadlock;
use crate::records::{LockType, Wait};
use crate::steps::{NoSteps, Steps};
pub use guard::LockGuard;
use raw::RawLock;
#[cfg(not(loom))]
pub use raw::zeros_are_free;
use squall_sys::sync::cell::UnsafeCell;
use squall_sys::trace::Subject;
use std::fmt;
use std::panic::Location;
use std::time::{Duration, Instant};

/// A mutual-exclusion lock that needs two bytes beside its value.
///
/// Taking a free lock is one atomic operation. Releasing it without waiters is a plain store.
///
/// Drawbacks:
/// - The first sleeper after a quiet time is expensive. A thread that sleeps for a lock without recent
///   sleepers makes a system call. The call interrupts every processor on which a thread of this process
///   runs, for some microseconds.
/// - After a sleep, each release costs one more atomic operation, until 64 releases in a row found no
///   sleeper. The first 9 releases of a new lock cost it too. Without `membarrier` every release does. A
///   lock that is always contended therefore costs as much as a common mutex.
/// - Waiters have no order, and a thread that retakes the lock again and again can starve them. If possible,
///   a release hands the lock to a waiter that was woken 16 times and found the lock held. Use a
///   [`ConfigurableLock`](crate::ConfigurableLock) for an order.
/// - Poisoning does not exist. A panic releases the lock, and the next holder sees the value as the panic
///   left it. A reference to a `Lock` is therefore not `UnwindSafe`, unlike a reference to a `std` mutex.
/// - A global allocator may use only `try_lock`. A waiting thread may allocate, in every build.
/// - The releasing thread still reads the lock's two bytes when another thread may already hold the lock. The
///   borrow of the guard covers that read. Code that frees a lock through raw pointers must wait until the
///   guard's drop has returned.
///
/// A thread that locks a lock it already holds waits forever. In debug builds it panics instead and names the
/// cycle. Longer cycles of threads that wait for each other's locks without a limit panic too.
///
/// Progress: taking blocks. A release is wait-free except for a wake-up. A thread that stalls while it holds
/// the lock delays every thread that wants it. Both operations take effect at their access to the first byte.
///
/// # Cost
/// Free: one compare-exchange, one store and one load. Contended: a few dozen pauses and a few yields, then
/// sleep.
///
/// # Source
/// D. Dice, H. Huang, M. Yang, "Asymmetric Dekker synchronization", 2001. Waiters sleep in
/// `parking_lot_core`'s table.
///
/// # Example
/// ```
/// use squall::lock::Lock;
///
/// static TOTAL: Lock<u64> = Lock::new(0);
/// std::thread::scope(|threads| {
///     for _ in 0..4 {
///         threads.spawn(|| *TOTAL.lock() += 1);
///     }
/// });
/// assert_eq!(*TOTAL.lock(), 4);
/// ```
/// Code that catches a panic under the lock must say so with `AssertUnwindSafe`:
/// ```compile_fail,E0277
/// let total = squall::lock::Lock::new(0);
/// let _ = std::panic::catch_unwind(|| *total.lock() += 1);
/// ```
pub struct Lock<T: ?Sized, S: Steps = NoSteps> {
    raw: RawLock<S>,
    value: UnsafeCell<T>,
}

// SAFETY: the lock owns its value, so sending the lock sends the value. The two bytes beside it belong to no
// thread.
unsafe impl<T: ?Sized + Send, S: Steps> Send for Lock<T, S> {}
// SAFETY: threads that share the lock reach the value one at a time, through a guard obtained by `take`
// (raw/I1). That moves the value between threads, for which it is `Send`. Two threads never read it at once,
// so `Sync` is not needed.
unsafe impl<T: ?Sized + Send, S: Steps> Sync for Lock<T, S> {}

impl<T> Lock<T> {
    /// Makes a free lock around `value`.
    #[cfg(not(loom))]
    pub const fn new(value: T) -> Lock<T> {
        Lock::with_steps(value)
    }

    /// Makes a free lock around `value`.
    #[cfg(loom)]
    pub fn new(value: T) -> Lock<T> {
        Lock::with_steps(value)
    }
}

impl<T, S: Steps> Lock<T, S> {
    /// Like [`Lock::new`], with the steps `S` of a stress test.
    #[doc(hidden)]
    #[cfg(not(loom))]
    pub const fn with_steps(value: T) -> Lock<T, S> {
        Lock { raw: RawLock::new(), value: UnsafeCell::new(value) }
    }

    /// Like [`Lock::new`], with the steps `S` of a stress test.
    #[doc(hidden)]
    #[cfg(loom)]
    pub fn with_steps(value: T) -> Lock<T, S> {
        Lock { raw: RawLock::new(), value: UnsafeCell::new(value) }
    }

    /// Consumes the lock and returns the value.
    ///
    /// # Example
    /// ```
    /// let lock = squall::lock::Lock::new(3);
    /// *lock.lock() += 1;
    /// assert_eq!(lock.into_inner(), 4);
    /// ```
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized, S: Steps> Lock<T, S> {
    /// Takes the lock, and waits until it is free.
    ///
    /// # Panics
    /// In debug builds, if this wait can never end. Then the thread holds the lock itself, or threads that
    /// wait for locks without a limit form a cycle. The message names the cycle.
    ///
    /// # Example
    /// ```
    /// let lock = squall::lock::Lock::new(Vec::new());
    /// lock.lock().push(1);
    /// assert_eq!(*lock.lock(), [1]);
    /// ```
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> LockGuard<'_, T, S> {
        if !self.raw.take() {
            self.lock_slowly();
        }
        self.guard()
    }

    /// Takes the lock if it is free. Returns `None` if a thread holds it.
    ///
    /// # Example
    /// ```
    /// let lock = squall::lock::Lock::new(1);
    /// let held = lock.try_lock().expect("the lock is free");
    /// assert!(lock.try_lock().is_none());
    /// drop(held);
    /// assert!(lock.try_lock().is_some());
    /// ```
    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> Option<LockGuard<'_, T, S>> {
        // Read `held` first: a failing compare-exchange would take the cache line from the holder.
        // `Option::then` would not do: inside a closure `Location::caller` is this line, and a deadlock
        // report would name it.
        if !self.raw.is_held() && self.raw.take() { Some(self.guard()) } else { None }
    }

    /// Internal: like [`Lock::try_lock`], but without the read before the compare-exchange. For callers that
    /// expect a free lock.
    #[doc(hidden)]
    #[inline(always)]
    #[track_caller]
    pub fn __try_lock_without_read(&self) -> Option<LockGuard<'_, T, S>> {
        if self.raw.take() { Some(self.guard()) } else { None }
    }

    /// Takes the lock, or gives up after `limit` and returns `None`.
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    ///
    /// let lock = squall::lock::Lock::new(1);
    /// let held = lock.lock();
    /// assert!(lock.try_lock_for(Duration::from_millis(1)).is_none());
    /// drop(held);
    /// assert!(lock.try_lock_for(Duration::from_millis(1)).is_some());
    /// ```
    #[inline]
    #[track_caller]
    pub fn try_lock_for(&self, limit: Duration) -> Option<LockGuard<'_, T, S>> {
        // A limit beyond the end of the clock means no deadline.
        let deadline = || Instant::now().checked_add(limit);
        if self.raw.take() || self.take_until(deadline()) { Some(self.guard()) } else { None }
    }

    /// Takes the lock, or gives up when `deadline` has passed and returns `None`. A past deadline still takes
    /// a free lock.
    #[inline]
    #[track_caller]
    pub fn try_lock_until(&self, deadline: Instant) -> Option<LockGuard<'_, T, S>> {
        if self.raw.take() || self.take_until(Some(deadline)) { Some(self.guard()) } else { None }
    }

    /// Returns whether a thread holds the lock now. The answer may be out of date when it returns.
    pub fn is_locked(&self) -> bool {
        self.raw.is_held()
    }

    /// Returns the value without locking: the exclusive borrow proves that no other reference exists.
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: the pointer is that of a live value, and `&mut self` is the only reference to the lock. A
        // guard can exist only if it was forgotten, and a forgotten guard cannot reach the value.
        unsafe { &mut *self.value.with_mut(|value| value) }
    }

    /// Names the lock for deadlock reports. Meant for locks that live long: the name stays with the address.
    /// Does nothing in release builds.
    ///
    /// # Example
    /// ```
    /// static ACCOUNTS: squall::lock::Lock<Vec<u64>> = squall::lock::Lock::new(Vec::new());
    /// ACCOUNTS.set_name("accounts");
    /// ```
    pub fn set_name(&self, name: &'static str) {
        deadlock::name(self.raw.address(), name);
    }

    /// Makes the guard of the lock that this thread has just taken.
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
        self.lock_slowly_in(LockType::Plain, Subject::at(self));
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn lock_slowly_in(&self, lock: LockType, subject: Subject) {
        let wait = Wait::begin(lock, subject);
        if !self.raw.spin() {
            deadlock::waits(self.raw.address(), || self.raw.sleep(None, &wait));
        }
        wait.end(true);
    }

    #[cold]
    #[inline(never)]
    fn take_until(&self, deadline: Option<Instant>) -> bool {
        self.take_until_in(deadline, LockType::Plain, Subject::at(self))
    }

    fn take_until_in(&self, deadline: Option<Instant>, lock: LockType, subject: Subject) -> bool {
        let wait = Wait::begin(lock, subject);
        let got = self.raw.spin() || self.raw.sleep(deadline, &wait);
        wait.end(got);
        got
    }

    /// Like [`lock`](Lock::lock), for the lock of type `lock` around this one: `whole` gives the subject of
    /// the events.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn lock_in<W: ?Sized>(&self, lock: LockType, whole: &W) -> LockGuard<'_, T, S> {
        if !self.raw.take() {
            self.lock_slowly_in(lock, Subject::at(whole));
        }
        self.guard()
    }

    /// Like [`try_lock_until`](Lock::try_lock_until), for the lock of type `lock` around this one.
    #[cfg(not(loom))]
    #[track_caller]
    pub(crate) fn try_lock_until_in<W: ?Sized>(
        &self,
        deadline: Instant,
        lock: LockType,
        whole: &W,
    ) -> Option<LockGuard<'_, T, S>> {
        if self.raw.take() || self.take_until_in(Some(deadline), lock, Subject::at(whole)) {
            Some(self.guard())
        } else {
            None
        }
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
