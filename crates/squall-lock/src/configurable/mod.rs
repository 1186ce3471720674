//! The configurable lock (KT-15 to KT-17): how threads wait for it, and who is next, can be changed while they wait.
//!
//! - I1. The value is reached through a guard, or an exclusive reference, alone.
//! - I2. No change of attributes loses a waiter, or admits two holders (`raw.rs`).

mod cancel;
mod monitor;
mod pace;
mod queue;
mod raw;
mod scheduling;
pub(crate) mod sites;
mod waiting;

#[cfg(all(test, any(loom, squall_model)))]
mod model;

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::time::{Duration, Instant};

use squall_sys::sync::cell::UnsafeCell;

use crate::deadlock;
use crate::steps::{Steps, Undisturbed};
pub use cancel::Cancel;
pub use monitor::MonitorReading;
use raw::{Ask, RawLock};
pub use scheduling::{Order, Release, Scheduling};
pub use waiting::{Method, Waiting};

/// A lock whose waiting and scheduling are attributes, which can be changed at any time by any thread, with a monitor of what it is
/// used for.
///
/// A panic while the lock is held frees it, and poisons nothing: what the value is then is the author's to say. Priorities are not
/// lent: a holder of low priority can be kept from running by threads that the lock knows nothing of.
///
/// # Units
/// Amounts of waiting are pauses of the processor; times are of the monotonic clock.
///
/// # Cost
/// Free, a compare-and-swap to lock and one to unlock. At most 192 bytes besides the value.
///
/// # Examples
/// ```
/// use squall_lock::{ConfigurableLock, Method, Scheduling, Waiting};
///
/// let lock = ConfigurableLock::new(0u64);
/// *lock.lock() += 1;
/// // It is held for long now: nobody should spin, and each should have its turn.
/// lock.set_waiting(Waiting::new(&[Method::Yield(2), Method::Block]));
/// lock.set_scheduling(Scheduling::HAND_OFF);
/// *lock.lock() += 1;
/// assert_eq!((*lock.lock(), lock.monitor().waiters), (2, 0));
/// ```
///
/// # Source
/// Gheith, Mukherjee, Silva and Schwan, "KTK", 1994, §5.1.
pub struct ConfigurableLock<T: ?Sized, S: Steps = Undisturbed> {
    raw: RawLock<S>,
    value: UnsafeCell<T>,
}

// SAFETY: the value goes with the lock, or to one guard at a time (I1), so that it must be `Send` and need not be `Sync`.
unsafe impl<T: ?Sized + Send, S: Steps> Send for ConfigurableLock<T, S> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send, S: Steps> Sync for ConfigurableLock<T, S> {}

impl<T> ConfigurableLock<T> {
    /// A free lock with [`Waiting::SPIN_THEN_BLOCK`] and [`Scheduling::FREE_FOR_ALL`].
    #[cfg(not(loom))]
    pub const fn new(value: T) -> ConfigurableLock<T> {
        ConfigurableLock::with(value, Waiting::SPIN_THEN_BLOCK, Scheduling::FREE_FOR_ALL)
    }

    /// A free lock with these attributes.
    #[cfg(not(loom))]
    pub const fn with(value: T, waiting: Waiting, scheduling: Scheduling) -> ConfigurableLock<T> {
        ConfigurableLock::disturbed(value, waiting, scheduling)
    }
}

impl<T, S: Steps> ConfigurableLock<T, S> {
    #[doc(hidden)]
    #[cfg(not(loom))]
    pub const fn disturbed(value: T, waiting: Waiting, scheduling: Scheduling) -> ConfigurableLock<T, S> {
        ConfigurableLock { raw: RawLock::new(waiting, scheduling), value: UnsafeCell::new(value) }
    }

    #[cfg(loom)]
    #[doc(hidden)]
    pub fn disturbed(value: T, waiting: Waiting, scheduling: Scheduling) -> ConfigurableLock<T, S> {
        ConfigurableLock { raw: RawLock::new(waiting, scheduling), value: UnsafeCell::new(value) }
    }

    /// The value.
    #[cfg(not(loom))]
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized, S: Steps> ConfigurableLock<T, S> {
    /// Waits for the lock, as the attributes say, however long; the timeout among them is for
    /// [`lock_with`](ConfigurableLock::lock_with).
    ///
    /// # Panics
    /// In debug builds, if it would wait for ever: for a thread that waits, in a circle, for what this one holds. The message names the
    /// circle.
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
        let got = deadlock::waits(self.key(), || self.raw.acquire(&Ask::default()));
        debug_assert!(got.is_ok(), "nothing ends this wait but the lock");
    }

