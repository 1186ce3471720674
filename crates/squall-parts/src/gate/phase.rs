//! What the control of a request counter may do when: the states of CO-49, for the shared and the distributed form.

use super::ControlError;

/// Requests are admitted.
pub(super) const NORMAL: u32 = 0;
/// Requests wait.
pub(super) const STOP: u32 = 1;
/// Requests are refused.
pub(super) const SHUTDOWN: u32 = 2;
/// The two bits of these.
pub(super) const STATE: u32 = 3;
/// A control operation is at work; others are refused.
pub(super) const BUSY: u32 = 4;

/// What a stop makes of a state.
pub(super) fn stopped(now: u32) -> Result<u32, ControlError> {
    match now & STATE {
        NORMAL if now & BUSY == 0 => Ok(STOP | BUSY),
        NORMAL => Err(ControlError::Busy),
        STOP => Err(ControlError::Stopped),
        _ => Err(ControlError::ShutDown),
    }
}

/// What the beginning of a restart makes of a state: its end is [`NORMAL`].
pub(super) fn restarting(now: u32) -> Result<u32, ControlError> {
    match now & STATE {
        STOP if now & BUSY == 0 => Ok(STOP | BUSY),
        STOP => Err(ControlError::Busy),
        NORMAL => Err(ControlError::NotStopped),
        _ => Err(ControlError::ShutDown),
    }
}

/// What a shutdown makes of a state.
pub(super) fn shut_down(now: u32) -> Result<u32, ControlError> {
    match now & STATE {
        NORMAL | STOP if now & BUSY == 0 => Ok(SHUTDOWN | BUSY),
        NORMAL | STOP => Err(ControlError::Busy),
        _ => Err(ControlError::ShutDown),
    }
}
