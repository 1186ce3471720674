//! `LockGuard`: proof that a thread holds a `Lock`.

use super::Lock;
use crate::deadlock;
use crate::steps::{NoSteps, Steps};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// Holds a [`Lock`] and gives access to its value. Dropping the guard releases the lock, also during a panic.
///
/// The guard must stay on the thread that took the lock, so that a deadlock report can name the holder:
/// ```compile_fail
/// static LOCK: squall::lock::Lock<u32> = squall::lock::Lock::new(0);
/// let guard = LOCK.lock();
/// std::thread::spawn(move || drop(guard));
/// ```
///
/// # Example
/// ```
/// use squall::lock::{Lock, LockGuard};
///
/// fn bump(mut total: LockGuard<'_, u64>) -> u64 {
///     *total += 1;
///     *total // the guard is dropped here, which releases the lock
/// }
///
/// let total = Lock::new(4);
/// assert_eq!(bump(total.lock()), 5);
/// assert!(!total.is_locked());
/// ```
#[must_use = "the lock is released when the guard is dropped"]
pub struct LockGuard<'a, T: ?Sized, S: Steps = NoSteps> {
    lock: &'a Lock<T, S>,
    stays: PhantomData<*const ()>,
}

// SAFETY: a shared guard only gives shared references to the value, and `T` is `Sync`.
unsafe impl<T: ?Sized + Sync, S: Steps> Sync for LockGuard<'_, T, S> {}

impl<'a, T: ?Sized, S: Steps> LockGuard<'a, T, S> {
    /// Makes the guard of a lock that this thread has taken. The lock must not have another guard.
    #[inline(always)]
    pub(crate) fn new(lock: &'a Lock<T, S>) -> LockGuard<'a, T, S> {
        LockGuard { lock, stays: PhantomData }
    }
}

impl<T: ?Sized, S: Steps> Deref for LockGuard<'_, T, S> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the pointer is that of a live value. The guard proves that this thread holds the lock, so
        // all other references come from this guard. References that may write borrow the guard mutably.
        unsafe { &*self.lock.value.with(|value| value) }
    }
}

impl<T: ?Sized, S: Steps> DerefMut for LockGuard<'_, T, S> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the pointer and the lock are as in `deref`. This guard is borrowed mutably, so there is no
        // other reference.
        unsafe { &mut *self.lock.value.with_mut(|value| value) }
    }
}

impl<T: ?Sized, S: Steps> Drop for LockGuard<'_, T, S> {
    #[inline]
    fn drop(&mut self) {
        deadlock::released(self.lock.raw.address());
        self.lock.raw.release();
    }
}

impl<T: ?Sized + fmt::Debug, S: Steps> fmt::Debug for LockGuard<'_, T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display, S: Steps> fmt::Display for LockGuard<'_, T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
