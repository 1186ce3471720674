//! The messages of a call to a mailbox, and its answers, as they travel.
//!
//! - I1. Bytes from the network never panic, and reserve no more room than they have bytes.

use crate::SendError;
use crate::protocol::LARGEST_BODY;
use serde::{Deserialize, Serialize};

/// The bytes of a capability before the messages of a call.
pub(super) const KEY: usize = 16;
/// The bytes before each message, with its length.
pub(super) const LENGTH: usize = 4;
/// The bytes of the largest message.
pub(super) const LARGEST: usize = LARGEST_BODY - KEY - LENGTH;
/// The most messages of a call.
pub(super) const MESSAGES_MAX: usize = 64;
/// Begins the answers of mailboxes. Those of other services do not begin with it, but by chance.
const MARK: [u8; 8] = *b"\xd1mailbox";

/// The answer to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Delivered {
    Accepted,
    Permissions,
    Full,
    TooLarge { largest: u64 },
    Ended,
}

impl Delivered {
    pub(super) fn new(sent: Result<(), SendError>) -> Delivered {
        match sent {
            Ok(()) => Delivered::Accepted,
            Err(SendError::Permissions { .. }) => Delivered::Permissions,
            Err(SendError::Retry { .. }) => Delivered::Full,
            Err(SendError::NoSpace { largest, .. }) => Delivered::TooLarge { largest: largest as u64 },
            Err(SendError::InvalidAlias { .. }) => Delivered::Ended,
        }
    }

    /// Returns whether the messages behind this one are refused for the same reason. So those that are sent
    /// again keep their order.
    pub(super) fn refuses_next(&self) -> bool {
        matches!(self, Delivered::Full | Delivered::Ended)
    }

    /// Writes the answers to the messages of a call.
    pub(super) fn encode(answers: &[Delivered]) -> Vec<u8> {
        postcard::to_allocvec(&(MARK, answers)).unwrap_or_default()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Vec<Delivered>> {
        match postcard::take_from_bytes::<([u8; 8], Vec<Delivered>)>(bytes) {
            Ok(((MARK, delivered), [])) => Some(delivered),
            _ => None,
        }
    }
}

/// Writes the arguments of a call: the capability, and the messages with their lengths.
///
/// # Panics
/// If a message is larger than `LARGEST`.
pub(super) fn encode<'a>(key: [u8; KEY], messages: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut body = key.to_vec();
    for message in messages {
        assert!(message.len() <= LARGEST, "a message has {} bytes", message.len());
        body.extend_from_slice(&(message.len() as u32).to_le_bytes());
        body.extend_from_slice(message);
    }
    body
}

/// Reads the arguments of a call. They come from the network.
pub(super) fn decode(body: &[u8]) -> Option<([u8; KEY], Vec<&[u8]>)> {
    let (key, mut rest) = body.split_first_chunk::<KEY>()?;
    let mut messages = Vec::new();
    while !rest.is_empty() {
        let (length, after) = rest.split_first_chunk::<LENGTH>()?;
        let (message, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        if messages.len() == MESSAGES_MAX {
            return None;
        }
        messages.push(message);
        rest = after;
    }
    (!messages.is_empty()).then_some((*key, messages))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_as_they_were_written() {
        let messages = [&b"message"[..], b"", b"another one"];
        let body = encode([7; KEY], messages.into_iter());
        assert_eq!(decode(&body), Some(([7; KEY], messages.to_vec())));
        for end in (0..body.len()).filter(|end| ![27, 31].contains(end)) {
            assert_eq!(decode(&body[..end]), None, "{end}");
        }
        assert!(decode(&[[0; KEY].to_vec(), vec![0; LENGTH * MESSAGES_MAX]].concat()).is_some());
        assert_eq!(decode(&[[0; KEY].to_vec(), vec![0; LENGTH * (MESSAGES_MAX + 1)]].concat()), None);
        assert_eq!(decode(&[[0; KEY].to_vec(), vec![0xff; 8]].concat()), None);
    }

    #[test]
    fn answers_of_other_services_are_no_answers_of_mailboxes() {
        let answers = vec![Delivered::Accepted, Delivered::Ended, Delivered::TooLarge { largest: 7 }];
        let encoded = Delivered::encode(&answers);
        assert_eq!(Delivered::decode(&encoded), Some(answers));
        let echo = [vec![7; KEY], encoded.clone()].concat();
        for bytes in [&b""[..], b"\0", &MARK, &echo, &[&encoded[..], b"more"].concat()] {
            assert_eq!(Delivered::decode(bytes), None, "{bytes:?}");
        }
    }
}
