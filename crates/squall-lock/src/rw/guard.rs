//! The guards of a `DistributedRwLock`.

use super::lock::DistributedRwLock;
use crate::deadlock;
use crate::lock::LockGuard;
use crate::steps::{NoSteps, Steps};
use squall_sys::sync::atomic::AtomicUsize;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// Holds a [`DistributedRwLock`] for reading. Dropping the guard releases the lock, also during a panic.
///
/// The guard must stay on its thread, because the mark is in the thread's record:
/// ```compile_fail
/// static LOCK: squall::lock::DistributedRwLock<u32> = squall::lock::DistributedRwLock::new(0);
/// let guard = LOCK.read();
/// std::thread::spawn(move || drop(guard));
/// ```
#[must_use = "the lock is released when the guard is dropped"]
pub struct DistributedReadGuard<'a, T: ?Sized, S: Steps = NoSteps> {
    lock: &'a DistributedRwLock<T, S>,
    /// The slot with this guard's mark.
    slot: &'static AtomicUsize,
    stays: PhantomData<*const ()>,
}

// SAFETY: a shared guard only gives shared references to the value, and `T` is `Sync`.
unsafe impl<T: ?Sized + Sync, S: Steps> Sync for DistributedReadGuard<'_, T, S> {}

impl<'a, T: ?Sized, S: Steps> DistributedReadGuard<'a, T, S> {
    /// Makes the guard of a lock that this thread reads with the mark in `slot`. The mark must not have
    /// another guard.
    #[inline(always)]
    pub(super) fn new(
        lock: &'a DistributedRwLock<T, S>,
        slot: &'static AtomicUsize,
    ) -> DistributedReadGuard<'a, T, S> {
        DistributedReadGuard { lock, slot, stays: PhantomData }
    }
}

impl<T: ?Sized, S: Steps> Deref for DistributedReadGuard<'_, T, S> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the pointer is that of a live value, and no writer is inside while the mark is set
        // (raw/I1).
        unsafe { &*self.lock.value.with(|value| value) }
    }
}

impl<T: ?Sized, S: Steps> Drop for DistributedReadGuard<'_, T, S> {
    #[inline(always)]
    fn drop(&mut self) {
        self.lock.raw.leave(self.slot);
    }
}

impl<T: ?Sized + fmt::Debug, S: Steps> fmt::Debug for DistributedReadGuard<'_, T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display, S: Steps> fmt::Display for DistributedReadGuard<'_, T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Holds a [`DistributedRwLock`] for writing. Dropping the guard releases the lock, also during a panic. The
/// guard must stay on its thread.
///
/// # Example
/// ```
/// use squall::lock::{DistributedRwLock, DistributedWriteGuard};
///
/// fn clear(mut names: DistributedWriteGuard<'_, Vec<String>>) {
///     names.clear(); // the guard is dropped here, which lets the readers in
/// }
///
/// let names = DistributedRwLock::new(vec!["a".to_string()]);
/// clear(names.write());
/// assert!(names.read().is_empty());
/// ```
#[must_use = "the lock is released when the guard is dropped"]
pub struct DistributedWriteGuard<'a, T: ?Sized, S: Steps = NoSteps> {
    lock: &'a DistributedRwLock<T, S>,
    /// Dropped after the `drop` below runs, so that the next writer starts after this one has left.
    _turn: LockGuard<'a, (), S>,
}

impl<'a, T: ?Sized, S: Steps> DistributedWriteGuard<'a, T, S> {
    /// Makes the guard of a lock that this thread has locked for writing.
    pub(super) fn new(
        lock: &'a DistributedRwLock<T, S>,
        turn: LockGuard<'a, (), S>,
    ) -> DistributedWriteGuard<'a, T, S> {
        DistributedWriteGuard { lock, _turn: turn }
    }
}

impl<T: ?Sized, S: Steps> Deref for DistributedWriteGuard<'_, T, S> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the pointer is that of a live value. No other thread is inside (raw/I1), so all other
        // references come from this guard. References that may write borrow the guard mutably.
        unsafe { &*self.lock.value.with(|value| value) }
    }
}

impl<T: ?Sized, S: Steps> DerefMut for DistributedWriteGuard<'_, T, S> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the pointer and the lock are as in `deref`. This guard is borrowed mutably, so there is no
        // other reference.
        unsafe { &mut *self.lock.value.with_mut(|value| value) }
    }
}

impl<T: ?Sized, S: Steps> Drop for DistributedWriteGuard<'_, T, S> {
    fn drop(&mut self) {
        deadlock::released(self.lock.raw.key());
        self.lock.raw.unlock();
    }
}

impl<T: ?Sized + fmt::Debug, S: Steps> fmt::Debug for DistributedWriteGuard<'_, T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display, S: Steps> fmt::Display for DistributedWriteGuard<'_, T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
