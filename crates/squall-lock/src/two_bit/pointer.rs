//! A pointer with its lock. The word is private: callers reach only the pointer and the lock.

use super::{TwoBitGuard, TwoBits, Word};
use squall_sys::sync::atomic::{AtomicPtr, Ordering};
use std::fmt;

/// A pointer with a lock in its two lowest bits. The target type must be aligned to four bytes or more.
///
/// # Example
/// ```
/// use squall::lock::LockedPtr;
///
/// let mut number = 5u32;
/// let pointer = LockedPtr::new(&raw mut number);
/// let guard = pointer.lock();
/// assert_eq!(guard.get(), &raw mut number);
/// guard.set(std::ptr::null_mut());
/// drop(guard);
/// assert!(pointer.load().is_null());
/// ```
pub struct LockedPtr<T>(AtomicPtr<T>);

impl<T> LockedPtr<T> {
    const LOCK: TwoBits<AtomicPtr<T>> = {
        assert!(
            align_of::<T>() >= 4,
            "`T` is not aligned to four bytes, so its pointers have no two free bits"
        );
        TwoBits::low()
    };

    /// Makes a pointer with a free lock.
    ///
    /// # Panics
    /// If the pointer is not aligned to four bytes.
    pub fn new(pointer: *mut T) -> LockedPtr<T> {
        assert!(pointer.addr().is_multiple_of(4), "the pointer {pointer:p} is not aligned to four bytes");
        LockedPtr(AtomicPtr::new(pointer))
    }

    /// Takes the pointer's lock, and waits until it is free.
    ///
    /// # Example
    /// ```
    /// let pointer = squall::lock::LockedPtr::new(std::ptr::null_mut::<u64>());
    /// let mut value = 7u64;
    /// pointer.lock().set(&raw mut value);
    /// assert_eq!(pointer.load(), &raw mut value);
    /// ```
    #[inline]
    pub fn lock(&self) -> LockedPtrGuard<'_, T> {
        LockedPtrGuard(Self::LOCK.lock(&self.0))
    }

    /// Takes the pointer's lock if it is free. Returns `None` if a thread holds it.
    ///
    /// # Example
    /// ```
    /// let pointer = squall::lock::LockedPtr::new(std::ptr::null_mut::<u64>());
    /// let guard = pointer.try_lock().expect("the lock is free");
    /// assert!(guard.get().is_null() && pointer.try_lock().is_none());
    /// ```
    #[inline]
    pub fn try_lock(&self) -> Option<LockedPtrGuard<'_, T>> {
        Self::LOCK.try_lock(&self.0).map(LockedPtrGuard)
    }

    /// Returns the pointer without taking the lock.
    #[inline]
    pub fn load(&self) -> *mut T {
        // Acquire: pairs with the Release in `TwoBitGuard::set`, so the pointer's target is initialized here.
        AtomicPtr::without(self.0.load(Ordering::Acquire), 0)
    }

    /// Returns whether a thread holds the lock now. The answer may be out of date when it returns.
    pub fn is_locked(&self) -> bool {
        Self::LOCK.is_locked(&self.0)
    }
}

impl<T> fmt::Debug for LockedPtr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let locked = if self.is_locked() { " <locked>" } else { "" };
        write!(f, "{:p}{locked}", self.load())
    }
}

/// Holds the lock of a [`LockedPtr`]. Dropping the guard releases the lock, also during a panic.
///
/// The guard does not give out the word, so user code cannot overwrite the lock:
/// ```compile_fail,E0599
/// let mut number = 5u32;
/// let pointer = squall::lock::LockedPtr::new(&raw mut number);
/// pointer.lock().word().store(&raw mut number, std::sync::atomic::Ordering::Relaxed);
/// ```
#[must_use = "the lock is released when the guard is dropped"]
pub struct LockedPtrGuard<'a, T>(TwoBitGuard<'a, AtomicPtr<T>>);

impl<T> LockedPtrGuard<'_, T> {
    /// Returns the pointer.
    #[inline]
    pub fn get(&self) -> *mut T {
        self.0.get()
    }

    /// Replaces the pointer.
    ///
    /// # Panics
    /// If the pointer is not aligned to four bytes.
    #[inline]
    pub fn set(&self, pointer: *mut T) {
        assert!(pointer.addr().is_multiple_of(4), "the pointer {pointer:p} is not aligned to four bytes");
        self.0.set(pointer);
    }
}

impl<T> fmt::Debug for LockedPtrGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
