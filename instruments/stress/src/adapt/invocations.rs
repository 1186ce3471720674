//! Calls in the other modes of invocation: made later, by others, by a deadline or when an event lets them, on one adaptive
//! counter that is swapped all the time, while their handles are waited for, looked at, polled once or dropped at any moment.
//!
//! - I1. A payload goes with each call, and comes back as its result: when all is over, none is alive, whatever became of the
//!   handle.
//! - I2. The counter has the additions of those calls that ran, each once.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use squall::adapt::control;
use squall::policy::invoke::{self, Event, PendingCall, InvokeError};
use squall::objects::counter::{self, Counter};
use squall::{Handle, Owned};

use super::breaks::Break;
use super::counts::{Stat, count};
use super::world::World;
use crate::run::{Rng, lock};

/// Of so many payloads one is kept for ever where the torture is broken on purpose.
const BREAK_ONE_IN: u64 = 16;
/// How long a handle is waited for that is not waited for to the end, and the deadlines, at most.
const WAIT_US: u64 = 300;
/// Looks at the payloads that are alive at the end, and between two of them.
const ROUNDS: u32 = 3_000;
const PAUSE: Duration = Duration::from_millis(5);
/// Where it was broken on purpose, patience need not be long.
const SHORT: u32 = 100;

#[derive(Default)]
pub(super) struct Invocations {
    owned: Mutex<Option<Owned<dyn Counter>>>,
    handle: OnceLock<Handle<dyn Counter>>,
    event: Event,
    /// What the calls that ran have added.
    done: AtomicU64,
    /// Payloads that are alive.
    alive: AtomicU64,
}

/// What a call takes with it.
struct Payload(&'static Invocations);

impl Payload {
    fn new(invocations: &'static Invocations) -> Payload {
        invocations.alive.fetch_add(1, Ordering::Relaxed);
        Payload(invocations)
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        // Release: pairs with the acquire in `end`: its call is over.
        self.0.alive.fetch_sub(1, Ordering::Release);
    }
}

impl Invocations {
    pub(super) fn begin(&self) {
        let owned = counter::adaptive();
        let _ = self.handle.set(owned.handle());
        *lock(&self.owned) = Some(owned);
    }

    /// Has one call made, in some mode; and now and then swaps the counter.
    pub(super) fn run(&'static self, world: &'static World, rng: &mut Rng) {
        let Some(&handle) = self.handle.get() else { return };
        let n = 1 + rng.below(5);
        let payload = Payload::new(self);
        let keeps = world.breaks(Break::LeakPayload, BREAK_ONE_IN, rng);
        let call = move |handle: Handle<dyn Counter>| {
            handle.add(n);
            payload.0.done.fetch_add(n, Ordering::Relaxed);
            if keeps {
                std::mem::forget(Payload::new(payload.0));
            }
            payload
        };
        let soon = Instant::now() + Duration::from_micros(rng.below(WAIT_US));
        count(Stat::Invocations);
        match rng.below(8) {
            0 => judge(world, invoke::synchronous(handle, call).map(drop)),
            1 => judge(world, invoke::synchronous_by(handle, soon, call).map(|done| drop(done.value))),
            2 => finish(world, invoke::asynchronous_by(handle, soon, call), rng),
            3 | 4 => finish(world, invoke::event_dependent(&self.event, handle, call), rng),
            _ => finish(world, invoke::asynchronous(handle, call), rng),
        }
        match rng.below(32) {
            0 => drop(self.event.cancel()),
            1 => drop(self.event.open()),
            2..6 => self.event.close(),
            6..20 => drop(self.event.signal_many(rng.below(8) as usize)),
            20 => {
                // Its policy may swap it just then.
                let _ = control::swap(Handle::id(handle), if rng.one_in(2) { "shared" } else { "distributed" });
            }
            _ => {}
        }
    }

    /// Nothing is alive, and the counter has what was added.
    ///
    /// # Errors
    /// What is not so.
    pub(super) fn end(&self, world: &World) -> Result<(), String> {
        let rounds = if world.is_broken(Break::LeakPayload) { SHORT } else { ROUNDS };
        self.event.cancel();
        // Acquire: pairs with the release of each payload's drop.
        let alive = || self.alive.load(Ordering::Acquire);
        for _ in 0..rounds {
            if alive() == 0 {
                break;
            }
            thread::sleep(PAUSE);
        }
        let (left, done) = (alive(), self.done.load(Ordering::Relaxed));
        if left > 0 {
            return Err(format!(
                "{left} payloads of asynchronous calls are alive, and nobody has their handles"
            ));
        }
        let owned = lock(&self.owned).take();
        let total = owned.as_ref().map_or(done, |owned| owned.handle().total());
        if total != done {
            return Err(format!("calls in all modes have added {done}, and the counter has {total}"));
        }
        Ok(())
    }
}

/// Something that may become of a handle.
fn finish<R: Send + 'static>(world: &World, mut handle: PendingCall<R>, rng: &mut Rng) {
    match rng.below(5) {
        // One that waits for an event that nobody lets happen is not waited for to the end.
        0 | 1 => match handle.wait_timeout(Duration::from_micros(rng.below(WAIT_US))) {
            Some(result) => judge(world, result.map(drop)),
            None => count(Stat::Abandoned),
        },
        2 if handle.is_finished() => match handle.try_take() {
            Some(result) => judge(world, result.map(drop)),
            None => world.run_state.fail("a handle says that it is finished, and has no result".to_owned()),
        },
        3 => {
            let mut context = Context::from_waker(Waker::noop());
            if Pin::new(&mut handle).poll(&mut context).is_pending() {
                count(Stat::Abandoned);
            }
        }
        _ => {
            count(Stat::Abandoned);
            drop(handle);
        }
    }
}

/// The counter lives: only what was asked for may keep a call from being made.
fn judge(world: &World, result: Result<(), InvokeError>) {
    match result {
        Ok(()) | Err(InvokeError::TooLate | InvokeError::Cancelled | InvokeError::Full) => {}
        Err(error) => world.run_state.fail(format!("a call of a live counter was not made: {error}")),
    }
}
