//! The states of a request counter and the transitions that the control may make, for the shared and the
//! spread form.
//!
//! Source: CO-49 (Appavoo 2005, §4.1.3).

use super::GateError;

/// Requests are admitted.
pub(super) const NORMAL: u32 = 0;
/// Requests wait.
pub(super) const STOP: u32 = 1;
/// Requests are rejected.
pub(super) const SHUTDOWN: u32 = 2;
/// The two bits of the state.
pub(super) const STATE: u32 = 3;
/// A control operation is at work; others are rejected.
pub(super) const BUSY: u32 = 4;

/// Returns the state that a stop sets.
pub(super) fn stopped(now: u32) -> Result<u32, GateError> {
    match now & STATE {
        NORMAL if now & BUSY == 0 => Ok(STOP | BUSY),
        NORMAL => Err(GateError::Busy),
        STOP => Err(GateError::Stopped),
        _ => Err(GateError::ShutDown),
    }
}

/// Returns the state that a restart sets at its start. Its end sets [`NORMAL`].
pub(super) fn restarting(now: u32) -> Result<u32, GateError> {
    match now & STATE {
        STOP if now & BUSY == 0 => Ok(STOP | BUSY),
        STOP => Err(GateError::Busy),
        NORMAL => Err(GateError::NotStopped),
        _ => Err(GateError::ShutDown),
    }
}

/// Returns the state that a shutdown sets.
pub(super) fn shut_down(now: u32) -> Result<u32, GateError> {
    match now & STATE {
        NORMAL | STOP if now & BUSY == 0 => Ok(SHUTDOWN | BUSY),
        NORMAL | STOP => Err(GateError::Busy),
        _ => Err(GateError::ShutDown),
    }
}
