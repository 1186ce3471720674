//! Writers: they replace blocks, and age removed blocks by one grace period at a time, in every possible way.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use squall_machine::{VpSet, machine};
use squall_rcu::{
    Marker, MarkerState, RunOn, WaitError, barrier, quiescent_do, reclaim, wait, wait_expedited, wait_until,
};

use super::breaks::Break;
use super::calls::{BatchCount, FLOOD_CALLS, defer_aging, expect_all, flood};
use super::leaf::Leaf;
use super::world::{Removed, World, any_place};
use crate::run::{Rng, lock};
use crate::skeleton::delay::delay;
use crate::skeleton::expected_panic::raise_expected_panic;

/// A way to a grace period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Wait,
    Expedited,
    Until,
    MarkerPolled,
    MarkerWaited,
    MarkerLater,
    Deferred,
    Reclaimed,
    Barrier,
    Each,
    Any,
    Flood,
}

pub(super) const ALL_WAYS: [(Way, &str); WAYS] = [
    (Way::Wait, "by wait"),
    (Way::Expedited, "by wait_expedited"),
    (Way::Until, "by wait_until"),
    (Way::MarkerPolled, "by a marker polled"),
    (Way::MarkerWaited, "by a marker waited for"),
    (Way::MarkerLater, "by a marker kept"),
    (Way::Deferred, "by deferred calls"),
    (Way::Reclaimed, "by reclaim"),
    (Way::Barrier, "by barrier"),
    (Way::Each, "by quiescent-do, each"),
    (Way::Any, "by quiescent-do, any"),
    (Way::Flood, "floods of calls"),
];
pub(super) const WAYS: usize = 12;

/// Number of removed blocks that a writer keeps before it insists on a grace period.
const HAND_MAX: usize = 48;
/// Maximum number of consecutive expedited grace periods.
const HURRIES_MAX: u64 = 64;
/// Number of polls before the thread sleeps between two.
const LOOKS: u32 = 64;
const LOOK_SLEEP: Duration = Duration::from_micros(200);

pub(super) struct Writer<'a> {
    pub(super) world: &'static World,
    pub(super) rng: &'a mut Rng,
    pub(super) hand: &'a mut Vec<Removed>,
    pub(super) later: &'a mut Vec<(Marker, Removed)>,
}

/// One quiescent-do, as its function sees it.
struct Job {
    world: &'static World,
    vps: VpSet,
    runs_due: usize,
    panics: bool,
    state: Mutex<JobState>,
}

#[derive(Default)]
struct JobState {
    removed: Vec<Removed>,
    runs: usize,
}

