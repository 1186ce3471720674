//! `VpLock<T>`: the threads of one VP take it without an atomic operation.
//!
//! Problem: each processor has data of its own, but at times a thread elsewhere needs them too. So they
//! have a lock, and the processor's threads pay for an atomic operation that is wasted nearly always.
//! Idea: the lock is biased to a VP. A thread there sets a mark by a restartable sequence, which finds the
//! gate open and the mark clear. Another thread takes the common lock, closes the gate, restarts the
//! sequences in flight, and waits until the mark is clear. From then on all threads take the common lock.
//! The gate is opened again after the VP's threads have taken the common lock many times in a row.
//!
//! - I1. Only the holder of `common` opens and closes the gate.
//! - I2. A thread is inside by the mark, or by `common` with the gate closed and the mark clear. A gate is
//!   closed and its sequences restarted before the mark is read (`gated_mark/I3`). So one thread is inside
//!   at a time.
//! - I3. A thread inside by `common` sees the writes of the last thread inside by the mark: `is_set`
//!   acquires. In the other direction: opening the gate releases, and the sequence acquires.
//! - I4. The holder of `common` opens the gate after its last access to the value.
//! - I5. The gate is opened again after so many acquisitions that closing it costs a small part of them,
//!   also if threads of other VPs come often: an opening that lasted less than `OPEN_MS` doubles that
//!   number.
//!
//! Not promised: an order of waiters.
//! Progress: a thread of the VP that finds the mark clear is wait-free. If it finds the mark set, it yields
//! four times and then goes the common way. That way waits for the thread inside, and for the system call.
//! Source: as for the biased lock (`biased`); restartable sequences in place of its asymmetric fence. Our
//! own: a VP as the owner, so threads may come and go.

#[cfg(any(loom, squall_model))]
mod model;

use crate::deadlock;
use crate::forked::refuse;
use crate::lock::{Lock, LockGuard};
use crate::records::{LockType, Wait, revoked};
#[cfg(any(loom, squall_model))]
use model::GatedMark;
#[cfg(loom)]
pub use model::Vp;
#[cfg(not(loom))]
use squall_machine::Vp;
#[cfg(not(any(loom, squall_model)))]
use squall_machine::pervp::GatedMark;
use squall_sys::fork::forked;
use squall_sys::sync::cell::UnsafeCell;
use squall_sys::sync::{recheck, thread};
use squall_sys::trace::{Since, Subject};
use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::panic::Location;

/// The sites of the argument. Each model twin weakens one.
mod sites {
    use squall_sys::sync::weaken::Site;
    /// Restart of the sequences in flight, after the gate was closed (I2).
    #[cfg(any(loom, squall_model))]
    pub(super) const RESTART: Site = Site(107);
    /// Not an ordering: the holder of `common` reads the mark before it goes in (I2).
    pub(super) const LOOK: Site = Site(108);
    /// Not an ordering: an attempt reads the mark before the thread goes in (I2).
    pub(super) const TRY_LOOK: Site = Site(114);
    /// Not an ordering: the gate is opened after the last access to the value (I4).
    pub(super) const LAST: Site = Site(109);
    /// Release of clearing the mark (I3). Partners: [`SEEN`], [`AGAIN`].
    #[cfg(any(loom, squall_model))]
    pub(super) const CLEAR: Site = Site(110);
    /// Acquire of the holder of `common` that reads the mark (I3). Partner: [`CLEAR`].
    #[cfg(any(loom, squall_model))]
    pub(super) const SEEN: Site = Site(111);
    /// Acquire of the mark in the sequence (I3). Partner: [`CLEAR`].
    #[cfg(any(loom, squall_model))]
    pub(super) const AGAIN: Site = Site(112);
    /// Release of opening the gate (I3). Partner: the acquiring load of the gate in the sequence.
    #[cfg(any(loom, squall_model))]
    pub(super) const OPEN: Site = Site(113);
}

/// Smallest and largest number of acquisitions in a row by threads of the VP that open the gate (I5).
const IN_A_ROW: (u32, u32) = if cfg!(any(loom, squall_model)) { (1, 1) } else { (8, 1 << 16) };
/// An opening of this duration in ms was worth its costs (I5).
#[cfg(not(any(loom, squall_model)))]
const OPEN_MS: u128 = 2;

