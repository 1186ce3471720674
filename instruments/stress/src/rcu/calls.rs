//! Deferred calls, accounted for exactly: each runs once, outside every operation.
//!
//! - I1. A call is recorded with its number before it is handed to the library, and again when it runs. The
//!   counts and the sums of the numbers agree when no call is pending: none is lost or doubled.
//! - I2. A call that ages a block owns its [`Removed`] and passes it on. So a lost call is also a lost block.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use squall_rcu::{WaitError, defer, in_operation, pin, retire, wait};

use super::breaks::Break;
use super::world::{Removed, World};
use crate::run::Rng;
use crate::skeleton::expected_panic::raise_expected_panic;

/// Number of calls in a flood.
pub(super) const FLOOD_CALLS: u64 = 10_000;
/// Number of calls in a flood inside one operation.
pub(super) const FLOOD_CALLS_INSIDE: u64 = 1_000;

#[derive(Default)]
pub(super) struct CallLedger {
    asked: AtomicU64,
    asked_sum: AtomicU64,
    ran: AtomicU64,
    ran_sum: AtomicU64,
    panics_planned: AtomicU64,
}

impl CallLedger {
    fn ask(&self, number: u64) {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.asked_sum.fetch_add(number, Ordering::Relaxed);
    }

    /// Announces a planned panic of a deferred call, which the library counts.
    pub(super) fn plan_panic(&self) {
        self.panics_planned.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn panics_planned(&self) -> u64 {
        self.panics_planned.load(Ordering::Relaxed)
    }

    pub(super) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    pub(super) fn ran(&self) -> u64 {
        self.ran.load(Ordering::Relaxed)
    }

    /// Describes the difference between requested and executed calls, if any (I1). No call may be pending.
    pub(super) fn difference(&self) -> Option<String> {
        let (asked, ran) = (self.asked(), self.ran());
        if asked != ran {
            return Some(format!("{asked} calls were deferred, but {ran} ran"));
        }
        let sums = (self.asked_sum.load(Ordering::Relaxed), self.ran_sum.load(Ordering::Relaxed));
        (sums.0 != sums.1).then(|| {
            format!(
                "of {asked} deferred calls, as many were lost as ran twice: the sums of their numbers are {:#x} and {:#x}",
                sums.0, sums.1
            )
        })
    }
}

/// Records the execution of a call, and checks its environment.
fn ran(world: &'static World, number: u64) {
    world.calls.ran.fetch_add(1, Ordering::Relaxed);
    world.calls.ran_sum.fetch_add(number, Ordering::Relaxed);
    if world.is_broken(Break::DoubleCallback) && number.is_multiple_of(512) {
        world.calls.ran.fetch_add(1, Ordering::Relaxed);
    }
    if in_operation() {
        world.run_state.fail(format!("deferred call {number:#x} runs inside an operation"));
    }
    match number % 64 {
        0 => {
            let refused = wait();
            if refused != Err(WaitError::InDeferredCall) {
                world
                    .run_state
                    .fail(format!("a wait inside a deferred call returned {refused:?}, not InDeferredCall"));
            }
        }
        1 => pin(|o| {
            let held = world.take(Some(o), 0);
            if let Err(wrong) = world.examine(&held) {
                world
                    .run_state
                    .fail(format!("an operation inside a deferred call saw block {}: {wrong:?}", held.block));
            }
        }),
        _ => {}
    }
}

/// Number of executed calls of one batch.
pub(super) type BatchCount = Arc<AtomicU64>;

/// A deferred call. It runs when called by `defer`, or when dropped by `retire`.
struct Call {
    world: &'static World,
    number: u64,
    removed: Option<Removed>,
    done: BatchCount,
}

impl Call {
    fn run(&mut self) {
        ran(self.world, self.number);
        if let Some(removed) = self.removed.take() {
            let older = if self.world.is_broken(Break::EarlyAge) {
                Some(removed)
            } else {
                self.world.grow_older(removed)
            };
            match older {
                // A deferred call that defers another one.
                Some(older) if self.number % 8 < 2 => {
                    defer_aging(self.world, older, self.number.rotate_right(7), &BatchCount::default());
                }
                older => self.world.give(older),
            }
        }
        // Release: pairs with the acquire in `expect_all` and `Writer::reclaim_hand`.
        self.done.fetch_add(1, Ordering::Release);
        if self.number % 256 == 255 {
            self.world.calls.plan_panic();
            raise_expected_panic();
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.run();
    }
}

/// Ages a removed block by a deferred call. The number selects a closure or a value with a destructor.
pub(super) fn defer_aging(world: &'static World, removed: Removed, number: u64, done: &BatchCount) {
    let mut removed = Some(removed);
    if world.is_broken(Break::EarlyAge) {
        removed = removed.and_then(|removed| world.grow_older(removed));
    }
    hand_over(Call { world, number, removed, done: done.clone() });
}

fn hand_over(call: Call) {
    call.world.calls.ask(call.number);
    if call.number.is_multiple_of(8) {
        // Delays the store by which the thread announces that it works on its list.
        call.world.fill_store_buffer(&mut Rng::new(call.number, 0));
    }
    if call.number & 0x100 == 0 {
        // The call runs when it is dropped at the end of the closure.
        defer(move || drop(call));
    } else {
        retire(Box::new(call));
    }
}

/// Defers `count` calls that only count in `done`, mixed with memory without a destructor.
pub(super) fn flood(world: &'static World, count: u64, done: &BatchCount, mut next: impl FnMut() -> u64) {
    for _ in 0..count {
        let call = Call { world, number: next(), removed: None, done: done.clone() };
        if call.number.is_multiple_of(16) {
            retire(Box::new([call.number; 4]));
        }
        if world.is_broken(Break::LoseCallback) && call.number.is_multiple_of(1024) {
            world.calls.ask(call.number);
            std::mem::forget(call);
            continue;
        }
        hand_over(call);
    }
}

/// Checks that every call deferred before a barrier has run.
pub(super) fn expect_all(world: &World, done: &BatchCount, count: u64) {
    // Acquire: pairs with the release in `Call::run`.
    let ran = done.load(Ordering::Acquire);
    if ran != count {
        world.run_state.fail(format!(
            "after a barrier, {ran} calls have run of the {count} that were deferred before it"
        ));
    }
}
