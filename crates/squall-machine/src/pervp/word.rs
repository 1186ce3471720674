//! Per-VP words: the public types over the restartable sequences.

use super::alloc::{self, OutOfMemory};
use super::{atomic, restart};
use crate::vp::Vp;
use squall_sys::sync::atomic::Ordering;
use std::fmt;
use std::ptr::NonNull;

/// Error: a compare-and-store did not store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CasError {
    /// The thread is on this VP, not on the VP that it named.
    Elsewhere(Vp),
    /// The word held this value instead of the expected one.
    Changed(u64),
}

impl fmt::Display for CasError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CasError::Elsewhere(vp) => {
                write!(f, "nothing was stored: the thread is on {vp}; read the current VP and try again")
            }
            CasError::Changed(value) => {
                write!(f, "nothing was stored: the word has changed to {value}; try again with that value")
            }
        }
    }
}

impl std::error::Error for CasError {}

/// One `u64` per VP, initially zero.
///
/// # Cost
/// Eight bytes per VP, on cache lines that it shares only with other data *of that VP*. Operations take a
/// handful of plain instructions, without access to a line that another VP writes. Progress: wait-free except
/// for restarts, of which the kernel causes one per preemption; the atomic form is lock-free. Linearized at
/// the one store, per VP; operations on different VPs are unordered.
/// # Example
/// ```
/// let hits = squall::pervp::PerVpWord::new();
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| (0..1000).for_each(|_| hits.add(1)));
///     }
/// });
/// assert_eq!(hits.sum(), 4000);
/// ```
pub struct PerVpWord(PerVpWords<1>);

impl PerVpWord {
    /// Creates a word of zero on every VP.
    ///
    /// # Panics
    /// If there is no address space left. [`try_new`](PerVpWord::try_new) returns an error instead.
    pub fn new() -> PerVpWord {
        PerVpWord(PerVpWords::new())
    }

    /// Creates a word of zero on every VP, like [`new`](PerVpWord::new), but reports lack of address space as
    /// an error.
    ///
    /// # Errors
    /// [`OutOfMemory`] if there is no address space left.
    pub fn try_new() -> Result<PerVpWord, OutOfMemory> {
        PerVpWords::try_new().map(PerVpWord)
    }

    /// Adds `n`, wrapping, on the VP where the thread is. To subtract, add `n.wrapping_neg()`.
    ///
    /// # Example
    /// ```
    /// let bytes = squall::pervp::PerVpWord::new();
    /// bytes.add(4096);
    /// bytes.add(1024_u64.wrapping_neg());
    /// assert_eq!(bytes.sum(), 3072);
    /// ```
    #[inline(always)]
    pub fn add(&self, n: u64) {
        // SAFETY: the extent that `PerVpWords` holds for one word.
        unsafe { restart::add(self.0.home, n) };
    }

    /// Stores `new` on the VP where the thread is. Returns that VP and the old value.
    ///
    /// # Example
    /// ```
    /// let word = squall::pervp::PerVpWord::new();
    /// let (vp, old) = word.swap(7);
    /// assert_eq!(old, 0);
    /// assert_eq!(word.load(vp), 7);
    /// ```
    #[inline]
    pub fn swap(&self, new: u64) -> (Vp, u64) {
        self.0.swap(0, new)
    }

    /// Stores `new` if the thread is on `vp` and the word there is `expected`.
    ///
    /// # Errors
    /// [`CasError`] names the condition that failed; the word is then unchanged.
    ///
    /// # Example
    /// ```
    /// use squall::{Vp, pervp::{CasError, PerVpWord}};
    ///
    /// let word = PerVpWord::new();
    /// loop {
    ///     let vp = Vp::current();
    ///     match word.compare_and_store(vp, 0, 1) {
    ///         Ok(()) => break,
    ///         Err(CasError::Elsewhere(_)) => {} // the thread has moved: try again there
    ///         Err(CasError::Changed(value)) => panic!("no other thread writes, but found {value}"),
    ///     }
    /// }
    /// assert_eq!(word.sum(), 1);
    /// ```
    #[inline]
    pub fn compare_and_store(&self, vp: Vp, expected: u64, new: u64) -> Result<(), CasError> {
        self.0.compare_and_store(vp, 0, expected, new)
    }

    /// Replaces the word on the VP where the thread is by the result of `f`. Returns the VP and the old
    /// value.
    ///
    /// `f` runs outside the restartable sequence, so it may do anything. It runs again if the word changed or
    /// the thread moved. If `f` returns `None`, the word stays unchanged and `update` returns `None`.
    ///
    /// # Example
    /// ```
    /// let tokens = squall::pervp::PerVpWord::new();
    /// let take = |count: u64| count.checked_sub(1);
    /// assert!(tokens.update(take).is_none(), "no token on any VP yet");
    /// ```
    #[inline]
    pub fn update(&self, f: impl FnMut(u64) -> Option<u64>) -> Option<(Vp, u64)> {
        self.0.update(0, f)
    }