/// A lock that costs the threads of one VP no atomic operation.
///
/// Use it for the data of one processor that threads elsewhere need at times.
///
/// Drawbacks:
/// - A thread elsewhere that finds the gate open makes a system call. The call interrupts each processor on
///   which a thread of this process runs, for some microseconds. The gate stays closed until the VP's
///   threads have taken the lock 8 to 65,536 times in a row: more often, the sooner others came.
/// - A holder that is preempted delays the other threads of the VP, as with any lock.
/// - Without restartable sequences the gate never opens: the lock behaves like a [`Lock`] with some more
///   instructions. If the kernel refuses the system call later, the next closing takes some tens of
///   milliseconds, and no gate opens after that.
/// - Waiters have no order, and poisoning does not exist, as with [`Lock`].
/// - A thread that takes the lock it holds waits for ever. In debug builds it panics.
///
/// # Cost
/// On its VP with the gate open: ten instructions to lock, and a store to unlock. Otherwise like [`Lock`],
/// and some 20 instructions more.
///
/// # Example
/// ```
/// use squall::{Vp, lock::VpLock};
///
/// let queue = VpLock::new(Vp::current(), Vec::new());
/// (0..100).for_each(|n| queue.lock().push(n)); // after eight acquisitions, no atomic operation
/// std::thread::scope(|threads| {
///     threads.spawn(|| queue.lock().pop()); // on another processor it closes the gate
/// });
/// assert_eq!(queue.into_inner().len(), 99);
/// ```
pub struct VpLock<T: ?Sized> {
    mark: GatedMark,
    common: Lock<Turns>,
    value: UnsafeCell<T>,
}

/// The recent acquisitions of the common lock.
struct Turns {
    /// The acquisitions in a row by threads of the VP.
    in_a_row: u32,
    /// The number of them that opens the gate.
    needed: u32,
    /// Start of the latest opening.
    #[cfg(not(any(loom, squall_model)))]
    opened: Option<std::time::Instant>,
}

// SAFETY: the lock owns its value, so sending the lock sends the value.
unsafe impl<T: ?Sized + Send> Send for VpLock<T> {}
// SAFETY: threads that share the lock reach the value one at a time (I2, I3).
unsafe impl<T: ?Sized + Send> Sync for VpLock<T> {}

impl<T> VpLock<T> {
    /// Makes a free lock around `value` for the threads of `vp`, with a closed gate.
    ///
    /// # Panics
    /// If `vp` is not below `Machine::vp_limit`.
    pub fn new(vp: Vp, value: T) -> VpLock<T> {
        #[cfg(not(loom))]
        squall_sys::fork::arm();
        let turns = Turns {
            in_a_row: 0,
            needed: IN_A_ROW.0,
            #[cfg(not(any(loom, squall_model)))]
            opened: None,
        };
        VpLock { mark: GatedMark::new(vp), common: Lock::new(turns), value: UnsafeCell::new(value) }
    }

    /// Consumes the lock and returns the value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> VpLock<T> {
    /// Returns the VP whose threads take the lock at the least cost.
    #[inline]
    pub fn vp(&self) -> Vp {
        self.mark.vp()
    }

