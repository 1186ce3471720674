//! The format of requests and replies: a head, and the body behind it.
//!
//! | bytes | content |
//! |---|---|
//! | 8 | the kind: a request (of a mailbox or a link, with a key or not), an event, a reply, or a failure |
//! | 8 | the method of a request, or the reason of a failure |
//! | 8 | the token of the call |
//! | 32 | of a request of a mailbox: alias and capability of the mailbox for the reply |
//! | 16 | of a request with a key: its session, and the number of the call in it |
//!
//! An event is a request without a reply. A session of 0 asks for a session. The number is a nonce then.
//!
//! Numbers are little-endian. A sender may be hostile, so each field is checked.
//! Source: Wentzlaff 2012, §3.2.2 and §3.3: a message begins with its type, and carries where the reply goes.

use crate::{Alias, Capability};

/// The bytes before the body of a reply.
pub(crate) const HEAD: usize = 24;

/// The address of a reply.
pub(crate) type Address = (Alias, Capability);

/// The destination of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    Mailbox(Address),
    /// The link by which the request came.
    Link,
}

/// The key of a call that may be sent again (`once.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) session: u64,
    pub(crate) number: u64,
}

/// A message, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Envelope<'a> {
    Request {
        method: u64,
        token: u64,
        reply_to: Option<Destination>,
        /// Only with a reply.
        key: Option<Key>,
        body: &'a [u8],
    },
    Reply {
        token: u64,
        body: &'a [u8],
    },
    Failure {
        token: u64,
        reason: u64,
    },
}

const REQUEST: u64 = 1;
const EVENT: u64 = 2;
const REPLY: u64 = 3;
const FAILURE: u64 = 4;
const LINK_REQUEST: u64 = 5;
/// Added to the kind of a request with a key.
const KEYED: u64 = 8;
const KEYED_REQUEST: u64 = REQUEST + KEYED;
const KEYED_LINK_REQUEST: u64 = LINK_REQUEST + KEYED;

impl<'a> Envelope<'a> {
    /// Writes the message to an empty buffer.
    pub(crate) fn write(&self, buffer: &mut Vec<u8>) {
        let (kind, number, token, body) = match self {
            Envelope::Request { method, token, reply_to, key, body } => {
                let keyed = if key.is_some() { KEYED } else { 0 };
                let kind = match reply_to {
                    Some(Destination::Mailbox(_)) => REQUEST + keyed,
                    Some(Destination::Link) => LINK_REQUEST + keyed,
                    None => EVENT,
                };
                (kind, *method, *token, *body)
            }
            Envelope::Reply { token, body } => (REPLY, 0, *token, *body),
            Envelope::Failure { token, reason } => (FAILURE, *reason, *token, &[][..]),
        };
        for word in [kind, number, token] {
            buffer.extend_from_slice(&word.to_le_bytes());
        }
        if let Envelope::Request { reply_to: Some(Destination::Mailbox((alias, capability))), .. } = self {
            buffer.extend_from_slice(&alias.to_bytes());
            buffer.extend_from_slice(&capability.to_bytes());
        }
        if let Envelope::Request { reply_to: Some(_), key: Some(Key { session, number }), .. } = self {
            buffer.extend_from_slice(&session.to_le_bytes());
            buffer.extend_from_slice(&number.to_le_bytes());
        }
        buffer.extend_from_slice(body);
    }

    /// Takes a message apart, if it is well formed.
    pub(crate) fn read(message: &'a [u8]) -> Option<Envelope<'a>> {
        let (kind, rest) = number(message)?;
        let (value, rest) = number(rest)?;
        let (token, body) = number(rest)?;
        Some(match kind {
            REQUEST | LINK_REQUEST | KEYED_REQUEST | KEYED_LINK_REQUEST => {
                let (reply_to, body) = match kind & !KEYED {
                    REQUEST => {
                        let (alias, rest) = body.split_first_chunk::<16>()?;
                        let (capability, body) = rest.split_first_chunk::<16>()?;
                        let address = (Alias::from_bytes(*alias), Capability::from_bytes(*capability));
                        (Destination::Mailbox(address), body)
                    }
                    _ => (Destination::Link, body),
                };
                let (key, body) = match kind & KEYED {
                    0 => (None, body),
                    _ => {
                        let (session, rest) = number(body)?;
                        let (number, body) = self::number(rest)?;
                        (Some(Key { session, number }), body)
                    }
                };
                Envelope::Request { method: value, token, reply_to: Some(reply_to), key, body }
            }
            EVENT => Envelope::Request { method: value, token, reply_to: None, key: None, body },
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
        let (reply_to, link) = (Some(Destination::Mailbox(address)), Some(Destination::Link));
        let some_key = Some(Key { session: 5, number: 6 });
        let request = |reply_to, key, body| Envelope::Request { method: 7, token: 8, reply_to, key, body };
        let messages = [
            request(reply_to, None, b"body"),
            request(link, None, b"body"),
            request(reply_to, some_key, b"body"),
            request(link, some_key, b""),
            request(None, None, b""),
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
        let address = Destination::Mailbox((Alias::from_bytes([3; 16]), Capability::from_bytes([4; 16])));
        let key = Some(Key { session: 5, number: 6 });
        for (reply_to, key) in [(address, None), (address, key), (Destination::Link, key)] {
            let mut bytes = Vec::new();
            Envelope::Request { method: 7, token: 8, reply_to: Some(reply_to), key, body: b"" }
                .write(&mut bytes);
            for length in 0..bytes.len() {
                assert_eq!(Envelope::read(&bytes[..length]), None);
            }
        }
        let mut bytes = vec![0; 200];
        for kind in [0, 6, 7, 8, 10, 11, 12, u64::MAX] {
            bytes[..8].copy_from_slice(&u64::to_le_bytes(kind));
            assert_eq!(Envelope::read(&bytes), None);
        }
    }
}
