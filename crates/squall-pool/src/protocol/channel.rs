//! Messages to one peer, in order and once, over frames that may be lost, late, repeated or overtaken.
//!
//! Problem: each message changes the books of two shards, so it must count once. Idea: frames have numbers.
//! The receiver takes the next number alone, and answers with the last number taken. The sender repeats
//! the first unanswered frame, and the others once it is answered.
//!
//! - I1. Messages are taken in the order of their sending, each at most once.
//! - I2. The receiver took every message up to the number that it answers with.
//! - I3. At most [`WINDOW`] frames are sent and unanswered, and of [`WINDOW_BYTES`] unless it is one frame. A
//!   receiver keeps no frame.
//! - I4. A silent peer gets one frame at a time, after intervals that double up to [`BACKOFF`] times the
//!   first one. Each answer doubles the window again.
//!
//! Not promised: that the messages in the queue are few. The shard bounds them: by its open operations, by
//! one question of each kind, and by the questions of the peer. Sizes replace unsent ones.
//! Cost: an answer rides on the next frame to the peer, or is a frame of its own after a request.

use super::guard::Guard;
use super::message::{Frame, Message};
use super::{MemberId, Time};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The most frames that are sent and unanswered.
pub(super) const WINDOW: usize = 32;

/// The most bytes of these frames, unless it is one frame.
pub(super) const WINDOW_BYTES: usize = 1 << 20;

/// The longest interval of repetitions, in first intervals.
pub(super) const BACKOFF: Time = 16;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Channel {
    /// Messages that are not answered for.
    queue: VecDeque<Message>,
    /// The number of the last message before the queue.
    answered: u64,
    /// How many of the queue are on their way.
    sent: usize,
    /// Bytes of those.
    sent_bytes: usize,
    /// How many of the queue were sent at least once.
    numbered: usize,
    /// The most frames on their way. It is 1 once the peer is silent.
    window: usize,
    /// The present interval, in first intervals.
    backoff: Time,
    /// The number of the last message taken.
    taken: u64,
    /// The peer waits for an answer.
    owes: bool,
    resend_at: Option<Time>,
}

impl Default for Channel {
    fn default() -> Channel {
        Channel {
            queue: VecDeque::new(),
            answered: 0,
            sent: 0,
            sent_bytes: 0,
            numbered: 0,
            window: WINDOW,
            backoff: 1,
            taken: 0,
            owes: false,
            resend_at: None,
        }
    }
}

impl Channel {
    /// Appends a message, or replaces an older one of its kind that was never sent. Returns whether the queue
    /// has become longer.
    pub(super) fn push(&mut self, message: Message) -> bool {
        let mut unsent = self.queue.range_mut(self.numbered..);
        if let Some(older) = unsent.find(|older| message.replaces(older)) {
            *older = message;
            return false;
        }
        self.queue.push_back(message);
        true
    }

    /// Returns whether a frame with this message, and this answer, changes the channel's books.
    pub(super) fn is_news(&self, number: Option<u64>, seen: u64) -> bool {
        number == Some(self.taken + 1) || (seen > self.answered && !self.queue.is_empty())
    }

