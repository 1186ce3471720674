//! `BiasedLock<T>`: its owner, a thread that takes it many times in a row, needs no atomic operation.
//!
//! Problem: taking a free lock costs an atomic operation. In a short critical section that is most of the
//! cost, and it is wasted while only one thread takes the lock.
//! Idea: the lock names an owner. The owner marks itself inside with a plain store, makes a light fence, and
//! reads whether it still is the owner. Another thread that wants the lock takes the common lock, clears the
//! owner, makes the heavy fence, and waits until the former owner is outside. From then on all threads take
//! the common lock. A thread that took the common lock many times in a row becomes the owner: at first after
//! eight acquisitions, later after far more. A lock gets an owner at most `TIMES` times.
//!
//! - I1. Only the holder of `common` changes `owner`. The word names the thread and the term (how many owners
//!   came before). Each term has its own mark in `inside`, which only its owner writes. So a thread may stop
//!   between its read of `owner` and its mark, and go on in a later term. Its mark is then no longer read by
//!   any thread.
//! - I2. A thread is inside as the owner only if it saw itself as the owner after its mark and a light fence.
//! - I3. The holder of `common` is inside only if the lock has no owner, and the mark of the last owner was
//!   seen cleared. That read follows a heavy fence, which follows the end of the ownership; any threads may
//!   have made these steps. Until then `leaving` names the last owner, even if the thread that ended the
//!   ownership gives up. By `asym/I1` the owner sees that it lost the ownership, or its mark is seen.
//! - I4. A thread becomes the owner when it releases `common`, so never while it has a guard.
//! - I5. A thread that holds `common` has its number and `HELD` in `last`, and removes `HELD` before it
//!   releases `common`. So a thread that finds its own number with `HELD` there holds `common`. A thread that
//!   takes the lock twice finds this, or its own mark as the owner.
//!
//! I2 and I3 imply that one thread is inside at a time. The Release and Acquire of the marks make it see the
//! writes of the thread before it.
//!
//! Progress: the owner's path is wait-free. Taking the ownership away waits for the owner to leave, and for
//! the system call.
//! Source: K. Kawachiya, A. Koseki, T. Onodera, "Lock reservation", OOPSLA 2002; D. Dice, H. Huang, M. Yang,
//! "Asymmetric Dekker synchronization", 2001. Our own: a mark per term, so that a new owner can follow
//! without stopping the previous one.

#[cfg(all(test, any(loom, squall_model)))]
mod model;

use crate::deadlock;
use crate::forked::refuse;
use crate::lock::{Lock, LockGuard};
use crate::records::{LockType, Wait, revoked};
use squall_machine::asym;
use squall_sys::fork::forked;
use squall_sys::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use squall_sys::sync::cell::UnsafeCell;
use squall_sys::sync::recheck;
use squall_sys::trace::{Since, Subject};
use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::panic::Location;

/// The sites of the argument. Each model twin weakens one.
mod sites {
    use squall_sys::sync::weaken::Site;
    /// Light fence of the owner between its mark and its second read of `owner` (I2). Partner: [`HEAVY`].
    pub(super) const LIGHT: Site = Site(100);
    /// Heavy fence of the thread that takes the ownership away (I3). Partner: [`LIGHT`].
    pub(super) const HEAVY: Site = Site(101);
    /// Release of clearing a mark. Partner: [`SEEN`].
    pub(super) const LEAVE: Site = Site(102);
    /// Acquire of a thread that sees a mark cleared. Partner: [`LEAVE`].
    pub(super) const SEEN: Site = Site(103);
    /// Not an ordering: each term has its own mark (I1).
    pub(super) const TIME: Site = Site(104);
    /// Not an ordering: the owner reads `owner` again after its mark (I2).
    pub(super) const LOOK: Site = Site(105);
    /// Not an ordering: a thread that gives up leaves the former owner in `leaving` (I3).
    pub(super) const LEAVING: Site = Site(106);
}

