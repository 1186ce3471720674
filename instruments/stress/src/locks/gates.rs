//! Stress of request counters: requests enter and leave, sometimes on another processor, while other threads
//! stop, restart and shut down the counter.
//!
//! - I1. A thread that has stopped a counter finds no request inside, and none enters before the restart. All
//!   later requests see its changes completely.
//! - I2. A second stop is refused, and so is everything after a shutdown. A shutdown is reported only after
//!   it was requested.
//! - I3. A counter that was shut down is replaced by a new generation. So proxies are made again and again
//!   while other threads enter and stop.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use squall::lock::Steps;
use squall::objects::gate::{self, Gate as _, GateExt};
use squall::parts::gate::{GateError, Limits, LocalRequests, Rejected, SharedGate, ShutDown, SpreadRequests};
use squall::{Handle, Owned};

use super::breaks::Break;
use super::counts::{Stat, count};
use super::disturbed::Disturbed;
use super::slots::{Inside, Limit};
use super::threads::LockThread;
use super::world::SectionCounts;
use crate::run::lock;
use crate::skeleton::delay::delay;
use crate::skeleton::placement::switch_vp;

const CONTROLS_ONE_IN: u64 = 8;
const SHUTS_DOWN_ONE_IN: u64 = 24;
const HOPS_ONE_IN: u64 = 4;
const PATIENCE_US: u64 = 3_000;
const SHORT: Duration = Duration::from_micros(100);

/// A request counter of any form.
pub(super) trait Counter: Send + Sync {
    fn enter(&self) -> Result<(), ShutDown>;
    fn enter_now(&self) -> Result<(), Rejected>;
    fn leave(&self);
    fn stop(&self, limit: Option<Duration>) -> Result<(), GateError>;
    fn restart(&self) -> Result<(), GateError>;
    fn shutdown(&self, limit: Option<Duration>) -> Result<(), GateError>;
    fn inside(&self) -> u64;
}

impl<S: Steps> Counter for SharedGate<S>
where
    SharedGate<S>: Send + Sync,
{
    fn enter(&self) -> Result<(), ShutDown> {
        self.enter()
    }
    fn enter_now(&self) -> Result<(), Rejected> {
        self.try_enter()
    }
    fn leave(&self) {
        self.leave();
    }
    fn stop(&self, limit: Option<Duration>) -> Result<(), GateError> {
        limit.map_or_else(|| self.stop(), |limit| self.stop_for(limit))
    }
    fn restart(&self) -> Result<(), GateError> {
        self.restart()
    }
    fn shutdown(&self, limit: Option<Duration>) -> Result<(), GateError> {
        limit.map_or_else(|| self.shutdown(), |limit| self.shutdown_for(limit))
    }
    fn inside(&self) -> u64 {
        self.inside()
    }
}

/// The spread form with delayed steps. Each caller uses its own counts.
struct Spread(SpreadRequests<AtomicU64, Disturbed>);

impl Spread {
    fn local(&self) -> LocalRequests<AtomicU64, Disturbed> {
        self.0.local(|| AtomicU64::new(0))
    }
}

impl Counter for Spread {
    fn enter(&self) -> Result<(), ShutDown> {
        let local = self.local();
        loop {
            match local.try_enter() {
                Ok(()) => return Ok(()),
                Err(Rejected::ShutDown) => return Err(ShutDown),
                Err(Rejected::Stopped) => local.await_turn(Limits::NONE),
            }
        }
    }
    fn enter_now(&self) -> Result<(), Rejected> {
        self.local().try_enter()
    }
    fn leave(&self) {
        self.local().leave();
    }
    fn stop(&self, limit: Option<Duration>) -> Result<(), GateError> {
        self.0.stop(limit.map_or(Limits::NONE, Limits::after))
    }
    fn restart(&self) -> Result<(), GateError> {
        self.0.restart()
    }
    fn shutdown(&self, limit: Option<Duration>) -> Result<(), GateError> {
        self.0.shutdown(limit.map_or(Limits::NONE, Limits::after))
    }
    fn inside(&self) -> u64 {
        self.0.inside()
    }
}

/// The object form.
struct Object(Owned<dyn gate::Gate>);

impl Object {
    fn handle(&self) -> Handle<dyn gate::Gate> {
        self.0.handle()
    }
}

impl Counter for Object {
    fn enter(&self) -> Result<(), ShutDown> {
        self.handle().enter()
    }
    fn enter_now(&self) -> Result<(), Rejected> {
        self.handle().enter_now()
    }
    fn leave(&self) {
        self.handle().leave();
    }
    fn stop(&self, limit: Option<Duration>) -> Result<(), GateError> {
        limit.map_or_else(|| self.handle().stop(), |limit| self.handle().stop_for(limit))
    }
    fn restart(&self) -> Result<(), GateError> {
        self.handle().restart()
    }
    fn shutdown(&self, limit: Option<Duration>) -> Result<(), GateError> {
        limit.map_or_else(|| self.handle().shutdown(), |limit| self.handle().shutdown_for(limit))
    }
    fn inside(&self) -> u64 {
        self.handle().inside()
    }
}

