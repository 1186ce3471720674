//! `BiasedLock<T>`: a lock that a thread which uses it alone takes without an atomic operation.
//!
//! Problem: the atomic operation by which a free lock is taken is most of what a short section costs, and it is made for nobody while
//! one thread alone takes the lock. Idea: the lock names an owner. The owner marks that it is inside by a plain store, and looks whether
//! it still is the owner, with a light fence between. Who else wants the lock takes a common one, takes the ownership away, makes the
//! heavy fence, and waits until the owner is outside; from then on all take the common lock. A thread that took that one many times
//! in a row becomes the owner: after eight times at first, then after ever more, and not more than `TIMES` times in the life of a lock.
//!
//! - I1. `owner` is changed by who holds `common` only. It names the thread and the time: each time has a mark of its own in `inside`,
//!   which its owner alone writes; so a thread that was stopped between its look at `owner` and its mark, and goes on when others
//!   have become owners, marks what nobody looks at any more.
//! - I2. A thread is inside as the owner only if it saw itself as the owner after its mark and a light fence.
//! - I3. Who holds `common` is inside only if there is no owner, and the mark of the last one was seen cleared after a heavy fence that
//!   followed the end of its ownership, by whomever: until then it is `leaving`, also for those who come after one that gave up. By
//!   `asym`'s I1 the owner sees that it is none, or its mark is seen.
//! - I4. Nobody becomes the owner while it has a guard: a thread does when it releases `common`. So a thread that takes the lock twice finds
//!   its own mark, or waits for its own `common`.
//!
//! From I2 and I3 follows that one thread is inside at a time, and from the marks' release and acquire that it sees what the one before it did.
//!
//! Progress: the owner's way is wait-free. Taking it away waits for the owner to leave, and for the system call.
//! Source: K. Kawachiya, A. Koseki, T. Onodera, "Lock reservation", OOPSLA 2002; D. Dice, H. Huang, M. Yang, "Asymmetric Dekker
//! synchronization", 2001; our own: marks by time, so that there may be another owner without stopping the first.

#[cfg(all(test, any(loom, squall_model)))]
mod model;

use crate::deadlock;
use crate::lock::{Lock, LockGuard};
use squall_machine::asym;
use squall_sys::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use squall_sys::sync::cell::UnsafeCell;
use squall_sys::sync::{hint, thread};
use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::panic::Location;

/// The sites of the argument, which model tests weaken one by one.
mod sites {
    use squall_sys::sync::weaken::Site;
    /// The light fence of the owner between its mark and its look (I2).
    pub(super) const LIGHT: Site = Site(100);
    /// The heavy fence of who takes the ownership away (I3).
    pub(super) const HEAVY: Site = Site(101);
    /// The release of a mark that is cleared. Partner: [`SEEN`].
    pub(super) const LEAVE: Site = Site(102);
    /// The acquire of who sees a mark cleared. Partner: [`LEAVE`].
    pub(super) const SEEN: Site = Site(103);
    /// Not an ordering: whether each time has a mark of its own (I1).
    pub(super) const TIME: Site = Site(104);
    /// Not an ordering: whether the owner looks again after its mark (I2).
    pub(super) const LOOK: Site = Site(105);
    /// Not an ordering: whether an owner that was seen inside is remembered when who saw it gives up (I3).
    pub(super) const LEAVING: Site = Site(106);
}

/// How often a lock may get an owner.
const TIMES: usize = 4;
/// After so many times in a row that a thread takes the common lock it becomes the owner, for each time.
const IN_A_ROW: [u32; TIMES] = if cfg!(any(loom, squall_model)) {
    [1; TIMES]
} else if cfg!(miri) {
    [2; TIMES]
} else {
    [8, 512, 1 << 15, 1 << 21]
};
/// So many times are soon over.
const SOON: u32 = 512;
/// The bits of `owner` that say which time it is: below those of a thread's number, which is aligned as a word.
const TIME: usize = TIMES - 1;

