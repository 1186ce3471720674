//! The proof that a thread holds a `Lock`.

use super::Lock;
use crate::deadlock;
use crate::steps::{Steps, Undisturbed};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// The proof that this thread holds a [`Lock`], and the way to its value. Its drop releases the lock, in a panic too.
///
/// It stays on its thread, so that a report of a deadlock can say who holds what:
/// ```compile_fail
/// static LOCK: squall_lock::Lock<u32> = squall_lock::Lock::new(0);
/// let guard = LOCK.lock();
/// std::thread::spawn(move || drop(guard));
/// ```
#[must_use = "the lock is released when the guard is dropped"]
pub struct LockGuard<'a, T: ?Sized, S: Steps = Undisturbed> {
    lock: &'a Lock<T, S>,
    stays: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives shared references to the value and nothing else.
unsafe impl<T: ?Sized + Sync, S: Steps> Sync for LockGuard<'_, T, S> {}

impl<'a, T: ?Sized, S: Steps> LockGuard<'a, T, S> {
    /// The guard of a lock that this thread has taken and has no guard of.
    #[inline(always)]
    pub(crate) fn new(lock: &'a Lock<T, S>) -> LockGuard<'a, T, S> {
        LockGuard { lock, stays: PhantomData }
    }
}

impl<T: ?Sized, S: Steps> Deref for LockGuard<'_, T, S> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the pointer is that of a live value. The lock is held by whoever has the guard, so all other references
        // come from this guard, and those that may write borrow it mutably.
        unsafe { &*self.lock.value.with(|value| value) }
    }
}

impl<T: ?Sized, S: Steps> DerefMut for LockGuard<'_, T, S> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; this guard is borrowed mutably, so there is no other reference.
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
