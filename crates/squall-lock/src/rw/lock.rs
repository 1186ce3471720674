//! `DistributedRwLock<T>`: the raw lock, its value, and the lock that admits one writer at a time.

use super::guard::{DistributedReadGuard, DistributedWriteGuard};
use super::raw::{Entry, Raw};
use super::thread::{self, REGISTRY};
use crate::deadlock;
use crate::forked::refuse;
use crate::lock::{Lock, LockGuard};
use crate::records::LockType;
use crate::steps::{NoSteps, Steps};
use squall_sys::sync::atomic::{AtomicUsize, Ordering};
use squall_sys::sync::cell::UnsafeCell;
use squall_sys::trace::Subject;
use std::fmt;
use std::panic::Location;
use std::time::{Duration, Instant};

/// A reader-writer lock for data that is read all the time. Each reader writes only a cache line of its own
/// thread.
///
/// Drawbacks:
/// - **Writing is expensive.** A writer makes a system call that interrupts every processor on which a thread
///   of this process runs. Then it reads one line for each thread of the process that ever read such a lock.
///   (`squall bench rwlock` prints the cost for 1 to 512 threads.) Use another lock if more than one access
///   in some thousand is a write.
/// - A guard stays on its thread. A forgotten read guard (`std::mem::forget`) keeps its lock read-locked
///   forever, and also a later lock at the same address.
/// - Nested reads on one thread can deadlock. The second read waits for a writer, and that writer waits for
///   the first read. Debug builds panic there. They also panic if a thread waits for itself as a writer, or
///   in a cycle of writers and locks. A cycle through a reader of another thread is not detected.
/// - Signal handlers must not use it: locking may allocate and sleep. In the child of a fork, locks held by
///   other threads of the parent stay held.
/// - Poisoning does not exist: a panic releases the lock.
/// - Without `membarrier` each reader makes two full fences.
///
/// Neither side starves. Readers that arrive during a write go after it, and the next writer goes after those
/// readers. Writers are ordered among themselves like the waiters of a [`Lock`].
///
/// The lock needs 28 bytes beside its value, for any number of processors. The distributed part belongs to
/// the threads: 128 bytes per thread, shared by all such locks.
///
/// Progress: reading is wait-free while there is no writer. A thread that stalls while it reads delays
/// writers, and through them all readers. A read takes effect when it loads the lock's word. A write takes
/// effect when the writer has seen the last mark gone.
///
/// # Cost
/// Reading: two stores to the thread's own line and two loads of the lock's word. One thread can read eight
/// locks at once. For more it takes further records, and searches them if the free slots are scattered.
///
/// # Source
/// PR-10: Appavoo 2005, §3.1; Dice and Kogan, "BRAVO", USENIX ATC 2019.
///
/// # Example
/// ```
/// use squall::lock::DistributedRwLock;
///
/// static ROUTES: DistributedRwLock<Vec<u32>> = DistributedRwLock::new(Vec::new());
/// ROUTES.write().push(7);
/// std::thread::scope(|threads| {
///     for _ in 0..4 {
///         threads.spawn(|| assert_eq!(ROUTES.read().first(), Some(&7)));
///     }
/// });
/// ```
pub struct DistributedRwLock<T: ?Sized, S: Steps = NoSteps> {
    pub(super) raw: Raw<S>,
    /// Held by the writer.
    writers: Lock<(), S>,
    pub(super) value: UnsafeCell<T>,
}

// SAFETY: the lock owns its value, and its other fields belong to no thread.
unsafe impl<T: ?Sized + Send, S: Steps> Send for DistributedRwLock<T, S> {}
// SAFETY: threads that share the lock read the value at the same time, for which it is `Sync`. They write it,
// for which it is `Send`, only while no other thread is inside (raw/I1).
unsafe impl<T: ?Sized + Send + Sync, S: Steps> Sync for DistributedRwLock<T, S> {}

impl<T: ?Sized, S: Steps> std::panic::UnwindSafe for DistributedRwLock<T, S> {}
impl<T: ?Sized, S: Steps> std::panic::RefUnwindSafe for DistributedRwLock<T, S> {}

impl<T> DistributedRwLock<T> {
    /// Makes a free lock around `value`.
    pub const fn new(value: T) -> DistributedRwLock<T> {
        DistributedRwLock::with_steps(value)
    }
}

impl<T, S: Steps> DistributedRwLock<T, S> {
    /// Like [`DistributedRwLock::new`], with the steps `S` of a stress test.
    #[doc(hidden)]
    pub const fn with_steps(value: T) -> DistributedRwLock<T, S> {
        DistributedRwLock { raw: Raw::new(), writers: Lock::with_steps(()), value: UnsafeCell::new(value) }
    }

