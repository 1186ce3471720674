//! A lock in two bits of a word that its user has anyway.
//!
//! Problem: many small objects each want a lock, and none has room for one; but most have a word with bits to spare.
//! Idea: one bit says that the lock is held, one that somebody waits for it; who waits sleeps in a table beside, under the
//! word's address (`lock/slow.rs`).
//!
//! - I1. Both bits change by read-modify-writes alone, so that whoever changes the word's other bits by read-modify-writes
//!   that leave these two as they are disturbs nothing.
//! - I2. Taking is an Acquire that found `HELD` clear and set it; the release clears it with Release.
//! - I3. The release and a sleeper's announcement modify one word: a release after it sees `WAITING`; one before it is seen by
//!   the sleeper's look at `HELD`. This is `slow`'s I1.
//! - I4. Locks in one word are told apart by their place, which each sleeper's token names.
//!
//! Not promised: that the memory lives on after the release is seen; the release looks at nothing of it after, but a wake-up
//! changes the word once more, so that whoever frees a word by other means than its borrow must wait for the guard's drop.
//!
//! Progress and cost: as `Lock`, with one read-modify-write to take it and one to release it.
//! Source: Gamsa, Krieger, Appavoo and Stumm, "Tornado", 1999, §5.1: spin-then-block locks of two bits.

#[cfg(all(test, any(loom, squall_model)))]
mod model;
mod pointer;
mod word;

use crate::lock::slow::{self, Announced, Sleepable};
use crate::steps::{Steps, Undisturbed};
pub use pointer::{LockedPtr, LockedPtrGuard};
use squall_sys::sync::atomic::Ordering;
use std::fmt;
use std::marker::PhantomData;
use std::time::{Duration, Instant};
pub use word::Word;

/// The sites of the argument, which model tests weaken one by one.
pub(crate) mod sites {
    use squall_sys::sync::weaken::Site;
    /// The acquire of taking the lock (I2).
    pub(crate) const TAKE: Site = Site(10);
    /// The release (I2).
    pub(crate) const RELEASE: Site = Site(11);
    /// Not an ordering: whether a release looks for sleepers (I3).
    pub(crate) const WAKE: Site = Site(12);
    /// Not an ordering: whether who is about to sleep looks at `HELD` once more (I3).
    pub(crate) const LOOK: Site = Site(13);
    /// Not an ordering: whether a wake-up distinguishes locks of one word (I4).
    pub(crate) const PLACE: Site = Site(14);
}

// The two bits.
const HELD: u8 = 1;
const WAITING: u8 = 2;

/// A lock in two bits of words of type `A`: where the bits are. It is the same for all words of one use, so make it a
/// constant. The word is its user's, who may read and change its other bits at any time, by read-modify-writes that leave the
/// two as they are. A word whose two bits are zero is free.
///
/// Who overwrites the two bits breaks the lock, not memory: for what was protected there may then be two holders. A release
/// that finds its bit gone leaves the word's other bits as they are (for a moment they are not) and wakes who sleeps; in debug
/// builds it then panics.
///
/// It knows no value: what it protects is its user's affair, like its poisoning, of which there is none. It shows in no
/// diagnosis of deadlocks. Otherwise as [`Lock`](crate::Lock), and at the price of a common lock: where two bytes are to be
/// had, `Lock` costs less.
///
/// # Cost
/// Free: one read-modify-write to take it, one to release it.
///
/// # Example
/// ```
/// use squall_lock::TwoBits;
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
pub struct TwoBits<A, S: Steps = Undisturbed> {
    shift: u32,
    of: PhantomData<fn(&A) -> S>,
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
    /// The lowest two bits.
    ///
    /// # Panics
    /// As [`TwoBits::at`].
    pub const fn low() -> TwoBits<A> {
        TwoBits::at(0)
    }

    /// The bits `shift` and `shift + 1`.
    ///
    /// # Panics
    /// If the word has no such bits.
    pub const fn at(shift: u32) -> TwoBits<A> {
        TwoBits::disturbed(shift)
    }
}

impl<A: Word, S: Steps> TwoBits<A, S> {
    /// As [`TwoBits::at`], with something that happens at each step.
    #[doc(hidden)]
    pub const fn disturbed(shift: u32) -> TwoBits<A, S> {
        assert!(shift < A::BITS && shift + 2 <= A::BITS, "the word has no such bits");
        TwoBits { shift, of: PhantomData }
    }

