//! Arbiters, and the traces that they leave for callers.
//!
//! An arbiter function leaves its number in its thread, and the method picks it up. So each call knows the
//! arbiter it passed, without a shared counter that would hide a missing fence.
//!
//! - I1. The numbers of an object's arbiters grow. They are drawn, attached and detached under one lock,
//!   which callers do not take.
//! - I2. `detaching` is written and read by read-modify-writes with acquire and release. A call that met no
//!   arbiter because it is being detached therefore sees that.

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use squall::swap::{Arbiter, SwapFailure, arbitrate, arbitrate_method};

use super::caller::Entry;
use super::world::World;
use crate::run::{Rng, lock};
use crate::skeleton::expected_panic::raise_expected_panic;

/// Names of the methods by number; 0 stands for all.
pub(super) const METHODS: [&str; 6] = ["", "mark", "audit", "pass", "linger", "rest"];
const METHOD: u64 = 7;
/// Flag of an arbiter that sometimes refuses calls.
const REFUSES: u64 = 8;
/// Flag of an arbiter that sometimes panics before the method.
const PANICS: u64 = 16;
const NUMBER_ONE: u64 = 32;
/// One call in this many is refused or panics.
const ODD_ONE_IN: u64 = 16;
/// The reason of a refusal.
pub(super) const REFUSAL: &str = "the arbiter would not have it";

/// The arbiter that a call passed, and how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ArbiterTrace {
    pub(super) number: u64,
    times: u64,
    /// The method has begun.
    pub(super) entered: bool,
}

thread_local! {
    static TRACE: Cell<ArbiterTrace> = const { Cell::new(ArbiterTrace { number: 0, times: 0, entered: false }) };
}

/// Takes the trace of the calling thread's last call.
pub(super) fn take_trace() -> ArbiterTrace {
    TRACE.take()
}

/// Restores the trace for the caller of a method that panics.
pub(super) fn restore_trace(trace: ArbiterTrace) {
    TRACE.set(ArbiterTrace { entered: true, ..trace });
}

fn is_of(number: u64, method: usize) -> bool {
    number & METHOD == 0 || number & METHOD == method as u64
}

/// The arbiters of one object.
#[derive(Default)]
pub(super) struct Arbiters {
    /// The last number drawn, under the lock (I1).
    lock: Mutex<u64>,
    attached: AtomicU64,
    detaching: AtomicU64,
    detached: AtomicU64,
}

/// The arbiters known before a call began.
#[derive(Clone, Copy)]
pub(super) struct Known {
    attached: u64,
    detached: u64,
}

impl Arbiters {
    pub(super) fn known(&self) -> Known {
        // Acquire: pairs with the releases in `attach` and `detach`, whose changes are complete.
        let attached = self.attached.load(Ordering::Acquire);
        Known { attached, detached: self.detached.load(Ordering::Acquire) }
    }

    /// Checks whether a call of this method may have this trace.
    pub(super) fn judge(&self, before: Known, method: usize, trace: ArbiterTrace) -> Result<(), String> {
        let name = METHODS[method];
        let ArbiterTrace { number, times, .. } = trace;
        if times > 1 {
            return Err(format!("a call of {name} met its arbiter {times} times"));
        }
        if number != 0 && !is_of(number, method) {
            return Err(format!(
                "a call of {name} met an arbiter of {}",
                METHODS[(number & METHOD) as usize]
            ));
        }
        if number != 0 && number <= before.detached {
            return Err(format!("a call of {name} met an arbiter that was detached before it began"));
        }
        let missed = number == 0 && before.attached != 0 && is_of(before.attached, method);
        // AcqRel: I2.
        if missed && self.detaching.fetch_max(0, Ordering::AcqRel) < before.attached {
            return Err(format!("a call of {name} met no arbiter, and one was attached before it began"));
        }
        Ok(())
    }
}

impl ArbiterTrace {
    /// Returns whether a call with this trace may be refused.
    pub(super) fn may_refuse(self) -> bool {
        self.number & REFUSES != 0 && !self.entered
    }

    /// Returns whether the arbiter may have panicked instead of the method.
    pub(super) fn may_panic(self) -> bool {
        self.number & PANICS != 0 && !self.entered
    }
}

/// An attached arbiter and its object.
pub(super) struct Attached {
    entry: Entry,
    number: u64,
    arbiter: Arbiter,
}

/// Attaches an arbiter to this object, if it has none.
pub(super) fn attach(world: &'static World, entry: &Entry, rng: &mut Rng) -> Option<Attached> {
    let arbiters = &entry.record.arbiters;
    let mut last = lock(&arbiters.lock);
    let method = if rng.one_in(2) { 0 } else { 1 + rng.below(METHODS.len() as u64 - 1) };
    let odd = [0, 0, REFUSES, PANICS][rng.below(4) as usize];
    let number = (*last & !(NUMBER_ONE - 1)) + NUMBER_ONE + odd + method;
    let proceeds = rng.one_in(2);
    let calls = AtomicU64::new(0);
    let function = move |call: &mut squall::swap::Call<'_>| {
        let before = TRACE.get();
        TRACE.set(ArbiterTrace { number, times: before.times + 1, entered: false });
        world.arbitrated.fetch_add(1, Ordering::Relaxed);
        if odd != 0 && calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(ODD_ONE_IN) {
            if odd == PANICS {
                raise_expected_panic();
            }
            return call.refuse(REFUSAL);
        }
        if proceeds {
            call.proceed();
        }
    };
    let outcome = match method {
        0 => arbitrate(entry.handle, function),
        _ => arbitrate_method(entry.handle, METHODS[method as usize], function),
    };
    match outcome {
        Ok(arbiter) => {
            *last = number;
            // Release: pairs with the acquire in `known`.
            arbiters.attached.store(number, Ordering::Release);
            Some(Attached { entry: entry.clone(), number, arbiter })
        }
        Err(error) => {
            let may = match error.failure() {
                SwapFailure::Destroyed | SwapFailure::NotThere => entry.record.destroy_begun(),
                SwapFailure::Arbitrated => *last != arbiters.detached.load(Ordering::Relaxed),
                // A swap is under way, or was until just now.
                failure => failure == SwapFailure::Busy,
            };
            if !may {
                world.run_state.fail(format!("an arbiter of object #{}: {error}", entry.record.serial));
            }
            None
        }
    }
}

/// Detaches the arbiter.
pub(super) fn detach(attached: Attached) {
    let Attached { entry, number, arbiter } = attached;
    let arbiters = &entry.record.arbiters;
    let last = lock(&arbiters.lock);
    // AcqRel: I2.
    arbiters.detaching.fetch_max(number, Ordering::AcqRel);
    arbiter.detach();
    // Release: pairs with the acquire in `known`.
    arbiters.detached.store(number, Ordering::Release);
    drop(last);
}

/// Checks that an arbiter of an unknown method is refused.
pub(super) fn ask_for_no_method(world: &World, entry: &Entry) {
    let outcome = arbitrate_method(entry.handle, "no_such_method", |_| {});
    if outcome.map(|_| ()).map_err(|error| error.failure()) != Err(SwapFailure::NoSuchMethod) {
        world.run_state.fail("an arbiter of a method that there is not was not refused as such".to_owned());
    }
}
