//! What a call found, and what is done with it.
//!
//! - I1. The header of a [`Hit`] is one of a reference's id, and so that of a representative of the reference's interface (`handle/I1`); it is
//!   kept for the hit's lifetime, which is within an operation (`handle/I2`).

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

use squall_rcu::Guard;

use crate::call::interface::from_fat;
use crate::call::layout::words_at;
use crate::call::view::{self, Lends, Words};
use crate::protocol::header::{FIRST, Header};

/// A representative that a call found, for the rest of its operation.
pub struct Hit<'o, I: ?Sized> {
    header: NonNull<Header>,
    /// Of the operation.
    turn: u64,
    /// What it lends.
    lent: u8,
    representative: PhantomData<&'o I>,
}

impl<I: ?Sized> fmt::Debug for Hit<'_, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Hit").field(self.header()).finish()
    }
}

impl<'o, I: ?Sized> Hit<'o, I> {
    /// # Safety
    /// I1. The header may be used for its whole block.
    #[inline(always)]
    pub(crate) unsafe fn new(_: &'o Guard, header: NonNull<Header>, turn: u64) -> Hit<'o, I> {
        // SAFETY: I1.
        let lent = unsafe { header.as_ref() }.view_kind();
        Hit { header, turn, lent, representative: PhantomData }
    }

    /// The same, if it lends the first thing: not asked again.
    ///
    /// # Safety
    /// It does. As of [`new`](Hit::new).
    #[inline(always)]
    pub(crate) unsafe fn of_first(guard: &'o Guard, header: NonNull<Header>, turn: u64) -> Hit<'o, I> {
        // SAFETY: the caller.
        Hit { lent: FIRST, ..unsafe { Hit::new(guard, header, turn) } }
    }

    /// The same, if it does not lend the first thing: not asked again.
    ///
    /// # Safety
    /// It does not. As of [`new`](Hit::new).
    #[inline(always)]
    pub(crate) unsafe fn of_other(guard: &'o Guard, header: NonNull<Header>, turn: u64) -> Hit<'o, I> {
        // SAFETY: the caller.
        unsafe {
            let hit = Hit::new(guard, header, turn);
            std::hint::assert_unchecked(hit.lent & FIRST == 0);
            hit
        }
    }

    #[inline(always)]
    fn header(&self) -> &'o Header {
        // SAFETY: I1.
        unsafe { self.header.as_ref() }
    }

    /// The representative.
    #[inline(always)]
    pub fn target(&self) -> &'o I {
        // SAFETY: the header was written for `I` (I1, interface/I1), and keeps the representative as long as itself.
        unsafe { &*from_fat::<I>(self.header().target()) }
    }

    /// What it lends, if that is the first thing of those that it may lend.
    #[inline(always)]
    pub fn first(&self) -> Option<&'o I::First>
    where
        I: Lends,
    {
        // SAFETY: the header was written for `I` (I1), by a root whose interface that is, if something is lent (`view/I2`).
        unsafe { view::first::<I>(self.lent, self.words()) }
    }

    /// What it lends beside the first thing.
    #[inline(always)]
    pub fn beside(&self) -> Option<&'o I::Beside>
    where
        I: Lends,
    {
        // SAFETY: as in `first`.
        unsafe { view::beside::<I>(self.lent, self.words()) }
    }

    /// What it lends, if that is the second thing.
    #[inline(always)]
    pub fn second(&self) -> Option<&'o I::Second>
    where
        I: Lends,
    {
        // SAFETY: as in `first`.
        unsafe { view::second::<I>(self.lent, self.words()) }
    }

    /// What it lends, if that is the third thing.
    #[inline(always)]
    pub fn third(&self) -> Option<&'o I::Third>
    where
        I: Lends,
    {
        // SAFETY: as in `first`.
        unsafe { view::third::<I>(self.lent, self.words()) }
    }

    /// Whether this call is one that is chosen of `1 << log2`, as if by chance: for counting calls without a count. In one call the answer stays the
    /// same; so it does in all calls within one operation.
    #[inline(always)]
    pub fn is_chosen(&self, log2: u32) -> bool {
        is_chosen(self.turn, log2)
    }

    /// Where the words are, if something is lent: the header is its block's first, and they are behind the last.
    #[inline(always)]
    fn words(&self) -> *const Words
    where
        I: Lends,
    {
        const { assert!(I::LENDS, "an interface that `Lends` is marked so: `#[interface(crate = …, lends)]`") };
        self.header.as_ptr().wrapping_byte_add(words_at::<I>()).cast()
    }
}

/// Turns that follow each other, or every third or twentieth of them, fall into every part of the range alike: Fibonacci hashing (Knuth 1973,
/// section 6.4), by a number that a multiplication's instruction has room for.
#[inline(always)]
fn is_chosen(turn: u64, log2: u32) -> bool {
    turn.wrapping_mul(TURNED.into()) >> (u64::BITS - log2) == 0
}

/// Of 2^34, which is one turn's part of the range, one in eight and the golden section. In 31 bits.
const TURNED: u32 = 0x76d2_1313;

/// What a call does with the representative that it found. A closure's body is compiled into the way of a hit where the compiler likes;
/// what is of a type with an `act_briefly`, that function, always.
pub trait Act<I: ?Sized, R>: Sized {
    /// Does it.
    fn act<'o>(self, guard: &'o Guard, hit: Hit<'o, I>) -> R;

    /// Does it if that is soon done, without a call of any function where it can be: then nothing that a hit needs at its end has to be put
    /// away and fetched again. Else nothing is done, and `act` is called.
    ///
    /// # Errors
    /// It is not soon done.
    #[inline(always)]
    fn act_briefly<'o>(self, guard: &'o Guard, hit: Hit<'o, I>) -> Result<R, Self> {
        Ok(self.act(guard, hit))
    }
}

impl<I: ?Sized, R, F: for<'o> FnOnce(&'o Guard, &'o I) -> R> Act<I, R> for F {
    #[inline(always)]
    fn act<'o>(self, guard: &'o Guard, hit: Hit<'o, I>) -> R {
        self(guard, hit.target())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever calls in every `nth` operation is counted as often as others, whatever it does in those between.
    #[test]
    fn one_of_so_many_calls_is_chosen_whichever_operations_they_are_in() {
        for log2 in [3, 6] {
            for nth in (1..100).chain([128, 1000, 4096, 65_536]) {
                let turns = (0..100 << log2).map(|i| (i * nth) << 30);
                let chosen = turns.filter(|turn| is_chosen(*turn, log2)).count();
                assert!((60..=140).contains(&chosen), "of every {nth}th: {chosen}, and should be 100");
            }
        }
    }
}
