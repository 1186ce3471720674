//! Admission of faults to a region: the part in which the forms of a region differ.
//!
//! - I1. Between a stop and the restart, and after a shutdown, no fault is inside.
//!
//! Source: Appavoo 2005, §4.1.3 (CO-49 to CO-52).

use squall_machine::Vp;
use squall_machine::pervp::GatedWord;
use squall_parts::gate::{GateError, Limits, LocalRequests, Rejected, SharedGate, SpreadRequests};

/// The region was unmapped.
pub(super) struct Closed;

/// Admission, in the root of a region.
pub(super) trait Admission: Send + Sync + 'static {
    /// The part in a representative.
    type Local: Send + Sync + 'static;
    /// Whether a fault on a resident page enters. Otherwise it reads the region's state in its operation,
    /// and the control waits for a grace period.
    const COUNTS_RESIDENT: bool;

    /// Whether faults of several processors are counted apart.
    const IS_WIDE: bool;

    fn new() -> Self;
    fn local(&self, vp: Vp) -> Self::Local;
    fn try_enter(&self, local: &Self::Local) -> Result<(), Rejected>;
    fn await_turn(&self, local: &Self::Local);
    fn leave(&self, local: &Self::Local);
    fn stop(&self) -> Result<(), GateError>;
    fn restart(&self) -> Result<(), GateError>;
    fn shut_down(&self) -> Result<(), GateError>;

    /// Enters, and waits while the region is stopped. Returns false, without having entered, if the region is
    /// stopped and `passes` returns true.
    fn enter_unless(&self, local: &Self::Local, passes: impl Fn() -> bool) -> Result<bool, Closed> {
        loop {
            match self.try_enter(local) {
                Ok(()) => return Ok(true),
                Err(Rejected::ShutDown) => return Err(Closed),
                Err(_) if passes() => return Ok(false),
                Err(_) => self.await_turn(local),
            }
        }
    }
}

/// One request counter.
pub(super) struct OneCounter(SharedGate);

impl Admission for OneCounter {
    type Local = ();
    const COUNTS_RESIDENT: bool = true;
    const IS_WIDE: bool = false;

    fn new() -> OneCounter {
        OneCounter(SharedGate::new())
    }

    fn local(&self, _: Vp) {}

    #[inline]
    fn try_enter(&self, (): &()) -> Result<(), Rejected> {
        self.0.try_enter()
    }

    fn await_turn(&self, (): &()) {
        self.0.await_turn(Limits::NONE);
    }

    #[inline]
    fn leave(&self, (): &()) {
        self.0.leave();
    }

    fn stop(&self) -> Result<(), GateError> {
        self.0.stop()
    }

    fn restart(&self) -> Result<(), GateError> {
        self.0.restart()
    }

    fn shut_down(&self) -> Result<(), GateError> {
        self.0.shutdown()
    }
}

/// A request counter for each processor (CO-50). `COUNTS` is false in the form that counts no fault on a
/// resident page.
pub(super) struct Counters<const COUNTS: bool>(SpreadRequests<GatedWord>);

impl<const COUNTS: bool> Admission for Counters<COUNTS> {
    type Local = LocalRequests<GatedWord>;
    const COUNTS_RESIDENT: bool = COUNTS;
    const IS_WIDE: bool = true;

    fn new() -> Counters<COUNTS> {
        let home = Vp::current();
        Counters(SpreadRequests::new(|| GatedWord::new(home)))
    }

    fn local(&self, vp: Vp) -> LocalRequests<GatedWord> {
        self.0.local_where(|counts| counts.vp() == vp, || GatedWord::new(vp))
    }

    #[inline]
    fn try_enter(&self, local: &LocalRequests<GatedWord>) -> Result<(), Rejected> {
        local.try_enter()
    }

    fn await_turn(&self, local: &LocalRequests<GatedWord>) {
        local.await_turn(Limits::NONE);
    }

    #[inline]
    fn leave(&self, local: &LocalRequests<GatedWord>) {
        local.leave();
    }

    fn stop(&self) -> Result<(), GateError> {
        self.0.stop(Limits::NONE)
    }

    fn restart(&self) -> Result<(), GateError> {
        self.0.restart()
    }

    fn shut_down(&self) -> Result<(), GateError> {
        self.0.shutdown(Limits::NONE)
    }
}
