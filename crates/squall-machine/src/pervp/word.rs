//! Words of each VP: the types over the sequences.

use super::alloc::{self, OutOfMemory};
use super::{atomic, restart};
use crate::vp::Vp;
use squall_sys::sync::atomic::Ordering;
use std::fmt;
use std::ptr::NonNull;

/// Why a compare-and-store did not store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CasError {
    /// The thread is on this VP, not on the one it named.
    Elsewhere(Vp),
    /// The word held this.
    Changed(u64),
}

impl fmt::Display for CasError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CasError::Elsewhere(vp) => write!(f, "the thread is on {vp}"),
            CasError::Changed(value) => write!(f, "the word has changed to {value}"),
        }
    }
}

impl std::error::Error for CasError {}

/// A `u64` of each VP, zero at first.
///
/// # Cost
/// Eight bytes per VP, shared lines with other data *of that VP* only. Operations: a handful of plain instructions, and
/// no access to a line that another VP writes. Progress: wait-free but for restarts, of which the kernel causes one per
/// preemption; the atomic form is lock-free. Linearized at the one store, per VP; nothing is ordered between VPs.
/// # Example
/// ```
/// let hits = squall_machine::pervp::PerVpWord::new();
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| (0..1000).for_each(|_| hits.add(1)));
///     }
/// });
/// assert_eq!(hits.sum(), 4000);
/// ```
pub struct PerVpWord(PerVpWords<1>);

impl PerVpWord {
    /// A word of zero on every VP.
    ///
    /// # Panics
    /// If there is no address space left; see [`try_new`](PerVpWord::try_new).
    pub fn new() -> PerVpWord {
        PerVpWord(PerVpWords::new())
    }

    /// A word of zero on every VP.
    ///
    /// # Errors
    /// [`OutOfMemory`] if there is no address space left.
    pub fn try_new() -> Result<PerVpWord, OutOfMemory> {
        PerVpWords::try_new().map(PerVpWord)
    }

    /// Adds `n`, wrapping, on the VP where the thread is. To subtract, add `n.wrapping_neg()`.
    #[inline(always)]
    pub fn add(&self, n: u64) {
        // SAFETY: the extent that `PerVpWords` holds for one word.
        unsafe { restart::add(self.0.home, n) };
    }

    /// Stores `new` on the VP where the thread is; that VP, and what was there.
    #[inline]
    pub fn swap(&self, new: u64) -> (Vp, u64) {
        self.0.swap(0, new)
    }

    /// Stores `new` if the thread is on `vp` and the word there is `expected`.
    ///
    /// # Errors
    /// [`CasError`] says which did not hold; nothing is then stored.
    #[inline]
    pub fn compare_and_store(&self, vp: Vp, expected: u64, new: u64) -> Result<(), CasError> {
        self.0.compare_and_store(vp, 0, expected, new)
    }

    /// Replaces the word on the VP where the thread is by what `f` makes of it; the VP and the old value.
    ///
    /// `f` runs outside the sequence, so it may do anything, and runs again if the word changed or the thread moved.
    /// `None` from `f` stores nothing and is the answer.
    #[inline]
    pub fn update(&self, f: impl FnMut(u64) -> Option<u64>) -> Option<(Vp, u64)> {
        self.0.update(0, f)
    }

    /// The word of `vp`.
    ///
    /// # Panics
    /// If `vp` is not below the limit.
    #[inline]
    pub fn load(&self, vp: Vp) -> u64 {
        self.0.load(vp, 0)
    }

    /// The wrapping sum over all VPs. Not a snapshot: what is added meanwhile may or may not be in it.
    ///
    /// # Cost
    /// A cache miss for each VP that wrote its word since the last one.
    pub fn sum(&self) -> u64 {
        self.0.sum(0)
    }

    /// The words of all VPs, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Vp, u64)> + '_ {
        self.0.iter(0)
    }

    /// The word's home address, for sequences of one's own ([`restartable!`](crate::restartable)).
    #[inline(always)]
    pub fn home(&self) -> NonNull<u64> {
        self.0.home
    }
}

impl Default for PerVpWord {
    fn default() -> PerVpWord {
        PerVpWord::new()
    }
}

impl fmt::Debug for PerVpWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerVpWord").field("sum", &self.sum()).finish()
    }
}

/// `N` neighbouring words of each VP, zero at first; see [`PerVpWord`]. At most 512.
///
/// # Panics
/// Every method that takes an index panics if it is not below `N`.
pub struct PerVpWords<const N: usize> {
    /// Home of `N` words and the lock of `compare_store_and_store`'s atomic form.
    home: NonNull<u64>,
}

// SAFETY: the words are accessed atomically or by sequences, from whatever thread (`pervp/I1`).
unsafe impl<const N: usize> Send for PerVpWords<N> {}
// SAFETY: as above.
unsafe impl<const N: usize> Sync for PerVpWords<N> {}

impl<const N: usize> PerVpWords<N> {
    /// A single word has no pair, hence no lock.
    const LOCKS: usize = if N > 1 { 1 } else { 0 };
    const BYTES: usize = {
        assert!(N > 0 && N <= 512, "PerVpWords has 1 to 512 words");
        (N + Self::LOCKS) * size_of::<u64>()
    };

