//! `ReadBiasedRwLock<T>`: the lock of `bias` and its value.

use super::bias::{ReadBias, Reader};
use super::lock::later;
use super::read_biased_guard::{ReadBiasedReadGuard, ReadBiasedWriteGuard};
use super::thread::{self, REGISTRY};
use crate::deadlock;
use crate::forked::refuse;
use crate::lock::LockGuard;
use crate::records::LockType;
use crate::steps::{NoSteps, Steps};
use squall_sys::sync::cell::UnsafeCell;
use squall_sys::trace::Subject;
use std::fmt;
use std::panic::Location;
use std::time::{Duration, Instant};

/// A reader-writer lock for data that is mostly read and at times written, such as the pages of a cache.
///
/// While threads only read, the lock is *biased*: each reader writes only a cache line of its own thread. The
/// first write ends the bias, at the cost of a system call. Until the next bias, readers count themselves in
/// the lock, and a write makes no system call.
///
/// A new lock is unbiased. It becomes biased after 256 reads without a write. Each write that ends a bias
/// doubles this number, up to 4096.
///
/// Drawbacks:
/// - **The write that ends a bias is expensive**, as each write of a
///   [`DistributedRwLock`](crate::DistributedRwLock). It happens at most once per 256 to 4096 reads.
/// - Reads of an unbiased lock write a shared line, as those of other reader-writer locks.
/// - A guard stays on its thread. A forgotten read guard (`std::mem::forget`) keeps its lock read-locked
///   forever, and may also keep a later lock at the same address.
/// - Nested reads on one thread can deadlock. The second read waits for a writer, and that writer waits for
///   the first read. Debug builds panic there. They also panic if a thread waits for itself as a writer, or
///   in a cycle of writers and locks. A cycle through a reader of another thread is not detected. Of several
///   readers of an unbiased lock, the check knows the last.
/// - Signal handlers must not use it: locking may allocate and sleep. In the child of a fork, locks held by
///   other threads of the parent stay held.
/// - Poisoning does not exist: a panic releases the lock.
/// - Without `membarrier` each biased reader makes two full fences.
///
/// Neither side starves. A reader that waits is queued after a short spin. The next writer goes after the
/// queued readers, and readers that arrive during a write go after it. Writers are ordered among themselves
/// like the waiters of a [`Lock`](crate::Lock).
///
/// The lock needs 28 bytes beside its value, for any number of processors. The distributed part belongs to
/// the threads: 128 bytes per thread, shared by all such locks and by
/// [`DistributedRwLock`](crate::DistributedRwLock)s.
///
/// Progress: a biased read is wait-free while there is no writer; a counted one is lock-free. A thread that
/// stalls while it reads delays writers, and through them all readers. A read takes effect when it loads or
/// changes the lock's word. A write takes effect when the writer has seen the last reader gone.
///
/// # Cost
/// Reading while biased: two stores to the thread's own line and three loads of the lock's word. Reading
/// else: two read-modify-writes of the lock's word. Writing else: four read-modify-writes.
///
/// # Source
/// Dice and Kogan, "BRAVO: Biased Locking for Reader-Writer Locks", USENIX ATC 2019. There the time of a
/// revocation sets the time without bias; here a count of reads does. PR-10: Appavoo 2005, §3.1.
///
/// # Example
/// ```
/// use squall::lock::ReadBiasedRwLock;
///
/// let page = ReadBiasedRwLock::new([0u8; 512]);
/// page.write()[0] = 1; // an unbiased lock: no system call
/// while !page.is_biased() {
///     assert_eq!(page.read()[0], 1);
/// }
/// assert_eq!(page.read()[0], 1); // writes a line of this thread alone
/// page.write()[0] = 2; // ends the bias
/// assert!(!page.is_biased());
/// ```
pub struct ReadBiasedRwLock<T: ?Sized, S: Steps = NoSteps> {
    pub(super) bias: ReadBias<S>,
    pub(super) value: UnsafeCell<T>,
}

// SAFETY: the lock owns its value, and its other fields belong to no thread.
unsafe impl<T: ?Sized + Send, S: Steps> Send for ReadBiasedRwLock<T, S> {}
// SAFETY: threads that share the lock read the value at the same time, for which it is `Sync`. They write it,
// for which it is `Send`, only while no other thread is inside (bias/I1).
unsafe impl<T: ?Sized + Send + Sync, S: Steps> Sync for ReadBiasedRwLock<T, S> {}

impl<T: ?Sized, S: Steps> std::panic::UnwindSafe for ReadBiasedRwLock<T, S> {}
impl<T: ?Sized, S: Steps> std::panic::RefUnwindSafe for ReadBiasedRwLock<T, S> {}

impl<T> ReadBiasedRwLock<T> {
    /// Makes a free, unbiased lock around `value`.
    pub const fn new(value: T) -> ReadBiasedRwLock<T> {
        ReadBiasedRwLock::with_steps(value)
    }
}

