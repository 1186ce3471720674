//! A small seeded generator (SplitMix64) with the same numbers on every machine.

/// Pseudo-random numbers determined by a seed.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Generator of `stream` under `seed`. Streams are independent.
    pub fn new(seed: u64, stream: u64) -> Rng {
        let mut rng = Rng(seed ^ stream.wrapping_mul(0xD134_2543_DE82_EF95));
        rng.draw();
        rng
    }

    /// Draws the next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Draws a number below `n`.
    ///
    /// # Panics
    ///
    /// If `n` is zero.
    pub fn below(&mut self, n: u64) -> u64 {
        self.draw() % n
    }

    /// Returns true with probability 1/`n`.
    ///
    /// # Panics
    ///
    /// If `n` is zero.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Shuffles the items.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_and_differ() {
        let take = |seed, stream| {
            let mut rng = Rng::new(seed, stream);
            [rng.draw(), rng.draw(), rng.draw()]
        };
        assert_eq!(take(1, 2), take(1, 2));
        assert_ne!(take(1, 2), take(1, 3));
        assert_ne!(take(1, 2), take(2, 2));
    }

    #[test]
    fn a_shuffle_keeps_all_items() {
        let mut items: Vec<u64> = (0..100).collect();
        Rng::new(1, 1).shuffle(&mut items);
        assert!(items.iter().enumerate().any(|(at, item)| at as u64 != *item));
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