/// The number of times a lock may get an owner.
const TIMES: usize = 4;
/// For each term, the number of acquisitions of the common lock in a row that make a thread the owner.
const IN_A_ROW: [u32; TIMES] = if cfg!(any(loom, squall_model)) {
    [1; TIMES]
} else if cfg!(miri) {
    [2; TIMES]
} else {
    [8, 512, 1 << 15, 1 << 21]
};
/// A number of acquisitions that counts as soon reached.
const SOON: u32 = 512;
/// The bit of `last` that marks the holder of `common` (I5). It lies below the bits of a thread's number.
const HELD: usize = 1;
/// The bits of `owner` that hold the term. They lie below the bits of a thread's number, which is aligned to
/// a word.
const TIME: usize = TIMES - 1;

/// A lock that costs its owner no atomic operation. The owner is a thread that takes the lock many times in a
/// row.
///
/// Use it for a value that may be shared, but that one thread uses nearly always.
///
/// Drawbacks:
/// - Taking the lock from its owner is expensive. The new thread makes a system call. The call interrupts
///   every processor on which a thread of this process runs, for some microseconds. Then it waits for the
///   owner to leave, and the owner may be descheduled. A lock does this at most four times; then it behaves
///   like a [`Lock`] with a few more instructions.
/// - Without `membarrier` the lock never has an owner. If `membarrier` is refused after the lock got its
///   owner, the new thread sleeps 100 ms instead of the call. A processor drains its store buffer long before
///   that, but this is no proof.
/// - The lock needs 48 bytes beside the value.
/// - Waiters have no order, and poisoning does not exist, as with [`Lock`].
///
/// # Panics
/// A thread that takes the lock it holds panics, and so does a thread that forgot a guard.
/// [`lock_unless_held`](BiasedLock::lock_unless_held) returns `None` instead.
///
/// # Cost
/// Owner: four loads and two stores. Other threads: like [`Lock`], and about ten instructions more.
///
/// # Example
/// ```
/// use squall::lock::BiasedLock;
/// let total = BiasedLock::new(0_u64);
/// (0..100).for_each(|_| *total.lock() += 1); // after eight acquisitions, no atomic operation
/// std::thread::scope(|threads| {
///     threads.spawn(|| *total.lock() += 1); // takes the ownership away
/// });
/// assert_eq!(total.into_inner(), 101);
/// ```
pub struct BiasedLock<T: ?Sized> {
    /// The owner's number and its term, or zero.
    owner: AtomicUsize,
    /// For each term, 1 while the owner is inside.
    inside: [AtomicU8; TIMES],
    /// The number of owners so far. Only the holder of `common` changes it.
    times: AtomicU8,
    /// The last thread to take `common`, with `HELD` while it holds `common` (I5).
    last: AtomicUsize,
    pub(crate) common: Lock<Turns>,
    value: UnsafeCell<T>,
}

/// The recent acquisitions of the common lock.
pub(crate) struct Turns {
    /// The acquisitions in a row by the last thread to take the common lock.
    in_a_row: u32,
    /// The dismissed owner and its term, until it was seen outside; otherwise zero.
    leaving: usize,
}

// SAFETY: the lock owns its value, so sending the lock sends the value.
unsafe impl<T: ?Sized + Send> Send for BiasedLock<T> {}
// SAFETY: threads that share the lock reach the value one at a time (I2, I3).
unsafe impl<T: ?Sized + Send> Sync for BiasedLock<T> {}

impl<T> BiasedLock<T> {
    /// Makes a free lock around `value`, without an owner.
    ///
    /// # Example
    /// ```
    /// use squall::lock::BiasedLock;
    ///
    /// static COUNT: BiasedLock<u32> = BiasedLock::new(0);
    /// *COUNT.lock() += 1;
    /// assert!(!COUNT.is_mine()); // one acquisition is not enough
    /// ```
    #[cfg(not(loom))]
    pub const fn new(value: T) -> BiasedLock<T> {
        BiasedLock {
            owner: AtomicUsize::new(0),
            inside: [const { AtomicU8::new(0) }; TIMES],
            times: AtomicU8::new(0),
            last: AtomicUsize::new(0),
            common: Lock::new(Turns { in_a_row: 0, leaving: 0 }),
            value: UnsafeCell::new(value),
        }
    }

