//! Calls in the other modes of invocation: asynchronous, with a deadline, or triggered by an event. They use
//! one adaptive counter that is swapped all the time. Their handles are awaited, polled once, queried or
//! dropped at any moment.
//!
//! - I1. Each call carries a payload and returns it as its result. At the end no payload is alive, even if
//!   its handle was dropped.
//! - I2. The counter has the additions of the calls that ran, each once.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use squall::adapt::control;
use squall::objects::counter::{self, Counter};
use squall::policy::invoke::{self, Event, InvokeError, PendingCall};
use squall::{Handle, Owned};

use super::breaks::Break;
use super::counts::{Stat, count};
use super::world::World;
use crate::run::{Rng, lock};

/// With the planned break, one payload in this many is leaked.
const BREAK_ONE_IN: u64 = 16;
/// Maximum time to wait for a handle, and maximum deadline, in microseconds.
const WAIT_US: u64 = 300;
/// Maximum number of polls for live payloads at the end, and the sleep between two.
const ROUNDS: u32 = 3_000;
const PAUSE: Duration = Duration::from_millis(5);
/// Number of polls in a run with a planned break.
const SHORT: u32 = 100;

#[derive(Default)]
pub(super) struct Invocations {
    owned: Mutex<Option<Owned<dyn Counter>>>,
    handle: OnceLock<Handle<dyn Counter>>,
    event: Event,
    /// Sum of the additions of the calls that ran.
    done: AtomicU64,
    /// Number of live payloads.
    alive: AtomicU64,
}

/// The payload of a call.
struct Payload(&'static Invocations);

impl Payload {
    fn new(invocations: &'static Invocations) -> Payload {
        invocations.alive.fetch_add(1, Ordering::Relaxed);
        Payload(invocations)
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        // Release: pairs with the acquire in `end`: the call is over.
        self.0.alive.fetch_sub(1, Ordering::Release);
    }
}

impl Invocations {
    pub(super) fn begin(&self) {
        let owned = counter::adaptive();
        let _ = self.handle.set(owned.handle());
        *lock(&self.owned) = Some(owned);
    }

    /// Makes one call in a random mode, and sometimes swaps the counter.
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
                // The policy may swap the counter at the same moment.
                let _ =
                    control::swap(Handle::id(handle), if rng.one_in(2) { "shared" } else { "distributed" });
            }
            _ => {}
        }
    }

    /// Checks that no payload is alive and that the counter has all additions.
    ///
    /// # Errors
    /// Describes the violation.
    pub(super) fn end(&self, world: &World) -> Result<(), String> {
        let rounds = if world.is_broken(Break::LeakPayload) { SHORT } else { ROUNDS };
        self.event.cancel();
        // Acquire: pairs with the release in each payload's drop.
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
                "{left} payloads of asynchronous calls are alive although their handles were dropped"
            ));
        }
        let owned = lock(&self.owned).take();
        let total = owned.as_ref().map_or(done, |owned| owned.handle().total());
        if total != done {
            return Err(format!("invocations added {done}, but the counter's sum is {total}"));
        }
        Ok(())
    }
}

/// Awaits, queries, polls or drops a handle.
fn finish<R: Send + 'static>(world: &World, mut handle: PendingCall<R>, rng: &mut Rng) {
    match rng.below(5) {
        // The event of the call may never occur, so the wait is bounded.
        0 | 1 => match handle.wait_timeout(Duration::from_micros(rng.below(WAIT_US))) {
            Some(result) => judge(world, result.map(drop)),
            None => count(Stat::Abandoned),
        },
        2 if handle.is_finished() => match handle.try_take() {
            Some(result) => judge(world, result.map(drop)),
            None => world.run_state.fail("a pending call is finished but has no result".to_owned()),
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

/// Checks the result of a call. The counter is alive, so a call fails only for a requested reason.
fn judge(world: &World, result: Result<(), InvokeError>) {
    match result {
        Ok(()) | Err(InvokeError::TooLate | InvokeError::Cancelled | InvokeError::Full) => {}
        Err(error) => world.run_state.fail(format!("an invocation on a live counter failed: {error}")),
    }
}
