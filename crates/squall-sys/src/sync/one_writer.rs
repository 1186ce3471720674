//! Reads of a word by its only writer, in a way that hides no execution from loom.
//!
//! Loom never lets a thread's store take effect before another thread's load if the storing thread has loaded
//! the word itself. A counter that is loaded, incremented and stored would be checked with fewer executions
//! than exist. In a model such a load takes no part in loom's history.

use super::atomic::{AtomicU32, AtomicU64, AtomicUsize};

/// Reads a word that only the calling thread may write now: it holds the lock of the word's writers.
pub trait ReadOwn {
    /// Type of the value.
    type Value;

    /// Returns the value that the latest writer left.
    fn read_own(&self) -> Self::Value;
}

macro_rules! read_own {
    ($($atomic:ty: $value:ty),*) => {$(
        impl ReadOwn for $atomic {
            type Value = $value;

            #[inline(always)]
            fn read_own(&self) -> $value {
                #[cfg(not(loom))]
                // Relaxed: the lock of the writers orders it.
                return self.load(super::atomic::Ordering::Relaxed);
                #[cfg(loom)]
                // SAFETY: the caller holds the lock of the writers, so no other thread writes now.
                unsafe {
                    self.unsync_load()
                }
            }
        }
    )*};
}

read_own!(AtomicU32: u32, AtomicU64: u64, AtomicUsize: usize);
