//! The maps stress, as the skeleton runs it.

use std::time::Duration;

use super::breaks::Break;
use super::threads::{OTHERS, Role, body};
use super::world::World;
use crate::run::{Rng, Run, Violation};
use crate::skeleton::cleanup::{ProcessSnapshot, drain_values};
use crate::skeleton::run_state::RunState;
use crate::skeleton::supervisor::{Body, SUPERVISOR_STREAM, Supervised, Supervisor};
use crate::skeleton::worker::Worker;
use crate::skeleton::workload::Workload;

/// The stream of random numbers for making the first maps.
const FIRST_STREAM: u64 = SUPERVISOR_STREAM - 5;

pub(crate) struct MapsWorkload(&'static World);

impl MapsWorkload {
    fn role(&self, worker: usize) -> Role {
        worker.checked_sub(self.0.callers).map_or(Role::Calls, |other| OTHERS[other])
    }
}

impl Supervised for MapsWorkload {
    const NAME: &'static str = "maps";

    fn thread(&mut self, worker: usize, rng: Rng) -> Body {
        Box::new(body(self.0, worker, self.role(worker), rng))
    }

    fn describe(&self, worker: usize) -> String {
        format!("worker {worker} ({:?})", self.role(worker))
    }

    fn disturb(&mut self, supervisor: &mut Supervisor) {
        match supervisor.rng.below(512) {
            0..48 => supervisor.move_any(),
            48 => supervisor.pause(),
            49..51 => supervisor.switch_reclaimer(),
            _ => {}
        }
    }
}

impl Workload for MapsWorkload {
    type Break = Break;

    fn new(run: &Run, broken: Option<Break>) -> Result<MapsWorkload, Violation> {
        Ok(MapsWorkload(World::make(broken, run.threads, OTHERS.len())))
    }

    fn run_state(&self) -> &'static RunState {
        self.0.run_state
    }

    fn workers(&self) -> &'static [Worker] {
        &self.0.workers
    }

    fn begin(&mut self, run: &Run) -> Result<(), Violation> {
        self.0.fill(&mut run.rng(FIRST_STREAM));
        Ok(())
    }

    fn check(&mut self, _before: &ProcessSnapshot) -> Result<(), String> {
        let world = self.0;
        world.end();
        world.run_state.violation().map_or(Ok(()), Err)?;
        drain_values(|| world.alive(), "values were not dropped although all maps were destroyed")
    }

    fn report(&self, _elapsed: Duration) -> Vec<(&'static str, u64)> {
        self.0.counts.lines()
    }
}
