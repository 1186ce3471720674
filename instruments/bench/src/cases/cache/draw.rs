//! Random words and keys by Zipf's law, equal in each run.

use crate::cases::map::{below, scatter};

/// A row of random words.
pub(super) struct Random(u64);

impl Random {
    /// Rows of different numbers share no word.
    pub(super) fn new(row: u64) -> Random {
        Random(row << 40)
    }

    fn word(&mut self) -> u64 {
        self.0 += 1;
        scatter(self.0)
    }

    /// A number below `limit`.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        below(self.word(), limit)
    }

    /// The numbers below `limit` in a random order.
    pub(super) fn shuffled(&mut self, limit: u32) -> Vec<u32> {
        let mut numbers: Vec<u32> = (0..limit).collect();
        for i in (1..numbers.len()).rev() {
            numbers.swap(i, self.below(i as u64 + 1) as usize);
        }
        numbers
    }
}

/// Ranks by Zipf's law, drawn by the alias method, which is exact: each rank has a column of equal width,
/// and the columns of rare ranks are filled up with frequent ones.
///
/// Source: Vose, "A linear algorithm for generating random numbers with a given distribution", 1991.
pub(super) struct Zipf {
    /// The share of its column that a rank has itself, in units of 2^-32.
    own: Vec<u32>,
    /// The rank that has the rest of the column.
    other: Vec<u32>,
}

impl Zipf {
    pub(super) fn new(ranks: u32, exponent: f64) -> Zipf {
        let weights = (1..=ranks).map(|rank| f64::from(rank).powf(-exponent));
        let mean = weights.clone().sum::<f64>() / f64::from(ranks);
        let mut left: Vec<f64> = weights.map(|weight| weight / mean).collect();
        let (mut own, mut other) = (vec![u32::MAX; left.len()], (0..ranks).collect::<Vec<u32>>());
        let (mut rare, mut frequent): (Vec<u32>, Vec<u32>) =
            (0..ranks).partition(|rank| left[*rank as usize] < 1.0);
        while let (Some(poor), Some(rich)) = (rare.pop(), frequent.last().copied()) {
            own[poor as usize] = (left[poor as usize] * 2f64.powi(32)) as u32;
            other[poor as usize] = rich;
            left[rich as usize] -= 1.0 - left[poor as usize];
            if left[rich as usize] < 1.0 {
                frequent.pop();
                rare.push(rich);
            }
        }
        Zipf { own, other }
    }

    /// A rank; 0 is the most frequent.
    pub(super) fn rank(&self, random: &mut Random) -> u32 {
        let column = random.below(self.own.len() as u64) as usize;
        if random.word() as u32 <= self.own[column] { column as u32 } else { self.other[column] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_as_frequent_as_the_law() {
        let (ranks, draws, exponent) = (1_000, 200_000u32, 0.9);
        let (zipf, mut random) = (Zipf::new(ranks, exponent), Random::new(1));
        let mut seen = vec![0u32; ranks as usize];
        (0..draws).for_each(|_| seen[zipf.rank(&mut random) as usize] += 1);
        let sum = |count: u32| (1..=count).map(|rank| f64::from(rank).powf(-exponent)).sum::<f64>();
        for first in [1, 10, 100, 500] {
            let part = sum(first) / sum(ranks);
            let found = f64::from(seen[..first as usize].iter().sum::<u32>()) / f64::from(draws);
            assert!((found / part - 1.0).abs() < 0.03, "{first}: {found} where {part} is the law's");
        }
    }

    #[test]
    fn an_order_has_each_number_once() {
        let mut order = Random::new(2).shuffled(1_000);
        assert!(!order.is_sorted());
        order.sort_unstable();
        assert!(order.into_iter().eq(0..1_000));
    }
}
