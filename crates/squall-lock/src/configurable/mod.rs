//! The configurable lock: the way to wait and the order of waiters can change while threads
//! wait.
//!
//! - I1. The value is reached only through a guard or an exclusive reference.
//! - I2. A change of attributes never loses a waiter and never admits two holders (`raw.rs`).

mod cancel;
mod monitor;
mod pace;
mod queue;
mod raw;
mod request;
mod scheduling;
pub(crate) mod sites;
mod tokens;
mod waiting;

#[cfg(all(test, any(loom, squall_model)))]
mod model;

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::time::{Duration, Instant};

use squall_sys::sync::cell::UnsafeCell;
use squall_sys::trace::Subject;

use crate::deadlock;
use crate::forked::refuse;
use crate::steps::{NoSteps, Steps};
pub use cancel::Cancel;
pub use monitor::MonitorReading;
use raw::RawLock;
use request::Ask;
pub use request::{LockError, Request};
pub use scheduling::{Order, Release, Scheduling};
pub use waiting::{Method, Waiting};

/// A lock with replaceable attributes. Any thread can change the way to wait and the order of waiters at any
/// time, and read a monitor. Feature: `adaptive-lock`.
///
/// A panic under the lock releases it without poisoning: the next holder sees the value as the panic left
/// it. Priorities are not inherited. A holder with a low thread priority can be preempted by threads unknown
/// to the lock.
///
/// # Units
/// Amounts of spinning are processor pauses. Times are of the monotonic clock.
///
/// # Cost
/// Free: one compare-and-swap to lock and one to unlock. The lock needs at most 192 bytes beside the value.
///
/// # Example
/// ```
/// use squall::lock::{ConfigurableLock, Method, Scheduling, Waiting};
///
/// let lock = ConfigurableLock::new(0u64);
/// *lock.lock() += 1;
/// // From now on the lock is held for long: waiters should sleep, and take turns.
/// lock.set_waiting(Waiting::new(&[Method::Yield(2), Method::Block]));
/// lock.set_scheduling(Scheduling::HAND_OFF);
/// *lock.lock() += 1;
/// assert_eq!((*lock.lock(), lock.monitor().waiters), (2, 0));
/// ```
///
/// # Source
/// Gheith, Mukherjee, Silva and Schwan, "KTK", 1994, §5.1.
pub struct ConfigurableLock<T: ?Sized, S: Steps = NoSteps> {
    raw: RawLock<S>,
    value: UnsafeCell<T>,
}

// SAFETY: the lock owns its value, or one guard at a time has it (I1). So it must be `Send`, and need not be
// `Sync`.
unsafe impl<T: ?Sized + Send, S: Steps> Send for ConfigurableLock<T, S> {}
// SAFETY: the lock owns its value, or one guard at a time has it (I1). So it must be `Send`, and need not be
// `Sync`.
unsafe impl<T: ?Sized + Send, S: Steps> Sync for ConfigurableLock<T, S> {}

impl<T> ConfigurableLock<T> {
    /// Makes a free lock with [`Waiting::SPIN_THEN_BLOCK`] and [`Scheduling::FREE_FOR_ALL`].
    #[cfg(not(loom))]
    pub const fn new(value: T) -> ConfigurableLock<T> {
        ConfigurableLock::with(value, Waiting::SPIN_THEN_BLOCK, Scheduling::FREE_FOR_ALL)
    }

    /// Makes a free lock with these attributes.
    ///
    /// # Example
    /// ```
    /// use squall::lock::{ConfigurableLock, Scheduling, Waiting};
    ///
    /// static LOG: ConfigurableLock<Vec<u32>> =
    ///     ConfigurableLock::with(Vec::new(), Waiting::BLOCK, Scheduling::HAND_OFF);
    /// LOG.lock().push(1);
    /// assert_eq!(LOG.waiting(), Waiting::BLOCK);
    /// ```
    #[cfg(not(loom))]
    pub const fn with(value: T, waiting: Waiting, scheduling: Scheduling) -> ConfigurableLock<T> {
        ConfigurableLock::with_steps(value, waiting, scheduling)
    }
}

