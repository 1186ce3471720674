//! The words in which a lock of two bits may lie.

use squall_sys::sync::atomic::{AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};

mod sealed {
    pub trait Sealed {}
}

/// An atomic word that may have a [`TwoBits`](super::TwoBits) lock in two of its bits: an unsigned atomic, or an `AtomicPtr`.
pub trait Word: sealed::Sealed {
    /// What the word holds.
    type Value: Copy;

    #[doc(hidden)]
    const BITS: u32;

    /// The value with two bits of it cleared, at `shift`.
    #[doc(hidden)]
    fn without(value: Self::Value, shift: u32) -> Self::Value;

    /// These two bits.
    #[doc(hidden)]
    fn bits(value: Self::Value, shift: u32) -> u8;

    #[doc(hidden)]
    fn with(value: Self::Value, shift: u32, bits: u8) -> Self::Value;

    #[doc(hidden)]
    fn get(&self, order: Ordering) -> Self::Value;

    /// Sets the bits of `bits` (0 to 3), at `shift`, and returns the value before.
    #[doc(hidden)]
    fn set(&self, shift: u32, bits: u8, order: Ordering) -> Self::Value;

    /// Clears these bits, all of which are set and stay so until then, and returns the value before. A bit of the value that was
    /// not set is set then, and was borrowed from the bits above: [`give_back`](Word::give_back) undoes that.
    #[doc(hidden)]
    fn clear(&self, shift: u32, bits: u8, order: Ordering) -> Self::Value;

    /// Gives back to the bits above the two at `shift` what [`clear`](Word::clear) borrowed from them.
    #[doc(hidden)]
    fn give_back(&self, shift: u32);

    #[doc(hidden)]
    fn replace(&self, old: Self::Value, new: Self::Value, order: Ordering) -> Result<(), Self::Value>;

    #[doc(hidden)]
    fn address(&self) -> usize;
}

macro_rules! words {
    ($($atomic:ident $value:ty;)*) => { $(
        impl sealed::Sealed for $atomic {}

        impl Word for $atomic {
            type Value = $value;
            const BITS: u32 = <$value>::BITS;

            #[inline(always)]
            fn without(value: $value, shift: u32) -> $value {
                value & !(3 << shift)
            }

            #[inline(always)]
            fn bits(value: $value, shift: u32) -> u8 {
                // Two bits are left.
                (value >> shift & 3) as u8
            }

            #[inline(always)]
            fn with(value: $value, shift: u32, bits: u8) -> $value {
                Self::without(value, shift) | <$value>::from(bits) << shift
            }

            #[inline(always)]
            fn get(&self, order: Ordering) -> $value {
                self.load(order)
            }

            #[inline(always)]
            fn set(&self, shift: u32, bits: u8, order: Ordering) -> $value {
                self.fetch_or(<$value>::from(bits) << shift, order)
            }

            #[inline(always)]
            fn clear(&self, shift: u32, bits: u8, order: Ordering) -> $value {
                // Not an `and`: this one is an instruction that returns the value before. Nothing is borrowed from other
                // bits, as these are set.
                self.fetch_sub(<$value>::from(bits) << shift, order)
            }

            fn give_back(&self, shift: u32) {
                // Zero where there are no bits above.
                self.fetch_add(4 << shift, Ordering::Relaxed);
            }

            #[inline(always)]
            fn replace(&self, old: $value, new: $value, order: Ordering) -> Result<(), $value> {
                self.compare_exchange_weak(old, new, order, Ordering::Relaxed).map(drop)
            }

            #[inline(always)]
            fn address(&self) -> usize {
                std::ptr::from_ref(self).addr()
            }
        }
    )* };
}

words! {
    AtomicU8 u8;
    AtomicU16 u16;
    AtomicU32 u32;
    AtomicU64 u64;
    AtomicUsize usize;
}

impl<T> sealed::Sealed for AtomicPtr<T> {}

impl<T> Word for AtomicPtr<T> {
    type Value = *mut T;
    const BITS: u32 = usize::BITS;

    #[inline(always)]
    fn without(value: *mut T, shift: u32) -> *mut T {
        value.map_addr(|address| AtomicUsize::without(address, shift))
    }

    #[inline(always)]
    fn bits(value: *mut T, shift: u32) -> u8 {
        AtomicUsize::bits(value.addr(), shift)
    }

    #[inline(always)]
    fn with(value: *mut T, shift: u32, bits: u8) -> *mut T {
        value.map_addr(|address| AtomicUsize::with(address, shift, bits))
    }

    #[inline(always)]
    fn get(&self, order: Ordering) -> *mut T {
        self.load(order)
    }

    #[cfg(not(loom))]
    #[inline(always)]
    fn set(&self, shift: u32, bits: u8, order: Ordering) -> *mut T {
        self.fetch_or(usize::from(bits) << shift, order)
    }

    #[cfg(not(loom))]
    #[inline(always)]
    fn clear(&self, shift: u32, bits: u8, order: Ordering) -> *mut T {
        // As for the integers.
        self.fetch_byte_sub(usize::from(bits) << shift, order)
    }

    #[cfg(not(loom))]
    fn give_back(&self, shift: u32) {
        self.fetch_byte_add(4 << shift, Ordering::Relaxed);
    }

    #[cfg(loom)]
    fn set(&self, shift: u32, bits: u8, order: Ordering) -> *mut T {
        let set = |value: *mut T| Some(Self::with(value, shift, Self::bits(value, shift) | bits));
        self.fetch_update(order, Ordering::Relaxed, set).expect("it says some")
    }

    #[cfg(loom)]
    fn clear(&self, shift: u32, bits: u8, order: Ordering) -> *mut T {
        let clear = |value: *mut T| Some(Self::with(value, shift, Self::bits(value, shift) & !bits));
        self.fetch_update(order, Ordering::Relaxed, clear).expect("it says some")
    }

    // The `clear` above borrows nothing.
    #[cfg(loom)]
    fn give_back(&self, _shift: u32) {}

    #[inline(always)]
    fn replace(&self, old: *mut T, new: *mut T, order: Ordering) -> Result<(), *mut T> {
        self.compare_exchange_weak(old, new, order, Ordering::Relaxed).map(drop)
    }

    #[inline(always)]
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}