impl<T, S: Steps> ReadBiasedRwLock<T, S> {
    /// Like [`ReadBiasedRwLock::new`], with the steps `S` of a stress test.
    #[doc(hidden)]
    pub const fn with_steps(value: T) -> ReadBiasedRwLock<T, S> {
        ReadBiasedRwLock { bias: ReadBias::new(), value: UnsafeCell::new(value) }
    }

    /// Consumes the lock and returns the value.
    ///
    /// # Example
    /// ```
    /// let names = squall::lock::ReadBiasedRwLock::new(vec!["a"]);
    /// names.write().push("b");
    /// assert_eq!(names.into_inner(), ["a", "b"]);
    /// ```
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized, S: Steps> ReadBiasedRwLock<T, S> {
    /// Locks for reading. Waits while a writer waits or is inside.
    ///
    /// # Panics
    /// In debug builds, if this wait can never end (see the type). In every build, if 67 million read guards
    /// of the unbiased lock exist.
    ///
    /// # Example
    /// ```
    /// let limit = squall::lock::ReadBiasedRwLock::new(10);
    /// assert_eq!(*limit.read(), 10);
    /// ```
    #[inline(always)]
    #[track_caller]
    pub fn read(&self) -> ReadBiasedReadGuard<'_, T, S> {
        let reader = match self.bias.mark_first(thread::current()) {
            Ok(reader) => reader,
            Err(marked) => self.read_counted(marked),
        };
        self.reading(reader)
    }

