//! The locks stress, as the skeleton runs it. The supervisor watches the waits, and moves the crowd from lock
//! to lock.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::breaks::Break;
use super::duels::Duels;
use super::lock_types::{Attempt, Outcome};
use super::threads::body;
use super::watch::Watch;
use super::world::{AnyLock, Place, World};
use crate::run::{Rng, Run, Violation};
use crate::skeleton::cleanup::ProcessSnapshot;
use crate::skeleton::run_state::RunState;
use crate::skeleton::supervisor::{Body, Supervised, Supervisor};
use crate::skeleton::worker::Worker;
use crate::skeleton::workload::Workload;

pub(crate) struct LocksWorkload {
    world: &'static World,
    watch: Watch,
    duels: Option<Duels>,
    /// Rounds of all duels, after their end.
    rounds: u64,
}

impl Supervised for LocksWorkload {
    const NAME: &'static str = "locks";

    fn thread(&mut self, worker: usize, rng: Rng) -> Body {
        Box::new(body(self.world, worker, rng))
    }

    fn activity(&self) -> String {
        let waits =
            self.world.slots.iter().enumerate().filter_map(|(worker, slot)| Some((worker, slot.waits()?)));
        let described = waits.map(|(worker, wait)| {
            format!(
                "; worker {worker} waits for {}, {:?}",
                self.world.places[wait.place()].name(),
                wait.limit()
            )
        });
        described.collect()
    }

    fn disturb(&mut self, supervisor: &mut Supervisor) {
        self.watch.look();
        match supervisor.rng.below(256) {
            0..8 => self.world.move_front(&mut supervisor.rng),
            8..40 => supervisor.move_any(),
            40 => supervisor.pause(),
            41..43 => supervisor.switch_reclaimer(),
            _ => {}
        }
    }

    fn unblock(&mut self, _supervisor: &Supervisor) {
        self.watch.look();
    }

    fn has_lost_thread(&self) -> bool {
        self.world.has_lost.load(Ordering::Relaxed)
    }
}

impl Workload for LocksWorkload {
    type Break = Break;

    fn new(run: &Run, broken: Option<Break>) -> Result<LocksWorkload, Violation> {
        let world = World::make(broken, run.threads);
        Ok(LocksWorkload { world, watch: Watch::new(world), duels: None, rounds: 0 })
    }

    fn run_state(&self) -> &'static RunState {
        self.world.run_state
    }

    fn workers(&self) -> &'static [Worker] {
        &self.world.workers
    }

    fn begin(&mut self, run: &Run) -> Result<(), Violation> {
        self.duels = Some(Duels::start(run, self.world)?);
        Ok(())
    }

    fn check(&mut self, _before: &ProcessSnapshot) -> Result<(), String> {
        self.rounds = self.duels.take().map_or(0, |duels| duels.end(self.world));
        self.world.run_state.violation().map_or(Ok(()), Err)?;
        self.world.places.iter().try_for_each(check_place)
    }

    fn report(&self, _elapsed: Duration) -> Vec<(&'static str, u64)> {
        let mut lines = self.world.counts.lines();
        lines.push(("rounds of duels", self.rounds));
        lines
    }
}

/// Checks a lock after all threads have ended (`locks/I4`).
fn check_place(place: &Place) -> Result<(), String> {
    let mut word = None;
    let soon = Instant::now();
    let outcome = match &place.any_lock {
        AnyLock::One(lock) => lock.enter(&Attempt::Until(soon), &mut |counted| word = Some(*counted)),
        AnyLock::Several(lock) => lock.write(&Attempt::Until(soon), &mut |counted| word = Some(*counted)),
        AnyLock::Gate(gate) => {
            return gate.compare().map_err(|what| format!("{}: {what}", gate.name()));
        }
    };
    let reported = place.reported.load(Ordering::Relaxed);
    if outcome != Outcome::Inside {
        return Err(format!("{} is not free although all threads have ended", place.name()));
    }
    if word != Some(reported) {
        return Err(format!(
            "{}: {word:?} sections counted under the lock, but {reported} reported",
            place.name()
        ));
    }
    if let AnyLock::One(lock) = &place.any_lock
        && !lock.is_whole()
    {
        return Err(format!("{}: the bits of its word that belong to the user have changed", place.name()));
    }
    Ok(())
}