    /// Returns the word of `vp`.
    ///
    /// # Panics
    /// If `vp` is not below [`Machine::vp_limit`](crate::Machine::vp_limit).
    ///
    /// # Example
    /// ```
    /// let word = squall::pervp::PerVpWord::new();
    /// let (vp, _) = word.swap(5);
    /// assert_eq!(word.load(vp), 5);
    /// ```
    #[inline]
    pub fn load(&self, vp: Vp) -> u64 {
        self.0.load(vp, 0)
    }

    /// Returns the wrapping sum over all VPs. It is not a snapshot: additions made meanwhile may or may not
    /// be in it.
    ///
    /// # Cost
    /// A cache miss for each VP that wrote its word since the last sum.
    ///
    /// # Example
    /// ```
    /// let hits = squall::pervp::PerVpWord::new();
    /// hits.add(2);
    /// hits.add(3);
    /// assert_eq!(hits.sum(), 5);
    /// ```
    pub fn sum(&self) -> u64 {
        self.0.sum(0)
    }

    /// Iterates over the words of all VPs, lowest VP first.
    ///
    /// # Example
    /// ```
    /// let hits = squall::pervp::PerVpWord::new();
    /// hits.add(3);
    /// for (vp, count) in hits.iter().filter(|&(_, count)| count > 0) {
    ///     println!("{vp}: {count}");
    /// }
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = (Vp, u64)> + '_ {
        self.0.iter(0)
    }

    /// Returns the word's home address, for sequences of your own ([`restartable!`](crate::restartable)).
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

/// `N` neighbouring `u64` per VP, initially zero; see [`PerVpWord`]. `N` is at most 512.
///
/// # Panics
/// Every method that takes an index panics if the index is not below `N`.
///
/// # Example
/// ```
/// let [hits, misses] = [0, 1];
/// let counts = squall::pervp::PerVpWords::<2>::new();
/// counts.add(hits, 1);
/// counts.add(misses, 2);
/// assert_eq!((counts.sum(hits), counts.sum(misses)), (1, 2));
/// ```
pub struct PerVpWords<const N: usize> {
    /// Home of `N` words and of the lock of `compare_store_and_store`'s atomic form.
    home: NonNull<u64>,
}

// SAFETY: the words are accessed atomically or by sequences, from any thread (`pervp/I1`).
unsafe impl<const N: usize> Send for PerVpWords<N> {}
// SAFETY: as for `Send`.
unsafe impl<const N: usize> Sync for PerVpWords<N> {}

impl<const N: usize> PerVpWords<N> {
    /// Number of locks. A single word has no pair, hence no lock.
    const LOCKS: usize = if N > 1 { 1 } else { 0 };
    const BYTES: usize = {
        assert!(N > 0 && N <= 512, "the number of words of a `PerVpWords` is not between 1 and 512");
        (N + Self::LOCKS) * size_of::<u64>()
    };