    /// Locks for reading if no writer waits or is inside. Otherwise returns `None`.
    ///
    /// # Example
    /// ```
    /// let limit = squall::lock::ReadBiasedRwLock::new(10);
    /// assert!(limit.try_read().is_some());
    /// let writer = limit.write();
    /// assert!(limit.try_read().is_none());
    /// ```
    #[inline]
    #[track_caller]
    pub fn try_read(&self) -> Option<ReadBiasedReadGuard<'_, T, S>> {
        // Any moment that has passed by the time it is compared.
        self.try_read_until(Instant::now)
    }

    /// Locks for reading, or gives up after `limit`.
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    ///
    /// let limit = squall::lock::ReadBiasedRwLock::new(10);
    /// let writer = limit.write();
    /// assert!(limit.try_read_for(Duration::from_millis(1)).is_none());
    /// drop(writer);
    /// assert!(limit.try_read_for(Duration::from_millis(1)).is_some());
    /// ```
    #[inline]
    #[track_caller]
    pub fn try_read_for(&self, limit: Duration) -> Option<ReadBiasedReadGuard<'_, T, S>> {
        // A limit beyond the end of the clock becomes a year.
        self.try_read_until(|| later(limit))
    }

    /// Locks for reading, or gives up at `deadline`. The closure runs only if there is a writer, or if the
    /// thread reads other locks.
    #[inline(always)]
    #[track_caller]
    fn try_read_until(&self, deadline: impl FnOnce() -> Instant) -> Option<ReadBiasedReadGuard<'_, T, S>> {
        let reader = match self.bias.mark_first(thread::current()) {
            Ok(reader) => reader,
            Err(false) if self.bias.count_first() => Reader::Counted,
            Err(marked) => self.enter(marked, Some(deadline()))?,
        };
        Some(self.reading(reader))
    }

    /// Continues after the thread's first slot was of no use: the lock is unbiased, or the slot is taken.
    #[inline(never)]
    #[track_caller]
    fn read_counted(&self, marked: bool) -> Reader<'static> {
        if !marked && self.bias.count_first() { Reader::Counted } else { self.read_slowly(marked) }
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn read_slowly(&self, marked: bool) -> Reader<'static> {
        // Without a deadline, only a wait in the child of a fork ends without the lock.
        let enter = |marked| self.enter(marked, None).unwrap_or_else(|| refuse());
        if !self.bias.has_writer() {
            return enter(marked);
        }
        if !cfg!(debug_assertions) {
            return deadlock::waits(self.bias.key(), || enter(marked));
        }
        if marked {
            self.bias.unmark(thread::registered().first());
        }
        assert!(
            !self.is_read_here(),
            "this thread already reads this ReadBiasedRwLock, and a writer waits for that read: a second read would \
             deadlock; drop the first guard before"
        );
        deadlock::waits(self.bias.key(), || enter(false))
    }

    fn enter(&self, marked: bool, deadline: Option<Instant>) -> Option<Reader<'static>> {
        self.bias.enter(marked, thread::registered(), &REGISTRY, deadline, Subject::at(self))
    }

    /// Returns whether the calling thread is known to read this lock.
    fn is_read_here(&self) -> bool {
        thread::marks(self.bias.key()) || deadlock::holds(self.bias.counted_key())
    }

    #[inline(always)]
    #[track_caller]
    fn reading(&self, reader: Reader<'static>) -> ReadBiasedReadGuard<'_, T, S> {
        if let Reader::Counted = reader {
            deadlock::acquired(self.bias.counted_key(), Location::caller());
        }
        ReadBiasedReadGuard::new(self, reader)
    }

    /// Locks for writing, and ends the bias. Waits for other writers, then until all readers have left.
    ///
    /// # Panics
    /// In debug builds, if this wait can never end (see the type).
    ///
    /// # Cost
    /// Unbiased: four read-modify-writes. Biased: also some microseconds, and a read of one line for each
    /// thread that ever read such a lock.
    ///
    /// # Example
    /// ```
    /// let limit = squall::lock::ReadBiasedRwLock::new(10);
    /// *limit.write() += 1;
    /// assert_eq!(*limit.read(), 11);
    /// ```
    #[track_caller]
    pub fn write(&self) -> ReadBiasedWriteGuard<'_, T, S> {
        if cfg!(debug_assertions) && self.is_read_here() {
            panic!(
                "this thread already reads this ReadBiasedRwLock: a write would deadlock; drop the read guard before"
            );
        }
        let turn = self.bias.writers().lock_in(LockType::RwTurn, self);
        // Without a deadline, only a wait in the child of a fork ends without the lock.
        self.written(turn, None).unwrap_or_else(|| refuse())
    }

    /// Locks for writing if the lock is free and no readers delayed by the last writer are about to go in.
    /// Otherwise returns `None`.
    ///
    /// # Example
    /// ```
    /// let limit = squall::lock::ReadBiasedRwLock::new(10);
    /// let reader = limit.read();
    /// assert!(limit.try_write().is_none());
    /// drop(reader);
    /// *limit.try_write().expect("the lock is free") += 1;
    /// ```
    #[track_caller]
    pub fn try_write(&self) -> Option<ReadBiasedWriteGuard<'_, T, S>> {
        let turn = self.bias.writers().try_lock()?;
        // Look for readers first, without setting the word: WRITER would delay readers.
        (!self.bias.has_readers(&REGISTRY)).then_some(())?;
        self.written(turn, Some(Instant::now()))
    }

    /// Locks for writing, or gives up after `limit`. Readers that arrive during the
    /// attempt wait. An attempt that gives up keeps the bias.
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    ///
    /// let limit = squall::lock::ReadBiasedRwLock::new(10);
    /// let reader = limit.read();
    /// assert!(limit.try_write_for(Duration::from_millis(1)).is_none());
    /// drop(reader);
    /// assert!(limit.try_write_for(Duration::from_millis(1)).is_some());
    /// ```
    #[track_caller]
    pub fn try_write_for(&self, limit: Duration) -> Option<ReadBiasedWriteGuard<'_, T, S>> {
        let deadline = later(limit);
        let turn = self.bias.writers().try_lock_until_in(deadline, LockType::RwTurn, self)?;
        self.written(turn, Some(deadline))
    }

    #[track_caller]
    fn written<'a>(
        &'a self,
        turn: LockGuard<'a, (), S>,
        deadline: Option<Instant>,
    ) -> Option<ReadBiasedWriteGuard<'a, T, S>> {
        let turn = self.bias.lock(turn, &REGISTRY, deadline, Subject::at(self))?;
        deadlock::acquired(self.bias.key(), Location::caller());
        Some(ReadBiasedWriteGuard::new(self, turn))
    }

    /// Returns whether a writer is inside or waits for readers. The answer may be out of date when it
    /// returns.
    pub fn has_writer(&self) -> bool {
        self.bias.has_writer()
    }

    /// Returns whether readers write lines of their own, and a write is expensive. The answer may be out of
    /// date when it returns.
    ///
    /// # Example
    /// ```
    /// let limit = squall::lock::ReadBiasedRwLock::new(10);
    /// assert!(!limit.is_biased());
    /// (0..256).for_each(|_| assert_eq!(*limit.read(), 10));
    /// assert!(limit.is_biased());
    /// ```
    pub fn is_biased(&self) -> bool {
        self.bias.is_biased()
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
        deadlock::name(self.bias.key(), name);
    }
}

impl<T: Default> Default for ReadBiasedRwLock<T> {
    fn default() -> ReadBiasedRwLock<T> {
        ReadBiasedRwLock::new(T::default())
    }
}

impl<T> From<T> for ReadBiasedRwLock<T> {
    fn from(value: T) -> ReadBiasedRwLock<T> {
        ReadBiasedRwLock::new(value)
    }
}

impl<T: ?Sized + fmt::Debug, S: Steps> fmt::Debug for ReadBiasedRwLock<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ReadBiasedRwLock");
        match self.try_read() {
            Some(value) => shown.field("value", &&*value),
            None => shown.field("value", &format_args!("<locked>")),
        };
        shown.finish()
    }
}
