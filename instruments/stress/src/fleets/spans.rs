//! Sets of call numbers. Numbers of calls follow each other, so a set is a few spans.

use std::collections::BTreeMap;

/// A set of numbers, as spans from a first to a last number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spans(BTreeMap<u64, u64>);

impl Spans {
    /// Adds a number. Returns false if the set had it.
    pub(crate) fn add(&mut self, number: u64) -> bool {
        if self.has(number) {
            return false;
        }
        let mut first = number;
        if let Some((&start, &last)) = self.0.range(..number).next_back()
            && last + 1 == number
        {
            first = start;
        }
        let last = number.checked_add(1).and_then(|next| self.0.remove(&next)).unwrap_or(number);
        self.0.insert(first, last);
        true
    }

    pub(crate) fn has(&self, number: u64) -> bool {
        self.0.range(..=number).next_back().is_some_and(|(_, last)| *last >= number)
    }

    pub(super) fn count(&self) -> u64 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.0.iter().flat_map(|(first, last)| *first..=*last)
    }

    /// Returns the spans.
    pub(super) fn parts(&self) -> impl ExactSizeIterator<Item = (u64, u64)> {
        self.0.iter().map(|(first, last)| (*first, *last))
    }

    /// Makes a set of the spans that `parts` returned.
    pub(super) fn from_parts(parts: impl Iterator<Item = (u64, u64)>) -> Spans {
        Spans(parts.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Rng;

    #[test]
    fn a_set_of_spans_is_a_set() {
        let (mut spans, mut rng) = (Spans::default(), Rng::new(5, 0));
        let mut set = std::collections::BTreeSet::new();
        for _ in 0..400 {
            let number = rng.below(300);
            assert_eq!(spans.add(number), set.insert(number));
        }
        assert!(spans.numbers().eq(set.iter().copied()));
        assert!((0..300).all(|number| spans.has(number) == set.contains(&number)));
        assert_eq!(spans.count(), set.len() as u64);
        assert!(spans.parts().len() < set.len());
        assert_eq!(Spans::from_parts(spans.parts()), spans);
    }

    #[test]
    fn the_largest_number_is_one() {
        let mut spans = Spans::default();
        assert!(spans.add(u64::MAX) && spans.add(u64::MAX - 1) && !spans.add(u64::MAX));
        assert_eq!(spans.count(), 2);
    }
}