/// A lock around a value that costs its owner no atomic operation: who takes it many times in a row, while nobody else does.
///
/// For a value that one thread uses nearly always, and any may: what is shared perhaps, and mostly is not.
///
/// Drawbacks first:
/// - Whoever takes the lock from its owner makes a system call that interrupts every processor on which a thread of this process runs
///   (some microseconds), and waits for the owner to leave, which may have been descheduled. That happens four times in the life of a
///   lock at most; after that it is a [`Lock`], with a few instructions more.
/// - Where `membarrier` cannot be used there is no owner, ever. If it could when a lock got its owner, and is refused when another comes, that
///   one waits a tenth of a second in its place: longer than any processor keeps a store to itself, and not a proof.
/// - 48 bytes beside the value.
/// - No order among those who wait, no poisoning: as [`Lock`].
///
/// # Panics
/// A thread that is the owner and takes the lock it holds, or of which a guard was forgotten, panics. One that is not waits for ever, or panics in debug builds: as
/// with [`Lock`].
///
/// # Cost
/// The owner: four loads and two stores. Others: as [`Lock`], and about ten instructions.
///
/// # Example
/// ```
/// use squall_lock::BiasedLock;
/// let total = BiasedLock::new(0_u64);
/// (0..100).for_each(|_| *total.lock() += 1); // after eight times without an atomic operation
/// std::thread::scope(|threads| {
///     threads.spawn(|| *total.lock() += 1); // takes it away
/// });
/// assert_eq!(total.into_inner(), 101);
/// ```
pub struct BiasedLock<T: ?Sized> {
    /// The owner's number and the time, or zero.
    owner: AtomicUsize,
    /// Of each time, whether the owner is inside.
    inside: [AtomicU8; TIMES],
    /// How many owners there were. Changed by who holds `common` only.
    times: AtomicU8,
    common: Lock<Turns>,
    value: UnsafeCell<T>,
}

/// Who takes the common lock.
struct Turns {
    /// Who took it last, and how many times in a row.
    last: usize,
    in_a_row: u32,
    /// The owner that was dismissed and has not been seen outside since, and its time; or zero.
    leaving: usize,
}

// SAFETY: the lock owns its value; to send it is to send the value.
unsafe impl<T: ?Sized + Send> Send for BiasedLock<T> {}
// SAFETY: threads that share the lock reach the value one at a time (I2, I3).
unsafe impl<T: ?Sized + Send> Sync for BiasedLock<T> {}

impl<T> BiasedLock<T> {
    /// A lock around `value`, which nobody holds or owns.
    #[cfg(not(loom))]
    pub const fn new(value: T) -> BiasedLock<T> {
        BiasedLock {
            owner: AtomicUsize::new(0),
            inside: [const { AtomicU8::new(0) }; TIMES],
            times: AtomicU8::new(0),
            common: Lock::new(Turns { last: 0, in_a_row: 0, leaving: 0 }),
            value: UnsafeCell::new(value),
        }
    }

    /// A lock around `value`, which nobody holds or owns.
    #[cfg(loom)]
    pub fn new(value: T) -> BiasedLock<T> {
        BiasedLock {
            owner: AtomicUsize::new(0),
            inside: std::array::from_fn(|_| AtomicU8::new(0)),
            times: AtomicU8::new(0),
            common: Lock::new(Turns { last: 0, in_a_row: 0, leaving: 0 }),
            value: UnsafeCell::new(value),
        }
    }