    /// Makes a free lock around `value`, without an owner.
    #[cfg(loom)]
    pub fn new(value: T) -> BiasedLock<T> {
        BiasedLock {
            owner: AtomicUsize::new(0),
            inside: std::array::from_fn(|_| AtomicU8::new(0)),
            times: AtomicU8::new(0),
            last: AtomicUsize::new(0),
            common: Lock::new(Turns { in_a_row: 0, leaving: 0 }),
            value: UnsafeCell::new(value),
        }
    }

    /// Consumes the lock and returns the value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> BiasedLock<T> {
    /// Takes the lock, and waits until it is free.
    ///
    /// # Panics
    /// If this thread holds the lock. In debug builds also if the wait can never end; see [`Lock::lock`].
    ///
    /// # Example
    /// ```
    /// let names = squall::lock::BiasedLock::new(Vec::new());
    /// names.lock().push("a");
    /// assert_eq!(names.lock().len(), 1);
    /// ```
    #[cfg(not(loom))]
    #[inline(always)]
    #[track_caller]
    pub fn lock(&self) -> BiasedGuard<'_, T> {
        self.lock_as(squall_sys::tls::this_thread())
    }

    /// Takes the lock, and waits until it is free. Returns `None` if this thread holds the lock, so that it
    /// would wait for itself.
    ///
    /// # Panics
    /// In debug builds, if the wait can never end; see [`Lock::lock`].
    ///
    /// # Example
    /// ```
    /// let lock = squall::lock::BiasedLock::new(1);
    /// let held = lock.lock_unless_held().expect("no thread holds the lock");
    /// assert!(lock.lock_unless_held().is_none());
    /// drop(held);
    /// assert!(lock.lock_unless_held().is_some());
    /// ```
    #[cfg(not(loom))]
    #[inline(always)]
    #[track_caller]
    pub fn lock_unless_held(&self) -> Option<BiasedGuard<'_, T>> {
        self.lock_unless_held_as(squall_sys::tls::this_thread())
    }

    /// Takes the lock if it is free. Returns `None` if a thread holds it.
    ///
    /// If another thread owns the lock, `try_lock` first ends that ownership with `membarrier`. It does so
    /// even if the owner holds the lock and the attempt then fails.
    ///
    /// # Example
    /// ```
    /// let lock = squall::lock::BiasedLock::new(1);
    /// *lock.try_lock().expect("the lock is free") += 1;
    /// assert_eq!(lock.into_inner(), 2);
    /// ```
    #[cfg(not(loom))]
    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> Option<BiasedGuard<'_, T>> {
        self.try_lock_as(squall_sys::tls::this_thread())
    }

    /// Takes the lock if the calling thread is its owner and does not hold it. Never waits, and never takes
    /// the ownership from another thread.
    ///
    /// # Cost
    /// For the owner, the cost of [`lock`](BiasedLock::lock). For other threads, one load.
    ///
    /// # Example
    /// ```
    /// let lock = squall::lock::BiasedLock::new(0);
    /// assert!(lock.lock_if_mine().is_none()); // no thread owns a new lock
    /// (0..8).for_each(|_| *lock.lock() += 1);
    /// // Where `membarrier` works, this thread is the owner now.
    /// assert_eq!(lock.lock_if_mine().is_some(), lock.is_mine());
    /// ```
    #[cfg(not(loom))]
    #[inline(always)]
    #[track_caller]
    pub fn lock_if_mine(&self) -> Option<BiasedGuard<'_, T>> {
        match self.enter(squall_sys::tls::this_thread()) {
            Way::Own(time) => Some(self.guard(time)),
            Way::Common | Way::Held => None,
        }
    }

    /// Returns whether the calling thread is the owner, and so takes the lock without an atomic operation. A
    /// caller that counts accesses by several threads need not count those of the owner.
    ///
    /// # Cost
    /// One load of the word that [`lock`](BiasedLock::lock) reads first.
    #[cfg(not(loom))]
    #[inline(always)]
    pub fn is_mine(&self) -> bool {
        // Relaxed: the caller concludes nothing from it.
        self.owner.load(Ordering::Relaxed) & !TIME == squall_sys::tls::this_thread()
    }

    /// Returns whether a thread is the owner, or would become it soon by using the lock alone, within some
    /// 500 acquisitions. A lock that has lost owners before gets another one so late that it counts as
    /// unowned.
    ///
    /// # Example
    /// ```
    /// let lock = squall::lock::BiasedLock::new(0);
    /// let possible = lock.can_be_owned(); // false where `membarrier` is not available
    /// (0..8).for_each(|_| *lock.lock() += 1);
    /// assert_eq!(lock.is_mine(), possible);
    /// ```
    pub fn can_be_owned(&self) -> bool {
        // Acquire: pairs with the Release in `release`. A thread that sees the new count also sees the new
        // owner, unless it has gone.
        let times = usize::from(self.times.load(Ordering::Acquire));
        let is_soon = IN_A_ROW.get(times).is_some_and(|in_a_row| *in_a_row <= SOON) && may_be_owned();
        self.owner.load(Ordering::Relaxed) != 0 || is_soon
    }

    /// Returns the value without locking: the exclusive borrow proves that no other reference exists.
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: the lock is borrowed exclusively, so no guard can reach the value.
        unsafe { &mut *self.value.with_mut(|value| value) }
    }

    #[inline]
    #[track_caller]
    fn try_lock_as(&self, me: usize) -> Option<BiasedGuard<'_, T>> {
        match self.enter(me) {
            Way::Own(time) => Some(self.guard(time)),
            Way::Held => None,
            Way::Common => {
                let mut common = self.common.try_lock()?;
                self.dismiss(&mut common);
                let is_outside = self.is_outside(&mut common);
                if sites::LEAVING.is_weak() {
                    common.leaving = 0;
                }
                is_outside.then(|| self.common_guard(common, me))
            }
        }
    }

    #[inline(always)]
    #[track_caller]
    fn lock_as(&self, me: usize) -> BiasedGuard<'_, T> {
        match self.enter(me) {
            Way::Own(time) => self.guard(time),
            way => self.lock_slowly(me, matches!(way, Way::Held)).unwrap_or_else(|| refuse_relock()),
        }
    }

    #[inline(always)]
    #[track_caller]
    fn lock_unless_held_as(&self, me: usize) -> Option<BiasedGuard<'_, T>> {
        match self.enter(me) {
            Way::Own(time) => Some(self.guard(time)),
            way => self.lock_slowly(me, matches!(way, Way::Held)),
        }
    }

    /// Tries the owner's fast path.
    #[inline(always)]
    fn enter(&self, me: usize) -> Way {
        // Acquire: pairs with the Release in the guard's drop. A thread may have the number of one that has
        // ended.
        let owner = self.owner.load(Ordering::Acquire);
        if owner & !TIME != me {
            return Way::Common;
        }
        let inside = self.mark_of(owner);
        // Acquire: pairs with the Release of `leave`, for the same reason.
        if inside.load(Ordering::Acquire) != 0 {
            return Way::Held;
        }
        inside.store(1, Ordering::Relaxed);
        if !sites::LIGHT.is_weak() {
            // Pairs with the heavy fence in `dismiss` (I3).
            asym::light();
        }
        // Relaxed: the first read of `owner` acquired the writes of other threads; later writes are this
        // thread's own.
        if self.owner.load(Ordering::Relaxed) == owner || sites::LOOK.is_weak() {
            return Way::Own(owner & TIME);
        }
        self.leave(owner & TIME);
        Way::Common
    }

    #[inline(always)]
    fn mark_of(&self, owner: usize) -> &AtomicU8 {
        &self.inside[if sites::TIME.is_weak() { 0 } else { owner & TIME }]
    }

    #[inline(always)]
    fn leave(&self, time: usize) {
        // Release: pairs with the Acquire of `is_outside` and of `enter`.
        self.mark_of(time).store(0, sites::LEAVE.order(Ordering::Release));
    }

    /// Clears the owner, if there is one.
    fn dismiss(&self, turns: &mut Turns) {
        let owner = self.owner.load(Ordering::Relaxed);
        if owner == 0 {
            return;
        }
        let since = Since::now();
        self.owner.store(0, Ordering::Relaxed);
        // Set `leaving` before the fence, which may fail to order anything. No thread goes in before this
        // owner was seen outside (I3).
        turns.leaving = owner;
        if !sites::HEAVY.is_weak() && asym::heavy().is_err() {
            #[cfg(not(loom))]
            refused();
        }
        revoked(LockType::Biased, Subject::at(self), since);
    }

    /// Returns whether the last dismissed owner is outside.
    fn is_outside(&self, turns: &mut Turns) -> bool {
        // Acquire: pairs with the Release of `leave`.
        if turns.leaving != 0 && self.mark_of(turns.leaving).load(sites::SEEN.order(Ordering::Acquire)) == 0 {
            turns.leaving = 0;
        }
        turns.leaving == 0
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn lock_slowly(&self, me: usize, held: bool) -> Option<BiasedGuard<'_, T>> {
        // Relaxed: only this thread writes its own number there (I5).
        if held || self.last.load(Ordering::Relaxed) == me | HELD {
            return None;
        }
        let mut common = self.common.lock_in(LockType::Biased, self);
        self.dismiss(&mut common);
        if !self.is_outside(&mut common) {
            let wait = Wait::begin(LockType::BiasedOwner, Subject::at(self));
            deadlock::waits(self.address(), || {
                let mut round = 0;
                while !self.is_outside(&mut common) {
                    if forked() {
                        refuse();
                    }
                    round += 1;
                    recheck::wait(round);
                }
            });
            wait.end(true);
        }
        Some(self.common_guard(common, me))
    }

    /// Returns the address that identifies the lock as held by its owner.
    fn address(&self) -> usize {
        std::ptr::from_ref(&self.owner).addr()
    }

    #[inline(always)]
    #[track_caller]
    fn guard(&self, time: usize) -> BiasedGuard<'_, T> {
        deadlock::acquired(self.address(), Location::caller());
        BiasedGuard { lock: self, way: time, stays: PhantomData }
    }

    fn common_guard<'a>(&'a self, mut common: LockGuard<'a, Turns>, me: usize) -> BiasedGuard<'a, T> {
        // Relaxed, both: under `common`.
        let is_again = self.last.load(Ordering::Relaxed) == me;
        common.in_a_row = if is_again { common.in_a_row.saturating_add(1) } else { 1 };
        self.last.store(me | HELD, Ordering::Relaxed);
        // The drop of the returned guard releases `common`.
        mem::forget(common);
        BiasedGuard { lock: self, way: me, stays: PhantomData }
    }
}

