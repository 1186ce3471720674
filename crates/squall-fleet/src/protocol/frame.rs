//! Frames between nodes, as they travel.
//!
//! The bytes come from the network. Decoding never panics, and reserves no more room than the frame has
//! bytes.

use super::answer::{Answer, Key};
use super::directory::{Change, Directory, Entry, Request};
use super::figures::NodeFigures;
use super::location::Location;
use super::name::NameAlias;
use super::serving::Session;
use super::{NodeId, OPEN_MAX, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The version of the format. Nodes drop frames of other versions.
const VERSION: u8 = 7;

/// The place of a change in the sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Position {
    /// The term of the leader that added it.
    pub(crate) term: u64,
    pub(crate) index: u64,
}

/// A frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Frame {
    version: u8,
    /// The secret number of the group.
    pub(crate) group: u128,
    pub(crate) from: NodeId,
    /// The receiver, or 0 for the node at an endpoint.
    pub(crate) to: NodeId,
    pub(crate) body: Body,
}

impl Frame {
    pub(crate) fn new(group: u128, from: NodeId, to: NodeId, body: Body) -> Frame {
        Frame { version: VERSION, group, from, to, body }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        // Only a sequence of unknown length has no encoding, and a frame has none.
        postcard::to_allocvec(self).unwrap_or_default()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Frame> {
        match postcard::take_from_bytes::<Frame>(bytes) {
            Ok((frame, [])) if frame.version == VERSION && frame.body.is_sane() => Some(frame),
            _ => None,
        }
    }
}

/// A leader's beat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Beat {
    pub(crate) term: u64,
    /// The time of the leader's clock.
    pub(crate) sent: Time,
    pub(crate) committed: Position,
    /// The time of the member's clock at which it sent its newest answer. It gives the member a lease.
    pub(crate) echo: Option<Time>,
    /// The committed directory, for a member that is far behind.
    pub(crate) whole: Option<(Position, Directory)>,
    /// The changes after this one follow.
    pub(crate) after: Position,
    pub(crate) changes: Vec<(Position, Change)>,
}

/// The content of a frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Body {
    /// The question of a node that wants to join. Any member answers with the endpoint of the leader.
    Join {
        endpoint: String,
        location: Location,
    },
    /// The node to ask instead.
    Ask {
        node: NodeId,
        endpoint: String,
    },
    Beat(Box<Beat>),
    /// Answers a beat.
    Held {
        term: u64,
        held: Position,
        /// The member's last committed change. The leader may not know that it is committed.
        committed: Position,
        missed: bool,
        sent: Time,
        at: Time,
    },
    Vote {
        term: u64,
        last: Position,
        pre: bool,
    },
    Voted {
        term: u64,
        pre: bool,
        granted: bool,
    },
    /// The question of a member that hears no leader.
    Seek {
        committed: Position,
    },
    /// The receiver was removed from the group.
    NoMember {
        committed: Position,
    },
    /// The node began again under another number, so this one is dead for certain.
    Ended {
        node: NodeId,
    },
    /// A member's request, to the leader. The outcome comes with the directory.
    Propose {
        number: u64,
        request: Request,
    },
    /// Asks a member for a name.
    Resolve {
        name: NameAlias,
    },
    /// The entry of the name, with the endpoints and locations of the nodes in it.
    Resolved {
        name: NameAlias,
        entry: Option<Entry>,
        nodes: Vec<(NodeId, String, Location)>,
    },
    /// Opens a session. `nonce` tells copies of this frame from other sessions of the client.
    Open {
        key: Key,
        nonce: u64,
    },
    Opened {
        key: Key,
        nonce: u64,
        session: Result<u64, Answer>,
    },
    /// A call. `open` has the numbers of the session's calls without a result at the client, this one among
    /// them. All others up to the last of them have ended for the client.
    Call {
        key: Key,
        session: u64,
        number: u64,
        open: BTreeSet<u64>,
        method: u64,
        #[serde(with = "super::bytes")]
        body: Vec<u8>,
    },
    Answered {
        session: u64,
        number: u64,
        answer: Answer,
    },
    /// A frame of one member of a roster to another one.
    Peer {
        name: NameAlias,
        from: u64,
        to: u64,
        bytes: Vec<u8>,
    },
    /// Asks a member for the directory.
    Show,
    Shown {
        leader: Option<NodeId>,
        directory: Directory,
    },
    /// A piece of a shard's state, for its target.
    Handover {
        name: NameAlias,
        shard: u32,
        epoch: u64,
        piece: u32,
        pieces: u32,
        #[serde(with = "super::bytes")]
        bytes: Vec<u8>,
    },
    /// The target has this piece.
    Taken {
        name: NameAlias,
        shard: u32,
        epoch: u64,
        piece: u32,
    },
    /// Asks a node for its figures.
    Look,
    Looked {
        figures: Box<NodeFigures>,
    },
    /// Asks a client to end a session, since the server has no room.
    Reclaim {
        key: Key,
        session: u64,
    },
    /// The client has all results of the session, and uses it no more.
    Reclaimed {
        session: u64,
    },
}

/// The largest term, index, number or time in a frame. So sums of two never overflow.
const LARGEST_NUMBER: u64 = 1 << 62;

impl Body {
    /// Returns whether no number in it is so large that a sum could overflow, and no list of calls too long.
    fn is_sane(&self) -> bool {
        let sane = |number: u64| number < LARGEST_NUMBER;
        let position = |position: Position| sane(position.term) && sane(position.index);
        match self {
            Body::Beat(beat) => {
                let whole = beat.whole.as_ref();
                let mut changes = beat.changes.iter();
                sane(beat.term)
                    && sane(beat.sent)
                    && sane(beat.echo.unwrap_or(0))
                    && [beat.committed, beat.after].into_iter().all(position)
                    && whole.is_none_or(|(at, directory)| position(*at) && sane(directory.last_epoch()))
                    && changes.all(|(at, _)| position(*at))
            }
            Body::Held { term, held, committed, sent, at, .. } => {
                [*term, *sent, *at].into_iter().all(sane) && [*held, *committed].into_iter().all(position)
            }
            Body::Vote { term, last, .. } => sane(*term) && position(*last),
            Body::Voted { term, .. } => sane(*term),
            Body::Seek { committed } | Body::NoMember { committed } => position(*committed),
            Body::Propose { number, .. } => sane(*number),
            Body::Call { number, open, .. } => {
                open.contains(number) && open.len() <= OPEN_MAX && open.last().is_some_and(|last| sane(*last))
            }
            _ => true,
        }
    }
}

/// The state that one owner of a shard hands to the next one, in pieces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct State {
    /// As the service has exported it.
    #[serde(with = "super::bytes")]
    pub(crate) service: Vec<u8>,
    /// The sessions of clients, so that no call runs again.
    pub(crate) sessions: Vec<(u64, Session)>,
}
