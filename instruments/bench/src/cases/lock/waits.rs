//! Lengths of waits: counts per bin, in a fixed size.

use std::time::Duration;

/// Binary logarithm of the bins per doubling; the error is at most half a bin.
const PARTS_LOG2: u32 = 4;
const BINS: usize = (64 - PARTS_LOG2 as usize + 1) << PARTS_LOG2;

/// Lengths of waits. They are exact below sixteen nanoseconds; above, sixteen bins share each doubling.
#[derive(Clone)]
pub(super) struct Waits(Box<[u32; BINS]>);

impl Waits {
    pub(super) fn new() -> Waits {
        Waits(Box::new([0; BINS]))
    }

    #[inline]
    pub(super) fn add(&mut self, wait: Duration) {
        let bin = bin(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX));
        self.0[bin] = self.0[bin].saturating_add(1);
    }

    pub(super) fn merge(&mut self, other: &Waits) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0.iter()) {
            *mine = mine.saturating_add(*theirs);
        }
    }

    /// The `q`-quantile in nanoseconds: the middle of its bin. `None` without waits.
    pub(super) fn quantile_ns(&self, q: f64) -> Option<f64> {
        let count: u64 = self.0.iter().map(|&n| u64::from(n)).sum();
        let rank = (q * count as f64).ceil().max(1.0) as u64;
        let mut below = 0;
        let reached = |n: &u32| {
            below += u64::from(*n);
            below >= rank
        };
        let bin = self.0.iter().position(reached)?;
        Some((lower(bin) + lower(bin + 1) - 1.0) / 2.0)
    }
}

fn bin(ns: u64) -> usize {
    let log2 = ns.checked_ilog2().unwrap_or(0);
    match log2.checked_sub(PARTS_LOG2) {
        None => ns as usize,
        Some(shift) => ((shift as usize) << PARTS_LOG2) + (ns >> shift) as usize,
    }
}

/// The smallest length in a bin.
fn lower(bin: usize) -> f64 {
    let parts = 1 << PARTS_LOG2;
    match (bin >> PARTS_LOG2).checked_sub(1) {
        None => bin as f64,
        Some(shift) => (parts + bin % parts) as f64 * (shift as f64).exp2(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_length_is_in_its_bin() {
        for ns in (0..2_000).chain([1 << 20, (1 << 40) - 1, u64::MAX]) {
            let bin = bin(ns);
            assert!(bin < BINS, "{ns}");
            assert!(lower(bin) <= ns as f64 && ns as f64 <= lower(bin + 1), "{ns}");
        }
        assert!((0..BINS).all(|bin| lower(bin) < lower(bin + 1)));
    }

    #[test]
    fn quantiles_cover_all_merged_waits() {
        let (mut all, mut one) = (Waits::new(), Waits::new());
        assert_eq!(all.quantile_ns(0.99), None);
        (1..=98).for_each(|_| all.add(Duration::from_nanos(5)));
        (1..=2).for_each(|_| one.add(Duration::from_micros(1_000)));
        all.merge(&one);
        assert_eq!(all.quantile_ns(0.5), Some(5.0));
        let p99 = all.quantile_ns(0.99).expect("there are some");
        assert!((960_000.0..1_040_000.0).contains(&p99), "{p99}");
    }
}
