//! Requests of page clients, and the replies.
//!
//! The bytes come from the network. Decoding never panics.

use serde::{Deserialize, Serialize};

/// The most pages of a request or a reply: they fit into a frame.
pub(super) const BATCH_MAX: usize = 1024;

/// The number of the only method. It grows with each change of the format.
pub(super) const METHOD: u64 = 1;

/// A client, as its calls name it: `ledger::Holder`, and the identity of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Caller {
    pub(super) ledger: u32,
    pub(super) place: u32,
    pub(super) epoch: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Request {
    /// Asks for a place.
    Register {
        key: u32,
    },
    /// Asks for a page, and gives the pool so much time.
    Alloc {
        caller: Caller,
        limit_ms: u32,
    },
    Free {
        caller: Caller,
        pages: Vec<u32>,
    },
    /// Begins a new epoch.
    Settle {
        place: u32,
        key: u32,
    },
    /// Asks for pages of the client, beginning with the number `from`.
    List {
        caller: Caller,
        from: u32,
    },
    /// Ends a client, and frees its pages.
    End {
        place: u32,
        key: u32,
    },
}

/// The reason why a page was not freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Fault {
    NotHeld,
    OutOfRange,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Reply {
    Place {
        caller: Caller,
        pages: u32,
    },
    Page(Option<u32>),
    /// The pages that were not freed.
    Freed(Vec<(u32, Fault)>),
    Pages(Vec<u32>),
    Ended {
        freed: u32,
    },
    /// The client has a newer epoch, or another ledger. The call had no effect.
    Outdated,
    /// The client was ended. The call had no effect.
    NoClient,
    /// All places are in use.
    Full,
    /// The server leaves, or its pool gave no answer in time. The call had no effect.
    Busy,
    /// The request has more pages than a server takes.
    TooMany,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::{decode, encode};

    #[test]
    fn frames_are_read_back_and_damaged_ones_are_refused() {
        let caller = Caller { ledger: 1, place: 3, epoch: 9 };
        let requests = [
            Request::Register { key: 5 },
            Request::Alloc { caller, limit_ms: 70 },
            Request::Free { caller, pages: vec![1, u32::MAX] },
            Request::Settle { place: 3, key: 5 },
            Request::List { caller, from: 8 },
            Request::End { place: 3, key: 5 },
        ];
        for request in requests {
            let bytes = encode(&request);
            assert_eq!(decode::<Request>(&bytes), Some(request));
            for cut in 0..bytes.len() {
                assert_eq!(decode::<Request>(&bytes[..cut]), None);
            }
            assert_eq!(decode::<Request>(&[&bytes[..], &[0]].concat()), None);
        }
        // A length beyond the bytes reserves no room.
        assert_eq!(decode::<Request>(&[2, 1, 3, 9, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F]), None);
        assert_eq!(decode::<Request>(&[99]), None);
        let reply = Reply::Freed(vec![(4, Fault::NotHeld), (5, Fault::OutOfRange)]);
        assert_eq!(decode(&encode(&reply)), Some(reply));
    }
}
