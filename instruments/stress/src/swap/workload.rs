//! The swap stress, as the skeleton runs it.

use std::time::Duration;

use super::breaks::Break;
use super::counts::Stat;
use super::threads::{Role, activity, body};
use super::world::World;
use crate::run::{Rng, Run, Violation};
use crate::skeleton::cleanup::ProcessSnapshot;
use crate::skeleton::run_state::RunState;
use crate::skeleton::supervisor::{Body, SUPERVISOR_STREAM, Supervised, Supervisor};
use crate::skeleton::worker::Worker;
use crate::skeleton::workload::Workload;

/// Number of swapping threads. One more disturbs the objects, and the others call.
const SWAPPERS: usize = 2;
const OTHERS: usize = SWAPPERS + 1;
/// The stream of random numbers for making the first objects.
const FIRST_STREAM: u64 = SUPERVISOR_STREAM - 2;

pub(crate) struct SwapWorkload(&'static World);

impl SwapWorkload {
    fn role(&self, worker: usize) -> Role {
        match self.0.workers.len() - worker {
            1 => Role::Disturbs,
            2..=OTHERS => Role::Swaps,
            _ => Role::Calls,
        }
    }
}

impl Supervised for SwapWorkload {
    const NAME: &'static str = "swap";

    fn thread(&mut self, worker: usize, rng: Rng) -> Body {
        Box::new(body(self.0, worker, self.role(worker), rng))
    }

    fn activity(&self) -> String {
        let describe = |worker| format!("{worker} {:?}: {}", self.role(worker), activity(self.0, worker));
        let described: Vec<String> = (0..self.0.workers.len()).map(describe).collect();
        format!("; {}", described.join("; "))
    }

    fn disturb(&mut self, supervisor: &mut Supervisor) {
        match supervisor.rng.below(512) {
            0..64 => supervisor.move_any(),
            64..66 => supervisor.pause(),
            66..69 => supervisor.switch_reclaimer(),
            _ => {}
        }
    }

    /// Destroys all objects, because a thread may sleep in one.
    fn unblock(&mut self, _supervisor: &Supervisor) {
        self.0.last.cancel();
        self.0.end();
    }
}

impl Workload for SwapWorkload {
    type Break = Break;

    fn new(run: &Run, broken: Option<Break>) -> Result<SwapWorkload, Violation> {
        Ok(SwapWorkload(World::make(broken, run.threads + OTHERS)))
    }

    fn run_state(&self) -> &'static RunState {
        self.0.run_state
    }

    fn workers(&self) -> &'static [Worker] {
        &self.0.workers
    }

    fn begin(&mut self, run: &Run) -> Result<(), Violation> {
        self.0.begin(&mut run.rng(FIRST_STREAM));
        Ok(())
    }

    fn check(&mut self, before: &ProcessSnapshot) -> Result<(), String> {
        let world = self.0;
        before.drain(world.run_state, || world.end(), || world.left())?;
        before.check_failures(0)?;
        world.compare_arbiters()
    }

    fn report(&self, elapsed: Duration) -> Vec<(&'static str, u64)> {
        let world = self.0;
        let mut lines = world.counts.lines();
        lines.extend(world.times.lines());
        let rate = |stat| (world.counts.of(stat) as f64 / elapsed.as_secs_f64().max(0.001)) as u64;
        let undisturbed = world.counts.of(Stat::Undisturbed).max(1);
        lines.extend([
            ("calls per second", rate(Stat::Calls)),
            ("swaps per second", rate(Stat::Swapped)),
            ("timed out per million", world.counts.of(Stat::UndisturbedTimedOut) * 1_000_000 / undisturbed),
        ]);
        lines
    }
}