    /// Ends the lock and returns the value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> BiasedLock<T> {
    /// Takes the lock, and waits as long as that takes.
    ///
    /// # Panics
    /// If this thread is the owner and holds it. In debug builds as [`Lock::lock`].
    #[cfg(not(loom))]
    #[inline(always)]
    #[track_caller]
    pub fn lock(&self) -> BiasedGuard<'_, T> {
        self.lock_as(squall_sys::tls::this_thread())
    }

    /// Takes the lock if nobody holds it. If another thread is the owner, it loses it, by the system call, though it be inside and this be in
    /// vain.
    #[cfg(not(loom))]
    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> Option<BiasedGuard<'_, T>> {
        self.try_lock_as(squall_sys::tls::this_thread())
    }

    /// Takes the lock if the calling thread is the owner, and does not hold it; never waits, and leaves the owner in its place.
    ///
    /// # Cost
    /// As [`lock`](BiasedLock::lock) for the owner, and a load for others.
    #[cfg(not(loom))]
    #[inline(always)]
    #[track_caller]
    pub fn lock_if_mine(&self) -> Option<BiasedGuard<'_, T>> {
        match self.enter(squall_sys::tls::this_thread()) {
            Way::Own(time) => Some(self.guard(time)),
            Way::Common | Way::Held => None,
        }
    }

    /// Whether the calling thread is the owner: whether it would take the lock without an atomic operation, so far as it knows. Whoever
    /// counts what several threads do with a value need not count what its owner does.
    ///
    /// # Cost
    /// A load, of what [`lock`](BiasedLock::lock) reads first.
    #[cfg(not(loom))]
    #[inline(always)]
    pub fn is_mine(&self) -> bool {
        // Relaxed: nothing follows from it.
        self.owner.load(Ordering::Relaxed) & !TIME == squall_sys::tls::this_thread()
    }

    /// Whether a thread is the owner, or will soon be if it alone takes the lock: within some hundred times. A lock that was taken from owners
    /// before gets another one so late that it had better be thought of as one without.
    pub fn can_be_owned(&self) -> bool {
        // Acquire: pairs with the release in `release`: who sees that there was one owner more sees who it is, if it still is.
        let times = usize::from(self.times.load(Ordering::Acquire));
        let is_soon = IN_A_ROW.get(times).is_some_and(|in_a_row| *in_a_row <= SOON) && may_be_owned();
        self.owner.load(Ordering::Relaxed) != 0 || is_soon
    }

    /// The value, of a lock that nobody else can have.
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: borrowed exclusively.
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
            way => self.lock_slowly(me, matches!(way, Way::Held)),
        }
    }

    /// The owner's way in.
    #[inline(always)]
    fn enter(&self, me: usize) -> Way {
        // Acquire: pairs with the release in the guard's drop: a thread may have the number of one that is gone.
        let owner = self.owner.load(Ordering::Acquire);
        if owner & !TIME != me {
            return Way::Common;
        }
        let inside = self.mark_of(owner);
        // Acquire: pairs with the release of `leave`, as above.
        if inside.load(Ordering::Acquire) != 0 {
            return Way::Held;
        }
        inside.store(1, Ordering::Relaxed);
        if !sites::LIGHT.is_weak() {
            // Partner: the heavy fence in `dismiss` (I3).
            asym::light();
        }
        // Relaxed: what the others did before is what the first look acquired, or this thread's own.
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
        // Release: pairs with the acquire of `is_outside` and of `enter`.
        self.mark_of(time).store(0, sites::LEAVE.order(Ordering::Release));
    }

    /// Sees to it that there is no owner.
    fn dismiss(&self, turns: &mut Turns) {
        let owner = self.owner.load(Ordering::Relaxed);
        if owner == 0 {
            return;
        }
        self.owner.store(0, Ordering::Relaxed);
        // Before the fence, which may not return by itself: nobody goes in before this owner was seen outside (I3).
        turns.leaving = owner;
        if !sites::HEAVY.is_weak() && asym::heavy().is_err() {
            #[cfg(not(loom))]
            refused();
        }
    }

    /// Whether who was dismissed, by whomever, is outside.
    fn is_outside(&self, turns: &mut Turns) -> bool {
        // Acquire: pairs with the release of `leave`.
        if turns.leaving != 0 && self.mark_of(turns.leaving).load(sites::SEEN.order(Ordering::Acquire)) == 0 {
            turns.leaving = 0;
        }
        turns.leaving == 0
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn lock_slowly(&self, me: usize, held: bool) -> BiasedGuard<'_, T> {
        assert!(!held, "this thread holds the lock already, as its owner, and would wait for itself");
        let mut common = self.common.lock();
        self.dismiss(&mut common);
        if !self.is_outside(&mut common) {
            deadlock::waits(self.address(), || {
                let mut round = 0;
                while !self.is_outside(&mut common) {
                    round += 1;
                    wait(round);
                }
            });
        }
        self.common_guard(common, me)
    }

    /// The address that stands for what the owner holds.
    fn address(&self) -> usize {
        std::ptr::from_ref(&self.owner).addr()
    }

    #[inline(always)]
    #[track_caller]
    fn guard(&self, time: usize) -> BiasedGuard<'_, T> {
        deadlock::acquired(self.address(), Location::caller());
        BiasedGuard { lock: self, way: time, stays: PhantomData }
    }

    fn common_guard<'a>(&'a self, common: LockGuard<'a, Turns>, me: usize) -> BiasedGuard<'a, T> {
        // Its drop is that of the guard that is made here.
        mem::forget(common);
        BiasedGuard { lock: self, way: me, stays: PhantomData }
    }
}

/// How a thread may go.
enum Way {
    Own(usize),
    Common,
    /// It is the owner, and inside.
    Held,
}

/// Whether there may be owners: light fences order something, or are full ones.
fn may_be_owned() -> bool {
    asym::CHECKED || asym::mode() == asym::Mode::Membarrier
}

/// Between two looks whether the owner has left.
fn wait(round: u32) {
    const PAUSES: u32 = if cfg!(loom) { 0 } else { 64 };
    const YIELDS: u32 = if cfg!(loom) { u32::MAX } else { 128 };
    if round <= PAUSES {
        hint::spin_loop();
    } else if round <= YIELDS {
        thread::yield_now();
    } else {
        #[cfg(not(loom))]
        thread::sleep(std::time::Duration::from_micros(100));
    }
}

/// `membarrier` worked when the lock got its owner, and is refused now. An owner that had looked at `owner` before it was told has been
/// through many more instructions than a processor holds stores back for, or was descheduled, when this returns.
#[cfg(not(loom))]
#[cold]
fn refused() {
    thread::sleep(std::time::Duration::from_millis(100));
}