/// The path by which a thread may take the lock.
enum Way {
    Own(usize),
    Common,
    /// The thread is the owner, and already inside.
    Held,
}

/// Returns whether locks may have owners: light fences have an effect, or are full fences.
fn may_be_owned() -> bool {
    asym::CHECKED || asym::mode() == asym::Mode::Membarrier
}

/// Sleeps 100 ms in place of a refused `membarrier`, which worked when the lock got its owner. The owner may
/// have read `owner` before this thread's store became visible. By the end of the sleep the owner has
/// executed far more instructions than a store buffer holds, or it was descheduled.
#[cfg(not(loom))]
#[cold]
fn refused() {
    squall_sys::sync::thread::sleep(std::time::Duration::from_millis(100));
}

/// Holds a [`BiasedLock`] and gives access to its value. Dropping the guard releases the lock, also during a
/// panic.
///
/// The guard must stay on the thread that took the lock:
/// ```compile_fail
/// static LOCK: squall::lock::BiasedLock<u32> = squall::lock::BiasedLock::new(0);
/// let guard = LOCK.lock();
/// std::thread::spawn(move || drop(guard));
/// ```
#[must_use = "the lock is released when the guard is dropped"]
pub struct BiasedGuard<'a, T: ?Sized> {
    lock: &'a BiasedLock<T>,
    /// The term, if this thread is inside as the owner; otherwise the thread's number, which is larger. The
    /// guard is two words, so that it stays in registers. A guard in memory would be written by halves and
    /// read as a whole, and that would cost as much as an atomic operation.
    way: usize,
    stays: PhantomData<*const ()>,
}