impl<T, S: Steps> ConfigurableLock<T, S> {
    #[doc(hidden)]
    #[cfg(not(loom))]
    pub const fn with_steps(value: T, waiting: Waiting, scheduling: Scheduling) -> ConfigurableLock<T, S> {
        ConfigurableLock { raw: RawLock::new(waiting, scheduling), value: UnsafeCell::new(value) }
    }

    #[cfg(loom)]
    #[doc(hidden)]
    pub fn with_steps(value: T, waiting: Waiting, scheduling: Scheduling) -> ConfigurableLock<T, S> {
        ConfigurableLock { raw: RawLock::new(waiting, scheduling), value: UnsafeCell::new(value) }
    }

    /// Consumes the lock and returns the value.
    #[cfg(not(loom))]
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized, S: Steps> ConfigurableLock<T, S> {
    /// Takes the lock, and waits as its attributes say until it is free. The lock's timeout does not apply;
    /// it is for [`lock_with`](ConfigurableLock::lock_with).
    ///
    /// # Panics
    /// In debug builds, if the wait would never end because threads wait for each other in a cycle. The
    /// message names the cycle.
    ///
    /// # Example
    /// ```
    /// let lock = squall::lock::ConfigurableLock::new(Vec::new());
    /// lock.lock().push(1);
    /// assert_eq!(lock.into_inner(), [1]);
    /// ```
    #[track_caller]
    #[inline]
    pub fn lock(&self) -> ConfigurableGuard<'_, T, S> {
        let waited = !self.raw.try_fast();
        if waited {
            self.wait_for_ever();
        }
        self.guard(waited)
    }

    #[cold]
    #[track_caller]
    fn wait_for_ever(&self) {
        let ask = Ask { subject: Subject::at(self), ..Ask::default() };
        if deadlock::waits(self.key(), || self.raw.acquire(&ask)).is_err() {
            // Without a deadline, only a wait in the child of a fork fails.
            refuse();
        }
    }