    /// Takes the lock if it is free now, and not kept for somebody who waits.
    #[track_caller]
    #[inline]
    pub fn try_lock(&self) -> Option<ConfigurableGuard<'_, T, S>> {
        // Not by a closure, which would be the caller that a report of a deadlock names.
        if self.raw.try_take(false) { Some(self.guard(false)) } else { None }
    }

    /// Waits for the lock for so long. `None` if that was not enough.
    #[track_caller]
    pub fn try_lock_for(&self, limit: Duration) -> Option<ConfigurableGuard<'_, T, S>> {
        match Instant::now().checked_add(limit) {
            Some(deadline) => self.try_lock_until(deadline),
            None => Some(self.lock()),
        }
    }

    /// Waits for the lock until then. `None` if it could not be had; a free lock is had even if the time is over.
    #[track_caller]
    pub fn try_lock_until(&self, deadline: Instant) -> Option<ConfigurableGuard<'_, T, S>> {
        self.lock_with(&Request::new().deadline(deadline)).ok()
    }

    /// Waits for the lock as the request says.
    ///
    /// # Errors
    /// [`LockError::TimedOut`] when the deadline, or the timeout that is set for the lock, is over; [`LockError::Cancelled`];
    /// [`LockError::NotRegistered`] if the request has a priority or a way to wait and the lock registers nobody.
    ///
    /// # Panics
    /// As [`lock`](ConfigurableLock::lock), if nothing limits the wait.
    #[track_caller]
    pub fn lock_with(&self, request: &Request<'_>) -> Result<ConfigurableGuard<'_, T, S>, LockError> {
        let mut ask = request.ask;
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

    /// Whether somebody has the lock at this moment.
    pub fn is_locked(&self) -> bool {
        self.raw.is_held()
    }

    /// The value, of a lock that nobody else can reach.
    #[cfg(not(loom))]
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: the lock is borrowed exclusively, so that there is no guard.
        self.value.with_mut(|value| unsafe { &mut *value })
    }

    /// How threads wait.
    pub fn waiting(&self) -> Waiting {
        self.raw.waiting.get()
    }

    /// Has threads wait like this from now on, those that wait already, too.
    pub fn set_waiting(&self, waiting: Waiting) {
        self.raw.waiting.set(waiting);
        self.raw.wake_all();
    }

    /// The longest wait of a request without a deadline.
    pub fn timeout(&self) -> Option<Duration> {
        self.raw.waiting.timeout()
    }

    /// Limits the wait of requests without a deadline that begin from now on.
    pub fn set_timeout(&self, timeout: Option<Duration>) {
        self.raw.waiting.set_timeout(timeout);
    }

    /// Who is next, and when.
    pub fn scheduling(&self) -> Scheduling {
        self.raw.scheduling.get()
    }

    /// Has the lock pass like this from now on, to those that wait already, too. Threads that are registered stay so until they have
    /// had the lock.
    pub fn set_scheduling(&self, scheduling: Scheduling) {
        self.raw.scheduling.set(scheduling);
        self.raw.wake_all();
    }

    /// Acquisitions that had to wait, as [`monitor`](ConfigurableLock::monitor) says, at the cost of a load.
    pub fn contended(&self) -> u64 {
        self.raw.monitor.contended.load(squall_sys::sync::atomic::Ordering::Relaxed)
    }

    /// The most threads that were found waiting at once, by those who had waited themselves, since this was asked last.
    pub fn take_peak(&self) -> u32 {
        self.raw.monitor.peak.swap(0, squall_sys::sync::atomic::Ordering::Relaxed)
    }

    /// What the monitor says.
    pub fn monitor(&self) -> MonitorReading {
        self.raw.monitor.read()
    }

    /// Gives the lock a name for the report of a deadlock.
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
        ConfigurableLock::disturbed(value, Waiting::SPIN_THEN_BLOCK, Scheduling::FREE_FOR_ALL)
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

/// How one acquisition is to be made: until when, with what priority, waiting how.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request<'a> {
    ask: Ask<'a>,
}

impl<'a> Request<'a> {
    /// As the lock's attributes say.
    pub fn new() -> Request<'a> {
        Request::default()
    }

    /// Gives up then.
    pub fn deadline(mut self, deadline: Instant) -> Request<'a> {
        self.ask.deadline = Some(deadline);
        self
    }

    /// Gives up when this is cancelled.
    pub fn cancel(mut self, cancel: &'a Cancel) -> Request<'a> {
        self.ask.cancel = Some(cancel);
        self
    }

    /// Comes before those of lower priority, if the lock's order is [`Order::Priority`]; others have zero. Only where threads are registered.
    pub fn priority(mut self, priority: i32) -> Request<'a> {
        self.ask.priority = priority;
        self.ask.must_register = true;
        self
    }

    /// Waits in its own way. Only where threads are registered.
    pub fn waiting(mut self, waiting: Waiting) -> Request<'a> {
        self.ask.waiting = Some(waiting);
        self.ask.must_register = true;
        self
    }
}

/// Why a lock was not had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockError {
    /// The time was over.
    TimedOut,
    /// Somebody cancelled the wait.
    Cancelled,
    /// The request has a priority or a way to wait of its own, and the lock registers nobody.
    NotRegistered,
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LockError::TimedOut => "the lock was not free in time",
            LockError::Cancelled => "the wait for the lock was cancelled",
            LockError::NotRegistered => {
                "a priority or a way to wait of its own needs a lock that registers its waiters"
            }
        })
    }
}

impl std::error::Error for LockError {}

/// The lock, held. Dropping it frees the lock.
#[must_use = "the lock is free again when the guard is dropped"]
pub struct ConfigurableGuard<'a, T: ?Sized, S: Steps = Undisturbed> {
    lock: &'a ConfigurableLock<T, S>,
    waited: bool,
    not_send: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives shared access to the value alone.
unsafe impl<T: ?Sized + Sync, S: Steps> Sync for ConfigurableGuard<'_, T, S> {}

impl<T: ?Sized, S: Steps> ConfigurableGuard<'_, T, S> {
    /// Whether the lock was not free at once, or this was a request that has to be registered.
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
        // SAFETY: the lock is held as long as the guard lives, so nobody else has access (I1).
        self.lock.value.with(|value| unsafe { &*value })
    }
}

impl<T: ?Sized, S: Steps> DerefMut for ConfigurableGuard<'_, T, S> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and the guard itself is borrowed exclusively.
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
