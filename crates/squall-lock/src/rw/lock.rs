//! `DistributedRwLock<T>`: the raw lock, its value, and the lock that makes writers come one at a time.

use super::guard::{DistributedReadGuard, DistributedWriteGuard};
use super::raw::{Entry, Raw};
use super::thread::{self, REGISTRY};
use crate::deadlock;
use crate::lock::{Lock, LockGuard};
use crate::steps::{Steps, Undisturbed};
use squall_sys::sync::atomic::{AtomicUsize, Ordering};
use squall_sys::sync::cell::UnsafeCell;
use std::fmt;
use std::panic::Location;
use std::time::{Duration, Instant};

/// A reader-writer lock whose readers write nothing that another thread writes: a read lock for each thread, and a write lock
/// that is all of them.
///
/// Drawbacks first:
/// - **Writing is dear**: a system call that interrupts every processor on which a thread of this process runs, and a look at
///   one line for each thread of the process that ever read such a lock (`squall bench rwlock` prints what that takes for
///   1 to 512 of them). For data that is written more often than once in some thousand reads take another lock.
/// - A guard stays on its thread, and a read guard that is forgotten (`std::mem::forget`) keeps its lock, or what lies at its
///   address later, read-locked for ever.
/// - Reading again on a thread that reads already may wait for a writer that waits for the first: then neither goes on.
///   Debug builds panic there, and where a thread waits for itself as a writer, or in a cycle of writers and locks; that a
///   cycle goes through a reader of another thread is not seen.
/// - Not for signal handlers: locking may allocate and sleep. In the child of a fork, what other threads of the parent read or
///   wrote stays locked for ever.
/// - No poisoning: a thread that panics while it holds the lock releases it.
/// - Where `membarrier` cannot be used, each reader makes two full fences.
///
/// Neither side starves: readers that come while a writer waits or works go after it, and the next writer goes after those that
/// waited so. Writers among themselves have the order of [`Lock`].
///
/// The lock is as small as others, 28 bytes beside its value, however many processors there are: what is distributed belongs to
/// the threads, 128 bytes for each, for all such locks together.
///
/// Progress: reading is wait-free while there is no writer. A thread that stalls while it reads holds up writers, and then
/// everybody. Reading takes effect at the look at the lock's word, writing when the last mark is seen gone.
///
/// # Cost
/// Reading: two stores to the thread's own line, two loads of the lock's word. Eight locks at once on one thread; beyond
/// that the thread takes further records, and looks through those it has where free places are scattered among them.
///
/// # Source
/// PR-10: Appavoo 2005, §3.1. See the headers of `rw/raw.rs` and `rw/marks.rs`.
///
/// # Example
/// ```
/// use squall_lock::DistributedRwLock;
///
/// static ROUTES: DistributedRwLock<Vec<u32>> = DistributedRwLock::new(Vec::new());
/// ROUTES.write().push(7);
/// std::thread::scope(|threads| {
///     for _ in 0..4 {
///         threads.spawn(|| assert_eq!(ROUTES.read().first(), Some(&7)));
///     }
/// });
/// ```
pub struct DistributedRwLock<T: ?Sized, S: Steps = Undisturbed> {
    pub(super) raw: Raw<S>,
    /// Held by the writer.
    writers: Lock<(), S>,
    pub(super) value: UnsafeCell<T>,
}

// SAFETY: the lock owns its value, and what is beside it belongs to no thread.
unsafe impl<T: ?Sized + Send, S: Steps> Send for DistributedRwLock<T, S> {}
// SAFETY: threads that share it read the value at the same time, for which it is `Sync`, and write it, for which it is
// `Send`, only while no other is inside (raw/I1).
unsafe impl<T: ?Sized + Send + Sync, S: Steps> Sync for DistributedRwLock<T, S> {}

impl<T: ?Sized, S: Steps> std::panic::UnwindSafe for DistributedRwLock<T, S> {}
impl<T: ?Sized, S: Steps> std::panic::RefUnwindSafe for DistributedRwLock<T, S> {}

impl<T> DistributedRwLock<T> {
    /// A lock around `value`, which nobody holds.
    pub const fn new(value: T) -> DistributedRwLock<T> {
        DistributedRwLock::disturbed(value)
    }
}

impl<T, S: Steps> DistributedRwLock<T, S> {
    /// As [`DistributedRwLock::new`], with something that happens at each step.
    #[doc(hidden)]
    pub const fn disturbed(value: T) -> DistributedRwLock<T, S> {
        DistributedRwLock { raw: Raw::new(), writers: Lock::disturbed(()), value: UnsafeCell::new(value) }
    }

