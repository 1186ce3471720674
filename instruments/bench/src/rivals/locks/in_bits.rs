//! Ours, here because it needs an unsafe corner: two bits as the lock of a value that lies beside, as the guard of such a
//! lock knows no value.

use std::cell::UnsafeCell;
use std::sync::atomic::AtomicU64;

use squall::lock::TwoBits;

use crate::rivals::locks::Exclusive;

/// The lock in the low bits of a word that its user has anyway; what it guards lies beside.
#[repr(C, align(16))]
pub(crate) struct InBits {
    word: AtomicU64,
    guarded: UnsafeCell<u64>,
}

// SAFETY: `guarded` is reached in `with` alone, by who holds the lock.
unsafe impl Sync for InBits {}

const BITS: TwoBits<AtomicU64> = TwoBits::low();

impl Exclusive for InBits {
    fn new() -> Self {
        InBits { word: AtomicU64::new(0), guarded: UnsafeCell::new(0) }
    }

    #[inline(always)]
    fn with<R>(&self, section: impl FnOnce(&mut u64) -> R) -> R {
        let _guard = BITS.lock(&self.word);
        // SAFETY: the lock is held until after the section, and nobody takes it again in between.
        section(unsafe { &mut *self.guarded.get() })
    }
}