/// A counter and its record.
struct Generation {
    counter: Box<dyn Counter>,
    number: u64,
    /// A thread is about to shut it down.
    ending: AtomicBool,
    /// Changed only by the thread that has stopped the counter.
    sections: SectionCounts,
}

/// A place that always holds a counter.
pub(super) struct Gate {
    name: &'static str,
    make: Make,
    now: Mutex<Arc<Generation>>,
    generations: AtomicU64,
}

/// Makes a counter.
pub(super) type Make = fn() -> Box<dyn Counter>;

/// Returns the forms with delayed steps.
pub(super) fn disturbed_counters() -> [(&'static str, Make); 2] {
    [
        ("the disturbed request counter", || Box::new(SharedGate::<Disturbed>::with_steps())),
        ("the disturbed spread request counter", || {
            Box::new(Spread(SpreadRequests::with_steps(|| AtomicU64::new(0))))
        }),
    ]
}

/// Returns all forms.
pub(super) fn gates() -> Vec<Gate> {
    let [(first, make_first), (second, make_second)] = disturbed_counters();
    vec![
        Gate::new(first, make_first),
        Gate::new(second, make_second),
        Gate::new("the request counter", || Box::new(SharedGate::new())),
        Gate::new("the shared request counter", || Box::new(Object(gate::shared()))),
        Gate::new("the distributed request counter", || Box::new(Object(gate::distributed()))),
    ]
}

fn generation(make: Make, number: u64) -> Arc<Generation> {
    Arc::new(Generation {
        counter: make(),
        number,
        ending: AtomicBool::new(false),
        sections: SectionCounts::default(),
    })
}

impl Gate {
    fn new(name: &'static str, make: Make) -> Gate {
        Gate { name, make, now: Mutex::new(generation(make, 0)), generations: AtomicU64::new(1) }
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// Checks the counter after all threads have ended.
    pub(super) fn compare(&self) -> Result<(), String> {
        let now = lock(&self.now);
        let inside = now.counter.inside();
        let (begun, ended) = now.sections.seen();
        if inside != 0 || begun != ended {
            return Err(format!(
                "after the run, {inside} requests are inside, {begun} changes are begun and {ended} ended"
            ));
        }
        now.counter
            .stop(Some(Duration::ZERO))
            .map_err(|error| format!("a stop of the empty counter failed: {error}"))
    }

    /// Replaces this generation by the next one.
    fn replace(&self, old: &Arc<Generation>) {
        let new = generation(self.make, self.generations.fetch_add(1, Ordering::Relaxed));
        let mut now = lock(&self.now);
        if Arc::ptr_eq(&now, old) {
            *now = new;
        }
    }
}

impl LockThread {
    /// Runs a request, or a control action.
    pub(super) fn pass(&mut self, place: usize, gate: &Gate) {
        let now = Arc::clone(&lock(&gate.now));
        if !self.rng.one_in(CONTROLS_ONE_IN) {
            self.request(place, &now);
        } else if self.rng.one_in(SHUTS_DOWN_ONE_IN) {
            self.shut_down(place, &now);
            gate.replace(&now);
        } else {
            self.stop_and_restart(place, &now);
        }
    }

    fn request(&mut self, place: usize, now: &Generation) {
        let world = self.world;
        let slot = &world.slots[self.worker];
        let entered = if self.rng.one_in(4) {
            count(Stat::Tries);
            match now.counter.enter_now() {
                Err(Rejected::Stopped) => {
                    count(Stat::Busy);
                    if world.breaks(Break::EnterAnyway, 4, &mut self.rng) {
                        self.inside(place, now);
                    }
                    return;
                }
                entered => entered.is_ok(),
            }
        } else {
            count(Stat::Waits);
            slot.wait(place, Limit::None);
            let entered = now.counter.enter();
            slot.wait_no_more();
            entered.is_ok()
        };
        if !entered {
            return self.was_shut_down(place, now);
        }
        self.inside(place, now);
        if world.breaks(Break::KeepRequest, 200, &mut self.rng) {
            while !world.run_state.is_stopped() {
                thread::sleep(SHORT);
            }
        }
        if self.rng.one_in(4) {
            world.store_buffer.fill(&mut self.rng);
        }
        now.counter.leave();
    }

    /// Runs the inside of a request (or of a refused one, with the planned break).
    fn inside(&mut self, place: usize, now: &Generation) {
        let world = self.world;
        let slot = &world.slots[self.worker];
        slot.go_inside(Inside::Request(place, now.number));
        let judge = || {
            let (begun, ended) = now.sections.seen();
            if now.sections.owner.load(Ordering::Relaxed) != 0 {
                world.fail(place, "a request is inside although the counter is stopped");
            } else if begun != ended {
                let what = format!(
                    "a request sees {begun} changes begun and {ended} ended, although a change needs a stop"
                );
                world.fail(place, &what);
            }
        };
        judge();
        delay(&mut self.rng);
        if self.rng.one_in(HOPS_ONE_IN) {
            switch_vp(&mut self.rng);
        }
        judge();
        count(Stat::Requests);
        slot.come_out(place);
    }

    /// Checks a final refusal: a shutdown must have been requested (I2).
    fn was_shut_down(&self, place: usize, now: &Generation) {
        count(Stat::ShutOut);
        // Relaxed: stored before the shutdown that the caller has seen.
        if !now.ending.load(Ordering::Relaxed) {
            self.world.fail(place, "the counter reports a shutdown that no thread requested");
        }
    }

    fn nobody_is_inside(&self, place: usize, now: &Generation, said: &str) {
        let inside = |worker: &usize| self.world.slots[*worker].is(Inside::Request(place, now.number));
        if let Some(worker) = (0..self.world.slots.len()).find(inside) {
            self.world.fail(place, &format!("{said}, but the request of worker {worker} is inside"));
        }
    }

    fn stop_and_restart(&mut self, place: usize, now: &Generation) {
        let limit = self.rng.one_in(2).then(|| Duration::from_micros(self.rng.below(PATIENCE_US)));
        let slot = &self.world.slots[self.worker];
        slot.wait(place, if limit.is_some() { Limit::Deadline } else { Limit::None });
        let stopped = now.counter.stop(limit);
        slot.wait_no_more();
        match stopped {
            Ok(()) => self.change(place, now),
            Err(GateError::Stopped | GateError::Busy) => return count(Stat::StopsRefused),
            Err(GateError::TimedOut) if limit.is_some() => return count(Stat::TimedOut),
            Err(GateError::ShutDown) => return self.was_shut_down(place, now),
            Err(error) => return self.world.fail(place, &format!("a stop failed: {error}")),
        }
        match now.counter.restart() {
            Ok(()) => count(Stat::Stops),
            Err(GateError::ShutDown) => self.was_shut_down(place, now),
            Err(error) => self
                .world
                .fail(place, &format!("the thread that stopped the counter cannot restart it: {error}")),
        }
    }

    /// Changes the record while the counter is stopped (I1).
    fn change(&mut self, place: usize, now: &Generation) {
        let world = self.world;
        let slot = &world.slots[self.worker];
        slot.go_inside(Inside::Alone(place));
        let sections = &now.sections;
        let (begun, ended) = sections.seen();
        if sections.owner.load(Ordering::Relaxed) != 0 || begun != ended {
            world.fail(place, "two threads have stopped the counter at once");
        }
        sections.owner.store(self.worker as u64 + 1, Ordering::Relaxed);
        sections.begun.store(begun + 1, Ordering::Relaxed);
        self.nobody_is_inside(place, now, "the counter is stopped");
        delay(&mut self.rng);
        if self.rng.one_in(8) && now.counter.stop(Some(Duration::ZERO)).is_ok() {
            world.fail(place, "a second stop succeeded while the counter is stopped");
        }
        self.nobody_is_inside(place, now, "the counter is stopped");
        sections.ended.store(begun + 1, Ordering::Relaxed);
        sections.owner.store(0, Ordering::Relaxed);
        slot.come_out(place);
    }

    fn shut_down(&mut self, place: usize, now: &Generation) {
        let world = self.world;
        let limit = self.rng.one_in(2).then(|| Duration::from_micros(self.rng.below(PATIENCE_US)));
        let slot = &world.slots[self.worker];
        now.ending.store(true, Ordering::Relaxed);
        slot.wait(place, if limit.is_some() { Limit::Deadline } else { Limit::None });
        let mut ended = now.counter.shutdown(limit);
        // Another control action is still running.
        while ended == Err(GateError::Busy) && !world.run_state.is_stopped() {
            thread::sleep(SHORT);
            ended = now.counter.shutdown(limit);
        }
        slot.wait_no_more();
        match ended {
            Ok(()) => {
                count(Stat::Shutdowns);
                self.nobody_is_inside(place, now, "the counter is shut down");
            }
            Err(GateError::TimedOut) if limit.is_some() => count(Stat::TimedOut),
            Err(GateError::ShutDown) => return,
            // The run is over, and the counter stays as it was.
            Err(GateError::Busy) => return,
            Err(error) => return world.fail(place, &format!("a shutdown failed: {error}")),
        }
        let refused = (now.counter.enter_now(), now.counter.stop(None), now.counter.restart());
        let wanted = (Err(Rejected::ShutDown), Err(GateError::ShutDown), Err(GateError::ShutDown));
        if refused != wanted {
            world.fail(place, &format!("after a shutdown, enter_now, stop and restart returned {refused:?}"));
        }
    }
}
