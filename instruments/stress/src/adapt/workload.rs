//! The adaptation stress, as the skeleton runs it. The supervisor changes the loads.

use std::time::{Duration, Instant};

use squall::adapt::engine;
use squall::browse::{Builder, Server};

use super::breaks::Break;
use super::checks;
use super::threads::{OTHERS, Role, body, read_the_log, turn_the_waves};
use super::world::{SEESAW_HALF, WAVE_COOLDOWN, WAVE_HALF, World};
use crate::run::{Rng, Run, Violation, lock};
use crate::skeleton::cleanup::ProcessSnapshot;
use crate::skeleton::run_state::RunState;
use crate::skeleton::supervisor::{Body, SUPERVISOR_STREAM, Supervised, Supervisor};
use crate::skeleton::worker::Worker;
use crate::skeleton::workload::Workload;

/// The stream of random numbers for making the first objects.
const FIRST_STREAM: u64 = SUPERVISOR_STREAM - 3;

pub(crate) struct AdaptWorkload {
    world: &'static World,
    rng: Rng,
    wave: Instant,
    seesaw: Instant,
    /// Start of the span in which swaps of the wave are counted.
    began: Instant,
    server: Option<Server>,
}

impl AdaptWorkload {
    fn role(&self, worker: usize) -> Role {
        worker.checked_sub(self.world.callers).map_or(Role::Calls, |other| OTHERS[other])
    }
}

impl Supervised for AdaptWorkload {
    const NAME: &'static str = "adapt";

    fn thread(&mut self, worker: usize, rng: Rng) -> Body {
        Box::new(body(self.world, worker, self.role(worker), rng))
    }

    fn describe(&self, worker: usize) -> String {
        format!("worker {worker} ({:?})", self.role(worker))
    }

    fn disturb(&mut self, supervisor: &mut Supervisor) {
        let now = Instant::now();
        let (wave, seesaw) = (now - self.wave >= WAVE_HALF, now - self.seesaw >= SEESAW_HALF);
        turn_the_waves(self.world, wave, seesaw);
        if wave {
            self.wave = now;
        }
        if seesaw {
            self.seesaw = now;
        }
        match supervisor.rng.below(512) {
            0..10 => self.world.change(&mut supervisor.rng),
            10..56 => supervisor.move_any(),
            56 => supervisor.pause(),
            57..59 => supervisor.switch_reclaimer(),
            // Without a thread of its own, the engine decides only when it is called.
            59..80 if engine::thread_state() != engine::EngineState::Running => drop(engine::turn()),
            _ => {}
        }
    }
}

impl Workload for AdaptWorkload {
    type Break = Break;

    fn new(run: &Run, broken: Option<Break>) -> Result<AdaptWorkload, Violation> {
        let mut rng = run.rng(FIRST_STREAM);
        let socket = std::env::temp_dir().join(format!("squall-stress-{}.sock", std::process::id()));
        let world = World::make(broken, run.threads, OTHERS.len(), socket, &mut rng);
        let now = Instant::now();
        Ok(AdaptWorkload { world, rng, wave: now, seesaw: now, began: now, server: None })
    }

    fn run_state(&self) -> &'static RunState {
        self.world.run_state
    }

    fn workers(&self) -> &'static [Worker] {
        &self.world.workers
    }

    fn begin(&mut self, _run: &Run) -> Result<(), Violation> {
        let world = self.world;
        self.began = Instant::now();
        world.begin(&mut self.rng);
        match Builder::new().path(&world.socket).serve() {
            Ok(server) => self.server = Some(server),
            Err(error) => {
                world.run_state.fail(format!("{} cannot be served: {error}", world.socket.display()));
            }
        }
        Ok(())
    }

    fn check(&mut self, before: &ProcessSnapshot) -> Result<(), String> {
        let world = self.world;
        self.server = None;
        // The log of the run itself, before any object returns to its first form.
        read_the_log(world);
        world.run_state.violation().map_or(Ok(()), Err)?;
        let of_wave = lock(&world.log).of_wave;
        // The span includes the shut-down, during which the engine may still swap the wave.
        let allowed = 1 + self.began.elapsed().as_secs() / WAVE_COOLDOWN.as_secs();
        if of_wave > allowed {
            return Err(format!(
                "the policy swapped the wave's counter {of_wave} times, but its cool-down allows {allowed}"
            ));
        }
        checks::check(world, before)
    }

    fn report(&self, _elapsed: Duration) -> Vec<(&'static str, u64)> {
        let mut lines = self.world.counts.lines();
        lines.extend(lock(&self.world.log).lines());
        lines
    }
}
