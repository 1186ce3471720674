//! The arbiters of an object, and the traces that they leave for callers.
//!
//! An arbiter function leaves its number in its thread, and the method picks it up. So each call knows the
//! arbiter it passed, without a shared counter that would hide a missing fence. `attach` draws the arbiters;
//! `Arbiters::judge` compares the trace of a call with the arbiters known before it began.
//!
//! - I1. The numbers of an object's arbiters grow. They are drawn, attached and detached under one lock,
//!   which callers do not take.
//! - I2. `detaching` is written and read by read-modify-writes with acquire and release. A call that met no
//!   arbiter because it is being detached therefore sees that.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use squall::swap::{Arbiter, SwapError};

use crate::run::lock;

/// Names of the methods by number; 0 stands for all.
pub(super) const METHODS: [&str; 6] = ["", "mark", "audit", "pass", "linger", "rest"];
/// The bits of an arbiter's number that hold the number of its method.
const METHOD: u64 = 7;
/// Flag of an arbiter that sometimes refuses calls.
pub(super) const REFUSES: u64 = 8;
/// Flag of an arbiter that sometimes panics before the method.
pub(super) const PANICS: u64 = 16;
/// The lowest bit of the count of arbiters in a number.
const NUMBER_ONE: u64 = 32;

/// The reason of a refusal.
pub(super) const REFUSAL: &str = "the arbiter refuses this call as planned";

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

/// Leaves the trace of the arbiter with this number in the calling thread.
pub(super) fn leave_trace(number: u64) {
    let before = TRACE.get();
    TRACE.set(ArbiterTrace { number, times: before.times + 1, entered: false });
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

    /// Draws the number of the next arbiter and attaches that arbiter with `attach` (I1). `kind` holds the
    /// number of its method and its flags.
    ///
    /// # Errors
    /// `attach` failed.
    pub(super) fn attach(
        self: &Arc<Self>,
        kind: u64,
        attach: impl FnOnce(u64) -> Result<Arbiter, SwapError>,
    ) -> Result<Attached, AttachError> {
        let mut last = lock(&self.lock);
        let number = (*last & !(NUMBER_ONE - 1)) + NUMBER_ONE + kind;
        let is_arbitrated = *last != self.detached.load(Ordering::Relaxed);
        let arbiter = attach(number).map_err(|error| AttachError { error, is_arbitrated })?;
        *last = number;
        // Release: pairs with the acquire in `known`.
        self.attached.store(number, Ordering::Release);
        Ok(Attached { arbiters: Arc::clone(self), number, arbiter })
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
            return Err(format!("a call of {name} met an arbiter that was detached before the call began"));
        }
        let missed = number == 0 && before.attached != 0 && is_of(before.attached, method);
        // AcqRel: I2.
        if missed && self.detaching.fetch_max(0, Ordering::AcqRel) < before.attached {
            return Err(format!("a call of {name} met no arbiter, but one was attached before it began"));
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

/// A failed attempt to attach an arbiter.
pub(super) struct AttachError {
    pub(super) error: SwapError,
    /// Whether the object already has an arbiter.
    pub(super) is_arbitrated: bool,
}

/// An attached arbiter of an object.
pub(super) struct Attached {
    arbiters: Arc<Arbiters>,
    number: u64,
    arbiter: Arbiter,
}

impl Attached {
    /// Detaches the arbiter.
    pub(super) fn detach(self) {
        let Attached { arbiters, number, arbiter } = self;
        let last = lock(&arbiters.lock);
        // AcqRel: I2.
        arbiters.detaching.fetch_max(number, Ordering::AcqRel);
        arbiter.detach();
        // Release: pairs with the acquire in `known`.
        arbiters.detached.store(number, Ordering::Release);
        drop(last);
    }
}
