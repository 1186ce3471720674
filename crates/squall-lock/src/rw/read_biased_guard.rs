//! The guards of a `ReadBiasedRwLock`.

use super::bias::Reader;
use super::read_biased::ReadBiasedRwLock;
use crate::deadlock;
use crate::lock::LockGuard;
use crate::steps::{NoSteps, Steps};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// Holds a [`ReadBiasedRwLock`] for reading. Dropping the guard releases the lock, also during a panic.
///
/// The guard must stay on its thread, because its mark may be in the thread's record:
/// ```compile_fail
/// static LOCK: squall::lock::ReadBiasedRwLock<u32> = squall::lock::ReadBiasedRwLock::new(0);
/// let guard = LOCK.read();
/// std::thread::spawn(move || drop(guard));
/// ```
#[must_use = "the lock is released when the guard is dropped"]
pub struct ReadBiasedReadGuard<'a, T: ?Sized, S: Steps = NoSteps> {
    lock: &'a ReadBiasedRwLock<T, S>,
    reader: Reader<'static>,
    stays: PhantomData<*const ()>,
}

// SAFETY: a shared guard only gives shared references to the value, and `T` is `Sync`.
unsafe impl<T: ?Sized + Sync, S: Steps> Sync for ReadBiasedReadGuard<'_, T, S> {}

impl<'a, T: ?Sized, S: Steps> ReadBiasedReadGuard<'a, T, S> {
    /// Makes the guard of a lock that this thread reads as `reader`, which must not have another guard.
    #[inline(always)]
    pub(super) fn new(
        lock: &'a ReadBiasedRwLock<T, S>,
        reader: Reader<'static>,
    ) -> ReadBiasedReadGuard<'a, T, S> {
        ReadBiasedReadGuard { lock, reader, stays: PhantomData }
    }
}

impl<T: ?Sized, S: Steps> Deref for ReadBiasedReadGuard<'_, T, S> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the pointer is that of a live value, and no writer is inside while this reader is
        // (bias/I1).
        unsafe { &*self.lock.value.with(|value| value) }
    }
}

impl<T: ?Sized, S: Steps> Drop for ReadBiasedReadGuard<'_, T, S> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Reader::Counted = self.reader {
            deadlock::released(self.lock.bias.counted_key());
        }
        self.lock.bias.leave(self.reader);
    }
}

impl<T: ?Sized + fmt::Debug, S: Steps> fmt::Debug for ReadBiasedReadGuard<'_, T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display, S: Steps> fmt::Display for ReadBiasedReadGuard<'_, T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Holds a [`ReadBiasedRwLock`] for writing. Dropping the guard releases the lock, also during a panic. The
/// guard must stay on its thread.
///
/// # Example
/// ```
/// use squall::lock::{ReadBiasedRwLock, ReadBiasedWriteGuard};
///
/// fn clear(mut names: ReadBiasedWriteGuard<'_, Vec<String>>) {
///     names.clear(); // the guard is dropped here, which lets the readers in
/// }
///
/// let names = ReadBiasedRwLock::new(vec!["a".to_string()]);
/// clear(names.write());
/// assert!(names.read().is_empty());
/// ```
#[must_use = "the lock is released when the guard is dropped"]
pub struct ReadBiasedWriteGuard<'a, T: ?Sized, S: Steps = NoSteps> {
    lock: &'a ReadBiasedRwLock<T, S>,
    /// Dropped after the `drop` below runs, so that the next writer starts after this one has left.
    _turn: LockGuard<'a, (), S>,
}

impl<'a, T: ?Sized, S: Steps> ReadBiasedWriteGuard<'a, T, S> {
    /// Makes the guard of a lock that this thread has locked for writing.
    pub(super) fn new(
        lock: &'a ReadBiasedRwLock<T, S>,
        turn: LockGuard<'a, (), S>,
    ) -> ReadBiasedWriteGuard<'a, T, S> {
        ReadBiasedWriteGuard { lock, _turn: turn }
    }
}

impl<T: ?Sized, S: Steps> Deref for ReadBiasedWriteGuard<'_, T, S> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the pointer is that of a live value. No other thread is inside (bias/I1), so all other
        // references come from this guard. References that may write borrow the guard mutably.
        unsafe { &*self.lock.value.with(|value| value) }
    }
}

impl<T: ?Sized, S: Steps> DerefMut for ReadBiasedWriteGuard<'_, T, S> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the pointer and the lock are as in `deref`. This guard is borrowed mutably, so there is no
        // other reference.
        unsafe { &mut *self.lock.value.with_mut(|value| value) }
    }
}

impl<T: ?Sized, S: Steps> Drop for ReadBiasedWriteGuard<'_, T, S> {
    fn drop(&mut self) {
        deadlock::released(self.lock.bias.key());
        self.lock.bias.unlock();
    }
}

impl<T: ?Sized + fmt::Debug, S: Steps> fmt::Debug for ReadBiasedWriteGuard<'_, T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display, S: Steps> fmt::Display for ReadBiasedWriteGuard<'_, T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