    /// Words of zero on every VP.
    ///
    /// # Panics
    /// If there is no address space left; see [`try_new`](PerVpWords::try_new).
    pub fn new() -> PerVpWords<N> {
        Self::try_new().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Words of zero on every VP.
    ///
    /// # Errors
    /// [`OutOfMemory`] if there is no address space left.
    pub fn try_new() -> Result<PerVpWords<N>, OutOfMemory> {
        Ok(PerVpWords { home: alloc::allocate(Self::BYTES, align_of::<u64>())?.cast() })
    }

    #[inline(always)]
    fn at(&self, index: usize) -> NonNull<u64> {
        assert!(index < N, "word {index} of {N}");
        // SAFETY: `index` is below the number of words of the extent.
        unsafe { self.home.add(index) }
    }

    /// As [`PerVpWord::add`], of word `index`.
    #[inline(always)]
    pub fn add(&self, index: usize, n: u64) {
        // SAFETY: a word of our extent.
        unsafe { restart::add(self.at(index), n) };
    }

    /// As [`PerVpWord::swap`], of word `index`.
    #[inline]
    pub fn swap(&self, index: usize, new: u64) -> (Vp, u64) {
        // SAFETY: a word of our extent.
        unsafe { restart::swap(self.at(index), new) }
    }

    /// As [`PerVpWord::compare_and_store`], of word `index`.
    ///
    /// # Errors
    /// [`CasError`] says what did not hold; nothing is then stored.
    #[inline]
    pub fn compare_and_store(&self, vp: Vp, index: usize, expected: u64, new: u64) -> Result<(), CasError> {
        // SAFETY: a word of our extent.
        unsafe { restart::compare_and_store(self.at(index), vp, expected, new) }
    }

    /// If the thread is on `vp` and word `key` is `expected`, stores `value` into word `side`, then `new` into `key`.
    ///
    /// This is what an array with a fill count needs: store the element, then raise the count. When it succeeds, both
    /// words hold the new values together at that instant, and who [loads](PerVpWords::load) the new key sees the side
    /// word's value. When it fails, `side` may have been written all the same, but not after another call of this
    /// method succeeded. So write side words by this method only, and give the key a version that never comes back.
    ///
    /// The atomic form holds a lock per VP: there, a preempted thread holds up others that call this on the same VP and
    /// object, and a signal handler must not call it on an object that the interrupted thread uses so.
    ///
    /// # Errors
    /// [`CasError`] says what did not hold.
    /// # Panics
    /// If `key` and `side` are the same word.
    #[inline]
    pub fn compare_store_and_store(
        &self,
        vp: Vp,
        (key, expected, new): (usize, u64, u64),
        (side, value): (usize, u64),
    ) -> Result<(), CasError> {
        assert!(key != side, "the two words of a pair differ");
        let pair = restart::Pair { key: self.at(key), expected, new, side: self.at(side), value };
        // SAFETY: 1. two words of our extent; 2. with two words there is a lock behind the last, used here only.
        unsafe { restart::compare_store_and_store(pair, self.home.add(N), vp) }
    }

    /// As [`PerVpWord::update`], of word `index`.
    #[inline]
    pub fn update(&self, index: usize, mut f: impl FnMut(u64) -> Option<u64>) -> Option<(Vp, u64)> {
        let word = self.at(index);
        loop {
            let vp = Vp::current();
            // SAFETY: a word of our extent; `current` is below the limit (vp/I2). Acquire: as in `load`.
            let old = unsafe { atomic::word(word, vp) }.load(Ordering::Acquire);
            let new = f(old)?;
            // SAFETY: a word of our extent.
            if unsafe { restart::compare_and_store(word, vp, old, new) }.is_ok() {
                return Some((vp, old));
            }
        }
    }

    /// Word `index` of `vp`.
    ///
    /// # Panics
    /// Also if `vp` is not below the limit.
    #[inline]
    pub fn load(&self, vp: Vp, index: usize) -> u64 {
        assert!(vp.index() < alloc::parts(), "{vp} does not exist");
        // SAFETY: a word of our extent; `vp` is below the limit. Acquire: pairs with the releasing store of a
        // compare-and-store. If we see the new key of a pair, we see the value of its side word.
        unsafe { atomic::word(self.at(index), vp) }.load(Ordering::Acquire)
    }

    /// As [`PerVpWord::sum`], of word `index`.
    pub fn sum(&self, index: usize) -> u64 {
        self.iter(index).fold(0, |sum, (_, value)| sum.wrapping_add(value))
    }

    /// Word `index` of all VPs, in order.
    pub fn iter(&self, index: usize) -> impl Iterator<Item = (Vp, u64)> + '_ {
        // The number of VPs is far below 2^32.
        (0..alloc::parts() as u32).map(Vp::new).map(move |vp| (vp, self.load(vp, index)))
    }
}

impl<const N: usize> Default for PerVpWords<N> {
    fn default() -> PerVpWords<N> {
        PerVpWords::new()
    }
}

impl<const N: usize> fmt::Debug for PerVpWords<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries((0..N).map(|index| self.sum(index))).finish()
    }
}

impl<const N: usize> Drop for PerVpWords<N> {
    fn drop(&mut self) {
        // SAFETY: nobody else has the extent any more, and all of it is words.
        unsafe {
            clear(self.home, Self::BYTES / size_of::<u64>());
            alloc::release(self.home.cast(), Self::BYTES);
        }
    }
}

/// Makes `count` words zero in every part, without writing to pages that hold zeros already.
///
/// # Safety
/// `home` is that of an extent of as many words, which nobody else uses.
pub(super) unsafe fn clear(home: NonNull<u64>, count: usize) {
    for vp in (0..alloc::parts() as u32).map(Vp::new) {
        for index in 0..count {
            // SAFETY: a word of the extent, of a VP below the limit. Relaxed: nobody else is there, and whoever gets
            // the extent next gets it through the allocator's lock.
            let word = unsafe { atomic::word(home.add(index), vp) };
            if word.load(Ordering::Relaxed) != 0 {
                word.store(0, Ordering::Relaxed);
            }
        }
    }
}
