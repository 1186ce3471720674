//! A counter and the additions made to it.
//!
//! Problem: threads add and ask for sums at the same time, so a sum has no single right value. Idea: each
//! thread records an addition in its own lane, before it begins and after it is done. A sum lies between the
//! additions done before it and those begun until it ended. Without concurrent additions both are equal.
//!
//! - I1. A lane is written by the threads of one worker, which follow each other.
//! - I2. While the drain lock is closed, no thread adds (`lifecycle/I2`).

use std::sync::atomic::{AtomicU64, Ordering, fence};

use squall::objects::counter::Counter;
use squall::{CallError, Handle, Id};

use super::breaks::Break;
use super::counts::{Stat, count, count_many};
use super::world::World;
use crate::run::Rng;
use crate::skeleton::lifecycle::{DrainLock, Lifecycle};

/// With the planned break, one addition in this many goes wrong.
const BREAK_ONE_IN: u64 = 4096;

/// The additions of one worker, on cache lines of their own.
#[derive(Default)]
#[repr(align(128))]
struct Lane {
    begun: AtomicU64,
    done: AtomicU64,
    /// The last sum that the worker's threads saw.
    told: AtomicU64,
}

pub(super) struct TrackedCounter {
    world: &'static World,
    pub(super) serial: u64,
    pub(super) handle: Handle<dyn Counter>,
    lanes: Box<[Lane]>,
    drain_lock: DrainLock,
    pub(super) lifecycle: Lifecycle,
    /// The shortest cool-down that the counter ever had, in microseconds.
    pub(super) cooldown_us: AtomicU64,
}

impl TrackedCounter {
    pub(super) fn open(
        world: &'static World,
        serial: u64,
        handle: Handle<dyn Counter>,
        cooldown_us: u64,
    ) -> TrackedCounter {
        TrackedCounter {
            world,
            serial,
            handle,
            lanes: (0..world.workers.len()).map(|_| Lane::default()).collect(),
            drain_lock: DrainLock::new(world.workers.len()),
            lifecycle: Lifecycle::default(),
            cooldown_us: AtomicU64::new(cooldown_us),
        }
    }

    pub(super) fn id(&self) -> Id {
        Handle::id(self.handle)
    }

    fn fail(&self, what: String) {
        self.world.run_state.fail(format!("counter #{}, {}: {what}", self.serial, self.id()));
    }

    /// Checks an error of a call.
    fn erred(&self, error: &CallError) {
        count(Stat::Stale);
        if !self.lifecycle.is_ending() {
            self.fail(format!("a call failed although no thread is destroying the counter: {error}"));
        }
    }

    /// Adds to the counter. The caller is inside the drain lock.
    pub(super) fn add(&self, lane: usize, n: u64, rng: &mut Rng) -> Result<(), ()> {
        let lane = &self.lanes[lane];
        let mut goes_wrong = |how| self.world.breaks(how, BREAK_ONE_IN, rng);
        lane.begun.store(lane.begun.load(Ordering::Relaxed) + n, Ordering::Relaxed);
        // Release: pairs with the acquire in `total`: a thread that sees the addition sees that it was begun.
        fence(Ordering::Release);
        let gone = self.lifecycle.is_destroyed();
        let answer = if goes_wrong(Break::LoseAdd) { Ok(()) } else { self.handle.try_add(n) };
        if goes_wrong(Break::DoubleAdd) {
            let _ = self.handle.try_add(n);
        }
        match answer {
            Ok(()) if gone => {
                self.fail("an addition succeeded after destroy had returned".to_owned());
                Err(())
            }
            Ok(()) => {
                // Release: pairs with the acquire in `total`: a thread that sees that it is done finds it in
                // the sum.
                lane.done.store(lane.done.load(Ordering::Relaxed) + n, Ordering::Release);
                Ok(())
            }
            Err(error) => {
                self.erred(&error);
                Err(())
            }
        }
    }

    fn sum(&self, word: impl Fn(&Lane) -> &AtomicU64) -> u64 {
        // Acquire: pairs with the release in `add`.
        self.lanes.iter().map(|lane| word(lane).load(Ordering::Acquire)).sum()
    }

    /// Asks for the sum and checks it. The caller is inside the drain lock.
    pub(super) fn total(&self, lane: usize) -> Result<(), ()> {
        let done = self.sum(|lane| &lane.done);
        let total = self.handle.try_total().map_err(|error| self.erred(&error))?;
        // Acquire: pairs with the release fence in `add`: every addition in the sum was begun.
        fence(Ordering::Acquire);
        let begun = self.sum(|lane| &lane.begun);
        if !(done..=begun).contains(&total) {
            self.fail(format!(
                "its sum is {total}, outside {done} (added before the read) to {begun} (begun before its end)"
            ));
        }
        let told = &self.lanes[lane].told;
        let before = told.load(Ordering::Relaxed);
        if total < before {
            self.fail(format!("its sum is {total}, although the same thread read {before} earlier"));
        }
        told.store(total, Ordering::Relaxed);
        Ok(())
    }

    /// Drains the callers and checks that the sum equals the additions.
    pub(super) fn close(&self) {
        if self.drain_lock.close(self.world.run_state) {
            self.compare("with no addition under way");
        }
    }

    pub(super) fn reopen(&self) {
        self.drain_lock.open();
    }

    /// Compares the sum with the additions. No thread may add meanwhile.
    pub(super) fn compare(&self, when: &str) {
        let (done, begun) = (self.sum(|lane| &lane.done), self.sum(|lane| &lane.begun));
        match self.handle.try_total() {
            Ok(total) if total == done && total == begun => count(Stat::Exact),
            Ok(total) => {
                self.fail(format!("its sum is {total} {when}, but {done} were added and {begun} begun"))
            }
            Err(error) => self.erred(&error),
        }
    }

    /// Makes `times` additions.
    pub(super) fn add_many(&self, lane: usize, times: u64, rng: &mut Rng) {
        self.drain_lock.pass(lane, || {
            let made = (0..times).take_while(|_| self.add(lane, 1 + rng.below(3), rng).is_ok()).count();
            count_many(Stat::Adds, made as u64);
        });
    }

    /// Makes one addition and asks for `times` sums.
    pub(super) fn ask_many(&self, lane: usize, times: u64, rng: &mut Rng) {
        self.drain_lock.pass(lane, || {
            if self.add(lane, 1, rng).is_ok() {
                count(Stat::Adds);
                let told = (0..times).take_while(|_| self.total(lane).is_ok()).count();
                count_many(Stat::Totals, told as u64);
            }
        });
    }
}
