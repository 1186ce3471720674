//! The loads of the variants of `lock`, and of the phases of `lock-mix`.

use std::time::Duration;

use super::play::Load;
use super::work::Turns;
use crate::case::{PLAIN, Variant};

pub(super) const VARIANTS: &[Variant] = &[
    variant("free", "one thread, uncontended, with an empty section", 1),
    variant("50ns-2t", "two threads, 50 ns of work inside and 50 ns outside", 2),
    variant("50ns-8t", "eight threads, 50 ns of work inside and 50 ns outside", 8),
    variant("2us-2t", "two threads, 2 us of work inside and 2 us outside", 2),
    variant("2us-8t", "eight threads, 2 us of work inside and 2 us outside", 8),
    variant("2us-nothing-outside-8t", "eight threads, 2 us of work inside and no work outside", 8),
];

const fn variant(name: &'static str, about: &'static str, threads: usize) -> Variant {
    Variant { name, about, threads: Some(threads), ..PLAIN }
}

/// Meaning of a variant's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    threads: usize,
    inside: Duration,
    outside: Duration,
}

impl Shape {
    /// `None` if the variant does not belong to this case.
    pub(super) fn of(variant: &str) -> Option<Shape> {
        let shape = |threads, ns, outside_ns| Shape {
            threads,
            inside: Duration::from_nanos(ns),
            outside: Duration::from_nanos(outside_ns),
        };
        match variant {
            "free" => Some(shape(1, 0, 0)),
            "50ns-2t" => Some(shape(2, 50, 50)),
            "50ns-8t" => Some(shape(8, 50, 50)),
            "2us-2t" => Some(shape(2, 2_000, 2_000)),
            "2us-8t" => Some(shape(8, 2_000, 2_000)),
            "2us-nothing-outside-8t" => Some(shape(8, 2_000, 0)),
            _ => None,
        }
    }

    pub(super) fn load(self, turns: fn(Duration) -> Turns) -> Load {
        Load { threads: self.threads, inside: turns(self.inside), outside: turns(self.outside) }
    }
}

/// The threads of the largest phase.
pub(super) const THREADS: usize = 8;

/// A phase's name, the length of its sections in nanoseconds, and its threads.
type Phasing = (&'static str, u64, usize);

/// Each length with each number of threads; both change from one phase to the next.
pub(super) const PHASES: [Phasing; 9] = [
    ("50ns-1t", 50, 1),
    ("2us-8t", 2_000, 8),
    ("50ns-2t", 50, 2),
    ("20us-1t", 20_000, 1),
    ("50ns-8t", 50, 8),
    ("2us-2t", 2_000, 2),
    ("20us-8t", 20_000, 8),
    ("2us-1t", 2_000, 1),
    ("20us-2t", 20_000, 2),
];

fn load((_, ns, threads): Phasing, turns: fn(Duration) -> Turns) -> Load {
    let length = turns(Duration::from_nanos(ns));
    Load { threads, inside: length, outside: length }
}

/// The load of each phase.
pub(super) fn phases(turns: fn(Duration) -> Turns) -> Vec<Load> {
    PHASES.iter().map(|phase| load(*phase, turns)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_variant_has_the_shape_of_its_name() {
        for variant in VARIANTS {
            let shape = Shape::of(variant.name).expect(variant.name);
            assert_eq!(variant.threads, Some(shape.threads), "{}", variant.name);
            assert!(shape.outside == shape.inside || shape.outside.is_zero());
        }
        assert_eq!(Shape::of(""), None);
    }

    #[test]
    fn length_and_threads_change_in_each_phase() {
        let next = PHASES.iter().cycle().skip(1);
        assert!(PHASES.iter().zip(next).all(|(now, next)| now.1 != next.1 && now.2 != next.2));
        assert_eq!(PHASES.iter().map(|phase| phase.2).max(), Some(THREADS));
    }
}
