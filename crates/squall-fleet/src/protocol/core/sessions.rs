//! The sessions of clients: they open, and end if their server needs room.

use super::Core;
use crate::protocol::answer::{Answer, Key};
use crate::protocol::frame::Body;
use crate::protocol::{NodeId, Time};

impl Core {
    /// Opens a session, and perhaps asks for the end of others.
    pub(super) fn open(&mut self, now: Time, from: NodeId, key: Key, nonce: u64) {
        let session = match self.serves(now, key) {
            true => self.serving.open(now, from, nonce, key, self.random.next()),
            false => Err(Answer::NotHere),
        };
        self.send(from, Body::Opened { key, nonce, session });
        for (client, key, session) in std::mem::take(&mut self.serving.releases) {
            self.send(client, Body::Reclaim { key, session });
        }
    }

    /// Ends a session of this client, if it has all results.
    pub(super) fn reclaim(&mut self, from: NodeId, key: Key, session: u64) {
        if self.client.release(key, session) {
            self.send(from, Body::Reclaimed { session });
        }
    }
}
