//! Messages between shards, and the frames that carry them.
//!
//! The bytes come from the network. Decoding never panics, and reserves no more room than the frame has
//! bytes.

use super::{Command, Element, MemberId, OpId, Time, View};
use serde::{Deserialize, Serialize};

/// The version of the format, also of the books of a [`Shard`](super::Shard) in a copy. Shards drop frames of
/// other versions.
const VERSION: u8 = 2;

/// The state of a shard at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Census {
    pub(super) epoch: u64,
    /// Elements in the store.
    pub(super) len: u64,
    /// Elements on their way from or to the shard, for which it answers.
    pub(super) moving: u64,
    /// Grows with each arrival of elements.
    pub(super) arrivals: u64,
}

impl Census {
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0 && self.moving == 0
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Message {
    /// A newcomer asks the master to confirm that it knows the view with the newcomer.
    Hello,
    Welcome,
    /// Asks for elements, for a waiting get.
    Ask {
        search: u64,
        count: u64,
    },
    /// Answers `Ask`. The elements belong to the receiver.
    Give {
        search: u64,
        elements: Vec<Element>,
        census: Census,
    },
    /// Asks for the state.
    Count {
        search: u64,
    },
    Counted {
        search: u64,
        census: Census,
    },
    /// Asks for an offer.
    Pull {
        count: u64,
    },
    /// Answers `Pull`: no elements.
    Dry,
    /// Elements that the receiver may keep; the sender has copies.
    Offer {
        transfer: u64,
        leaving: bool,
        elements: Vec<Element>,
    },
    Accept {
        transfer: u64,
    },
    Refuse {
        transfer: u64,
    },
    /// The sender has dropped its copies.
    Commit {
        transfer: u64,
    },
    /// Tells the master the size of a shard.
    Report {
        len: u64,
    },
    Estimates {
        sizes: Vec<(MemberId, u64)>,
    },
    Locality {
        to: MemberId,
        distance: u32,
    },
    /// Asks the master for a shard with elements, and sets the asker's mark. `tried` were found dry.
    Find {
        search: u64,
        sure: bool,
        tried: Vec<MemberId>,
    },
    /// Answers `Find`: a shard with a mark.
    At {
        search: u64,
        member: MemberId,
    },
    /// Answers `Find`: the pool is empty. The mark is cleared if the asker was sure.
    Nothing {
        search: u64,
    },
    /// Answers `Find`: some elements are on their way.
    Busy {
        search: u64,
    },
    Mark,
    Marked,
    Unmark,
    /// A part of the copy of a shard, at a time of its clock.
    CopyPart {
        at: Time,
        bytes: Vec<u8>,
        last: bool,
    },
    /// Inputs of the shard that is copied, with times of its clock.
    CopyInputs {
        inputs: Vec<(Time, Input)>,
    },
}

/// An input of a shard: its methods of these names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Input {
    Command { op: OpId, command: Command },
    Cancel { op: OpId },
    Receive { from: MemberId, bytes: Vec<u8> },
    Install { view: View },
    Locality { from: MemberId, to: MemberId, distance: u32 },
    Idle,
    Tick,
}

impl Input {
    /// About as many bytes as the input has in a frame.
    pub(super) fn bytes(&self) -> usize {
        let variable = match self {
            Input::Command { command: Command::AddElement(bytes), .. } | Input::Receive { bytes, .. } => {
                bytes.len()
            }
            Input::Install { view } => 10 * view.members.len() + 20 * view.inherited.len(),
            _ => 0,
        };
        64 + variable
    }
}

impl Message {
    /// The number of elements that the message gives on demand.
    pub(super) fn given(&self) -> u64 {
        match self {
            Message::Give { elements, .. } => elements.len() as u64,
            _ => 0,
        }
    }

    /// Returns whether an older message says nothing more once this one is sent.
    pub(super) fn replaces(&self, older: &Message) -> bool {
        matches!(
            (self, older),
            (Message::Report { .. }, Message::Report { .. })
                | (Message::Estimates { .. }, Message::Estimates { .. })
        )
    }

    /// About as many bytes as the message has in a frame.
    pub(super) fn bytes(&self) -> usize {
        let variable = match self {
            Message::Give { elements, .. } | Message::Offer { elements, .. } => {
                elements.iter().map(|element| element.len() + 4).sum()
            }
            Message::Estimates { sizes } => sizes.len() * 20,
            Message::Find { tried, .. } => tried.len() * 10,
            Message::CopyPart { bytes, .. } => bytes.len(),
            Message::CopyInputs { inputs } => inputs.iter().map(|(_, input)| input.bytes()).sum(),
            _ => 0,
        };
        64 + variable
    }

    /// The elements that the message gives on demand.
    #[cfg(test)]
    pub(super) fn elements(&self) -> &[Element] {
        match self {
            Message::Give { elements, .. } => elements,
            _ => &[],
        }
    }
}

/// Returns whether a frame only acknowledges others. Such frames are not in
/// [`Counts::messages`](super::Counts::messages).
///
/// # Example
/// ```
/// use squall_pool::protocol::is_acknowledgement;
///
/// assert!(!is_acknowledgement(b"no frame"));
/// ```
pub fn is_acknowledgement(frame: &[u8]) -> bool {
    Frame::decode(frame).is_some_and(|frame| frame.message.is_none())
}

/// The begin of a copy: the epoch, and the number of the attempt in it. Later ones are greater.
pub(super) type Begin = (u64, u32);

/// A frame. Number 0 has no message, and only acknowledges.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Frame {
    pub(super) version: u8,
    /// The instance of the pool.
    pub(super) object: u64,
    pub(super) to: MemberId,
    pub(super) epoch: u64,
    /// For the copy of a shard: the shard, and the begin of the copy.
    pub(super) copy: Option<(MemberId, Begin)>,
    pub(super) number: u64,
    /// All frames up to this number have arrived.
    pub(super) seen: u64,
    pub(super) message: Option<Message>,
}

impl Frame {
    pub(super) fn new(object: u64, to: MemberId, epoch: u64, seen: u64) -> Frame {
        Frame { version: VERSION, object, to, epoch, copy: None, number: 0, seen, message: None }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        // Only a sequence of unknown length has no encoding, and a frame has no such sequence.
        postcard::to_allocvec(self).unwrap_or_default()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Frame> {
        match postcard::take_from_bytes::<Frame>(bytes) {
            Ok((frame, [])) if frame.version == VERSION && (frame.number != 0) == frame.message.is_some() => {
                Some(frame)
            }
            _ => None,
        }
    }
}
