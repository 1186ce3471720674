//! The distributed form: the control in the root, and counts in each representative.
//!
//! The root keeps its own list of counts instead of walking the object's list of representatives. The control
//! walks the list while requests wait for misses on this same object. A walk that holds the representatives
//! still would deadlock with them. Source: Appavoo 2005, §4.1.3 (CO-16, CO-51).
//!
//! A representative that loses the race of its creation leaves counts behind. The next representative on that
//! VP reuses them.
//!
//! Callers see the counts themselves as the view of a representative, so that a call reaches them without a
//! detour. The representative only keeps them.

use squall_core::wrap::shall_leave;
use squall_core::{Cleanup, Handle, InterfaceOf, RepContext, Root};
use squall_lock::NoSteps;
use squall_machine::Vp;
use squall_machine::pervp::GatedWord;
use squall_parts::gate::{self as parts, LocalRequests, SpreadRequests, Step, Tasks};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::{Gate, GateError, GateState, Rejected, check_place, until};

/// The object of the counts: a handle, set when the first representative is made.
type Object = OnceLock<Handle<dyn Gate>>;
type Counts = parts::Gate<GatedWord, NoSteps, Object>;

pub(super) struct Distributed {
    requests: SpreadRequests<GatedWord, NoSteps, Object>,
    /// VP at which the first representative's counts are at home.
    home: Vp,
}

/// Representative. The alignment prevents false sharing: callers read the headers of its block, and
/// neighbours in memory belong to other processors.
#[repr(align(128))]
pub(super) struct Local(LocalRequests<GatedWord, NoSteps, Object>);

impl Distributed {
    pub(super) fn new(home: Vp) -> Distributed {
        Distributed { requests: SpreadRequests::with(Object::new(), || GatedWord::new(home)), home }
    }
}

impl Root for Distributed {
    type Interface = dyn Gate;
    type Rep = Local;
    const CLEANUP: Cleanup = Cleanup::Anywhere;

    fn make_rep(&self, at: RepContext<Distributed>) -> Local {
        // Runs before any call of a representative, and stores the same handle each time.
        self.requests.kept().get_or_init(|| at.handle());
        let vp = at.vp();
        Local(if vp == self.home {
            self.requests.first()
        } else {
            self.requests.local_where(|counts| counts.vp() == vp, || GatedWord::new(vp))
        })
    }

    fn wake(&self) {
        self.requests.wake();
    }
}

impl Drop for Distributed {
    fn drop(&mut self) {
        // After a swap, tasks may still wait here.
        self.requests.wake();
    }
}

/// Makes the counts the view of a representative, since `Local` does not implement the trait itself.
impl InterfaceOf<Local> for dyn Gate {
    fn view(rep: &Local) -> &Self {
        &*rep.0
    }
}

/// Returns whether a waiting call must return, because the object ends or a swap waits for the call.
fn leaves(counts: &Counts) -> bool {
    counts.control().kept().get().is_some_and(|&handle| shall_leave(Handle::id(handle)))
}

fn stop_within(counts: &Counts, limit: Option<Duration>) -> Result<(), GateError> {
    counts.control().stop(until(limit, &|| leaves(counts)))
}

fn shutdown_within(counts: &Counts, limit: Option<Duration>) -> Result<(), GateError> {
    counts.control().shutdown(until(limit, &|| leaves(counts)))
}

impl Gate for Counts {
    #[inline]
    fn enter_now(&self) -> Result<(), Rejected> {
        self.try_enter()
    }

    #[inline]
    fn leave(&self) {
        self.leave();
    }

    fn await_turn(&self) {
        self.await_turn(until(None, &|| leaves(self)));
    }

    fn stop(&self) -> Result<(), GateError> {
        stop_within(self, None)
    }

    fn stop_for(&self, limit: Duration) -> Result<(), GateError> {
        stop_within(self, Some(limit))
    }

    fn restart(&self) -> Result<(), GateError> {
        self.control().restart()
    }

    fn shutdown(&self) -> Result<(), GateError> {
        shutdown_within(self, None)
    }

    fn shutdown_for(&self, limit: Duration) -> Result<(), GateError> {
        shutdown_within(self, Some(limit))
    }

    fn drained_for(&self, limit: Duration) -> Result<(), GateError> {
        self.control().drained(until(Some(limit), &|| leaves(self)))
    }

    fn inside(&self) -> u64 {
        self.control().inside()
    }

    fn state(&self) -> GateState {
        self.control().state()
    }

    fn tasks_unarbitrated(&self) -> Arc<Tasks> {
        self.control().tasks().clone()
    }

    fn step_unarbitrated(&self, tasks: Arc<Tasks>, step: Step) -> Result<bool, GateError> {
        check_place(self.control().tasks(), &tasks)?;
        self.control().step(step)
    }
}
