//! The translation set of an object: every VP that may have an entry of it in its table.
//!
//! - I1. A VP is added before an entry is stored in its table, and stays in the set. So the set is exactly
//!   the VPs on which entries were ever stored, and covers those that have one now.
//! - I2. On machines of at most 64 VPs the set is one word. On larger machines that word is the address of as
//!   many words as are needed, allocated by the first miss.
//!
//! Cost: one atomic change for the first miss of a VP, and one load for each later one.
//!
//! Source: Appavoo 2005, *Clustered Objects*, §5.3.1 (CO-10, CO-12).

use squall_sys::sync::atomic::{AtomicU64, Ordering};

use super::sites;

/// The translation set. See the module.
#[derive(Debug)]
pub(crate) struct Translations(AtomicU64);

const WORD_BITS: usize = u64::BITS as usize;

/// Calls `f` with each VP of a word. Bit 0 stands for the VP `first`.
#[inline(always)]
fn walk(first: usize, word: &AtomicU64, f: impl Fn(usize)) {
    let mut bits = word.load(Ordering::Relaxed);
    while bits != 0 {
        f(first + bits.trailing_zeros() as usize);
        bits &= bits - 1;
    }
}

impl Translations {
    /// Creates an empty set.
    pub(crate) fn new() -> Translations {
        Translations(AtomicU64::new(0))
    }

    /// Adds `vp`, on a machine of `limit` VPs.
    pub(crate) fn insert(&self, vp: usize, limit: usize) {
        debug_assert!(vp < limit);
        let word = if limit <= WORD_BITS { &self.0 } else { &self.words_made(limit)[vp / WORD_BITS] };
        let bit = 1 << (vp % WORD_BITS);
        // Relaxed: read by the thread that drains the gate; this miss's leave releases it to that thread.
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Calls `f` with each VP of the set.
    #[inline(always)]
    pub(crate) fn for_each(&self, limit: usize, f: impl Fn(usize) + Copy) {
        if limit <= WORD_BITS {
            return walk(0, &self.0, f);
        }
        self.for_each_of_many(limit, f);
    }

    #[cold]
    #[inline(never)]
    fn for_each_of_many(&self, limit: usize, f: impl Fn(usize) + Copy) {
        for (index, word) in self.words(limit).unwrap_or_default().iter().enumerate() {
            walk(index * WORD_BITS, word, f);
        }
    }

    /// Bytes beyond the word itself.
    pub(crate) fn extra_bytes(&self, limit: usize) -> usize {
        if limit <= WORD_BITS { 0 } else { self.words(limit).unwrap_or_default().len() * size_of::<u64>() }
    }

    fn words(&self, limit: usize) -> Option<&[AtomicU64]> {
        // Acquire: pairs with the exchange in `words_made`.
        let address = self.0.load(sites::WORDS_LOAD.order(Ordering::Acquire)) as usize;
        let words = std::ptr::with_exposed_provenance::<AtomicU64>(address);
        // SAFETY: not null, so it is the address of a leaked slice of that many words (I2), which lives until
        // `free`.
        (!words.is_null()).then(|| unsafe { std::slice::from_raw_parts(words, limit.div_ceil(WORD_BITS)) })
    }

    #[cold]
    fn words_made(&self, limit: usize) -> &[AtomicU64] {
        if let Some(words) = self.words(limit) {
            return words;
        }
        let made: Box<[AtomicU64]> = (0..limit.div_ceil(WORD_BITS)).map(|_| AtomicU64::new(0)).collect();
        let address = Box::into_raw(made);
        // Release: pairs with the acquire in `words`. The loser frees its own words and finds the winner's
        // there too.
        let exposed = address.cast::<AtomicU64>().expose_provenance() as u64;
        let order = sites::WORDS_STORE.order(Ordering::Release);
        if self.0.compare_exchange(0, exposed, order, Ordering::Relaxed).is_err() {
            // SAFETY: the box from `Box::into_raw` above; no other thread has seen its address.
            drop(unsafe { Box::from_raw(address) });
        }
        self.words(limit).expect("the words of a translation set are missing after they were stored")
    }

    /// For a model: marks the memory as freed, like [`Header::freed`](super::header::Header::freed).
    #[cfg(all(test, loom))]
    pub(crate) fn freed(&mut self) {
        self.0.with_mut(|_| ());
    }

    /// Frees the words, if there are any.
    #[inline(always)]
    pub(crate) fn free(&mut self, limit: usize) {
        if limit > WORD_BITS {
            self.free_words(limit);
        }
    }

    #[cold]
    #[inline(never)]
    fn free_words(&mut self, limit: usize) {
        if let Some(words) = self.words(limit) {
            let words = std::ptr::from_ref(words).cast_mut();
            // SAFETY: the box that `words_made` leaked; `&mut self` excludes all other users.
            drop(unsafe { Box::from_raw(words) });
        }
        self.0 = AtomicU64::new(0);
    }
}