    /// The number of the last message taken.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// The messages that the peer may not have.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = &Message> {
        self.queue.iter()
    }

    /// Notes the peer's answer. Returns the messages that it has taken.
    pub(super) fn answered(&mut self, now: Time, seen: u64, resend: Time) -> Vec<Message> {
        let count = seen.saturating_sub(self.answered).min(self.numbered as u64) as usize;
        if count > 0 {
            self.answered += count as u64;
            self.numbered -= count;
            let arrived = self.queue.range(..count.min(self.sent));
            self.sent_bytes -= arrived.map(Message::bytes).sum::<usize>();
            self.sent = self.sent.saturating_sub(count);
            (self.window, self.backoff) = ((self.window * 2).min(WINDOW), 1);
            self.resend_at = (self.sent > 0).then(|| now.saturating_add(resend));
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
            (self.sent, self.sent_bytes, self.window) = (0, 0, 1);
            self.backoff = (self.backoff * 2).min(BACKOFF);
        }
        let before = out.len();
        while let Some(message) = self.queue.get(self.sent).filter(|_| self.sent < self.window) {
            let bytes = message.bytes();
            if self.sent > 0 && self.sent_bytes + bytes > WINDOW_BYTES {
                break;
            }
            self.sent += 1;
            self.sent_bytes += bytes;
            let number = self.answered + self.sent as u64;
            out.push(Frame { number, seen: self.taken, message: Some(message.clone()), ..frame.clone() });
        }
        self.numbered = self.numbered.max(self.sent);
        if out.len() > before {
            self.resend_at = Some(now.saturating_add(resend.saturating_mul(self.backoff)));
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
    pub(super) fn is_quiet(&self) -> bool {
        self.queue.is_empty()
    }
}

/// The channels of a shard, by peer.
pub(super) type Channels = std::collections::BTreeMap<MemberId, Channel>;

#[cfg(test)]
mod tests {
    use super::*;

    const RESEND: Time = 100;

    fn frames(channel: &mut Channel, now: Time) -> Vec<u64> {
        let mut out = Vec::new();
        channel.frames(now, RESEND, &Frame::new(0, MemberId(1), 1, 0), &mut out);
        out.iter().map(|frame| frame.number).collect()
    }

    fn large() -> Message {
        Message::Offer { transfer: 1, leaving: false, elements: vec![vec![0; 400 << 10]] }
    }

    #[test]
    fn a_silent_peer_gets_the_first_frame_alone_ever_less_often() {
        let mut channel = Channel::default();
        (0..40).for_each(|_| _ = channel.push(Message::Dry));
        assert_eq!(frames(&mut channel, 0), (1..=32).collect::<Vec<u64>>());
        let mut now = 0;
        for interval in [1, 2, 4, 8, 16, 16, 16] {
            assert_eq!(channel.wake_at(), Some(now + interval * RESEND));
            now += interval * RESEND;
            assert!(frames(&mut channel, now - 1).is_empty());
            assert_eq!(frames(&mut channel, now), [1]);
        }
        // An answer restores the interval, and by and by the window.
        channel.answered(now, 1, RESEND);
        assert_eq!(frames(&mut channel, now), [2, 3]);
        assert_eq!(channel.wake_at(), Some(now + RESEND));
        channel.answered(now, 3, RESEND);
        assert_eq!(frames(&mut channel, now), [4, 5, 6, 7]);
        // All frames had arrived, and only their answers were lost.
        channel.answered(now, 32, RESEND);
        assert_eq!(frames(&mut channel, now), (33..=40).collect::<Vec<u64>>());
        channel.answered(now, 40, RESEND);
        assert!(channel.is_quiet() && channel.wake_at().is_none());
    }

    #[test]
    fn answers_beyond_the_frames_that_were_sent_count_as_the_last_one() {
        let mut channel = Channel::default();
        (0..40).for_each(|_| _ = channel.push(Message::Dry));
        frames(&mut channel, 0);
        assert_eq!(channel.answered(0, u64::MAX, RESEND).len(), 32);
        assert_eq!(frames(&mut channel, 0), (33..=40).collect::<Vec<u64>>());
    }

    /// A frame that was sent keeps its message, for the peer may have it.
    #[test]
    fn sizes_replace_unsent_ones_alone() {
        let mut channel = Channel::default();
        let report = |len| Message::Report { len };
        let estimates = |len| Message::Estimates { sizes: vec![(MemberId(1), len)] };
        assert!(channel.push(report(1)));
        assert_eq!(frames(&mut channel, 0), [1]);
        assert_eq!(frames(&mut channel, RESEND), [1]);
        assert!(channel.push(report(2)) && channel.push(Message::Dry) && channel.push(estimates(3)));
        assert!(!channel.push(report(4)) && !channel.push(estimates(5)) && channel.push(Message::Dry));
        let expected = [report(1), report(4), Message::Dry, estimates(5), Message::Dry];
        assert!(channel.unanswered().eq(&expected));
    }

    #[test]
    fn a_window_has_a_mebibyte_or_one_frame() {
        let mut channel = Channel::default();
        (0..5).for_each(|_| _ = channel.push(large()));
        assert_eq!(frames(&mut channel, 0), [1, 2]);
        channel.answered(0, 1, RESEND);
        assert_eq!(frames(&mut channel, 0), [3]);
        channel.answered(0, 3, RESEND);
        assert_eq!(frames(&mut channel, 0), [4, 5]);
        channel.answered(0, 5, RESEND);
        let huge = Message::Offer { transfer: 1, leaving: false, elements: vec![vec![0; 2 << 20]] };
        (0..2).for_each(|_| _ = channel.push(huge.clone()));
        assert_eq!(frames(&mut channel, 0), [6]);
        channel.answered(0, 6, RESEND);
        assert_eq!(frames(&mut channel, 0), [7]);
    }
}
