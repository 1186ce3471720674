//! The protocol of a group of nodes, as a state machine without threads, clocks or sockets.
//!
//! Problem: nodes, messages and clocks fail in any combination. Tests on real threads meet few of them.
//! Idea: a [`Core`] is told the time and each frame, and returns the frames to send and the services to run.
//! The driver of a [`Node`](crate::Node) runs it on threads. A simulator runs it on virtual time, with a
//! seed for each schedule.
//!
//! - I1. A core reads no clock, no random source and no address. Equal inputs give equal outputs.
//! - I2. A frame that is lost, late, repeated or overtaken changes times, and no results.
//! - I3. The clocks of two nodes run at rates that differ by less than a tenth.

mod answer;
mod bytes;
mod calls;
#[cfg(test)]
mod calls_tests;
mod core;
mod directory;
#[cfg(test)]
mod directory_tests;
mod ended;
mod figures;
mod frame;
#[cfg(test)]
mod fuzz;
mod group;
mod guard;
mod location;
#[cfg(test)]
mod member_tests;
mod name;
#[cfg(test)]
mod order_tests;
#[cfg(test)]
mod origin_tests;
mod serving;
#[cfg(test)]
mod sim;
mod timing;
#[cfg(test)]
mod twins;

use serde::{Deserialize, Serialize};
use std::fmt;

pub use self::answer::Fate;
pub(crate) use self::calls::{CallId, Route};
pub(crate) use self::core::{Core, News, NodeOptions, Output, Registration, Roster};
pub(crate) use self::directory::{Directory, Request};
pub use self::figures::{CallCounts, EndInfo, EndReason, NodeFigures, NodeState};
pub(crate) use self::group::Timing;
pub use self::location::Location;
pub use self::name::{Name, NameAlias, NameCapability};

/// The most bytes of the arguments or of the result of a call.
pub(crate) const LARGEST_BODY: usize = (1 << 20) - 1024;
/// The most calls of a session that are under way. Few in tests, so that schedules use them up.
const OPEN_MAX: usize = if cfg!(test) { 4 } else { 64 };
/// Between two attempts of a request, a question or a piece, in microseconds.
const AGAIN: Time = 100_000;

/// Microseconds of a node's own clock.
pub(crate) type Time = u64;

/// A call that a service runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RunId(pub(crate) u64);

/// The number of a node. Random, and new with each start, so it never stands for another node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub(crate) u64);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}", self.0 >> 48)
    }
}

/// The reason why a text is no name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameError {
    /// The name has more than 255 bytes.
    TooLong {
        /// Its bytes.
        bytes: usize,
    },
    /// The name is not well formed.
    Malformed {
        /// The text, or its beginning.
        name: String,
        /// The fault.
        reason: &'static str,
    },
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NameError::TooLong { bytes } => {
                write!(f, "a name has at most 255 bytes, and this one has {bytes}")
            }
            NameError::Malformed { name, reason } => write!(f, "{name:?} is no name: {reason}"),
        }
    }
}

impl std::error::Error for NameError {}

/// The reason why a directory refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Refusal {
    /// The capability is not valid, or a reservation claims the name for another one.
    Forbidden,
    /// The name is not below the name of the capability.
    NotBelow,
    /// The name has a service already, or other flags, or the alias of another name.
    NameClash,
    /// There is no such name.
    NoSuchName,
    /// A fleet has at most 4,096 shards, and its name is for several services.
    TooManyShards,
    /// The names of the group would not fit into one frame.
    DirectoryFull,
    /// The members of the roster have changed meanwhile.
    RosterChanged,
    /// Names or claims exist below the claim.
    InUse,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Forbidden => {
                "the capability does not allow it; ask its owner for one below the reservation"
            }
            Refusal::NotBelow => "the name is not below that of the capability; use a longer name",
            Refusal::NameClash => {
                "the name is taken, or has other options; give those of its services, or choose another name"
            }
            Refusal::NoSuchName => "there is no such name",
            Refusal::TooManyShards => "a fleet has at most 4,096 shards, and is for several services",
            Refusal::RosterChanged => "the members have changed meanwhile; the member stays",
            Refusal::InUse => "names below the claim exist, so it stays; end them first",
            Refusal::DirectoryFull => "the group has too many names for one frame; use shards or fewer names",
        })
    }
}

impl std::error::Error for Refusal {}

/// A generator of pseudo-random numbers (SplitMix64). The driver seeds it from the system's random bytes.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }
}
