//! Our two-bit lock around a value beside it. It is here because the guard of such a lock knows no value, so
//! unsafe code is needed.

use std::cell::UnsafeCell;
use std::sync::atomic::AtomicU64;

use squall::lock::TwoBits;

use crate::rivals::locks::Exclusive;

/// The lock in the low bits of a word with another use; the guarded value lies beside.
#[repr(C, align(16))]
pub(crate) struct InBits {
    word: AtomicU64,
    guarded: UnsafeCell<u64>,
}

// SAFETY: `guarded` is reached in `with` alone, by the holder of the lock.
unsafe impl Sync for InBits {}

const BITS: TwoBits<AtomicU64> = TwoBits::low();

impl Exclusive for InBits {
    fn new() -> Self {
        InBits { word: AtomicU64::new(0), guarded: UnsafeCell::new(0) }
    }

    #[inline(always)]
    fn with<R>(&self, section: impl FnOnce(&mut u64) -> R) -> R {
        let _guard = BITS.lock(&self.word);
        // SAFETY: the lock is held until after the section, and no other thread takes it in between.
        section(unsafe { &mut *self.guarded.get() })
    }
}
