//! The objects of the cases about objects. Every subject, ours or a rival, reaches one type through one
//! method of one `dyn` trait. An interface is an ordinary trait, so `Arc<dyn Probe>` can hold it too.

use std::hint::black_box;
use std::sync::OnceLock;

use crate::work::retire::Tally;

/// The interface of the cases `call`, `miss` and `lifecycle`.
#[squall::interface]
pub(crate) trait Probe: Send + Sync {
    /// Returns one field of the object, plus `n`.
    fn get(&self, n: u64) -> u64;
}

/// The smallest object: one field.
pub(crate) struct Field {
    value: u64,
}

impl Field {
    /// Makes an object with a value hidden from the compiler.
    pub(crate) fn new() -> Field {
        Field { value: black_box(FIELD) }
    }
}

const FIELD: u64 = 3;

impl Probe for Field {
    #[inline(never)]
    fn get(&self, n: u64) -> u64 {
        self.value.wrapping_add(n)
    }
}

/// Sum of the results of the calls `get(0)` to `get(ops - 1)`.
pub(crate) fn sum_of_calls(ops: u64) -> u64 {
    // One of the two factors is even.
    let pairs = if ops.is_multiple_of(2) {
        (ops / 2).wrapping_mul(ops.wrapping_sub(1))
    } else {
        ops.wrapping_mul(ops / 2)
    };
    FIELD.wrapping_mul(ops).wrapping_add(pairs)
}

/// The object of `lifecycle`: one field, like [`Field`]. Only the drop of one object in a group is counted,
/// for the whole group. So the number of destroyed, unreclaimed objects is known, and counting costs almost
/// no time.
///
/// | bits of the field | meaning |
/// |---|---|
/// | `COUNTS_FOR` | number of objects that its drop counts for; mostly zero |
/// | those above | number of the tally, if it counts |
pub(crate) struct Mortal {
    field: u64,
}

const COUNTS_FOR: u64 = (1 << 8) - 1;
const TALLY_SHIFT: u32 = COUNTS_FOR.count_ones();

/// The tallies by number: a reference would not fit into the field beside the count.
static TALLIES: [OnceLock<&'static Tally>; 1024] = [const { OnceLock::new() }; 1024];

/// Numbers a new tally; absent if all numbers are taken.
pub(crate) fn number(tally: &'static Tally) -> Option<u64> {
    let free = TALLIES.iter().position(|place| place.set(tally).is_ok())?;
    u64::try_from(free).ok()
}

impl Mortal {
    /// Makes an object; its drop counts for `counts_for` objects, at most 255.
    #[inline(always)]
    pub(crate) fn new(counts_for: u64, tally: u64) -> Mortal {
        debug_assert!(counts_for <= COUNTS_FOR);
        Mortal { field: tally << TALLY_SHIFT | counts_for }
    }
}

impl Probe for Mortal {
    #[inline(never)]
    fn get(&self, n: u64) -> u64 {
        self.field.wrapping_add(n)
    }
}

impl Drop for Mortal {
    fn drop(&mut self) {
        let counts_for = self.field & COUNTS_FOR;
        if counts_for != 0
            && let Some(tally) = TALLIES[(self.field >> TALLY_SHIFT) as usize].get()
        {
            tally.count_drops(counts_for);
        }
    }
}

/// The interface of the cases `counter` and `gather`.
#[squall::interface]
pub(crate) trait Hits: Send + Sync {
    fn add(&self, n: u64);
    /// Sums up all representatives, one after the other.
    fn total(&self) -> u64;
    /// Sums up all representatives along the tree of clusters.
    fn total_by_tree(&self) -> u64;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_calls_matches_the_calls() {
        let field = Field::new();
        for ops in [0, 1, 2, 3, 10, 101] {
            assert_eq!(sum_of_calls(ops), (0..ops).map(|n| field.get(n)).sum::<u64>());
        }
    }
}
