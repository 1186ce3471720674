//! SplitMix64, a small seeded generator for random choices. It gives the same numbers on every machine.

pub(crate) struct Rng(u64);

impl Rng {
    /// Makes the generator of `stream` under `seed`. Different streams are unrelated.
    pub(crate) fn new(seed: u64, stream: u64) -> Rng {
        let mut rng = Rng(seed ^ stream.wrapping_mul(0xD134_2543_DE82_EF95));
        rng.next();
        rng
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number below `n`. `n` must not be zero.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Returns true once in `n` times.
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_and_differ() {
        let take = |seed, stream| {
            let mut rng = Rng::new(seed, stream);
            [rng.next(), rng.next(), rng.next()]
        };
        assert_eq!(take(1, 2), take(1, 2));
        assert_ne!(take(1, 2), take(1, 3));
        assert_ne!(take(1, 2), take(2, 2));
    }

    #[test]
    fn one_in_two_is_about_half() {
        let mut rng = Rng::new(7, 0);
        let hits = (0..10_000).filter(|_| rng.one_in(2)).count();
        assert!((4_500..5_500).contains(&hits), "{hits}");
    }
}