    /// Takes the lock, and waits until it is free.
    ///
    /// # Panics
    /// In debug builds, if the wait can never end; see [`Lock::lock`].
    #[inline(always)]
    #[track_caller]
    pub fn lock(&self) -> VpLockGuard<'_, T> {
        match self.lock_here() {
            Some(guard) => guard,
            None => self.lock_slowly(),
        }
    }

    /// Takes the lock if its gate is open, it is free, and the thread is on its VP. Never waits, and never
    /// closes the gate.
    ///
    /// # Cost
    /// Ten instructions, none atomic.
    ///
    /// # Example
    /// ```
    /// use squall::{Vp, lock::VpLock};
    ///
    /// let lock = VpLock::new(Vp::current(), 0);
    /// assert!(lock.lock_here().is_none()); // a new lock's gate is closed
    /// ```
    #[inline(always)]
    #[track_caller]
    pub fn lock_here(&self) -> Option<VpLockGuard<'_, T>> {
        if self.mark.set_at_gate() {
            deadlock::acquired(self.address(), Location::caller());
            Some(VpLockGuard { lock: self, common: false, stays: PhantomData })
        } else {
            None
        }
    }

    /// Takes the lock if it is free. Returns `None` if a thread holds it.
    ///
    /// A thread elsewhere closes the gate for the attempt.
    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> Option<VpLockGuard<'_, T>> {
        if let Some(guard) = self.lock_here() {
            return Some(guard);
        }
        self.try_lock_commonly()
    }

    #[track_caller]
    fn try_lock_commonly(&self) -> Option<VpLockGuard<'_, T>> {
        let mut common = self.common.try_lock()?;
        // While a thread of the VP holds the lock, there is no reason to close the gate.
        if self.mark.is_set() && !sites::TRY_LOOK.is_weak() {
            return None;
        }
        self.close(&mut common);
        (!self.mark.is_set() || sites::TRY_LOOK.is_weak()).then(|| self.common_guard(common))
    }

    /// Returns whether the gate is open. The answer may be out of date.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.mark.is_open()
    }

    /// Returns the value without locking: the exclusive borrow proves that no other reference exists.
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: the lock is borrowed exclusively, so no guard can reach the value.
        unsafe { &mut *self.value.with_mut(|value| value) }
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn lock_slowly(&self) -> VpLockGuard<'_, T> {
        // A thread of the VP finds the mark set if its holder was preempted or moved away. That one goes on
        // while this one yields, and the gate can stay open.
        let mut wait = None;
        for _ in 0..if cfg!(any(loom, squall_model)) { 0 } else { 4 } {
            if !self.mark.is_open() || Vp::current() != self.vp() {
                break;
            }
            wait.get_or_insert_with(|| Wait::begin(LockType::VpMark, Subject::at(self)));
            thread::yield_now();
            if let Some(guard) = self.lock_here() {
                wait.into_iter().for_each(|wait| wait.end(true));
                return guard;
            }
        }
        self.lock_commonly()
    }

    #[track_caller]
    pub(crate) fn lock_commonly(&self) -> VpLockGuard<'_, T> {
        let mut common = self.common.lock_in(LockType::Vp, self);
        self.close(&mut common);
        if self.mark.is_set() && !sites::LOOK.is_weak() {
            let wait = Wait::begin(LockType::VpMark, Subject::at(self));
            deadlock::waits(self.address(), || {
                let mut round = 0;
                while self.mark.is_set() {
                    if forked() {
                        refuse();
                    }
                    round += 1;
                    recheck::wait(round);
                }
            });
            wait.end(true);
        }
        self.common_guard(common)
    }

    /// Closes the gate, if it is open. After that the mark, once clear, stays so while `common` is held.
    fn close(&self, turns: &mut Turns) {
        if !self.mark.is_open() {
            return;
        }
        let since = Since::now();
        // Before the system call, which may last.
        #[cfg(not(any(loom, squall_model)))]
        {
            let worthwhile = turns.opened.take().is_none_or(|at| at.elapsed().as_millis() >= OPEN_MS);
            turns.needed = if worthwhile { IN_A_ROW.0 } else { (turns.needed * 2).min(IN_A_ROW.1) };
        }
        turns.in_a_row = 0;
        self.mark.close();
        revoked(LockType::Vp, Subject::at(self), since);
    }

    fn common_guard<'a>(&'a self, mut common: LockGuard<'a, Turns>) -> VpLockGuard<'a, T> {
        let is_here = cfg!(any(loom, squall_model)) || Vp::current() == self.vp();
        common.in_a_row = if is_here { common.in_a_row.saturating_add(1) } else { 0 };
        if sites::LAST.is_weak() {
            self.open_if_due(&mut common);
        }
        // The drop of the returned guard releases `common`.
        mem::forget(common);
        VpLockGuard { lock: self, common: true, stays: PhantomData }
    }

    /// Opens the gate, if the VP's threads took the common lock often enough. The caller holds `common` and
    /// no longer accesses the value (I4).
    #[inline]
    fn open_if_due(&self, turns: &mut Turns) {
        if turns.in_a_row >= turns.needed {
            turns.in_a_row = 0;
            let has_opened = self.mark.open();
            #[cfg(not(any(loom, squall_model)))]
            {
                turns.opened = has_opened.then(std::time::Instant::now);
            }
            if !has_opened {
                // Here gates no longer open, or never did.
                turns.needed = u32::MAX;
            }
        }
    }

    /// Returns the address that identifies the lock as held by the mark.
    fn address(&self) -> usize {
        std::ptr::from_ref(&self.mark).addr()
    }
}

