//! The word types that can contain a two-bit lock.

use squall_sys::sync::atomic::{AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};

mod sealed {
    pub trait Sealed {}
}

/// An atomic word that can contain a [`TwoBits`](super::TwoBits) lock: an unsigned atomic integer or an
/// `AtomicPtr`.
///
/// # Example
/// ```
/// use squall::lock::{TwoBits, Word};
/// use std::sync::atomic::AtomicU16;
///
/// fn is_busy<A: Word>(word: &A) -> bool {
///     TwoBits::<A>::low().is_locked(word)
/// }
/// assert!(!is_busy(&AtomicU16::new(4)));
/// ```
pub trait Word: sealed::Sealed {
    /// The type of the word's value.
    type Value: Copy;

    #[doc(hidden)]
    const BITS: u32;

    /// Returns the value with the two bits at `shift` cleared.
    #[doc(hidden)]
    fn without(value: Self::Value, shift: u32) -> Self::Value;

    /// Returns the two bits at `shift`.
    #[doc(hidden)]
    fn bits(value: Self::Value, shift: u32) -> u8;

    #[doc(hidden)]
    fn with(value: Self::Value, shift: u32, bits: u8) -> Self::Value;

    #[doc(hidden)]
    fn get(&self, order: Ordering) -> Self::Value;

    /// Sets the bits `bits` (0 to 3) at `shift`, and returns the previous value.
    #[doc(hidden)]
    fn set(&self, shift: u32, bits: u8, order: Ordering) -> Self::Value;

    /// Clears these bits, and returns the previous value. The bits must be set, and must stay set until then.
    /// A bit that was clear becomes set instead, by a borrow from the bits above:
    /// [`give_back`](Word::give_back) undoes that.
    #[doc(hidden)]
    fn clear(&self, shift: u32, bits: u8, order: Ordering) -> Self::Value;

    /// Returns to the bits above `shift + 1` the amount that [`clear`](Word::clear) borrowed from them.
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
                // The mask leaves two bits.
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
                // `fetch_and` would be a loop, because it must return the previous value; this is one
                // instruction. The bits are set, so the subtraction does not borrow from other bits.
                self.fetch_sub(<$value>::from(bits) << shift, order)
            }

            fn give_back(&self, shift: u32) {
                // The operand is zero where there are no bits above.
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
        // A subtraction, for the same reason as with the integers: one instruction returns the previous
        // value.
        self.fetch_byte_sub(usize::from(bits) << shift, order)
    }

    #[cfg(not(loom))]
    fn give_back(&self, shift: u32) {
        self.fetch_byte_add(4 << shift, Ordering::Relaxed);
    }

    #[cfg(loom)]
    fn set(&self, shift: u32, bits: u8, order: Ordering) -> *mut T {
        let set = |value: *mut T| Some(Self::with(value, shift, Self::bits(value, shift) | bits));
        self.fetch_update(order, Ordering::Relaxed, set)
            .expect("`fetch_update` failed although its closure returns a value")
    }

    #[cfg(loom)]
    fn clear(&self, shift: u32, bits: u8, order: Ordering) -> *mut T {
        let clear = |value: *mut T| Some(Self::with(value, shift, Self::bits(value, shift) & !bits));
        self.fetch_update(order, Ordering::Relaxed, clear)
            .expect("`fetch_update` failed although its closure returns a value")
    }

    // The `clear` above never borrows.
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
