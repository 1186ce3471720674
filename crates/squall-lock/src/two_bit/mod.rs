//! A lock in two spare bits of an existing word.
//!
//! Problem: many small objects each want a lock and have no room for one, but most contain a word with spare
//! bits.
//! Idea: one bit says that the lock is held, the other that a thread waits for it. Waiters sleep in a
//! separate table, under the word's address (`lock/slow.rs`).
//!
//! - I1. Both bits change only by read-modify-writes. So user code may change the word's other bits by
//!   read-modify-writes that leave these two bits alone.
//! - I2. Taking is an Acquire read-modify-write that found `HELD` clear and set it. A release clears it with
//!   Release.
//! - I3. The release and a sleeper's announcement modify the same word. A release after the announcement sees
//!   `WAITING`. A release before it is seen when the sleeper reads `HELD`. This gives `slow/I1`.
//! - I4. Locks in one word are distinguished by their bit position. Each sleeper's token contains it.
//!
//! Not promised: that the memory lives on after the release is visible. The release does not read it
//! afterwards, but a wake-up changes the word once more. Code that frees a word by other means than its
//! borrow must wait for the guard's drop.
//!
//! Progress and cost: like `Lock`, with one read-modify-write to take it and one to release it.
//! Source: Gamsa, Krieger, Appavoo and Stumm, "Tornado", 1999, §5.1: spin-then-block locks of two bits.

#[cfg(all(test, any(loom, squall_model)))]
mod model;
mod pointer;
mod word;

use crate::lock::slow::{self, Announced, Sleepable};
use crate::records::{LockType, Wait};
use crate::steps::{NoSteps, Steps};
pub use pointer::{LockedPtr, LockedPtrGuard};
use squall_sys::sync::atomic::Ordering;
use squall_sys::trace::Subject;
use std::fmt;
use std::marker::PhantomData;
use std::time::{Duration, Instant};
pub use word::Word;

/// The sites of the argument. Each model twin weakens one.
pub(crate) mod sites {
    use squall_sys::sync::weaken::Site;
    /// Acquire of taking the lock (I2). Partner: [`RELEASE`].
    pub(crate) const TAKE: Site = Site(10);
    /// Release of freeing the lock (I2). Partner: [`TAKE`].
    pub(crate) const RELEASE: Site = Site(11);
    /// Not an ordering: a release looks for sleepers (I3).
    pub(crate) const WAKE: Site = Site(12);
    /// Not an ordering: a thread reads `HELD` once more before it sleeps (I3).
    pub(crate) const LOOK: Site = Site(13);
    /// Not an ordering: a wake-up distinguishes the locks of one word (I4).
    pub(crate) const PLACE: Site = Site(14);
}

// The two bits.
const HELD: u8 = 1;
const WAITING: u8 = 2;

/// A lock in two bits of a word of type `A`. The `TwoBits` value only says where the bits are, so make it a
/// constant.
///
/// The word belongs to the user. Any thread may read it and change its other bits at any time, by
/// read-modify-writes that leave the two bits alone. A word with both bits zero is a free lock.
///
/// Overwriting the two bits breaks mutual exclusion: the protected data may then have two holders. A release
/// that finds its bit cleared restores the word's other bits, which are wrong for a moment, and wakes the
/// sleepers. In debug builds it then panics.
///
/// The lock contains no value and therefore has no poisoning. Deadlock reports do not cover it. It costs as
/// much as a common mutex; use [`Lock`](crate::Lock) where two bytes are available.
///
/// # Cost
/// Free: one read-modify-write to take it, one to release it.
///
/// # Example
/// ```
/// use squall::lock::TwoBits;
/// use std::sync::atomic::AtomicUsize;
///
/// const LOCK: TwoBits<AtomicUsize> = TwoBits::low();
/// let word = AtomicUsize::new(40);
/// {
///     let guard = LOCK.lock(&word);
///     guard.set(guard.get() + 4);
///     assert!(LOCK.is_locked(&word));
/// }
/// assert_eq!(word.into_inner(), 44);
/// ```
pub struct TwoBits<A, S: Steps = NoSteps> {
    shift: u32,
    marker: PhantomData<fn(&A) -> S>,
}

impl<A, S: Steps> Clone for TwoBits<A, S> {
    fn clone(&self) -> TwoBits<A, S> {
        *self
    }
}

impl<A, S: Steps> Copy for TwoBits<A, S> {}

impl<A, S: Steps> fmt::Debug for TwoBits<A, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TwoBits(bits {} and {})", self.shift, self.shift + 1)
    }
}

impl<A: Word> TwoBits<A> {
    /// Makes a lock in the lowest two bits.
    ///
    /// # Panics
    /// If the word has fewer than two bits.
    pub const fn low() -> TwoBits<A> {
        TwoBits::at(0)
    }

