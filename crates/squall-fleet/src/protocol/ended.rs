//! The sessions that have ended at a server.
//!
//! Problem: a copy of a call may arrive after the end of its session. A server that has forgotten the session
//! cannot tell it from one that it never had. Then its client would be told that the call may have run,
//! though it did not, or would run it twice.
//! Idea: both sides use their clocks. A client takes a refusal for certain only for a call that it has sent
//! once, less than [`CERTAIN`] ago. So a session that ended before the call was sent need not be remembered.
//!
//! - I1. A session that has ended less than [`REMEMBERED`] ago is known. That is longer than [`CERTAIN`] by
//!   any two clocks. Their rates differ by less than a tenth (`protocol/I3`).
//! - I2. At most `ENDED_MAX` sessions are remembered. If one more ends in that time, each unknown session
//!   counts as known until the forgotten one would have been forgotten anyway.
//!
//! Not promised: the certainty that a call did not run, for `REMEMBERED` after more than `ENDED_MAX` sessions
//! have ended in that time. Their clients are told that the call may have run. No new session is refused.
//! Cost: two entries for each session that has ended lately.

use super::Time;
use std::collections::{BTreeMap, VecDeque};

/// A refusal of a call is certain if the call was sent less than this time ago.
pub(super) const CERTAIN: Time = 60_000_000;
/// An ended session is remembered for this time.
const REMEMBERED: Time = 2 * CERTAIN;
const _: () = assert!(REMEMBERED * 9 / 10 > CERTAIN, "the rates of clocks differ by less than a tenth");
/// The most ended sessions that a node remembers.
const ENDED_MAX: usize = 65_536;

#[derive(Debug, Default)]
pub(super) struct Ended {
    /// When each session has ended.
    at: BTreeMap<u64, Time>,
    /// The sessions in the order of their ends. Some are in use again.
    order: VecDeque<(Time, u64)>,
    /// Each unknown session counts as known until this time (I2).
    unsure_until: Time,
}

impl Ended {
    /// Notes that a session ends now.
    pub(super) fn add(&mut self, now: Time, session: u64) {
        self.at.insert(session, now);
        self.order.push_back((now, session));
        while let Some((at, oldest)) = self.order.front().copied() {
            if at + REMEMBERED > now {
                if self.order.len() <= ENDED_MAX {
                    break;
                }
                self.unsure_until = at + REMEMBERED;
            }
            self.order.pop_front();
            if self.at.get(&oldest) == Some(&at) {
                self.at.remove(&oldest);
            }
        }
    }

    /// Notes that a session is in use again: it has come back with its shard.
    pub(super) fn remove(&mut self, session: u64) {
        self.at.remove(&session);
    }

    /// Returns whether a session may have ended so lately that a copy of a call may have run in it.
    pub(super) fn may_have(&self, now: Time, session: u64) -> bool {
        now < self.unsure_until || self.at.get(&session).is_some_and(|at| now < at + REMEMBERED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ended_session_is_known_for_longer_than_its_client_is_certain() {
        let mut ended = Ended::default();
        ended.add(5, 1);
        assert!(ended.may_have(4 + REMEMBERED, 1) && !ended.may_have(5 + REMEMBERED, 1));
        assert!(!ended.may_have(5, 2));
        // It has come back, and ends again.
        ended.remove(1);
        assert!(!ended.may_have(6, 1));
        ended.add(100, 1);
        ended.add(5 + REMEMBERED, 2);
        assert!(ended.may_have(6 + REMEMBERED, 1), "its first end is forgotten alone");
    }

    #[test]
    fn unknown_sessions_count_as_known_only_for_a_time() {
        let mut ended = Ended::default();
        (0..ENDED_MAX as u64).for_each(|session| ended.add(7, session));
        assert!(!ended.may_have(8, u64::MAX));
        ended.add(8, ENDED_MAX as u64);
        assert!(ended.may_have(8, u64::MAX) && ended.may_have(8, 0));
        assert_eq!((ended.at.len(), ended.order.len()), (ENDED_MAX, ENDED_MAX));
        assert!(!ended.may_have(7 + REMEMBERED, u64::MAX) && !ended.may_have(7 + REMEMBERED, 1));
        assert!(ended.may_have(7 + REMEMBERED, ENDED_MAX as u64));
        ended.add(8 + REMEMBERED, 1);
        assert_eq!((ended.at.len(), ended.order.len()), (1, 1));
    }
}
