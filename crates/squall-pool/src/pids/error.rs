//! Errors of servers and clients of process ids.

use super::Pid;
use crate::PoolError;
use squall_fleet::{Fate, Name, RequestError};
use std::fmt;

/// The reason why a call of a client or server of process ids has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PidErrorKind {
    /// The fleet has no such id. The call had no effect.
    OutOfRange,
    /// The id is one of an earlier fleet under the name. The call had no effect.
    OtherFleet,
    /// The time is over. The client finishes the call before its next one.
    TimedOut,
    /// The server was lost. The id is free, or lost: it is in use no more, and may never come again.
    ServerLost,
    /// No server accepts calls. The call did not run.
    NoServer(Fate),
    /// The client was closed.
    Closed,
    /// The server has 65,536 clients with calls on their way.
    Full,
    /// The service under the name speaks another version, or serves other things.
    OtherService,
    /// A fleet cannot have so many ids, or has another number of them.
    BadCount,
    /// The fleet exists, so its ids are not given out from the beginning.
    NotFirst,
    /// The server is no member of the pools.
    Pool(PoolError),
    /// The name cannot be served.
    NotServed(RequestError),
    /// The name has no room for those of the pools below it.
    LongName,
}

/// A call of a client or server of process ids without a result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PidError {
    /// The name of the fleet.
    pub fleet: Name,
    /// The reason.
    pub kind: PidErrorKind,
}

impl fmt::Display for PidError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fleet {} of process ids: ", self.fleet)?;
        f.write_str(match &self.kind {
            PidErrorKind::OutOfRange => {
                "the id does not exist here; free an id at the fleet that gave it out"
            }
            PidErrorKind::OtherFleet => {
                "the id was drawn from an earlier fleet under this name, which is gone; forget the id"
            }
            PidErrorKind::TimedOut => {
                "the time is over, and the call may have run; call again with more time"
            }
            PidErrorKind::ServerLost => {
                "the server was lost, and perhaps the id with it; go on without the id"
            }
            PidErrorKind::NoServer(fate) => return fate.fmt(f),
            PidErrorKind::Closed => "this client was closed; connect a new one",
            PidErrorKind::Full => "the server has too many clients with calls on their way; try again later",
            PidErrorKind::OtherService => {
                "the service under this name has no process ids; look whether the name is right"
            }
            PidErrorKind::BadCount => {
                "a fleet has at least one id, and its servers agree on the number; pass the founder's number"
            }
            PidErrorKind::NotFirst => "the fleet exists; join it, since its ids may be in use",
            PidErrorKind::Pool(error) => return error.fmt(f),
            PidErrorKind::NotServed(error) => return error.fmt(f),
            PidErrorKind::LongName => "the name is too long for the pools below it; choose a shorter one",
        })
    }
}

impl std::error::Error for PidError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            PidErrorKind::NoServer(error) => Some(error),
            PidErrorKind::Pool(error) => Some(error),
            PidErrorKind::NotServed(error) => Some(error),
            _ => None,
        }
    }
}

/// An id that was not freed, or perhaps not.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PidNotFreed {
    /// The id, if the call had no effect.
    pub pid: Option<Pid>,
    /// The reason.
    pub error: PidError,
}

impl fmt::Display for PidNotFreed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for PidNotFreed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}