    /// Ends the lock and returns the value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized, S: Steps> DistributedRwLock<T, S> {
    /// Locks to read: waits while a writer waits or works.
    ///
    /// # Panics
    /// In debug builds, if this wait can never end (see the type).
    #[inline(always)]
    #[track_caller]
    pub fn read(&self) -> DistributedReadGuard<'_, T, S> {
        let slot = match self.mark_first() {
            Ok(slot) => slot,
            Err(marked) => self.read_slowly(marked),
        };
        DistributedReadGuard::new(self, slot)
    }

    /// Locks to read if no writer waits or works.
    #[inline]
    pub fn try_read(&self) -> Option<DistributedReadGuard<'_, T, S>> {
        // Any moment that is past by the time it is looked at.
        self.try_read_until(Instant::now)
    }

    /// Locks to read, or gives up after `limit`.
    #[inline]
    pub fn try_read_for(&self, limit: Duration) -> Option<DistributedReadGuard<'_, T, S>> {
        // A limit beyond the clock's end is as good as a year.
        self.try_read_until(|| later(limit))
    }

    /// Locks to read, or gives up when the time that `deadline` says has passed; it is asked only if there is a writer.
    #[inline(always)]
    fn try_read_until(&self, deadline: impl FnOnce() -> Instant) -> Option<DistributedReadGuard<'_, T, S>> {
        let slot = match self.mark_first() {
            Ok(slot) => slot,
            Err(marked) => self.enter(marked, Some(deadline()))?,
        };
        Some(DistributedReadGuard::new(self, slot))
    }

    /// Marks the thread's first slot, if it is free. `Ok`: inside. Else whether it is marked.
    #[inline(always)]
    fn mark_first(&self) -> Result<&'static AtomicUsize, bool> {
        let slot = thread::current().first();
        // Relaxed: the thread's own.
        if slot.load(Ordering::Relaxed) != 0 {
            return Err(false);
        }
        if self.raw.mark(slot) { Ok(slot) } else { Err(true) }
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn read_slowly(&self, marked: bool) -> &'static AtomicUsize {
        let enter = |marked| self.enter(marked, None).expect("a wait without a deadline ends inside");
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
            "this thread reads a DistributedRwLock that it reads already, with a writer between: they wait for each other \
             for ever"
        );
        deadlock::waits(self.raw.key(), || enter(false))
    }

    /// Goes on where `mark_first` could not.
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
        (self.raw.enter(slot, deadline) == Entry::Inside).then_some(slot)
    }

    /// Locks to write: waits for other writers, and then until all readers are gone.
    ///
    /// # Panics
    /// In debug builds, if this wait can never end (see the type).
    /// # Cost
    /// See the type: some microseconds, and a line for each thread that ever read.
    #[track_caller]
    pub fn write(&self) -> DistributedWriteGuard<'_, T, S> {
        if cfg!(debug_assertions) && thread::marks(self.raw.key()) {
            panic!("this thread writes a DistributedRwLock that it reads: it waits for itself for ever");
        }
        let turn = self.writers.lock();
        match self.raw.lock(&REGISTRY, None) {
            Entry::Inside => self.written(turn),
            Entry::TimedOut => unreachable!("without a deadline"),
        }
    }

    /// Locks to write if nobody is inside, and no readers are about to go in after the last writer.
    #[track_caller]
    pub fn try_write(&self) -> Option<DistributedWriteGuard<'_, T, S>> {
        let turn = self.writers.try_lock()?;
        // First without a word that would keep readers waiting.
        (!self.raw.has_marks(&REGISTRY)).then_some(())?;
        let entry = self.raw.lock(&REGISTRY, Some(Instant::now()));
        (entry == Entry::Inside).then(|| self.written(turn))
    }

    /// Locks to write, or gives up after `limit`. Readers that come meanwhile wait.
    #[track_caller]
    pub fn try_write_for(&self, limit: Duration) -> Option<DistributedWriteGuard<'_, T, S>> {
        let deadline = later(limit);
        let turn = self.writers.try_lock_until(deadline)?;
        let entry = self.raw.lock(&REGISTRY, Some(deadline));
        (entry == Entry::Inside).then(|| self.written(turn))
    }

    #[track_caller]
    fn written<'a>(&'a self, turn: LockGuard<'a, (), S>) -> DistributedWriteGuard<'a, T, S> {
        deadlock::acquired(self.raw.key(), Location::caller());
        DistributedWriteGuard::new(self, turn)
    }

    /// Whether a writer is inside, or waits for readers. By the time of the answer it may be otherwise.
    pub fn has_writer(&self) -> bool {
        self.raw.has_writer()
    }

    /// The value, without locking: nobody else can have a reference to it.
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: the pointer is that of a live value, and `&mut self` is the only reference to the lock, so no guard lives
        // but forgotten ones, through which nobody reaches the value.
        unsafe { &mut *self.value.with_mut(|value| value) }
    }

    /// Gives the lock the name under which a report of a deadlock shows it. For locks that live long: the name stays with the
    /// address. Does nothing in release builds.
    pub fn set_name(&self, name: &'static str) {
        deadlock::name(self.raw.key(), name);
    }
}

/// How many threads of this process have a place for marks now or had one: what a writer looks through, in lines.
#[doc(hidden)]
pub fn readers_known() -> usize {
    REGISTRY.len()
}

/// When `limit` is over; in a year, if the clock does not reach that far.
fn later(limit: Duration) -> Instant {
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
