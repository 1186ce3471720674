//! The mailbox for the replies to calls, and the key that each called server gets for it.
//!
//! - I1. Each server has a key of its own, with a label of its own. A call knows the label of its server, so
//!   no other server can end it, even if it guesses the token.

use crate::call::{ENDED, LINK_ENDED, NO_REPLY, NO_ROOM};
use crate::envelope::{Address, Envelope};
use crate::{Alias, Mailbox};
use std::collections::HashMap;

/// The most servers with a key of their own. Further ones share a key, and could end each other's calls.
const KEYS_MAX: usize = 1024;

/// The keys that servers reply with.
#[derive(Debug)]
pub(crate) struct Keys {
    /// By the server's mailbox: its label, and its way to reply.
    of: HashMap<Alias, (u64, Address)>,
    shared: Address,
}

impl Keys {
    pub(crate) fn new(replies: &Mailbox) -> Keys {
        let capability = replies.add_capability().expect("a new mailbox has room for a capability");
        Keys { of: HashMap::new(), shared: (replies.alias(), capability) }
    }

    /// Returns the label and the way to reply of a server.
    pub(crate) fn get_or_add(&mut self, server: Alias, replies: &Mailbox) -> (u64, Address) {
        if let Some(found) = self.of.get(&server) {
            return *found;
        }
        let label = self.of.len() as u64 + 1;
        if self.of.len() < KEYS_MAX
            && let Ok(capability) = replies.add_labelled(label)
        {
            let key = (label, (replies.alias(), capability));
            self.of.insert(server, key);
            return key;
        }
        (0, self.shared)
    }
}

/// Takes a reply apart: its token, and the result or the reason of the failure.
pub(crate) fn read(message: &[u8]) -> Option<(u64, Result<&[u8], u64>)> {
    match Envelope::read(message)? {
        Envelope::Reply { token, body } => Some((token, Ok(body))),
        // A reason that never travels.
        Envelope::Failure { reason: ENDED | LINK_ENDED, .. } => None,
        Envelope::Failure { token, reason } => Some((token, Err(reason))),
        Envelope::Request { .. } => None,
    }
}

/// The failure that stands for a result which the mailbox of the caller never takes.
pub(crate) fn too_large(token: u64) -> Envelope<'static> {
    Envelope::Failure { token, reason: NO_ROOM }
}

/// The failure that stands for a dropped request.
pub(crate) fn dropped(token: u64) -> Envelope<'static> {
    Envelope::Failure { token, reason: NO_REPLY }
}