    /// Takes the lock in `word`, and waits as long as that takes: for ever, if this thread holds it.
    #[inline(always)]
    pub fn lock(self, word: &A) -> TwoBitGuard<'_, A, S> {
        let at = Place { word, bits: self };
        if !at.take() {
            at.wait(None);
        }
        TwoBitGuard { at, stays: PhantomData }
    }

    /// Takes the lock in `word` if it is free.
    #[inline]
    pub fn try_lock(self, word: &A) -> Option<TwoBitGuard<'_, A, S>> {
        let at = Place { word, bits: self };
        // Not `then_some`: a guard made in vain would release the lock of another.
        at.try_take().then(|| TwoBitGuard { at, stays: PhantomData })
    }

    /// Takes the lock in `word`, or gives up after `limit`.
    pub fn try_lock_for(self, word: &A, limit: Duration) -> Option<TwoBitGuard<'_, A, S>> {
        // A limit beyond the clock's end is none.
        self.lock_until(word, Instant::now().checked_add(limit))
    }

    /// Takes the lock in `word`, or gives up when `deadline` has passed. A deadline in the past still takes a lock that is
    /// free.
    pub fn try_lock_until(self, word: &A, deadline: Instant) -> Option<TwoBitGuard<'_, A, S>> {
        self.lock_until(word, Some(deadline))
    }

    fn lock_until(self, word: &A, deadline: Option<Instant>) -> Option<TwoBitGuard<'_, A, S>> {
        let at = Place { word, bits: self };
        (at.take() || at.wait(deadline)).then(|| TwoBitGuard { at, stays: PhantomData })
    }

    /// Whether somebody holds the lock in `word` now.
    pub fn is_locked(self, word: &A) -> bool {
        Place { word, bits: self }.bits() & HELD != 0
    }
}

/// The lock of a word.
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
        // Acquire: pairs with the release in `release` (I2).
        let before = self.word.set(self.bits.shift, HELD, sites::TAKE.order(Ordering::Acquire));
        A::bits(before, self.bits.shift) & HELD == 0
    }

    // By value, so that the fast path keeps the place in registers.
    #[cold]
    #[inline(never)]
    fn wait(self, deadline: Option<Instant>) -> bool {
        slow::spin(&self) || slow::sleep::<Self, S>(&self, deadline)
    }

    /// The rest of a release that found the lock's bits to be `bits`, more than `HELD` or other than it.
    #[cold]
    #[inline(never)]
    fn release_slowly(self, bits: u8) {
        if bits & HELD == 0 {
            // I1 was broken. The bit is set now, so that nobody but us changes more of the word than `WAITING`.
            if bits & WAITING == 0 {
                self.word.give_back(self.bits.shift);
            }
            // A sleeper's announcement may have gone with the holder's bit: who sleeps is woken, one by the other.
            self.word.set(self.bits.shift, WAITING, Ordering::Relaxed);
            // Release: as in `release`.
            self.word.clear(self.bits.shift, HELD, Ordering::Release);
        } else if sites::WAKE.is_weak() {
            return;
        }
        slow::wake::<Self, S>(&self);
        debug_assert!(bits & HELD != 0, "the bits of a lock in a word were overwritten while it was held");
    }

    #[inline(always)]
    fn release(&self) {
        // Release: pairs with the acquire in `take` (I2).
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
        self.bits() & HELD == 0 && self.take()
    }

    fn is_announced(&self) -> bool {
        self.bits() & WAITING != 0
    }

    fn announce(&self) -> Announced {
        // Relaxed: the word's own order is enough (I3).
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

/// The proof that this thread holds the lock in a word. Its drop releases the lock, in a panic too.
#[must_use = "the lock is released when the guard is dropped"]
pub struct TwoBitGuard<'a, A: Word, S: Steps = Undisturbed> {
    at: Place<'a, A, S>,
    stays: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives what a shared reference to the word gives.
unsafe impl<A: Word + Sync, S: Steps> Sync for TwoBitGuard<'_, A, S> {}

impl<'a, A: Word, S: Steps> TwoBitGuard<'a, A, S> {
    /// The word. Beware of its `store`, `swap` and the like: who overwrites the lock's two bits gives the lock away while this
    /// guard holds it, and forgets who waits. To change the word's other bits as a whole there is [`TwoBitGuard::set`].
    pub fn word(&self) -> &'a A {
        self.at.word
    }

    /// What the word holds beside the lock, which is shown as zero.
    ///
    /// Acquire, so that what is reached by a pointer that others changed without the lock is seen too.
    #[inline]
    pub fn get(&self) -> A::Value {
        // Acquire: pairs with the release in `set`, or with its user's own.
        A::without(self.at.word.get(Ordering::Acquire), self.at.bits.shift)
    }

    /// Changes what the word holds beside the lock; the lock's bits of `value` are ignored. What others do to the word
    /// meanwhile is lost.
    #[inline]
    pub fn set(&self, value: A::Value) {
        let mut now = self.at.word.get(Ordering::Relaxed);
        loop {
            let new = A::with(value, self.at.bits.shift, A::bits(now, self.at.bits.shift));
            // Release: pairs with the acquire in `get`, or with its user's own.
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
