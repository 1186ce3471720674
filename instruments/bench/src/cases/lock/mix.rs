//! `lock-mix`: one lock while the length of sections and the number of threads change all the time.

use std::time::Duration;

use super::play::{Load, Step};
use super::rounds::{Phase, Turn};
use super::subjects::Contender;
use super::work::Turns;

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
const LENGTH: Duration = Duration::from_millis(40);
/// Passes through all phases in a turn, in a full and in a quick run.
const PASSES: (usize, usize) = (2, 1);

fn load((_, ns, threads): Phasing, turns: fn(Duration) -> Turns) -> Load {
    let length = turns(Duration::from_nanos(ns));
    Load { threads, inside: length, outside: length }
}

pub(super) fn loads(turns: fn(Duration) -> Turns) -> Vec<Load> {
    PHASES.iter().map(|phase| load(*phase, turns)).collect()
}

/// Load of each lock.
pub(super) struct Script {
    steps: Vec<Step>,
    passes: usize,
}

impl Script {
    pub(super) fn new(quick: bool) -> Script {
        let steps = loads(Turns::lasting).into_iter().map(|load| Step { load, length: LENGTH }).collect();
        Script { steps, passes: if quick { PASSES.1 } else { PASSES.0 } }
    }
}

impl super::rounds::Script for Script {
    fn first(&self, lock: &dyn Contender) -> Result<(), String> {
        lock.play(&self.steps).map(drop)
    }

    fn turn(&self, lock: &dyn Contender) -> Result<Turn, String> {
        let stepped = lock.play(&self.steps.repeat(self.passes))?;
        let of_phase = |phase: usize| {
            let passes: Vec<_> = stepped.iter().skip(phase).step_by(self.steps.len()).cloned().collect();
            Phase::of(&passes)
        };
        Ok(Turn { phases: (0..self.steps.len()).map(of_phase).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_change_from_each_phase_to_the_next() {
        let next = PHASES.iter().cycle().skip(1);
        assert!(PHASES.iter().zip(next).all(|(now, next)| now.1 != next.1 && now.2 != next.2));
        assert_eq!(PHASES.iter().map(|phase| phase.2).max(), Some(THREADS));
    }
}
