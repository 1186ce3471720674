//! The distributed form: the control in the root, and counts in each representative.
//!
//! The root's list of counts is its own, not the object's list of representatives: the control walks it while requests wait for
//! misses on this very object, and a walk that held the representatives still would wait for them in vain (CO-16, CO-51).
//! Counts that a representative leaves behind (it was made twice, and lost) are taken by the next one on their VP.
//!
//! What callers see of a representative are these counts themselves, so that a call goes there at once and not by way of the
//! representative, which only keeps them.

use squall_core::wrap::shall_leave;
use squall_core::{RepContext, Handle, InterfaceOf, Root};
use squall_lock::Undisturbed;
use squall_parts::gate::{self as parts, LocalRequests, SpreadRequests};
use squall_machine::Vp;
use squall_machine::pervp::GatedWord;
use std::sync::OnceLock;
use std::time::Duration;

use super::{ControlError, Refused, Gate, State, until};

/// What the counts know of their object: a reference, from its first representative on.
type Object = OnceLock<Handle<dyn Gate>>;
type Counts = parts::Gate<GatedWord, Undisturbed, Object>;

pub(super) struct Distributed {
    requests: SpreadRequests<GatedWord, Undisturbed, Object>,
    /// Where the first representative's counts are at home.
    home: Vp,
}

/// On lines of its own, as its counts are: callers read its block's headers, and neighbours in memory belong to other processors.
#[repr(align(128))]
pub(super) struct Local(LocalRequests<GatedWord, Undisturbed, Object>);

impl Distributed {
    pub(super) fn new(home: Vp) -> Distributed {
        Distributed { requests: SpreadRequests::with(Object::new(), || GatedWord::new(home)), home }
    }
}

impl Root for Distributed {
    type Interface = dyn Gate;
    type Rep = Local;

    fn make_rep(&self, at: RepContext<Distributed>) -> Local {
        // Before any call of a representative, and always the same.
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

/// Beside the view of everything that implements the trait, which `Local` does not.
impl InterfaceOf<Local> for dyn Gate {
    fn view(rep: &Local) -> &Self {
        &*rep.0
    }
}

/// Whether a call that waits shall leave: the object ends, or a swap waits for the call.
fn leaves(counts: &Counts) -> bool {
    counts.control().kept().get().is_some_and(|&handle| shall_leave(Handle::id(handle)))
}

fn stop_within(counts: &Counts, limit: Option<Duration>) -> Result<(), ControlError> {
    counts.control().stop(until(limit, &|| leaves(counts)))
}

fn shutdown_within(counts: &Counts, limit: Option<Duration>) -> Result<(), ControlError> {
    counts.control().shutdown(until(limit, &|| leaves(counts)))
}

impl Gate for Counts {
    #[inline]
    fn enter_now(&self) -> Result<(), Refused> {
        self.try_enter()
    }

    #[inline]
    fn leave(&self) {
        self.leave();
    }

    fn await_turn(&self) {
        self.await_turn(until(None, &|| leaves(self)));
    }

    fn stop(&self) -> Result<(), ControlError> {
        stop_within(self, None)
    }

    fn stop_for(&self, limit: Duration) -> Result<(), ControlError> {
        stop_within(self, Some(limit))
    }

    fn restart(&self) -> Result<(), ControlError> {
        self.control().restart()
    }

    fn shutdown(&self) -> Result<(), ControlError> {
        shutdown_within(self, None)
    }

    fn shutdown_for(&self, limit: Duration) -> Result<(), ControlError> {
        shutdown_within(self, Some(limit))
    }

    fn drained_for(&self, limit: Duration) -> Result<(), ControlError> {
        self.control().drained(until(Some(limit), &|| leaves(self)))
    }

    fn inside(&self) -> u64 {
        self.control().inside()
    }

    fn state(&self) -> State {
        self.control().state()
    }
}
