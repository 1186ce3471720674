//! `lock`: one load for a whole slice.

use std::time::Duration;

use super::play::{Load, Step, Stepped};
use super::rounds::Turn;
use super::subjects::Contender;
use super::work::Turns;
use crate::case::{PLAIN, Variant};

pub(super) const VARIANTS: &[Variant] = &[
    variant("free", "one thread, nobody else wants the lock, and nothing is done inside", 1),
    variant("50ns-2t", "two threads, 50 ns of work inside and as much outside", 2),
    variant("50ns-8t", "eight threads, 50 ns of work inside and as much outside", 8),
    variant("2us-2t", "two threads, 2 us of work inside and as much outside", 2),
    variant("2us-8t", "eight threads, 2 us of work inside and as much outside", 8),
    variant("2us-nothing-outside-8t", "eight threads, 2 us of work inside and none outside", 8),
];

const fn variant(name: &'static str, about: &'static str, threads: usize) -> Variant {
    Variant { name, about, threads: Some(threads), ..PLAIN }
}

/// Unmeasured time until the load is steady, and the slice, in a full and in a quick run.
const WARM: (Duration, Duration) = (Duration::from_millis(40), Duration::from_millis(20));
const SLICE: (Duration, Duration) = (Duration::from_millis(160), Duration::from_millis(100));
/// Before the first round each lock has the load for this long, so that adaptive locks can adapt.
const FIRST: Duration = Duration::from_millis(400);

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

/// Load of each lock.
pub(super) struct Script {
    load: Load,
    quick: bool,
}

impl Script {
    pub(super) fn new(shape: Shape, quick: bool) -> Script {
        Script { load: shape.load(Turns::lasting), quick }
    }

    fn step(&self, length: Duration) -> Step {
        Step { load: self.load, length }
    }
}

impl super::rounds::Script for Script {
    fn first(&self, lock: &dyn Contender) -> Result<(), String> {
        lock.play(&[self.step(FIRST)]).map(drop)
    }

    fn turn(&self, lock: &dyn Contender) -> Result<Turn, String> {
        let of_run = |(full, quick)| if self.quick { quick } else { full };
        let mut stepped: Vec<Stepped> = lock.play(&[self.step(of_run(WARM)), self.step(of_run(SLICE))])?;
        Ok(Turn { phases: stepped.drain(1..).map(|step| super::rounds::Phase::of(&[step])).collect() })
    }
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
}
