//! `lock-mix`: one lock while the length of sections and the number of threads change all the time.

use std::time::Duration;

use super::loads::phases;
use super::play::Step;
use super::rounds::{Phase, Turn};
use super::subjects::Contender;
use super::work::Turns;

/// Length of a phase.
const LENGTH: Duration = Duration::from_millis(40);
/// Passes through all phases in a turn, in a full and in a quick run.
const PASSES: (usize, usize) = (2, 1);

/// Load of each lock.
pub(super) struct Script {
    steps: Vec<Step>,
    passes: usize,
}

impl Script {
    pub(super) fn new(quick: bool) -> Script {
        let steps = phases(Turns::lasting).into_iter().map(|load| Step { load, length: LENGTH }).collect();
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
