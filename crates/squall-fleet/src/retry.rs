//! The caller's end of calls that are sent again, and run once (`once.rs` is the server's end).
//!
//! Problem: a caller without a reply cannot tell a lost request from a lost reply, or from a slow server.
//! Idea: each copy of a call has the same key. The caller sends copies until a reply comes.
//!
//! - I1. A caller has one call at a time, and each has a number of its own in the session.
//! - I2. A server that does not know the session has not run the call. If one copy was sent, no other server
//!   has run it, so the caller opens a new session and sends it again. If several were sent, the server of
//!   the earlier ones may have run it, and the call ends as [`Fate::ServerLost`].
//!
//! Source: Birrell and Nelson, *Implementing remote procedure calls*, 1984.

use crate::Fate;
use crate::call::{NO_FURTHER_SESSION, NO_METHOD, NO_RESULT, NO_ROOM, NO_SESSION, STOPPED};
use crate::capability::random;
use crate::envelope::Key;
use std::time::{Duration, Instant};

/// The first wait for a reply before a call is sent again. Each further one is twice as long.
pub(crate) const RETRY: Duration = Duration::from_millis(100);
/// The longest wait for a reply before a call is sent again, unless the first one is longer.
pub(crate) const RETRY_MAX: Duration = Duration::from_secs(1);
/// The times of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) deadline: Option<Instant>,
    /// The wait for a reply before the call is sent again.
    pub(crate) retry: Duration,
}

impl Times {
    /// Returns the end of the wait for the reply to a copy.
    pub(crate) fn again(&self) -> Option<Instant> {
        Instant::now().checked_add(self.retry).into_iter().chain(self.deadline).min()
    }

    /// Doubles the wait.
    pub(crate) fn back_off(&mut self) {
        self.retry = (self.retry * 2).min(RETRY_MAX.max(self.retry));
    }
}

/// The reason why a call has no result.
#[derive(Debug)]
pub(crate) enum Ended {
    Fate(Fate),
    /// The server takes no message with this capability. The call was not sent.
    Denied,
    /// The server told this reason, after so many copies were sent.
    Told {
        reason: u64,
        copies: u32,
    },
}

/// The failure of a call that runs once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    Fate(Fate),
    /// The server takes no message with this capability.
    Denied,
    /// The server has no such method.
    NoMethod,
}

impl From<Fate> for Failed {
    fn from(fate: Fate) -> Failed {
        Failed::Fate(fate)
    }
}

impl From<Failed> for Fate {
    fn from(failed: Failed) -> Fate {
        match failed {
            Failed::Fate(fate) => fate,
            Failed::Denied | Failed::NoMethod => Fate::NoService,
        }
    }
}

/// A way to a server.
pub(crate) trait Repeats {
    /// Sends a call until a reply comes, which it keeps.
    fn repeat(&mut self, method: u64, key: Key, body: &[u8], times: Times) -> Result<(), Ended>;
    /// Returns the result of the last call.
    fn result(&self) -> &[u8];
    /// Returns the session with the server, and the number of the last call in it.
    fn session(&self) -> Option<Key>;
    fn set_session(&mut self, session: Option<Key>);
}

/// Calls a method, which runs once. The result is in [`Repeats::result`].
pub(crate) fn call_once(
    way: &mut impl Repeats,
    method: u64,
    body: &[u8],
    times: Times,
) -> Result<(), Failed> {
    let mut was_known = true;
    loop {
        let last = match way.session() {
            Some(last) => last,
            None => {
                was_known = false;
                open(way, times)?
            }
        };
        let key = Key { session: last.session, number: last.number + 1 };
        way.set_session(Some(key));
        match way.repeat(method, key, body, times) {
            Ok(()) => return Ok(()),
            Err(Ended::Told { reason: NO_SESSION, copies }) => {
                way.set_session(None);
                match copies {
                    // See I2. A server that forgets a session at once accepts no call.
                    1 if !was_known => return Err(Fate::NotAccepted.into()),
                    1 => {}
                    _ => return Err(Fate::ServerLost.into()),
                }
            }
            Err(Ended::Told { reason, .. }) => return Err(failed_of(reason)),
            Err(Ended::Fate(fate)) => return Err(fate.into()),
            Err(Ended::Denied) => return Err(Failed::Denied),
        }
    }
}

/// Opens a session. The call was not sent yet, so it did not run if this fails.
fn open(way: &mut impl Repeats, times: Times) -> Result<Key, Failed> {
    // Copies of this request carry one nonce, and open one session (once/I7).
    let nonce = Key { session: 0, number: random() as u64 };
    match way.repeat(0, nonce, b"", times) {
        Ok(()) => {}
        Err(Ended::Fate(Fate::NoService | Fate::ServerLost)) => return Err(Fate::NoService.into()),
        Err(Ended::Denied) => return Err(Failed::Denied),
        Err(Ended::Told { reason: STOPPED, .. }) => return Err(Fate::Closed.into()),
        // The server has as many sessions as it can have, or does not answer.
        Err(Ended::Told { reason: NO_FURTHER_SESSION, .. } | _) => return Err(Fate::NotAccepted.into()),
    }
    // A server that gives no number is none that opens sessions.
    let session = <[u8; 8]>::try_from(way.result()).map_err(|_| Failed::Fate(Fate::NotAccepted))?;
    Ok(Key { session: u64::from_le_bytes(session), number: 0 })
}

/// Returns the failure of a call, for the reason that the server has told.
fn failed_of(reason: u64) -> Failed {
    Failed::Fate(match reason {
        NO_METHOD => return Failed::NoMethod,
        STOPPED => Fate::Closed,
        NO_ROOM | NO_RESULT => Fate::NoResult,
        _ => Fate::Dropped,
    })
}