/// Holds a [`VpLock`] and gives access to its value. Dropping the guard releases the lock, also during a
/// panic.
///
/// The guard must stay on the thread that took the lock:
/// ```compile_fail
/// use squall::{Vp, lock::VpLock};
/// static LOCK: std::sync::LazyLock<VpLock<u32>> = std::sync::LazyLock::new(|| VpLock::new(Vp::current(), 0));
/// let guard = LOCK.lock();
/// std::thread::spawn(move || drop(guard));
/// ```
#[must_use = "the lock is released when the guard is dropped"]
pub struct VpLockGuard<'a, T: ?Sized> {
    lock: &'a VpLock<T>,
    common: bool,
    stays: PhantomData<*const ()>,
}

// SAFETY: a shared guard only gives shared references to the value, and `T` is `Sync`.
unsafe impl<T: ?Sized + Sync> Sync for VpLockGuard<'_, T> {}

impl<T: ?Sized> Deref for VpLockGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the pointer is that of a live value. The guard proves that this thread holds the lock, so
        // all other references come from this guard. References that may write borrow the guard mutably.
        unsafe { &*self.lock.value.with(|value| value) }
    }
}

impl<T: ?Sized> DerefMut for VpLockGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the pointer and the lock are as in `deref`. This guard is borrowed mutably, so there is no
        // other reference.
        unsafe { &mut *self.lock.value.with_mut(|value| value) }
    }
}

impl<T: ?Sized> Drop for VpLockGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if !self.common {
            deadlock::released(self.lock.address());
            self.lock.mark.clear();
        } else {
            // `common_guard` forgot the guard of `common`; its drop releases it.
            let mut turns = LockGuard::new(&self.lock.common);
            self.lock.open_if_due(&mut turns);
        }
    }
}

impl<T: ?Sized> fmt::Debug for VpLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (vp, is_open) = (self.vp(), self.is_open());
        f.debug_struct("VpLock").field("vp", &vp).field("is_open", &is_open).finish_non_exhaustive()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for VpLockGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(all(test, not(any(loom, squall_model))))]
mod tests {
    use super::*;
    use squall_machine::{asym, pervp};

    /// Runs `f` in a thread that stays on one processor, with a lock for it. The argument says whether
    /// gates open there.
    fn stay(f: impl FnOnce(VpLock<u32>, bool) + Send) {
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let allowed = squall_sys::affinity::allowed().unwrap_or_default();
                let stays =
                    allowed.first().is_some_and(|&it| squall_sys::affinity::restrict_to(&[it]).is_ok());
                let is_restartable = matches!(pervp::restart_mode(), pervp::RestartMode::Restartable);
                let opens = stays && is_restartable && asym::mode() == asym::Mode::Membarrier;
                f(VpLock::new(Vp::current(), 0), opens && !squall_machine::machine().is_virtual());
            });
        });
    }

    #[test]
    fn many_takings_open_the_gate_until_a_thread_closes_it() {
        stay(|lock, opens| {
            assert!(lock.lock_here().is_none() && !lock.is_open());
            for taking in 1..=IN_A_ROW.0 {
                *lock.lock() += 1;
                assert_eq!(lock.is_open(), opens && taking == IN_A_ROW.0);
            }
            assert_eq!(lock.lock_here().map(|guard| *guard), opens.then_some(IN_A_ROW.0));
            *lock.lock_commonly() += 1;
            assert!(!lock.is_open(), "one taking opened the gate");
            assert_eq!(*lock.lock(), IN_A_ROW.0 + 1);
        });
    }

    #[test]
    fn a_held_lock_is_not_taken() {
        stay(|lock, opens| {
            for _ in 0..2 {
                let held = lock.lock();
                let was_open = lock.is_open();
                assert!(lock.try_lock().is_none() && lock.lock_here().is_none());
                assert_eq!(lock.is_open(), was_open, "an attempt in vain closed the gate");
                drop(held);
                assert!(lock.try_lock().is_some());
                (0..IN_A_ROW.0).for_each(|_| drop(lock.lock()));
                assert_eq!(lock.is_open(), opens);
            }
        });
    }

    #[test]
    fn openings_that_others_end_soon_become_rare() {
        let lock = VpLock::new(Vp::current(), 0);
        let mut common = lock.common.lock();
        for doublings in 1..=20 {
            if !lock.mark.open() {
                return;
            }
            // In the future, so that the test depends on no duration.
            common.opened = Some(std::time::Instant::now() + std::time::Duration::from_secs(3600));
            lock.close(&mut common);
            assert_eq!(common.needed, (IN_A_ROW.0 << doublings).min(IN_A_ROW.1));
        }
        assert!(lock.mark.open());
        common.opened = None;
        lock.close(&mut common);
        assert_eq!(common.needed, IN_A_ROW.0);
    }
}
