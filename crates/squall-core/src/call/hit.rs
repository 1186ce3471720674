//! A representative that a call found, and the action that the call performs on it.
//!
//! - I1. The header of a [`Hit`] has the id of a handle, so it belongs to a representative of the handle's
//!   interface (`handle/I1`). It is kept for the lifetime of the hit, which lies within an operation
//!   (`handle/I2`).

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

use squall_rcu::Guard;

use crate::call::interface::{Interface, from_fat};
use crate::call::view::read_view;
use crate::protocol::header::Header;

/// A representative that a call found, valid for the rest of the call's operation.
pub struct Hit<'o, I: ?Sized> {
    header: NonNull<Header>,
    /// Number of the operation, for sampling.
    turn: u64,
    representative: PhantomData<&'o I>,
}

impl<I: ?Sized> fmt::Debug for Hit<'_, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Hit").field(self.header()).finish()
    }
}

impl<'o, I: ?Sized> Hit<'o, I> {
    /// Makes a hit.
    ///
    /// # Safety
    /// I1. The header's pointer may be used for its whole block.
    #[inline(always)]
    pub(crate) unsafe fn new(_: &'o Guard, header: NonNull<Header>, turn: u64) -> Hit<'o, I> {
        Hit { header, turn, representative: PhantomData }
    }

    #[inline(always)]
    fn header(&self) -> &'o Header {
        // SAFETY: I1.
        unsafe { self.header.as_ref() }
    }

    /// Returns the representative. Calls on it are virtual calls.
    #[inline(always)]
    pub fn target(&self) -> &'o I {
        // SAFETY: the header was written for `I` (I1, interface/I1), and keeps the representative as long as
        // itself.
        unsafe { &*from_fat::<I>(self.header().target()) }
    }

    /// Returns the view that the representative publishes, or the default.
    #[inline(always)]
    pub fn view(&self) -> I::View<'o>
    where
        I: Interface,
    {
        // SAFETY: the header was written for `I` (I1, interface/I1).
        unsafe { read_view::<I>(self.header) }
    }

    /// Whether this call is sampled: true for one of `1 << log2` operations, spread evenly. For estimating
    /// call rates without a counter.
    ///
    /// The answer is the same for all calls within one operation.
    #[inline(always)]
    pub fn is_chosen(&self, log2: u32) -> bool {
        is_chosen(self.turn, log2)
    }
}

/// Spreads operation numbers over the whole range, so that every stride between them is sampled evenly.
/// Fibonacci hashing (Knuth 1973, section 6.4), with a factor that fits a multiplication's immediate operand.
#[inline(always)]
fn is_chosen(turn: u64, log2: u32) -> bool {
    turn.wrapping_mul(SPREAD.into()) >> (u64::BITS - log2) == 0
}

/// One operation advances the number by 2^30. So one operation moves the product by the fraction `SPREAD /
/// 2^34` of the range, which is 1 / (8 + 0.618), with the golden section 0.618. The factor has 31 bits.
const SPREAD: u32 = 0x76d2_1313;

/// An action that a call performs on the representative it found.
///
/// A closure is such an action. Its body is compiled into the fast path if the compiler chooses so. The
/// `try_fast` of any other type is always compiled into the fast path.
pub trait Action<I: ?Sized, R>: Sized {
    /// Performs the action if it is quick. The implementation should make no function calls: then the
    /// compiler need not save registers for the end of the operation.
    ///
    /// # Errors
    /// Returns `self` unchanged if the slow path is needed; the caller then calls `run_slow`.
    #[inline(always)]
    fn try_fast<'o>(self, guard: &'o Guard, hit: Hit<'o, I>) -> Result<R, Self> {
        Ok(self.run_slow(guard, hit))
    }

    /// Performs the action, on any representative.
    fn run_slow<'o>(self, guard: &'o Guard, hit: Hit<'o, I>) -> R;
}

impl<I: ?Sized, R, F: for<'o> FnOnce(&'o Guard, &'o I) -> R> Action<I, R> for F {
    #[inline(always)]
    fn run_slow<'o>(self, guard: &'o Guard, hit: Hit<'o, I>) -> R {
        self(guard, hit.target())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread that calls in every `nth` operation is sampled as often as others, whatever it does in
    /// between.
    #[test]
    fn calls_are_sampled_evenly_in_every_stride_of_operations() {
        for log2 in [3, 6] {
            for nth in (1..100).chain([128, 1000, 4096, 65_536]) {
                let turns = (0..100 << log2).map(|i| (i * nth) << 30);
                let chosen = turns.filter(|turn| is_chosen(*turn, log2)).count();
                assert!((60..=140).contains(&chosen), "of every {nth}th: {chosen}, and should be 100");
            }
        }
    }
}