// SAFETY: a shared guard only gives shared references to the value, and `T` is `Sync`.
unsafe impl<T: ?Sized + Sync> Sync for BiasedGuard<'_, T> {}

impl<T: ?Sized> Deref for BiasedGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the pointer is that of a live value. The guard proves that this thread holds the lock, so
        // all other references come from this guard. References that may write borrow the guard mutably.
        unsafe { &*self.lock.value.with(|value| value) }
    }
}

impl<T: ?Sized> DerefMut for BiasedGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the pointer and the lock are as in `deref`. This guard is borrowed mutably, so there is no
        // other reference.
        unsafe { &mut *self.lock.value.with_mut(|value| value) }
    }
}

impl<T: ?Sized> Drop for BiasedGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.way < TIMES {
            deadlock::released(self.lock.address());
            self.lock.leave(self.way);
        } else {
            release(&self.lock.owner, &self.lock.times, &self.lock.last, &self.lock.common, self.way);
        }
    }
}

/// Panics for a thread that takes the lock it holds.
#[cold]
#[inline(never)]
#[track_caller]
fn refuse_relock() -> ! {
    panic!("this thread holds the lock already: a second lock would deadlock; drop the first guard before")
}

/// Releases the common lock, which this thread has taken and has no guard of. The thread may become the owner
/// (I4).
#[inline(never)]
fn release(owner: &AtomicUsize, times: &AtomicU8, last: &AtomicUsize, common: &Lock<Turns>, me: usize) {
    let mut turns = LockGuard::new(common);
    // Relaxed: under `common` (I5).
    last.store(me, Ordering::Relaxed);
    let time = usize::from(times.load(Ordering::Relaxed));
    if IN_A_ROW.get(time).is_some_and(|in_a_row| turns.in_a_row >= *in_a_row) && may_be_owned() {
        turns.in_a_row = 0;
        // Release: pairs with the Acquire of `enter`.
        owner.store(me | time, Ordering::Release);
        // Release: pairs with the Acquire of `can_be_owned`.
        times.store(time as u8 + 1, Ordering::Release);
    }
}

