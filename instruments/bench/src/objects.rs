//! The objects of the cases about objects: one type, reached by ours and by every rival through the same method of the
//! same `dyn` trait. (An interface is an ordinary trait, so `Arc<dyn Probe>` holds the same thing.)

use std::hint::black_box;
use std::sync::OnceLock;

use crate::cases::rcu_retire::Tally;

/// What is called in `call`, `miss` and `lifecycle`.
#[squall::interface]
pub(crate) trait Probe: Send + Sync {
    /// One field of the object, plus `n`.
    fn get(&self, n: u64) -> u64;
}

/// The smallest object: one field.
pub(crate) struct Field {
    value: u64,
}

impl Field {
    /// An object that the compiler knows nothing about.
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

/// What the calls `get(0)` to `get(ops - 1)` return together.
pub(crate) fn sum_of_calls(ops: u64) -> u64 {
    // One of the two factors is even.
    let pairs = if ops.is_multiple_of(2) {
        (ops / 2).wrapping_mul(ops.wrapping_sub(1))
    } else {
        ops.wrapping_mul(ops / 2)
    };
    FIELD.wrapping_mul(ops).wrapping_add(pairs)
}

/// The object of `lifecycle`: one field, as [`Field`]. The drop of one in a few is counted, for those before it too, so
/// that what was destroyed and not yet reclaimed is known, and the counting costs next to nothing.
///
/// | bits of the field | meaning |
/// |---|---|
/// | `COUNTS_FOR` | for how many objects its drop counts; mostly for none |
/// | those above | the number of the tally where it counts |
pub(crate) struct Mortal {
    field: u64,
}

const COUNTS_FOR: u64 = (1 << 8) - 1;
const TALLY_SHIFT: u32 = COUNTS_FOR.count_ones();

/// The tallies by number: a reference would not fit into the field beside the count.
static TALLIES: [OnceLock<&'static Tally>; 1024] = [const { OnceLock::new() }; 1024];

/// The number of a tally that is new, if there is one left.
pub(crate) fn number(tally: &'static Tally) -> Option<u64> {
    let free = TALLIES.iter().position(|place| place.set(tally).is_ok())?;
    u64::try_from(free).ok()
}

impl Mortal {
    /// The drop counts for at most 255 objects.
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

/// What is called in `counter` and `gather`.
#[squall::interface]
pub(crate) trait Hits: Send + Sync {
    fn add(&self, n: u64);
    /// The sum over all representatives, one after the other.
    fn total(&self) -> u64;
    /// The same, up the tree of clusters.
    fn total_by_tree(&self) -> u64;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_calls_is_that_of_calls() {
        let field = Field::new();
        for ops in [0, 1, 2, 3, 10, 101] {
            assert_eq!(sum_of_calls(ops), (0..ops).map(|n| field.get(n)).sum::<u64>());
        }
    }
}
