//! `lock`: one load for a whole slice.

use std::time::Duration;

use super::loads::Shape;
use super::play::{Load, Step, Stepped};
use super::rounds::Turn;
use super::subjects::Contender;
use super::work::Turns;

/// Unmeasured time until the load is steady, and the slice, in a full and in a quick run.
const WARM: (Duration, Duration) = (Duration::from_millis(40), Duration::from_millis(20));
const SLICE: (Duration, Duration) = (Duration::from_millis(160), Duration::from_millis(100));
/// Before the first round each lock has the load for this long, so that adaptive locks can adapt.
const FIRST: Duration = Duration::from_millis(400);

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
