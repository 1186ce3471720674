//! The threads of the stress: each goes from lock to lock, requests it in random ways, and ends, sometimes
//! after a failed wait.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use squall::lock::Cancel;

use super::breaks::Break;
use super::counts::{Stat, count};
use super::disturbed;
use super::lock_types::{Attempt, Outcome, any_waiting};
use super::slots::Limit;
use super::world::{AnyLock, World};
use crate::run::Rng;
use crate::skeleton::delay::delay;
use crate::skeleton::expected_panic::raise_expected_panic;
use crate::skeleton::lifetime::run_thread;
use crate::skeleton::placement::switch_vp;

/// A thread runs at most two to this power steps.
const STEPS_LOG: u64 = 11;
/// Maximum time until a deadline, in microseconds.
const PATIENCE_US: u64 = 3_000;
/// After a wait that timed out or was cancelled, one thread in this many dies.
const DIES_ONE_IN: u64 = 64;
const MEDDLES_ONE_IN: u64 = 8;
/// One visit of a reader-writer lock in this many writes.
const WRITES_ONE_IN: u64 = 6;

/// One thread of the stress.
pub(super) struct LockThread {
    pub(super) world: &'static World,
    pub(super) worker: usize,
    pub(super) rng: Rng,
    /// Finished sections per place.
    pub(super) reported: Vec<u64>,
}

/// Returns the body of a thread at a worker.
pub(super) fn body(world: &'static World, worker: usize, rng: Rng) -> impl FnOnce() + Send + 'static {
    let begin = move |rng: &mut Rng| {
        disturbed::seed(rng);
        LockThread { world, worker, rng: Rng::new(rng.next(), 0), reported: vec![0; world.places.len()] }
    };
    let step = |me: &mut LockThread, _: u64, _: &mut Rng| me.step();
    move || run_thread((world.run_state, &world.workers[worker]), STEPS_LOG, rng, begin, step, drop)
}

/// Runs at the end of the thread, also after a panic.
impl Drop for LockThread {
    fn drop(&mut self) {
        self.world.slots[self.worker].wait_no_more();
        self.world.slots[self.worker].stay_out();
        for (place, reported) in self.world.places.iter().zip(&self.reported) {
            place.reported.fetch_add(*reported, Ordering::Relaxed);
        }
        self.world.counts.flush();
    }
}

impl LockThread {
    fn step(&mut self) {
        if self.rng.one_in(64) {
            switch_vp(&mut self.rng);
        }
        let place = self.world.any_place(&mut self.rng);
        self.visit(place, 0);
        delay(&mut self.rng);
    }

    /// Requests a lock in a random way, and runs the section inside.
    pub(super) fn visit(&mut self, place: usize, depth: u32) {
        let world = self.world;
        let Some(_pass) = world.places[place].come() else { return count(Stat::TurnedAway) };
        match &world.places[place].any_lock {
            AnyLock::One(lock) => {
                if self.rng.one_in(MEDDLES_ONE_IN) && lock.meddle(&mut self.rng) {
                    count(Stat::Meddled);
                }
                if depth == 0 && world.breaks(Break::NoLock, 200, &mut self.rng) {
                    return self.stray(place);
                }
                let attempt = self.any_how(lock.can_cancel());
                let enter = |attempt: &Attempt, me: &mut LockThread| {
                    lock.enter(attempt, &mut |word| me.section(place, word, depth))
                };
                self.ask(place, attempt, depth, enter);
            }
            AnyLock::Gate(gate) => self.pass(place, gate),
            AnyLock::Several(lock) => {
                let attempt = self.any_how(false);
                if self.rng.one_in(WRITES_ONE_IN) {
                    let enter = |attempt: &Attempt, me: &mut LockThread| {
                        lock.write(attempt, &mut |word| me.section(place, word, depth))
                    };
                    return self.ask(place, attempt, depth, enter);
                }
                if depth == 0 && world.breaks(Break::StrayReader, 100, &mut self.rng) {
                    let word = world.places[place].sections.ended.load(Ordering::Relaxed);
                    return self.reading(place, word, depth);
                }
                let enter = |attempt: &Attempt, me: &mut LockThread| {
                    lock.read(attempt, &mut |word| me.reading(place, word, depth))
                };
                self.ask(place, attempt, depth, enter);
            }
        }
    }

    fn any_how(&mut self, can_cancel: bool) -> Attempt {
        let kinds = if can_cancel { 18 } else { 12 };
        match self.rng.below(kinds) {
            0..6 => Attempt::Wait,
            6..8 => Attempt::Try,
            8..12 => Attempt::Until(Instant::now() + Duration::from_micros(self.rng.below(PATIENCE_US))),
            12..16 => Attempt::Cancel(Arc::new(Cancel::new())),
            _ => {
                let waiting = self.rng.one_in(2).then(|| any_waiting(&mut self.rng));
                Attempt::As(self.rng.below(5) as i32 - 2, waiting)
            }
        }
    }

    fn ask(
        &mut self,
        place: usize,
        mut attempt: Attempt,
        depth: u32,
        enter: impl FnOnce(&Attempt, &mut LockThread) -> Outcome,
    ) {
        let world = self.world;
        let slot = &world.slots[self.worker];
        // The reported request; the real one may differ with a planned break.
        let said = attempt.clone();
        match &said {
            Attempt::Wait | Attempt::As(..) => slot.wait(place, Limit::None),
            Attempt::Until(_) => slot.wait(place, Limit::Deadline),
            Attempt::Cancel(cancel) => slot.wait_for_cancel(place, cancel),
            Attempt::Try => {}
        }
        if let Attempt::Until(deadline) = &mut attempt {
            if world.breaks(Break::NoDeadline, 4, &mut self.rng) {
                attempt = Attempt::Wait;
            } else if world.breaks(Break::EarlyTimeout, 4, &mut self.rng) {
                *deadline = Instant::now();
            }
        }
        let outcome = enter(&attempt, self);
        slot.wait_no_more();
        self.judge(place, &said, outcome);
        if depth == 0
            && matches!(outcome, Outcome::TimedOut | Outcome::Cancelled)
            && self.rng.one_in(DIES_ONE_IN)
        {
            count(Stat::Deaths);
            raise_expected_panic();
        }
    }

    /// Checks whether the wait may have ended so.
    fn judge(&self, place: usize, attempt: &Attempt, outcome: Outcome) {
        match attempt {
            Attempt::Try => count(Stat::Tries),
            Attempt::Wait => count(Stat::Waits),
            Attempt::As(..) => count(Stat::Prioritized),
            Attempt::Until(_) | Attempt::Cancel(_) => {}
        }
        match (outcome, attempt) {
            (Outcome::Inside | Outcome::Over, _) => {}
            (Outcome::Busy, Attempt::Try) => count(Stat::Busy),
            (Outcome::TimedOut, Attempt::Until(deadline)) if Instant::now() >= *deadline => {
                count(Stat::TimedOut)
            }
            (Outcome::TimedOut, Attempt::Until(_)) => {
                self.world.fail(place, "a wait timed out before its deadline")
            }
            (Outcome::Cancelled, Attempt::Cancel(cancel)) if cancel.is_cancelled() => count(Stat::Cancelled),
            (Outcome::NotRegistered, Attempt::As(..)) => count(Stat::Refused),
            (outcome, _) => self
                .world
                .fail(place, &format!("a wait ended with {outcome:?}, which its kind does not allow")),
        }
    }
}