impl<T: ?Sized> fmt::Debug for BiasedLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owned = self.owner.load(Ordering::Relaxed) != 0;
        f.debug_struct("BiasedLock").field("is_owned", &owned).finish_non_exhaustive()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for BiasedGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Default> Default for BiasedLock<T> {
    fn default() -> BiasedLock<T> {
        BiasedLock::new(T::default())
    }
}

#[cfg(all(test, not(any(loom, squall_model))))]
mod tests {
    use super::*;

    #[cfg(target_pointer_width = "64")]
    #[test]
    fn its_size_is_as_documented() {
        assert_eq!(size_of::<BiasedLock<()>>(), 48);
    }

    fn is_owned<T>(lock: &BiasedLock<T>) -> bool {
        lock.owner.load(Ordering::Relaxed) != 0
    }

    #[test]
    fn frequent_takings_make_an_owner_until_another_thread_comes() {
        let lock = BiasedLock::new(0);
        for in_a_row in IN_A_ROW {
            for _ in 0..in_a_row {
                assert!(!is_owned(&lock));
                *lock.lock() += 1;
            }
            assert_eq!((is_owned(&lock), lock.is_mine()), (may_be_owned(), may_be_owned()));
            assert_eq!(lock.can_be_owned(), may_be_owned());
            std::thread::scope(|threads| {
                threads.spawn(|| {
                    assert!(!lock.is_mine());
                    *lock.lock() += 1;
                });
            });
            assert!(!is_owned(&lock) && !lock.is_mine(), "one taking must not make an owner");
        }
        assert!(!lock.can_be_owned(), "the lock had all its owners");
    }