/// The proof that this thread holds a [`BiasedLock`], and the way to its value. Its drop releases the lock, in a panic too. It stays on
/// its thread:
/// ```compile_fail
/// static LOCK: squall_lock::BiasedLock<u32> = squall_lock::BiasedLock::new(0);
/// let guard = LOCK.lock();
/// std::thread::spawn(move || drop(guard));
/// ```
#[must_use = "the lock is released when the guard is dropped"]
pub struct BiasedGuard<'a, T: ?Sized> {
    lock: &'a BiasedLock<T>,
    /// The time, of who is inside as the owner; of others their number, which is larger. Two words in all, so that a guard is never in
    /// memory: that it was written by halves and read as a whole would cost as much as an atomic operation.
    way: usize,
    stays: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives shared references to the value and nothing else.
unsafe impl<T: ?Sized + Sync> Sync for BiasedGuard<'_, T> {}

impl<T: ?Sized> Deref for BiasedGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the lock is held by whoever has the guard; see `LockGuard`.
        unsafe { &*self.lock.value.with(|value| value) }
    }
}

impl<T: ?Sized> DerefMut for BiasedGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; this guard is borrowed mutably, so there is no other reference.
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
            release(&self.lock.owner, &self.lock.times, &self.lock.common, self.way);
        }
    }
}

/// Releases the common lock, which this thread has taken and has no guard of, and counts the turn; perhaps the thread is the owner from
/// then on (I4).
#[inline(never)]
fn release(owner: &AtomicUsize, times: &AtomicU8, common: &Lock<Turns>, me: usize) {
    let mut turns = LockGuard::new(common);
    turns.in_a_row = if turns.last == me { turns.in_a_row.saturating_add(1) } else { 1 };
    turns.last = me;
    let time = usize::from(times.load(Ordering::Relaxed));
    if IN_A_ROW.get(time).is_some_and(|in_a_row| turns.in_a_row >= *in_a_row) && may_be_owned() {
        turns.in_a_row = 0;
        // Release: pairs with the acquire of `enter`.
        owner.store(me | time, Ordering::Release);
        // Release: pairs with the acquire of `can_be_owned`.
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
    fn it_is_as_large_as_it_says() {
        assert_eq!(size_of::<BiasedLock<()>>(), 48);
    }

    fn is_owned<T>(lock: &BiasedLock<T>) -> bool {
        lock.owner.load(Ordering::Relaxed) != 0
    }

    #[test]
    fn who_takes_it_often_becomes_the_owner_and_loses_it_to_another() {
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
            assert!(!is_owned(&lock) && !lock.is_mine(), "once is not enough");
        }
        assert!(!lock.can_be_owned(), "it had as many as it may");
    }

    #[test]
    fn who_would_own_it_late_had_better_not_wait_for_it() {
        let lock = BiasedLock::new(0);
        for in_a_row in &IN_A_ROW[..2] {
            assert_eq!(lock.can_be_owned(), may_be_owned());
            (0..*in_a_row).for_each(|_| *lock.lock() += 1);
            assert_eq!((lock.can_be_owned(), lock.is_mine()), (may_be_owned(), may_be_owned()));
            std::thread::scope(|threads| {
                threads.spawn(|| *lock.lock() += 1);
            });
        }
        // Miri's take as long each.
        assert_eq!(lock.can_be_owned(), cfg!(miri) && may_be_owned());
    }

    #[test]
    fn who_holds_it_as_its_owner_is_told_so_and_others_do_not_get_it() {
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
        // Which took the ownership away.
        assert!(!is_owned(&lock));
        drop(guard);
        std::thread::scope(|threads| {
            threads.spawn(|| *lock.try_lock().expect("nobody holds it") += 1);
        });
        assert_eq!(*lock.lock(), IN_A_ROW[0] + 1);
    }

    #[test]
    fn who_takes_it_as_its_owner_only_takes_it_from_nobody() {
        let lock = BiasedLock::new(0);
        assert!(lock.lock_if_mine().is_none(), "it has no owner yet");
        (0..IN_A_ROW[0]).for_each(|_| *lock.lock() += 1);
        if !may_be_owned() {
            return;
        }
        std::thread::scope(|threads| {
            threads.spawn(|| assert!(lock.lock_if_mine().is_none()));
        });
        assert!(lock.is_mine(), "who asked has taken it away");
        let guard = lock.lock_if_mine().expect("nobody holds it");
        assert!(lock.lock_if_mine().is_none(), "it is held");
        drop(guard);
        *lock.lock_if_mine().expect("it is free again") += 1;
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
