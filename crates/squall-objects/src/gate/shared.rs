//! The shared form: one request counter in the root, and one representative that links to it.

use squall_core::wrap::shall_leave;
use squall_core::{Handle, RepContext, Root};
use squall_parts::gate::{SharedGate, Step, Tasks};
use std::sync::Arc;
use std::time::Duration;

use super::{Gate, GateError, GateState, Rejected, check_place, until};

/// Root. It owns the counter, so that it can wake the sleeping threads when the object ends.
pub(super) struct Shared {
    requests: SharedGate,
}

pub(super) struct All {
    at: RepContext<Shared>,
}

impl Shared {
    pub(super) fn new(requests: SharedGate) -> Shared {
        Shared { requests }
    }
}

impl Root for Shared {
    type Interface = dyn Gate;
    type Rep = All;

    fn make_rep(&self, at: RepContext<Shared>) -> All {
        All { at }
    }

    fn wake(&self) {
        self.requests.wake();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // After a swap, tasks may still wait here.
        self.requests.wake();
    }
}

impl All {
    #[inline(always)]
    fn requests(&self) -> &SharedGate {
        &self.at.root().requests
    }

    fn shall_leave(&self) -> bool {
        shall_leave(Handle::id(self.at.handle()))
    }

    fn stop_within(&self, limit: Option<Duration>) -> Result<(), GateError> {
        self.requests().stop_within(until(limit, &|| self.shall_leave()))
    }

    fn shutdown_within(&self, limit: Option<Duration>) -> Result<(), GateError> {
        self.requests().shutdown_within(until(limit, &|| self.shall_leave()))
    }
}

impl Gate for All {
    #[inline]
    fn enter_now(&self) -> Result<(), Rejected> {
        self.requests().try_enter()
    }

    #[inline]
    fn leave(&self) {
        self.requests().leave();
    }

    fn await_turn(&self) {
        self.requests().await_turn(until(None, &|| self.shall_leave()));
    }

    fn stop(&self) -> Result<(), GateError> {
        self.stop_within(None)
    }

    fn stop_for(&self, limit: Duration) -> Result<(), GateError> {
        self.stop_within(Some(limit))
    }

    fn restart(&self) -> Result<(), GateError> {
        self.requests().restart()
    }

    fn shutdown(&self) -> Result<(), GateError> {
        self.shutdown_within(None)
    }

    fn shutdown_for(&self, limit: Duration) -> Result<(), GateError> {
        self.shutdown_within(Some(limit))
    }

    fn drained_for(&self, limit: Duration) -> Result<(), GateError> {
        self.requests().drained_within(until(Some(limit), &|| self.shall_leave()))
    }

    fn inside(&self) -> u64 {
        self.requests().inside()
    }

    fn state(&self) -> GateState {
        self.requests().state()
    }

    fn tasks_unarbitrated(&self) -> Arc<Tasks> {
        self.requests().tasks().clone()
    }

    fn step_unarbitrated(&self, tasks: Arc<Tasks>, step: Step) -> Result<bool, GateError> {
        check_place(self.requests().tasks(), &tasks)?;
        self.requests().step(step)
    }
}
