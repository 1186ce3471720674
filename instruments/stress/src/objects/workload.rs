//! The objects stress, as the skeleton runs it. The supervisor destroys objects, which also wakes their
//! sleepers.

use std::sync::atomic::Ordering;
use std::time::Duration;

use squall::tables;

use super::breaks::Break;
use super::classes::CLASSES;
use super::owner;
use super::threads::body;
use super::world::{World, make};
use crate::run::{Rng, Run, Violation};
use crate::skeleton::cleanup::ProcessSnapshot;
use crate::skeleton::run_state::RunState;
use crate::skeleton::supervisor::{Body, SUPERVISOR_STREAM, Supervised, Supervisor};
use crate::skeleton::worker::Worker;
use crate::skeleton::workload::Workload;

/// The stream of random numbers for destroying the objects at the end.
const END_STREAM: u64 = SUPERVISOR_STREAM - 1;

pub(crate) struct ObjectsWorkload(&'static World);

impl Supervised for ObjectsWorkload {
    const NAME: &'static str = "objects";

    fn thread(&mut self, worker: usize, rng: Rng) -> Body {
        Box::new(body(self.0, worker, rng))
    }

    fn disturb(&mut self, supervisor: &mut Supervisor) {
        match supervisor.rng.below(512) {
            0..96 => supervisor.move_any(),
            96..100 => supervisor.pause(),
            100..103 => supervisor.switch_reclaimer(),
            // All other threads may be asleep in methods by now.
            103..200 => owner::destroy_any(self.0, &mut supervisor.rng),
            _ => {}
        }
    }

    /// Destroys the objects in all vaults, because a thread may sleep in one.
    fn unblock(&mut self, supervisor: &Supervisor) {
        let ObjectsWorkload(world) = self;
        let mut rng = Rng::new(supervisor.seed, END_STREAM);
        for slot in world.board.slots() {
            if let Some(held) = world.board.take(slot, None) {
                owner::end(world, &mut rng, held);
            }
        }
    }
}

impl Workload for ObjectsWorkload {
    type Break = Break;

    fn new(run: &Run, broken: Option<Break>) -> Result<ObjectsWorkload, Violation> {
        Ok(ObjectsWorkload(make(broken, run.threads, CLASSES)))
    }

    fn run_state(&self) -> &'static RunState {
        self.0.run_state
    }

    fn workers(&self) -> &'static [Worker] {
        &self.0.workers
    }

    fn check(&mut self, before: &ProcessSnapshot) -> Result<(), String> {
        let ObjectsWorkload(world) = self;
        let release = || world.board.slots().for_each(|slot| world.board.wipe(slot));
        before.drain(world.run_state, release, || world.ledger.left())?;
        before.check_failures(world.drop_panics.load(Ordering::Relaxed))
    }

    fn report(&self, _elapsed: Duration) -> Vec<(&'static str, u64)> {
        let mut lines = self.0.counts.lines();
        lines.extend([
            ("drops that panicked", self.0.drop_panics.load(Ordering::Relaxed)),
            ("slots ever used", tables::stats().slots_count as u64),
        ]);
        lines
    }
}
