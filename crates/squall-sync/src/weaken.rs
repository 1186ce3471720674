//! Run-time switches that break one fence or ordering of a protocol, for the tests of the tests.
//!
//! A proof names its fences and orderings; each is a *site* with a number. In a model build (`--cfg loom` or
//! `--cfg squall_model`, which is used under Miri) a test can weaken one site, and the model check must then fail. In
//! every other build a site is a constant and costs nothing.

use std::sync::atomic::Ordering;

#[cfg(any(loom, squall_model))]
static WEAKENED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// A named fence or ordering of a protocol: an index below 64, unique within the crate that checks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site(pub u32);

impl Site {
    /// Whether a test has weakened this site. Always false outside model builds.
    #[inline(always)]
    pub fn is_weak(self) -> bool {
        #[cfg(any(loom, squall_model))]
        return WEAKENED.load(Ordering::Relaxed) & (1 << self.0) != 0;
        #[cfg(not(any(loom, squall_model)))]
        false
    }

    /// `strong`, or `Relaxed` where a test has weakened this site.
    #[inline(always)]
    pub fn order(self, strong: Ordering) -> Ordering {
        if self.is_weak() { Ordering::Relaxed } else { strong }
    }
}

/// Weakens exactly these sites until the next call. Only in model builds.
#[cfg(any(loom, squall_model))]
pub fn set(sites: &[Site]) {
    let mask = sites.iter().fold(0, |mask, site| mask | 1 << site.0);
    WEAKENED.store(mask, Ordering::SeqCst);
}