    /// Takes the lock if it is free now and not reserved for a waiter. Otherwise returns `None`.
    ///
    /// # Example
    /// ```
    /// let lock = squall::lock::ConfigurableLock::new(1);
    /// let held = lock.try_lock().expect("the lock is free");
    /// assert!(lock.try_lock().is_none());
    /// ```
    #[track_caller]
    #[inline]
    pub fn try_lock(&self) -> Option<ConfigurableGuard<'_, T, S>> {
        // A closure would not do: inside it, `Location::caller` is this line, and a deadlock report would
        // name it.
        if self.raw.try_take(false) { Some(self.guard(false)) } else { None }
    }

    /// Takes the lock, or gives up after `limit` and returns `None`.
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    ///
    /// let lock = squall::lock::ConfigurableLock::new(1);
    /// let held = lock.lock();
    /// assert!(lock.try_lock_for(Duration::from_millis(1)).is_none());
    /// ```
    #[track_caller]
    pub fn try_lock_for(&self, limit: Duration) -> Option<ConfigurableGuard<'_, T, S>> {
        match Instant::now().checked_add(limit) {
            Some(deadline) => self.try_lock_until(deadline),
            None => Some(self.lock()),
        }
    }

    /// Takes the lock, or gives up at `deadline` and returns `None`. A past deadline still takes a free lock.
    #[track_caller]
    pub fn try_lock_until(&self, deadline: Instant) -> Option<ConfigurableGuard<'_, T, S>> {
        self.lock_with(&Request::new().deadline(deadline)).ok()
    }

    /// Takes the lock, and waits as the request says.
    ///
    /// # Errors
    /// - [`LockError::TimedOut`]: the deadline passed, or the lock's timeout.
    /// - [`LockError::Cancelled`]: another thread cancelled the wait.
    /// - [`LockError::NotRegistered`]: the request has a priority or its own way to wait, and the lock does
    ///   not register waiters.
    /// - [`LockError::Forked`]: the lock is held, and the process is the child of a fork.
    ///
    /// # Panics
    /// In debug builds, if the wait has no limit and would never end because threads wait for each other in a
    /// cycle.
    ///
    /// # Example
    /// ```
    /// use squall::lock::{ConfigurableLock, LockError, Order, Request, Scheduling};
    ///
    /// let lock = ConfigurableLock::new(0);
    /// let urgent = Request::new().priority(5);
    /// assert_eq!(lock.lock_with(&urgent).map(drop), Err(LockError::NotRegistered));
    /// lock.set_scheduling(Scheduling::HAND_OFF.order(Order::Priority));
    /// *lock.lock_with(&urgent).unwrap() += 1;
    /// ```
    #[track_caller]
    pub fn lock_with(&self, request: &Request<'_>) -> Result<ConfigurableGuard<'_, T, S>, LockError> {
        let mut ask = Ask { subject: Subject::at(self), ..request.ask };
        if ask.deadline.is_none()
            && let Some(limit) = self.raw.waiting.timeout()
        {
            ask.deadline = Instant::now().checked_add(limit);
        }
        if ask.must_register && !self.raw.scheduling.get().registration {
            return Err(LockError::NotRegistered);
        }
        let waited = ask.must_register || !self.raw.try_fast();
        let unlimited = ask.deadline.is_none() && ask.cancel.is_none();
        if waited && unlimited {
            deadlock::waits(self.key(), || self.raw.acquire(&ask))?;
        } else if waited {
            self.raw.acquire(&ask)?;
        }
        Ok(self.guard(waited))
    }

    #[track_caller]
    #[inline(always)]
    fn guard(&self, waited: bool) -> ConfigurableGuard<'_, T, S> {
        deadlock::acquired(self.key(), Location::caller());
        ConfigurableGuard { lock: self, waited, not_send: PhantomData }
    }

    fn key(&self) -> usize {
        std::ptr::from_ref(&self.raw) as usize
    }

    /// Returns whether a thread holds the lock now. The answer may be out of date when it returns.
    pub fn is_locked(&self) -> bool {
        self.raw.is_held()
    }

    /// Returns the value without locking: the exclusive borrow proves that no other reference exists.
    #[cfg(not(loom))]
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: the lock is borrowed exclusively, so there is no guard.
        self.value.with_mut(|value| unsafe { &mut *value })
    }

    /// Returns the way threads wait.
    pub fn waiting(&self) -> Waiting {
        self.raw.waiting.get()
    }

    /// Sets the way threads wait. The change also applies to threads that wait already: the calling thread
    /// wakes the sleeping ones, and they continue by the new list.
    ///
    /// # Example
    /// ```
    /// use squall::lock::{ConfigurableLock, Waiting};
    ///
    /// let lock = ConfigurableLock::new(());
    /// lock.set_waiting(Waiting::BLOCK);
    /// assert!(lock.waiting().blocks());
    /// ```
    pub fn set_waiting(&self, waiting: Waiting) {
        self.raw.waiting.set(waiting);
        self.raw.wake_all();
    }

    /// Returns the longest wait of a [`lock_with`](ConfigurableLock::lock_with) request without a deadline.
    /// `None`, the default, means no limit.
    pub fn timeout(&self) -> Option<Duration> {
        self.raw.waiting.timeout()
    }

    /// Limits later [`lock_with`](ConfigurableLock::lock_with) requests that have no deadline.
    ///
    /// # Example
    /// ```
    /// use squall::lock::{ConfigurableLock, LockError, Request};
    /// use std::time::Duration;
    ///
    /// let lock = ConfigurableLock::new(());
    /// lock.set_timeout(Some(Duration::from_millis(1)));
    /// let held = lock.lock();
    /// assert_eq!(lock.lock_with(&Request::new()).map(drop), Err(LockError::TimedOut));
    /// ```
    pub fn set_timeout(&self, timeout: Option<Duration>) {
        self.raw.waiting.set_timeout(timeout);
    }

    /// Returns the scheduling: the order of waiters and the kind of release.
    pub fn scheduling(&self) -> Scheduling {
        self.raw.scheduling.get()
    }

    /// Sets the scheduling. The change also applies to threads that wait already. Registered threads stay
    /// registered until they have had the lock.
    ///
    /// # Example
    /// ```
    /// use squall::lock::{ConfigurableLock, Order, Scheduling};
    ///
    /// let lock = ConfigurableLock::new(());
    /// lock.set_scheduling(Scheduling::HAND_OFF.order(Order::ClusterFirst));
    /// assert!(lock.scheduling().registration);
    /// ```
    pub fn set_scheduling(&self, scheduling: Scheduling) {
        self.raw.scheduling.set(scheduling);
        self.raw.wake_all();
    }

    /// Returns the number of acquisitions that had to wait, with a single load.
    /// [`monitor`](ConfigurableLock::monitor) returns it too.
    pub fn contended(&self) -> u64 {
        self.raw.monitor.contended.load(squall_sys::sync::atomic::Ordering::Relaxed)
    }

    /// Returns the largest number of other waiters that a waiting thread saw when it got the lock, and resets
    /// it to zero.
    pub fn take_peak(&self) -> u32 {
        self.raw.monitor.peak.swap(0, squall_sys::sync::atomic::Ordering::Relaxed)
    }

    /// Reads the monitor.
    ///
    /// # Example
    /// ```
    /// let lock = squall::lock::ConfigurableLock::new(());
    /// drop(lock.lock());
    /// let reading = lock.monitor();
    /// assert_eq!((reading.waiters, reading.contended, reading.sleeps), (0, 0, 0));
    /// ```
    pub fn monitor(&self) -> MonitorReading {
        self.raw.monitor.read()
    }

    /// Names the lock for deadlock reports. Does nothing in release builds.
    pub fn set_name(&self, name: &'static str) {
        deadlock::name(self.key(), name);
    }
}