    #[test]
    fn a_late_ownership_counts_as_none() {
        let lock = BiasedLock::new(0);
        for in_a_row in &IN_A_ROW[..2] {
            assert_eq!(lock.can_be_owned(), may_be_owned());
            (0..*in_a_row).for_each(|_| *lock.lock() += 1);
            assert_eq!((lock.can_be_owned(), lock.is_mine()), (may_be_owned(), may_be_owned()));
            std::thread::scope(|threads| {
                threads.spawn(|| *lock.lock() += 1);
            });
        }
        // Under Miri every term needs the same small number of acquisitions.
        assert_eq!(lock.can_be_owned(), cfg!(miri) && may_be_owned());
    }

    #[test]
    fn an_owner_that_relocks_panics_and_others_fail() {
        let lock = BiasedLock::new(0);
        (0..IN_A_ROW[0]).for_each(|_| *lock.lock() += 1);
        if !may_be_owned() {
            return;
        }
        let guard = lock.lock();
        assert!(lock.try_lock().is_none());
        let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(lock.lock())));
        assert!(
            again.unwrap_err().downcast_ref::<&str>().unwrap().contains("this thread holds the lock already")
        );
        std::thread::scope(|threads| {
            threads.spawn(|| assert!(lock.try_lock().is_none()));
        });
        // The failed attempt took the ownership away.
        assert!(!is_owned(&lock));
        drop(guard);
        std::thread::scope(|threads| {
            threads.spawn(|| *lock.try_lock().expect("the lock is free") += 1);
        });
        assert_eq!(*lock.lock(), IN_A_ROW[0] + 1);
    }

    #[test]
    fn a_thread_that_holds_the_lock_does_not_wait_for_itself() {
        let lock = BiasedLock::new(0);
        // At first through the common lock, later as the owner where there is one.
        for _ in 0..2 * IN_A_ROW[0] {
            let guard = lock.lock_unless_held().expect("the lock is free");
            assert!(lock.lock_unless_held().is_none() && lock.try_lock().is_none());
            let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(lock.lock())));
            assert!(again.is_err());
            drop(guard);
            // A thread that does not hold it takes it.
            std::thread::scope(|threads| {
                let other = threads.spawn(|| drop(lock.lock_unless_held().expect("the lock is free")));
                other.join().unwrap();
            });
            (0..3).for_each(|_| *lock.lock() += 1);
        }
    }

    #[test]
    fn lock_if_mine_never_takes_the_ownership_away() {
        let lock = BiasedLock::new(0);
        assert!(lock.lock_if_mine().is_none(), "the lock has no owner yet");
        (0..IN_A_ROW[0]).for_each(|_| *lock.lock() += 1);
        if !may_be_owned() {
            return;
        }
        std::thread::scope(|threads| {
            threads.spawn(|| assert!(lock.lock_if_mine().is_none()));
        });
        assert!(lock.is_mine(), "lock_if_mine took the ownership away");
        let guard = lock.lock_if_mine().expect("the lock is free");
        assert!(lock.lock_if_mine().is_none(), "the lock is held");
        drop(guard);
        *lock.lock_if_mine().expect("the lock is free again") += 1;
        assert_eq!(lock.into_inner(), IN_A_ROW[0] + 1);
    }

    #[test]
    fn a_panic_leaves_it_free_either_way() {
        let lock = BiasedLock::new(0);
        for _ in 0..2 * IN_A_ROW[0] {
            let panics = std::panic::AssertUnwindSafe(|| {
                let mut guard = lock.lock();
                *guard += 1;
                panic!("of the test");
            });
            let _ = std::panic::catch_unwind(panics);
        }
        assert_eq!(*lock.lock(), 2 * IN_A_ROW[0]);
    }
}