    /// Creates words of zero on every VP.
    ///
    /// # Panics
    /// If there is no address space left. [`try_new`](PerVpWords::try_new) returns an error instead.
    pub fn new() -> PerVpWords<N> {
        Self::try_new().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Creates words of zero on every VP, like [`new`](PerVpWords::new), but reports lack of address space as
    /// an error.
    ///
    /// # Errors
    /// [`OutOfMemory`] if there is no address space left.
    pub fn try_new() -> Result<PerVpWords<N>, OutOfMemory> {
        Ok(PerVpWords { home: alloc::allocate(Self::BYTES, align_of::<u64>())?.cast() })
    }

    #[inline(always)]
    fn at(&self, index: usize) -> NonNull<u64> {
        assert!(index < N, "word {index} does not exist: this object has {N} words");
        // SAFETY: `index` is below the number of words of the extent.
        unsafe { self.home.add(index) }
    }

    /// Adds `n`, wrapping, to word `index` on the VP where the thread is.
    #[inline(always)]
    pub fn add(&self, index: usize, n: u64) {
        // SAFETY: a word of our extent.
        unsafe { restart::add(self.at(index), n) };
    }

    /// Stores `new` into word `index` on the VP where the thread is. Returns that VP and the old value.
    #[inline]
    pub fn swap(&self, index: usize, new: u64) -> (Vp, u64) {
        // SAFETY: a word of our extent.
        unsafe { restart::swap(self.at(index), new) }
    }

    /// Stores `new` into word `index` if the thread is on `vp` and the word there is `expected`.
    ///
    /// # Errors
    /// [`CasError`] names the condition that failed; the word is then unchanged.
    #[inline]
    pub fn compare_and_store(&self, vp: Vp, index: usize, expected: u64, new: u64) -> Result<(), CasError> {
        // SAFETY: a word of our extent.
        unsafe { restart::compare_and_store(self.at(index), vp, expected, new) }
    }

    /// If the thread is on `vp` and word `key` is `expected`, stores `value` into word `side`, then `new`
    /// into `key`.
    ///
    /// An array with a fill count needs this: store the element, then raise the count. When the call
    /// succeeds, both words hold the new values at that instant. A thread that [loads](PerVpWords::load) the
    /// new key sees the value of the side word.
    ///
    /// A failed call may still have written `side`. If the call failed because another call of this method
    /// succeeded, its write came before that success. So write side words by this method only, and give the
    /// key a version that never comes back.
    ///
    /// The atomic form holds a lock per VP. There, a preempted thread delays others that call this method on
    /// the same VP and object. A signal handler must not call it on an object on which the interrupted thread
    /// may be in this method.
    ///
    /// # Errors
    /// [`CasError`] names the condition that failed.
    /// # Panics
    /// If `key` and `side` are the same word.
    ///
    /// # Example
    /// ```
    /// use squall::{Vp, pervp::PerVpWords};
    ///
    /// // Word 0 is a version and a count; words 1 to 7 are elements. Push 42 on the VP where the thread is.
    /// let pool = PerVpWords::<8>::new();
    /// loop {
    ///     let vp = Vp::current();
    ///     let key = pool.load(vp, 0);
    ///     let (version, count) = (key >> 8, key & 0xff);
    ///     assert!(count < 7, "the pool is full");
    ///     let new = (version + 1) << 8 | (count + 1);
    ///     if pool.compare_store_and_store(vp, (0, key, new), (count as usize + 1, 42)).is_ok() {
    ///         assert_eq!(pool.load(vp, 1), 42);
    ///         break;
    ///     }
    /// }
    /// ```
    #[inline]
    pub fn compare_store_and_store(
        &self,
        vp: Vp,
        (key, expected, new): (usize, u64, u64),
        (side, value): (usize, u64),
    ) -> Result<(), CasError> {
        assert!(key != side, "key and side word must differ: both are word {key}");
        let pair = restart::Pair { key: self.at(key), expected, new, side: self.at(side), value };
        // SAFETY: 1. two words of our extent. 2. `N` is at least 2, so there is a lock behind the last word,
        // used only here.
        unsafe { restart::compare_store_and_store(pair, self.home.add(N), vp) }
    }

    /// Replaces word `index` on the VP where the thread is by the result of `f`, as [`PerVpWord::update`]
    /// does.
    ///
    /// # Example
    /// ```
    /// let words = squall::pervp::PerVpWords::<2>::new();
    /// let (vp, old) = words.update(1, |value| Some(value.max(9))).unwrap();
    /// assert_eq!((old, words.load(vp, 1)), (0, 9));
    /// ```
    #[inline]
    pub fn update(&self, index: usize, mut f: impl FnMut(u64) -> Option<u64>) -> Option<(Vp, u64)> {
        let word = self.at(index);
        loop {
            let vp = Vp::current();
            // SAFETY: a word of our extent; `current` is below the limit (current/I2). Acquire: as in `load`.
            let old = unsafe { atomic::word(word, vp) }.load(Ordering::Acquire);
            let new = f(old)?;
            // SAFETY: a word of our extent.
            if unsafe { restart::compare_and_store(word, vp, old, new) }.is_ok() {
                return Some((vp, old));
            }
        }
    }

    /// Returns word `index` of `vp`.
    ///
    /// # Panics
    /// If `vp` is not below [`Machine::vp_limit`](crate::Machine::vp_limit), or `index` not below `N`.
    #[inline]
    pub fn load(&self, vp: Vp, index: usize) -> u64 {
        assert!(vp.index() < alloc::parts(), "{vp} does not exist; VP indices are below {}", alloc::parts());
        // SAFETY: a word of our extent; `vp` is below the limit. Acquire: pairs with the releasing store of a
        // compare-and-store. A thread that sees the new key of a pair sees the value of its side word.
        unsafe { atomic::word(self.at(index), vp) }.load(Ordering::Acquire)
    }

    /// Returns the wrapping sum of word `index` over all VPs. It is not a snapshot.
    pub fn sum(&self, index: usize) -> u64 {
        self.iter(index).fold(0, |sum, (_, value)| sum.wrapping_add(value))
    }

    /// Iterates over word `index` of all VPs, lowest VP first.
    pub fn iter(&self, index: usize) -> impl Iterator<Item = (Vp, u64)> + '_ {
        // The cast keeps the value: the number of VPs is far below 2^32.
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
        // SAFETY: no other thread has the extent any more, and all of it is words.
        unsafe {
            clear(self.home, Self::BYTES / size_of::<u64>());
            alloc::release(self.home.cast(), Self::BYTES);
        }
    }
}

/// Sets `count` words to zero in every part, without writing to pages that already hold zeros.
///
/// # Safety
/// `home` is that of an extent of at least `count` words, and no other thread uses it.
pub(super) unsafe fn clear(home: NonNull<u64>, count: usize) {
    for vp in (0..alloc::parts() as u32).map(Vp::new) {
        for index in 0..count {
            // SAFETY: a word of the extent, of a VP below the limit. Relaxed: no other thread uses the
            // extent, and its next owner gets it through the allocator's lock.
            let word = unsafe { atomic::word(home.add(index), vp) };
            if word.load(Ordering::Relaxed) != 0 {
                word.store(0, Ordering::Relaxed);
            }
        }
    }
}