    /// Makes a lock in the bits `shift` and `shift + 1`.
    ///
    /// # Panics
    /// If the word has no such bits. In a constant this is a compile error.
    ///
    /// # Example
    /// ```
    /// use squall::lock::TwoBits;
    /// use std::sync::atomic::AtomicU32;
    ///
    /// const TOP: TwoBits<AtomicU32> = TwoBits::at(30);
    /// let word = AtomicU32::new(7);
    /// let guard = TOP.lock(&word);
    /// assert_eq!(guard.get(), 7);
    /// ```
    pub const fn at(shift: u32) -> TwoBits<A> {
        TwoBits::with_steps(shift)
    }
}

impl<A: Word, S: Steps> TwoBits<A, S> {
    /// Like [`TwoBits::at`], with the steps `S` of a stress test.
    #[doc(hidden)]
    pub const fn with_steps(shift: u32) -> TwoBits<A, S> {
        assert!(
            shift < A::BITS && shift + 2 <= A::BITS,
            "the bits `shift` and `shift + 1` of a `TwoBits` are not inside the word; choose a smaller `shift`"
        );
        TwoBits { shift, marker: PhantomData }
    }

    /// Takes the lock in `word`, and waits until it is free. A thread that already holds the lock waits
    /// forever.
    ///
    /// # Example
    /// ```
    /// use squall::lock::TwoBits;
    /// use std::sync::atomic::{AtomicU8, Ordering};
    ///
    /// const LOCK: TwoBits<AtomicU8> = TwoBits::low();
    /// let flags = AtomicU8::new(0x80);
    /// let guard = LOCK.lock(&flags);
    /// flags.fetch_or(0x40, Ordering::Relaxed); // the other bits stay usable
    /// drop(guard);
    /// assert_eq!(flags.into_inner(), 0xc0);
    /// ```
    #[inline(always)]
    pub fn lock(self, word: &A) -> TwoBitGuard<'_, A, S> {
        let at = Place { word, bits: self };
        if !at.take() {
            at.wait(None);
        }
        TwoBitGuard { at, stays: PhantomData }
    }

    /// Takes the lock in `word` if it is free. Returns `None` if a thread holds it.
    ///
    /// # Example
    /// ```
    /// use squall::lock::TwoBits;
    /// use std::sync::atomic::AtomicU8;
    ///
    /// const LOCK: TwoBits<AtomicU8> = TwoBits::low();
    /// let word = AtomicU8::new(0);
    /// let guard = LOCK.try_lock(&word).expect("the lock is free");
    /// assert!(LOCK.try_lock(&word).is_none());
    /// ```
    #[inline]
    pub fn try_lock(self, word: &A) -> Option<TwoBitGuard<'_, A, S>> {
        let at = Place { word, bits: self };
        // `then_some` would be wrong: it would make a guard in either case, whose drop would release the lock
        // of another thread.
        at.try_take().then(|| TwoBitGuard { at, stays: PhantomData })
    }

    /// Takes the lock in `word`, or gives up after `limit` and returns `None`.
    pub fn try_lock_for(self, word: &A, limit: Duration) -> Option<TwoBitGuard<'_, A, S>> {
        // A limit beyond the end of the clock means no deadline.
        self.lock_until(word, Instant::now().checked_add(limit))
    }

    /// Takes the lock in `word`, or gives up when `deadline` has passed and returns `None`. A past deadline
    /// still takes a free lock.
    pub fn try_lock_until(self, word: &A, deadline: Instant) -> Option<TwoBitGuard<'_, A, S>> {
        self.lock_until(word, Some(deadline))
    }

    fn lock_until(self, word: &A, deadline: Option<Instant>) -> Option<TwoBitGuard<'_, A, S>> {
        let at = Place { word, bits: self };
        (at.take() || at.wait(deadline)).then(|| TwoBitGuard { at, stays: PhantomData })
    }

    /// Returns whether a thread holds the lock in `word` now. The answer may be out of date when it returns.
    pub fn is_locked(self, word: &A) -> bool {
        Place { word, bits: self }.bits() & HELD != 0
    }
}

/// A word and the position of a lock in it.
struct Place<'a, A, S: Steps> {
    word: &'a A,
    bits: TwoBits<A, S>,
}

impl<A, S: Steps> Clone for Place<'_, A, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A, S: Steps> Copy for Place<'_, A, S> {}

