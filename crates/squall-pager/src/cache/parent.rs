//! The frozen cache of which a cache is a copy, and the pages that the copy has of its own.
//!
//! Problem: a file that is copied again and again, and changed in between, leaves a chain of frozen files. A
//! fault that passed from each to the next would use the stack of its thread up. It would leave an entry in
//! each, too.
//!
//! Idea: a fault asks one file after another whether it has a page of its own, in a loop. It then goes to
//! that file directly. A frozen copy without changes is left out of the chain when it is copied.
//!
//! - I1. The mark of an own page is set before the page is changed, and never cleared. A frozen file changes
//!   no page, so the file that lends a page stays the same.
//!
//! Cost: a call for each file between a copy and the one that lends the page, at the first touch. A bit for
//! each page.

use std::sync::atomic::{AtomicU64, Ordering};

/// The frozen cache of which a cache is a copy, as a share `C` of it.
pub(super) struct Parent<C> {
    cache: C,
    /// The number of its pages.
    pages: u64,
    /// A bit for each page that the copy has of its own, in memory or in its source.
    own: Box<[AtomicU64]>,
}

impl<C> Parent<C> {
    pub(super) fn new(cache: C, pages: u64) -> Parent<C> {
        Parent { cache, pages, own: (0..pages.div_ceil(64)).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Returns whether the copy has this page of its own. Pages beyond the parent's end are the copy's own.
    fn has_own(&self, number: u64) -> bool {
        // Relaxed, here and below: changed by the holder of the page's reservation. A copy of the copy waited
        // for the threads that write pages, so it sees the bits of all pages that were changed.
        let word = self.own.get((number / 64) as usize).filter(|_| number < self.pages);
        word.is_none_or(|word| word.load(Ordering::Relaxed) >> (number % 64) & 1 == 1)
    }

    pub(super) fn set_own(&self, number: u64) {
        if let Some(word) = self.own.get((number / 64) as usize) {
            word.fetch_or(1 << (number % 64), Ordering::Relaxed);
        }
    }

    /// Returns the parent, unless the copy has this page of its own.
    pub(super) fn lender(&self, number: u64) -> Option<&C> {
        (!self.has_own(number)).then_some(&self.cache)
    }

    /// Returns the parent, unless the copy has pages of its own.
    pub(super) fn original(&self) -> Option<&C> {
        self.own.iter().all(|word| word.load(Ordering::Relaxed) == 0).then_some(&self.cache)
    }
}

/// Goes down a chain from this cache on. `below` returns the next one, or an empty option at the wanted one.
pub(super) fn descend<C, E>(mut cache: C, below: impl Fn(&C) -> Result<Option<C>, E>) -> Result<C, E> {
    while let Some(next) = below(&cache)? {
        cache = next;
    }
    Ok(cache)
}
