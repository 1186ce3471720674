//! Requests of clients of ids, and the replies.
//!
//! The bytes come from the network. Decoding never panics.

use serde::{Deserialize, Serialize};

/// The number of the only method. It grows with each change of the format.
pub(super) const METHOD: u64 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Operation {
    /// Makes the client known. `number` of the request is that of its last call.
    Connect,
    /// Draws an id, and gives the pools so much time.
    Alloc {
        limit_ms: u32,
    },
    Free {
        fleet: u64,
        id: u32,
        round: u64,
    },
    Close,
    /// Asks for the fleet, for a server that joins it.
    Join,
}

/// A request. The server runs each number of a client once, and answers a copy from its notes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) client: u64,
    /// The server for which the client takes this one.
    pub(super) server: u64,
    pub(super) number: u64,
    /// The newest round that the client knows of.
    pub(super) seen: u64,
    pub(super) operation: Operation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Reply {
    Done,
    Drawn {
        fleet: u64,
        id: u32,
        round: u64,
    },
    /// All ids are in use.
    AllInUse,
    OutOfRange,
    /// The id is one of an earlier fleet under the name.
    OtherFleet,
    /// Another server, which did not run the request. It has this number, and its fleet has this key.
    OtherServer {
        server: u64,
        fleet: u64,
    },
    Fleet {
        fleet: u64,
        ids: u32,
        round: u64,
    },
    /// The server has too many clients.
    Full,
    /// The server leaves, or its pools gave no answer in time. The call had no effect.
    Busy,
    /// A late copy of a call that has ended.
    Old,
}

/// An element of the pools: an id, and the first round in which it may be drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resting {
    pub(super) id: u32,
    pub(super) round: u64,
}

impl Resting {
    pub(super) fn to_bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&self.id.to_le_bytes());
        bytes[4..].copy_from_slice(&self.round.to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Resting> {
        let (id, round) = bytes.split_first_chunk()?;
        let (id, round) = (u32::from_le_bytes(*id), u64::from_le_bytes(round.try_into().ok()?));
        Some(Resting { id, round })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::{decode, encode};

    #[test]
    fn frames_are_read_back_and_damaged_ones_are_refused() {
        let free = Operation::Free { fleet: 1 << 60, id: 7, round: u64::MAX };
        for operation in [Operation::Connect, free, Operation::Close, Operation::Join] {
            let request = Request { client: 1, server: u64::MAX, number: 3, seen: 9, operation };
            let bytes = encode(&request);
            assert_eq!(decode(&bytes), Some(request));
            assert_eq!(decode::<Request>(&bytes[1..]), None);
        }
        let reply = Reply::Drawn { fleet: 2, id: 5, round: 9 };
        assert_eq!(decode(&encode(&reply)), Some(reply));
        assert_eq!(decode::<Reply>(&[77]), None);
        let resting = Resting { id: 3, round: 1 << 40 };
        assert_eq!(Resting::from_bytes(&resting.to_bytes()), Some(resting));
        assert_eq!((Resting::from_bytes(&[0; 11]), Resting::from_bytes(&[0; 13])), (None, None));
    }
}