impl<A: Word, S: Steps> Place<'_, A, S> {
    #[inline(always)]
    fn bits(&self) -> u8 {
        A::bits(self.word.get(Ordering::Relaxed), self.bits.shift)
    }

    #[inline(always)]
    fn take(&self) -> bool {
        // Acquire: pairs with the Release in `release` (I2).
        let before = self.word.set(self.bits.shift, HELD, sites::TAKE.order(Ordering::Acquire));
        A::bits(before, self.bits.shift) & HELD == 0
    }

    // `self` is passed by value, so that the fast path keeps it in registers.
    #[cold]
    #[inline(never)]
    fn wait(self, deadline: Option<Instant>) -> bool {
        let wait = Wait::begin(LockType::TwoBit, Subject::address(self.word.address()));
        let got = slow::spin(&self) || slow::sleep::<Self, S>(&self, deadline, &wait);
        wait.end(got);
        got
    }

    /// Completes a release that found the lock's bits to be `bits`, which differ from `HELD` alone.
    #[cold]
    #[inline(never)]
    fn release_slowly(self, bits: u8) {
        if bits & HELD == 0 {
            // User code broke I1. The bit is set now, so other threads change no more of the word than
            // `WAITING`.
            if bits & WAITING == 0 {
                self.word.give_back(self.bits.shift);
            }
            // A sleeper's announcement may have been overwritten with the `HELD` bit. Announce one, so that
            // sleepers wake each other.
            self.word.set(self.bits.shift, WAITING, Ordering::Relaxed);
            // Release: pairs with the Acquire in `take` (I2).
            self.word.clear(self.bits.shift, HELD, Ordering::Release);
        } else if sites::WAKE.is_weak() {
            return;
        }
        slow::wake::<Self, S>(&self);
        debug_assert!(bits & HELD != 0, "the bits of a lock in a word were overwritten while it was held");
    }

    #[inline(always)]
    fn release(&self) {
        // Release: pairs with the Acquire in `take` (I2).
        let before = self.word.clear(self.bits.shift, HELD, sites::RELEASE.order(Ordering::Release));
        let bits = A::bits(before, self.bits.shift);
        if bits != HELD {
            self.release_slowly(bits);
        }
    }
}

impl<A: Word, S: Steps> Sleepable for Place<'_, A, S> {
    fn key(&self) -> (usize, usize) {
        let place = if sites::PLACE.is_weak() { 0 } else { self.bits.shift };
        (self.word.address(), 2 * place as usize)
    }

    fn try_take(&self) -> bool {
        !self.is_held() && self.take()
    }

    fn is_held(&self) -> bool {
        self.bits() & HELD != 0
    }

    fn is_announced(&self) -> bool {
        self.bits() & WAITING != 0
    }

    fn announce(&self) -> Announced {
        // Relaxed: the modification order of the word is enough (I3).
        self.word.set(self.bits.shift, WAITING, Ordering::Relaxed);
        Announced::Surely
    }

    fn must_sleep(&self) -> bool {
        let bits = self.bits() | if sites::LOOK.is_weak() { HELD } else { 0 };
        bits == HELD | WAITING
    }

    fn nobody_sleeps(&self) {
        let mut now = self.word.get(Ordering::Relaxed);
        loop {
            let bits = A::bits(now, self.bits.shift);
            match self.word.replace(now, A::with(now, self.bits.shift, bits & !WAITING), Ordering::Relaxed) {
                Ok(()) => return,
                Err(other) => now = other,
            }
        }
    }
}

/// Holds the lock in a word. Dropping the guard releases the lock, also during a panic.
///
/// # Example
/// ```
/// use squall::lock::{TwoBitGuard, TwoBits};
/// use std::sync::atomic::AtomicUsize;
///
/// fn add(guard: &TwoBitGuard<'_, AtomicUsize>, count: usize) {
///     guard.set(guard.get() + count);
/// }
///
/// const LOCK: TwoBits<AtomicUsize> = TwoBits::low();
/// let word = AtomicUsize::new(8);
/// add(&LOCK.lock(&word), 4);
/// assert_eq!(word.into_inner(), 12);
/// ```
#[must_use = "the lock is released when the guard is dropped"]
pub struct TwoBitGuard<'a, A: Word, S: Steps = NoSteps> {
    at: Place<'a, A, S>,
    stays: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives access only to a shared reference to the word, and `A` is `Sync`.
unsafe impl<A: Word + Sync, S: Steps> Sync for TwoBitGuard<'_, A, S> {}

impl<'a, A: Word, S: Steps> TwoBitGuard<'a, A, S> {
    /// Returns the word. Its `store`, `swap` and the like are dangerous: overwriting the lock's two bits
    /// releases the lock under this guard and loses its waiters. Use [`TwoBitGuard::set`] to replace the
    /// word's other bits.
    pub fn word(&self) -> &'a A {
        self.at.word
    }

    /// Returns the word with the lock's two bits cleared.
    ///
    /// The load is Acquire. If the word is a pointer that other threads change without the lock, its target
    /// is visible too.
    #[inline]
    pub fn get(&self) -> A::Value {
        // Acquire: pairs with the Release in `set`, or with the user's own.
        A::without(self.at.word.get(Ordering::Acquire), self.at.bits.shift)
    }

    /// Replaces the word, except for the lock's two bits; those bits of `value` are ignored. Concurrent
    /// changes of the other bits by other threads are lost.
    #[inline]
    pub fn set(&self, value: A::Value) {
        let mut now = self.at.word.get(Ordering::Relaxed);
        loop {
            let new = A::with(value, self.at.bits.shift, A::bits(now, self.at.bits.shift));
            // Release: pairs with the Acquire in `get`, or with the user's own.
            match self.at.word.replace(now, new, Ordering::Release) {
                Ok(()) => return,
                Err(other) => now = other,
            }
        }
    }
}

impl<A: Word, S: Steps> Drop for TwoBitGuard<'_, A, S> {
    #[inline(always)]
    fn drop(&mut self) {
        self.at.release();
    }
}

impl<A: Word<Value: fmt::Debug>, S: Steps> fmt::Debug for TwoBitGuard<'_, A, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}
