//! Messages to one peer, in order and once, over frames that may be lost, late, repeated or overtaken.
//!
//! Problem: each message changes the books of two shards, so it must count once. Idea: frames have numbers.
//! The receiver takes the next number alone, and answers with the last number taken. The sender repeats
//! frames until they are answered.
//!
//! - I1. Messages are taken in the order of their sending, each at most once.
//! - I2. The receiver took every message up to the number that it answers with.
//! - I3. At most [`WINDOW`] frames are sent and unanswered; a receiver keeps no frame.
//!
//! Not promised: that the messages in the queue are few. The shard bounds them by its operations.
//! Cost: an answer rides on the next frame to the peer, or is a frame of its own after a request.

use super::guard::Guard;
use super::message::{Frame, Message};
use super::{MemberId, Time};
use std::collections::VecDeque;

/// The most frames that are sent and unanswered.
const WINDOW: usize = 32;

#[derive(Debug, Default)]
pub(super) struct Channel {
    /// Messages that are not answered for.
    queue: VecDeque<Message>,
    /// The number of the last message before the queue.
    answered: u64,
    /// How many of the queue were sent.
    sent: usize,
    /// The number of the last message taken.
    taken: u64,
    /// The peer waits for an answer.
    owes: bool,
    resend_at: Option<Time>,
}

impl Channel {
    pub(super) fn push(&mut self, message: Message) {
        self.queue.push_back(message);
    }

    /// The messages that the peer may not have.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = &Message> {
        self.queue.iter()
    }

    /// Notes the peer's answer. Returns the messages that it has taken.
    pub(super) fn answered(&mut self, now: Time, seen: u64, resend: Time) -> Vec<Message> {
        let count = seen.saturating_sub(self.answered).min(self.sent as u64) as usize;
        if count > 0 {
            self.answered += count as u64;
            self.sent -= count;
            self.resend_at = (self.sent > 0).then_some(now + resend);
        }
        self.queue.drain(..count).collect()
    }

    /// Returns whether the message of a frame is taken now.
    pub(super) fn takes(&mut self, number: u64) -> bool {
        self.owes = true;
        let next = number == self.taken + 1 || Guard::OnceInOrder.is_removed();
        if next {
            self.taken = number;
        }
        next
    }

    /// Appends the frames to send now.
    pub(super) fn frames(&mut self, now: Time, resend: Time, frame: &Frame, out: &mut Vec<Frame>) {
        if self.resend_at.is_some_and(|at| now >= at) {
            self.sent = 0;
        }
        let before = out.len();
        let until = self.queue.len().min(WINDOW);
        for (message, number) in
            self.queue.range(self.sent..until).zip(self.answered + 1 + self.sent as u64..)
        {
            out.push(Frame { number, seen: self.taken, message: Some(message.clone()), ..frame.clone() });
        }
        if until > self.sent {
            self.sent = until;
            self.resend_at = Some(now + resend);
        }
        if self.owes && out.len() == before {
            out.push(Frame { seen: self.taken, ..frame.clone() });
        }
        self.owes = false;
    }

    pub(super) fn wake_at(&self) -> Option<Time> {
        self.resend_at
    }

    /// Returns whether the peer has taken all messages.
    #[cfg(test)]
    pub(super) fn is_quiet(&self) -> bool {
        self.queue.is_empty()
    }
}

/// The channels of a shard, by peer.
pub(super) type Channels = std::collections::BTreeMap<MemberId, Channel>;
