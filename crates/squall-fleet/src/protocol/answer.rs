//! Keys of services, answers to calls, and the fates of calls without a result.

use super::NodeId;
use super::directory::Entry;
use super::name::NameAlias;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A service or shard, as it travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Key {
    pub(crate) name: NameAlias,
    pub(crate) part: Part,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum Part {
    Shard(u32),
    Service(u64),
}

impl Key {
    /// Returns the shard, if it is not a service.
    pub(crate) fn shard(self) -> Option<u32> {
        match self.part {
            Part::Shard(shard) => Some(shard),
            Part::Service(_) => None,
        }
    }
}

/// A server's answer to a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Answer {
    Result(#[serde(with = "super::bytes")] Vec<u8>),
    /// The service dropped it, or panicked. It may have run in part.
    Dropped,
    /// The result was larger than a frame.
    TooLarge,
    /// Not run: the node does not serve this now.
    NotHere,
    /// Not run: the node has too many calls.
    Busy,
    /// Not run by this attempt: the node does not know the session. If it has known it, a copy may have run.
    NoSession {
        known: bool,
    },
    /// The call ran, and its result is gone.
    Forgotten,
}

/// The reason why a call over a [`Node`](crate::Node) has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fate {
    /// No service had the name until the deadline. The call did not run.
    NoService,
    /// No server accepted the call until the deadline. It did not run.
    NotAccepted,
    /// The arguments are larger than a frame. The call did not run.
    TooLarge,
    /// The node is closed. The call did not run.
    Closed,
    /// A function of a shard called its own shard, so the call would wait for its caller. It did not run.
    OwnShard,
    /// No answer came until the deadline. The call may have run, or may run later.
    TimedOut,
    /// The server died or lost the state. The call may have run on it.
    ServerLost,
    /// The service dropped the call or panicked. The call may have run in part.
    Dropped,
    /// The call ran, but its result is larger than a frame, or is gone.
    NoResult,
}

impl Fate {
    /// Returns whether the call may have run.
    pub fn may_have_run(self) -> bool {
        matches!(self, Fate::TimedOut | Fate::ServerLost | Fate::Dropped | Fate::NoResult)
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fate::NoService => "no service had the name until the deadline; the call did not run",
            Fate::NotAccepted => "no server accepted the call until the deadline; it did not run",
            Fate::TooLarge => "the arguments are larger than a frame; split them over several calls",
            Fate::Closed => "the node is closed; the call did not run",
            Fate::OwnShard => {
                "the shard calls itself, and the call would wait for its caller; call its function directly"
            }
            Fate::TimedOut => "no answer came until the deadline; the call may have run, or may run later",
            Fate::ServerLost => "the server died or lost its state; the call may have run on it",
            Fate::Dropped => "the service dropped the call, or panicked; it may have run in part",
            Fate::NoResult => "the call ran, but its result is larger than a frame, or is gone",
        })
    }
}

impl std::error::Error for Fate {}

/// The nodes and services of a name, and the distance of each.
pub(crate) trait Lookup {
    /// Asks for the entry of a name, if it is not known, or out of date.
    fn want(&mut self, name: NameAlias);
    /// Returns the entry of a name, if it is known.
    fn entry(&self, name: NameAlias) -> Option<&Entry>;
    /// Marks the entry as out of date.
    fn doubt(&mut self, name: NameAlias);
    /// Returns 0 for this node, and else the [distance](super::Location::distance).
    fn distance(&self, node: NodeId) -> u8;
}
