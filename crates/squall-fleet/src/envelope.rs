//! The format of requests and replies: a head, and the body behind it.
//!
//! | bytes | content |
//! |---|---|
//! | 8 | the kind: a request, a request without a reply, a reply, or a failure |
//! | 8 | the method of a request, or the reason of a failure |
//! | 8 | the token of the call |
//! | 32 | of a request with a reply: alias and capability of the mailbox for it |
//!
//! Numbers are little-endian. A sender may be hostile, so each field is checked.
//! Source: Wentzlaff 2012, §3.2.2 and §3.3: a message begins with its type, and carries where the reply goes.

use crate::{Alias, Capability};

/// The bytes before the body of a reply.
pub(crate) const HEAD: usize = 24;

/// The address of a reply.
pub(crate) type Address = (Alias, Capability);

/// A message, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Envelope<'a> {
    Request { method: u64, token: u64, reply_to: Option<Address>, body: &'a [u8] },
    Reply { token: u64, body: &'a [u8] },
    Failure { token: u64, reason: u64 },
}

const REQUEST: u64 = 1;
const EVENT: u64 = 2;
const REPLY: u64 = 3;
const FAILURE: u64 = 4;

impl<'a> Envelope<'a> {
    /// Writes the message to an empty buffer.
    pub(crate) fn write(&self, buffer: &mut Vec<u8>) {
        let (kind, number, token, body) = match self {
            Envelope::Request { method, token, reply_to: Some(_), body } => (REQUEST, *method, *token, *body),
            Envelope::Request { method, token, reply_to: None, body } => (EVENT, *method, *token, *body),
            Envelope::Reply { token, body } => (REPLY, 0, *token, *body),
            Envelope::Failure { token, reason } => (FAILURE, *reason, *token, &[][..]),
        };
        for word in [kind, number, token] {
            buffer.extend_from_slice(&word.to_le_bytes());
        }
        if let Envelope::Request { reply_to: Some((alias, capability)), .. } = self {
            buffer.extend_from_slice(&alias.to_bytes());
            buffer.extend_from_slice(&capability.to_bytes());
        }
        buffer.extend_from_slice(body);
    }

    /// Takes a message apart, if it is well formed.
    pub(crate) fn read(message: &'a [u8]) -> Option<Envelope<'a>> {
        let (kind, rest) = number(message)?;
        let (value, rest) = number(rest)?;
        let (token, body) = number(rest)?;
        Some(match kind {
            REQUEST => {
                let (alias, rest) = body.split_first_chunk::<16>()?;
                let (capability, body) = rest.split_first_chunk::<16>()?;
                let reply_to = Some((Alias::from_bytes(*alias), Capability::from_bytes(*capability)));
                Envelope::Request { method: value, token, reply_to, body }
            }
            EVENT => Envelope::Request { method: value, token, reply_to: None, body },
            REPLY if value == 0 => Envelope::Reply { token, body },
            FAILURE if body.is_empty() => Envelope::Failure { token, reason: value },
            _ => return None,
        })
    }
}

fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*number), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_read_as_it_was_written() {
        let address = (Alias::from_bytes([3; 16]), Capability::from_bytes([4; 16]));
        let messages = [
            Envelope::Request { method: 7, token: 8, reply_to: Some(address), body: b"body" },
            Envelope::Request { method: 7, token: 0, reply_to: None, body: b"" },
            Envelope::Reply { token: u64::MAX, body: b"result" },
            Envelope::Failure { token: 1, reason: 2 },
        ];
        for message in messages {
            let mut bytes = Vec::new();
            message.write(&mut bytes);
            assert_eq!(Envelope::read(&bytes), Some(message));
        }
    }

    #[test]
    fn cut_or_strange_messages_are_none() {
        let address = (Alias::from_bytes([3; 16]), Capability::from_bytes([4; 16]));
        let mut bytes = Vec::new();
        Envelope::Request { method: 7, token: 8, reply_to: Some(address), body: b"" }.write(&mut bytes);
        for length in 0..bytes.len() {
            assert_eq!(Envelope::read(&bytes[..length]), None);
        }
        for kind in [0, 5, u64::MAX] {
            bytes[..8].copy_from_slice(&u64::to_le_bytes(kind));
            assert_eq!(Envelope::read(&bytes), None);
        }
    }
}