    /// Consumes the lock and returns the value.
    ///
    /// # Example
    /// ```
    /// let names = squall::lock::DistributedRwLock::new(vec!["a"]);
    /// names.write().push("b");
    /// assert_eq!(names.into_inner(), ["a", "b"]);
    /// ```
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized, S: Steps> DistributedRwLock<T, S> {
    /// Locks for reading. Waits while a writer waits or is inside.
    ///
    /// # Panics
    /// In debug builds, if this wait can never end (see the type).
    ///
    /// # Example
    /// ```
    /// let limit = squall::lock::DistributedRwLock::new(10);
    /// assert_eq!(*limit.read(), 10);
    /// ```
    #[inline(always)]
    #[track_caller]
    pub fn read(&self) -> DistributedReadGuard<'_, T, S> {
        let slot = match self.mark_first() {
            Ok(slot) => slot,
            Err(marked) => self.read_slowly(marked),
        };
        DistributedReadGuard::new(self, slot)
    }

    /// Locks for reading if no writer waits or is inside. Otherwise returns `None`.
    ///
    /// # Example
    /// ```
    /// let limit = squall::lock::DistributedRwLock::new(10);
    /// assert!(limit.try_read().is_some());
    /// let writer = limit.write();
    /// assert!(limit.try_read().is_none());
    /// ```
    #[inline]
    pub fn try_read(&self) -> Option<DistributedReadGuard<'_, T, S>> {
        // Any moment that has passed by the time it is compared.
        self.try_read_until(Instant::now)
    }

    /// Locks for reading, or gives up after `limit` and returns `None`.
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    ///
    /// let limit = squall::lock::DistributedRwLock::new(10);
    /// let writer = limit.write();
    /// assert!(limit.try_read_for(Duration::from_millis(1)).is_none());
    /// drop(writer);
    /// assert!(limit.try_read_for(Duration::from_millis(1)).is_some());
    /// ```
    #[inline]
    pub fn try_read_for(&self, limit: Duration) -> Option<DistributedReadGuard<'_, T, S>> {
        // A limit beyond the end of the clock becomes a year.
        self.try_read_until(|| later(limit))
    }

    /// Locks for reading, or gives up at `deadline`. The closure runs only if there is a writer.
    #[inline(always)]
    fn try_read_until(&self, deadline: impl FnOnce() -> Instant) -> Option<DistributedReadGuard<'_, T, S>> {
        let slot = match self.mark_first() {
            Ok(slot) => slot,
            Err(marked) => self.enter(marked, Some(deadline()))?,
        };
        Some(DistributedReadGuard::new(self, slot))
    }

    /// Marks the thread's first slot, if it is free. Returns `Ok` if the reader is inside, otherwise whether
    /// the slot is marked.
    #[inline(always)]
    fn mark_first(&self) -> Result<&'static AtomicUsize, bool> {
        let slot = thread::current().first();
        // Relaxed: only this thread writes the slot.
        if slot.load(Ordering::Relaxed) != 0 {
            return Err(false);
        }
        if self.raw.mark(slot) { Ok(slot) } else { Err(true) }
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn read_slowly(&self, marked: bool) -> &'static AtomicUsize {
        // Without a deadline, only a wait in the child of a fork ends without the lock.
        let enter = |marked| self.enter(marked, None).unwrap_or_else(|| refuse());
        if !self.raw.has_writer() {
            return enter(marked);
        }
        if !cfg!(debug_assertions) {
            return deadlock::waits(self.raw.key(), || enter(marked));
        }
        if marked {
            self.raw.leave(thread::registered().first());
        }
        assert!(
            !thread::marks(self.raw.key()),
            "this thread already reads this DistributedRwLock, and a writer waits for that read: a second read would \
             deadlock; drop the first guard before"
        );
        deadlock::waits(self.raw.key(), || enter(false))
    }

    /// Continues after `mark_first` failed.
    fn enter(&self, marked: bool, deadline: Option<Instant>) -> Option<&'static AtomicUsize> {
        let record = thread::registered();
        let slot = if marked {
            record.first()
        } else {
            let slot = record.claim(&REGISTRY);
            if self.raw.mark(slot) {
                return Some(slot);
            }
            slot
        };
        (self.raw.enter(slot, deadline, Subject::at(self)) == Entry::Inside).then_some(slot)
    }

    /// Locks for writing. Waits for other writers, then until all readers have left.
    ///
    /// # Panics
    /// In debug builds, if this wait can never end (see the type).
    ///
    /// # Cost
    /// Some microseconds, and a read of one line for each thread that ever read such a lock.
    ///
    /// # Example
    /// ```
    /// let limit = squall::lock::DistributedRwLock::new(10);
    /// *limit.write() += 1;
    /// assert_eq!(*limit.read(), 11);
    /// ```
    #[track_caller]
    pub fn write(&self) -> DistributedWriteGuard<'_, T, S> {
        if cfg!(debug_assertions) && thread::marks(self.raw.key()) {
            panic!(
                "this thread already reads this DistributedRwLock: a write would deadlock; drop the read guard before"
            );
        }
        let turn = self.writers.lock_in(LockType::RwTurn, self);
        match self.raw.lock(&REGISTRY, None, Subject::at(self)) {
            Entry::Inside => self.written(turn),
            // Without a deadline, only a wait in the child of a fork ends like this.
            Entry::TimedOut => refuse(),
        }
    }

    /// Locks for writing if the lock is free and no readers delayed by the last writer are about to go in.
    /// Otherwise returns `None`.
    ///
    /// # Example
    /// ```
    /// let limit = squall::lock::DistributedRwLock::new(10);
    /// let reader = limit.read();
    /// assert!(limit.try_write().is_none());
    /// drop(reader);
    /// *limit.try_write().expect("the lock is free") += 1;
    /// ```
    #[track_caller]
    pub fn try_write(&self) -> Option<DistributedWriteGuard<'_, T, S>> {
        let turn = self.writers.try_lock()?;
        // Look for marks first, without setting the word: WRITER would delay readers.
        (!self.raw.has_marks(&REGISTRY)).then_some(())?;
        let entry = self.raw.lock(&REGISTRY, Some(Instant::now()), Subject::at(self));
        (entry == Entry::Inside).then(|| self.written(turn))
    }

    /// Locks for writing, or gives up after `limit` and returns `None`. Readers that arrive during the
    /// attempt wait.
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    ///
    /// let limit = squall::lock::DistributedRwLock::new(10);
    /// let reader = limit.read();
    /// assert!(limit.try_write_for(Duration::from_millis(1)).is_none());
    /// drop(reader);
    /// assert!(limit.try_write_for(Duration::from_millis(1)).is_some());
    /// ```
    #[track_caller]
    pub fn try_write_for(&self, limit: Duration) -> Option<DistributedWriteGuard<'_, T, S>> {
        let deadline = later(limit);
        let turn = self.writers.try_lock_until_in(deadline, LockType::RwTurn, self)?;
        let entry = self.raw.lock(&REGISTRY, Some(deadline), Subject::at(self));
        (entry == Entry::Inside).then(|| self.written(turn))
    }

    #[track_caller]
    fn written<'a>(&'a self, turn: LockGuard<'a, (), S>) -> DistributedWriteGuard<'a, T, S> {
        deadlock::acquired(self.raw.key(), Location::caller());
        DistributedWriteGuard::new(self, turn)
    }

    /// Returns whether a writer is inside or waits for readers. The answer may be out of date when it
    /// returns.
    pub fn has_writer(&self) -> bool {
        self.raw.has_writer()
    }

    /// Returns the value without locking: the exclusive borrow proves that no other reference exists.
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: the pointer is that of a live value, and `&mut self` is the only reference to the lock. A
        // guard can exist only if it was forgotten, and a forgotten guard cannot reach the value.
        unsafe { &mut *self.value.with_mut(|value| value) }
    }

    /// Names the lock for deadlock reports. Meant for locks that live long: the name stays with the address.
    /// Does nothing in release builds.
    pub fn set_name(&self, name: &'static str) {
        deadlock::name(self.raw.key(), name);
    }
}

/// Returns the number of thread records in this process. A writer reads one line for each.
#[doc(hidden)]
pub fn readers_known() -> usize {
    REGISTRY.len()
}

/// Returns the time after `limit`. If the clock does not reach that far, returns the time after a year.
pub(super) fn later(limit: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    let now = Instant::now();
    now.checked_add(limit).unwrap_or(now + YEAR)
}

impl<T: Default> Default for DistributedRwLock<T> {
    fn default() -> DistributedRwLock<T> {
        DistributedRwLock::new(T::default())
    }
}

impl<T> From<T> for DistributedRwLock<T> {
    fn from(value: T) -> DistributedRwLock<T> {
        DistributedRwLock::new(value)
    }
}

impl<T: ?Sized + fmt::Debug, S: Steps> fmt::Debug for DistributedRwLock<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("DistributedRwLock");
        match self.try_read() {
            Some(value) => shown.field("value", &&*value),
            None => shown.field("value", &format_args!("<locked>")),
        };
        shown.finish()
    }
}