impl<T: Default> Default for ConfigurableLock<T> {
    fn default() -> ConfigurableLock<T> {
        ConfigurableLock::from(T::default())
    }
}

impl<T> From<T> for ConfigurableLock<T> {
    fn from(value: T) -> ConfigurableLock<T> {
        ConfigurableLock::with_steps(value, Waiting::SPIN_THEN_BLOCK, Scheduling::FREE_FOR_ALL)
    }
}

impl<T: ?Sized + fmt::Debug, S: Steps> fmt::Debug for ConfigurableLock<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ConfigurableLock");
        match self.try_lock() {
            Some(guard) => shown.field("value", &&*guard),
            None => shown.field("value", &format_args!("<locked>")),
        };
        shown
            .field("waiting", &self.waiting())
            .field("scheduling", &self.scheduling())
            .finish_non_exhaustive()
    }
}

/// Holds a [`ConfigurableLock`] and gives access to its value. Dropping the guard releases the lock, also
/// during a panic.
#[must_use = "the lock is free again when the guard is dropped"]
pub struct ConfigurableGuard<'a, T: ?Sized, S: Steps = NoSteps> {
    lock: &'a ConfigurableLock<T, S>,
    waited: bool,
    not_send: PhantomData<*const ()>,
}

// SAFETY: a shared guard only gives shared references to the value, and `T` is `Sync`.
unsafe impl<T: ?Sized + Sync, S: Steps> Sync for ConfigurableGuard<'_, T, S> {}

impl<T: ?Sized, S: Steps> ConfigurableGuard<'_, T, S> {
    /// Returns whether the acquisition took the slow path: the lock was not free at once, or the request had
    /// to register.
    ///
    /// # Example
    /// ```
    /// let lock = squall::lock::ConfigurableLock::new(());
    /// assert!(!lock.lock().waited());
    /// ```
    #[inline]
    pub fn waited(&self) -> bool {
        self.waited
    }
}

impl<T: ?Sized, S: Steps> Drop for ConfigurableGuard<'_, T, S> {
    #[inline]
    fn drop(&mut self) {
        deadlock::released(self.lock.key());
        self.lock.raw.unlock();
    }
}

impl<T: ?Sized, S: Steps> Deref for ConfigurableGuard<'_, T, S> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: this guard holds the lock, so no other thread has access to the value (I1).
        self.lock.value.with(|value| unsafe { &*value })
    }
}

impl<T: ?Sized, S: Steps> DerefMut for ConfigurableGuard<'_, T, S> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held as in `deref`, and the guard itself is borrowed exclusively.
        self.lock.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T: ?Sized + fmt::Debug, S: Steps> fmt::Debug for ConfigurableGuard<'_, T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<T: ?Sized + fmt::Display, S: Steps> fmt::Display for ConfigurableGuard<'_, T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}