impl Writer<'_> {
    /// Removes some blocks and ages all own blocks in one random way.
    pub(super) fn step(&mut self) {
        for _ in 0..1 + self.rng.below(6) {
            self.replace();
        }
        let spare = HAND_MAX.saturating_sub(self.hand.len());
        self.hand.extend(self.world.pick_up(spare));
        if self.world.breaks(Break::LoseBlock, 8, self.rng) {
            self.hand.truncate(self.hand.len().saturating_sub(1));
        }
        if self.rng.one_in(4) {
            delay(self.rng);
        }
        self.meet_later();
        if self.rng.one_in(8) && self.world.ways_chosen.load(Ordering::Relaxed) > WAYS {
            let hurried = self.hurry();
            self.allow(hurried);
            return;
        }
        let way = self.choose();
        let gone = self.go(way);
        if self.allow(gone) {
            self.world.ways[way as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns a random way. The first choices of a run are one of each, so that no run omits one.
    fn choose(&mut self) -> Way {
        let first = self.world.ways_chosen.fetch_add(1, Ordering::Relaxed);
        if let Some((way, _)) = ALL_WAYS.get(first) {
            return *way;
        }
        match self.rng.below(128) {
            0..20 => Way::Wait,
            20..40 => Way::Expedited,
            40..54 => Way::Until,
            54..68 => Way::MarkerPolled,
            68..78 => Way::MarkerWaited,
            78..90 => Way::MarkerLater,
            90..108 => Way::Deferred,
            108..112 => Way::Reclaimed,
            112..118 => Way::Barrier,
            118..122 => Way::Each,
            122..127 => Way::Any,
            _ => Way::Flood,
        }
    }

    fn replace(&mut self) {
        if let Some(removed) = self.world.replace(any_place(self.rng)) {
            self.hand.push(removed);
        }
        if self.rng.one_in(4) {
            let n = self.rng.next();
            match n % 8 {
                0 => self.world.leaf.update(|_| Leaf::new(n)),
                1..5 => self.world.leaf.replace(Box::new(Leaf::new(n))),
                _ => self.world.words.replace(Box::new([n; 4])),
            }
        }
    }

    /// Checks that no error occurred outside operations and deferred calls.
    fn allow(&self, outcome: Result<(), WaitError>) -> bool {
        if let Err(error) = outcome {
            self.world.run_state.fail(format!("waiting outside every operation failed: {error}"));
        }
        outcome.is_ok()
    }

    fn go(&mut self, way: Way) -> Result<(), WaitError> {
        let waits = matches!(way, Way::Wait | Way::Expedited | Way::MarkerPolled);
        if waits && self.world.breaks(Break::SkipWait, 16, self.rng) {
            self.hand_grows_older();
            return Ok(());
        }
        match way {
            Way::Wait => wait()?,
            Way::Expedited => wait_expedited()?,
            Way::Until => self.until(wait_until)?,
            Way::MarkerPolled => self.poll_marker()?,
            Way::MarkerWaited => {
                let marker = Marker::set();
                self.until(|deadline| marker.wait_until(deadline))?;
            }
            Way::MarkerLater => {
                let marker = Marker::set();
                self.later.extend(self.hand.drain(..).map(|removed| (marker, removed)));
                return Ok(());
            }
            Way::Deferred => {
                self.defer_hand();
                return Ok(());
            }
            Way::Reclaimed => return self.reclaim_hand(),
            Way::Barrier => return self.barrier_hand(),
            Way::Each => return self.quiescent(RunOn::Each),
            Way::Any => return self.quiescent(RunOn::Any),
            Way::Flood => return self.flood(),
        }
        self.hand_grows_older();
        Ok(())
    }

    /// Requests one expedited grace period after another, each as soon as a block was removed.
    fn hurry(&mut self) -> Result<(), WaitError> {
        for _ in 0..self.rng.below(HURRIES_MAX) {
            let Some(removed) = self.world.replace(any_place(self.rng)) else { return Ok(()) };
            wait_expedited()?;
            self.hand.extend(self.world.grow_older(removed));
        }
        Ok(())
    }

    fn hand_grows_older(&mut self) {
        let world = self.world;
        let older: Vec<_> = self.hand.drain(..).filter_map(|removed| world.grow_older(removed)).collect();
        self.hand.extend(older);
    }

    /// Waits with a short deadline first, and longer ones after each timeout.
    fn until(&mut self, mut wait: impl FnMut(Instant) -> Result<(), WaitError>) -> Result<(), WaitError> {
        let mut limit = Duration::from_micros(self.rng.below(200));
        loop {
            match wait(Instant::now() + limit) {
                Err(WaitError::Timeout) => {
                    self.world.timeouts.fetch_add(1, Ordering::Relaxed);
                    limit = 2 * limit + Duration::from_micros(1);
                }
                other => return other,
            }
        }
    }

    fn poll_marker(&mut self) -> Result<(), WaitError> {
        let marker = Marker::set();
        let mut looks = 0;
        while marker.check() == MarkerState::Active && marker.update_and_check()? == MarkerState::Active {
            rest(&mut looks);
        }
        // An elapsed marker stays elapsed, and so does every earlier marker.
        let again = marker.update_and_check()?;
        if again != MarkerState::Elapsed {
            self.world.run_state.fail(format!("an elapsed marker is {again:?} later"));
        }
        Ok(())
    }

    /// Ages the blocks whose marker has elapsed meanwhile.
    fn meet_later(&mut self) {
        let latest =
            self.later.iter().filter(|(m, _)| m.check() == MarkerState::Elapsed).map(|(m, _)| *m).max();
        let world = self.world;
        for (marker, removed) in self.later.extract_if(.., |(marker, _)| Some(*marker) <= latest) {
            if marker.check() != MarkerState::Elapsed {
                world.run_state.fail("a marker is active although a later one has elapsed".to_owned());
            }
            self.hand.extend(world.grow_older(removed));
        }
        if self.later.len() > HAND_MAX {
            let waited =
                self.later.iter().map(|(marker, _)| *marker).max().map_or(Ok(()), |marker| marker.wait());
            self.allow(waited);
        }
    }

    pub(super) fn defer_hand(&mut self) -> (BatchCount, u64) {
        let done = BatchCount::default();
        let count = self.hand.len() as u64;
        for removed in self.hand.drain(..) {
            defer_aging(self.world, removed, self.rng.next(), &done);
        }
        (done, count)
    }

    fn barrier_hand(&mut self) -> Result<(), WaitError> {
        let (done, count) = self.defer_hand();
        barrier()?;
        expect_all(self.world, &done, count);
        Ok(())
    }

    /// Checks that deferred calls run for a thread that only reclaims and never waits.
    fn reclaim_hand(&mut self) -> Result<(), WaitError> {
        let (done, count) = self.defer_hand();
        let mut looks = 0;
        // Acquire: pairs with the release in `Call::run`.
        while done.load(Ordering::Acquire) < count && !self.world.run_state.is_stopped() {
            reclaim()?;
            rest(&mut looks);
        }
        Ok(())
    }

    fn flood(&mut self) -> Result<(), WaitError> {
        let done = BatchCount::default();
        flood(self.world, FLOOD_CALLS, &done, || self.rng.next());
        if self.rng.one_in(2) {
            barrier()?;
            expect_all(self.world, &done, FLOOD_CALLS);
        }
        Ok(())
    }

    fn quiescent(&mut self, how: RunOn) -> Result<(), WaitError> {
        let mut vps: VpSet = machine().vps().iter().filter(|_| self.rng.one_in(2)).collect();
        if vps.is_empty() {
            vps = machine().vps().clone();
        }
        let runs_due = if how == RunOn::Each { vps.len() } else { 1 };
        let state = JobState { removed: self.hand.drain(..).collect(), runs: 0 };
        let panics = self.rng.one_in(16);
        let job = Arc::new(Job { world: self.world, vps, runs_due, panics, state: Mutex::new(state) });
        let run = job.clone();
        let pending = quiescent_do(&job.vps, how, move |vp| run.run(vp))?;
        let mut looks = 0;
        match self.rng.below(4) {
            0 => return Ok(()),
            1 => {
                while pending.poll().is_none() && looks < 4 * LOOKS {
                    rest(&mut looks);
                }
            }
            _ => {}
        }
        let outcome = pending.wait()?;
        let runs = lock(&job.state).runs;
        let panicked = if panics { runs_due } else { 0 };
        if runs != runs_due || outcome.placed + outcome.displaced != runs || outcome.panicked != panicked {
            self.world.run_state.fail(format!(
                "a finished quiescent-do ran {runs} of {runs_due} times, with {panicked} planned panics, but reports \
                 {outcome:?}"
            ));
        }
        Ok(())
    }
}

impl Job {
    fn run(&self, vp: squall_machine::Vp) {
        let mut state = lock(&self.state);
        state.runs += 1;
        if state.runs > self.runs_due || !self.vps.contains(vp) {
            self.world.run_state.fail(format!(
                "quiescent-do ran its function too often, or on {vp}, which was not requested"
            ));
        }
        if squall_rcu::in_operation() {
            self.world.run_state.fail("quiescent-do runs its function inside an operation".to_owned());
        }
        let removed = std::mem::take(&mut state.removed);
        drop(state);
        // All runs come after the grace period.
        self.world.give(removed.into_iter().filter_map(|removed| self.world.grow_older(removed)));
        if self.panics {
            raise_expected_panic();
        }
    }
}

/// Yields or sleeps between two polls.
fn rest(looks: &mut u32) {
    *looks += 1;
    if *looks < LOOKS { thread::yield_now() } else { thread::sleep(LOOK_SLEEP) }
}
