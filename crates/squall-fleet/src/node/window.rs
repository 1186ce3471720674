//! The messages of a sender on their way: those of the call under way, and those that wait behind it.
//!
//! Problem: a sender that waits for the fate of each message sends one in each round trip. Several calls at
//! once would overtake each other.
//! Idea: one call at a time carries all messages that have waited for the end of the call before. This is
//! the state of it, without a lock and without a clock.
//!
//! - I1. One call is under way at a time. It carries the oldest messages, in their order.
//! - I2. A message that finds no room, or an ended mailbox, refuses all messages behind it. So messages that
//!   are sent again keep their order.
//! - I3. A call has the limit of its first message, and carries none with an earlier limit. If a call has not
//!   run, its messages wait for the next one, each until its own limit.
//! - I4. Each message gets one fate.
//! - I5. At most `MESSAGES_MAX` messages and `BYTES_MAX` bytes are on their way. One larger message may go
//!   alone.
//!
//! Not promised: the longest limit for messages of one call. If the call ends by the limit of the first
//! message, and may have run, the others share its fate.
//! Cost: a queue. Source: Nagle, *Congestion control in IP/TCP internetworks*, RFC 896, 1984.

use super::wire::{Delivered, KEY, LENGTH, MESSAGES_MAX};
use crate::Fate;
use crate::protocol::{LARGEST_BODY, Time};
use std::collections::VecDeque;

squall_sys::__safeguards! {
    /// A condition, without which the window breaks an invariant.
    pub(crate) enum Guard {
        /// A call begins after the end of the one before.
        OneCall,
        /// A message that finds no room refuses those behind it.
        RefusedBehind,
        /// A call carries no message with an earlier limit than its own.
        EarlierLimit,
        /// The messages of a call that has not run wait again.
        WaitsAgain,
    }
}

/// The most bytes of the messages of a sender on their way.
const BYTES_MAX: usize = 1 << 20;

/// A message on its way, and the receiver of its fate.
#[derive(Debug)]
pub(super) struct Message<T> {
    pub(super) bytes: Vec<u8>,
    /// The end of its limit.
    pub(super) deadline: Time,
    pub(super) fate: T,
}

/// The fate of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// The mailbox's answer.
    Delivered(Delivered),
    /// The service of the name is no mailbox.
    NoMailbox,
    /// The call has no result.
    Lost(Fate),
}

#[derive(Debug)]
pub(super) struct Window<T> {
    waiting: VecDeque<Message<T>>,
    /// The messages of the call under way. Without a call 0.
    carried: usize,
    /// The bytes of all messages on their way.
    bytes: usize,
    /// A message may still arrive, though its call has ended.
    uncertain: bool,
}

impl<T> Window<T> {
    pub(super) fn new() -> Window<T> {
        Window { waiting: VecDeque::new(), carried: 0, bytes: 0, uncertain: false }
    }

    /// Returns whether all messages before are in the mailbox, or never will be.
    pub(super) fn is_settled(&self) -> bool {
        self.carried == 0 && self.waiting.is_empty() && !self.uncertain
    }

    #[cfg(test)]
    pub(super) fn make_uncertain(&mut self) {
        self.uncertain = true;
    }

    /// Adds a message, or returns it if there is no room (I5).
    pub(super) fn push(&mut self, message: Message<T>) -> Result<(), Message<T>> {
        let messages = self.carried + self.waiting.len();
        let bytes = self.bytes + message.bytes.len();
        if messages >= MESSAGES_MAX || (messages > 0 && bytes > BYTES_MAX) {
            return Err(message);
        }
        self.bytes = bytes;
        self.waiting.push_back(message);
        Ok(())
    }

    /// Returns the messages of the next call, unless one is under way or no message waits (I1, I3).
    pub(super) fn begin(&mut self) -> Option<Vec<Message<T>>> {
        if Guard::OneCall.and(self.carried > 0) {
            return None;
        }
        let limit = self.waiting.front()?.deadline;
        let mut bytes = KEY;
        let fits = |message: &&Message<T>| {
            bytes += LENGTH + message.bytes.len();
            bytes <= LARGEST_BODY && Guard::EarlierLimit.or(message.deadline >= limit)
        };
        let count = self.waiting.iter().take_while(fits).count().max(1);
        self.carried += count;
        Some(self.waiting.drain(..count).collect())
    }

    /// Ends the call that has carried these messages. Returns the fates that are certain now.
    pub(super) fn end(
        &mut self,
        now: Time,
        messages: Vec<Message<T>>,
        result: Result<Vec<u8>, Fate>,
    ) -> Vec<(T, Told)> {
        self.carried -= messages.len();
        self.uncertain = match &result {
            Ok(_) => false,
            Err(fate) => self.uncertain || fate.may_have_run(),
        };
        match result {
            Ok(bytes) => match Delivered::decode(&bytes).filter(|told| told.len() == messages.len()) {
                Some(delivered) => {
                    let refusal = delivered.iter().find(|delivered| delivered.refuses_next()).copied();
                    let told = delivered.into_iter().map(Told::Delivered);
                    let mut fates = self.settle(messages.into_iter().zip(told));
                    if let Some(refusal) = refusal.filter(|_| !Guard::RefusedBehind.is_removed()) {
                        fates.extend(self.refuse(Told::Delivered(refusal)));
                    }
                    fates
                }
                None => self.settle_all(messages, Told::NoMailbox),
            },
            // A mailbox drops no call of a sender, so another service has the name.
            Err(Fate::Dropped) => self.settle_all(messages, Told::NoMailbox),
            Err(Fate::Closed) => {
                let mut fates = self.settle_all(messages, Told::Lost(Fate::Closed));
                fates.extend(self.refuse(Told::Lost(Fate::Closed)));
                fates
            }
            Err(fate) if fate.may_have_run() => self.settle_all(messages, Told::Lost(fate)),
            Err(fate) => {
                // The first one has waited for its limit (I3).
                let mut is_first = true;
                let ends = |message: &Message<T>| {
                    std::mem::take(&mut is_first) || message.deadline <= now || Guard::WaitsAgain.is_removed()
                };
                let (ended, again): (Vec<_>, Vec<_>) = messages.into_iter().partition(ends);
                again.into_iter().rev().for_each(|message| self.waiting.push_front(message));
                self.settle_all(ended, Told::Lost(fate))
            }
        }
    }

    /// Ends the messages that have waited until their limits. Returns their fates.
    pub(super) fn expire(&mut self, now: Time) -> Vec<(T, Told)> {
        let waiting = std::mem::take(&mut self.waiting);
        let (ended, waiting): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|message| message.deadline <= now);
        self.waiting = waiting.into();
        self.settle_all(ended, Told::Lost(Fate::NotAccepted))
    }

    /// Returns the earliest limit of a message that waits.
    pub(super) fn next_limit(&self) -> Option<Time> {
        self.waiting.iter().map(|message| message.deadline).min()
    }

    /// Refuses all messages that wait.
    fn refuse(&mut self, told: Told) -> Vec<(T, Told)> {
        let waiting = std::mem::take(&mut self.waiting);
        self.settle_all(waiting.into(), told)
    }

    fn settle_all(&mut self, messages: Vec<Message<T>>, told: Told) -> Vec<(T, Told)> {
        self.settle(messages.into_iter().map(|message| (message, told)))
    }

    fn settle(&mut self, messages: impl Iterator<Item = (Message<T>, Told)>) -> Vec<(T, Told)> {
        let fate = |(message, told): (Message<T>, Told)| {
            self.bytes -= message.bytes.len();
            (message.fate, told)
        };
        messages.map(fate).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::wire::LARGEST;
    use crate::protocol::Random;
    use std::collections::BTreeMap;

    fn message(number: u64, deadline: Time) -> Message<u64> {
        Message { bytes: number.to_le_bytes().to_vec(), deadline, fate: number }
    }

    fn numbers(messages: &[Message<u64>]) -> Vec<u64> {
        messages.iter().map(|message| message.fate).collect()
    }

    fn window(messages: &[(u64, Time)]) -> Window<u64> {
        let mut window = Window::new();
        messages.iter().for_each(|(number, deadline)| window.push(message(*number, *deadline)).unwrap());
        window
    }

    #[test]
    fn a_call_carries_all_messages_that_wait() {
        let mut window = window(&[(1, 10)]);
        let first = window.begin().unwrap();
        (2..5).for_each(|number| window.push(message(number, 10)).unwrap());
        assert!(window.begin().is_none(), "a call is under way");
        let accepted = [Delivered::Accepted; 3];
        let told = window.end(1, first, Ok(Delivered::encode(&accepted[..1])));
        assert_eq!(told, [(1, Told::Delivered(Delivered::Accepted))]);
        let next = window.begin().unwrap();
        assert_eq!(numbers(&next), [2, 3, 4]);
        assert!(!window.is_settled());
        assert_eq!(window.end(1, next, Ok(Delivered::encode(&accepted))).len(), 3);
        assert!(window.is_settled() && window.bytes == 0);
    }

    #[test]
    fn a_message_waits_at_most_until_its_own_limit() {
        let mut window = window(&[(1, 100), (2, 50), (3, 200)]);
        let first = window.begin().unwrap();
        assert_eq!((numbers(&first), window.next_limit()), (vec![1], Some(50)));
        assert_eq!(window.expire(49), []);
        assert_eq!(window.expire(50), [(2, Told::Lost(Fate::NotAccepted))]);
        assert_eq!(window.end(100, first, Err(Fate::NoService)), [(1, Told::Lost(Fate::NoService))]);
        // The messages behind a call that has not run go on.
        window.push(message(4, 300)).unwrap();
        let next = window.begin().unwrap();
        assert_eq!(numbers(&next), [3, 4]);
        assert_eq!(window.end(200, next, Err(Fate::NotAccepted)), [(3, Told::Lost(Fate::NotAccepted))]);
        let last = window.begin().unwrap();
        assert_eq!(numbers(&last), [4]);
        assert_eq!(window.end(300, last, Err(Fate::TimedOut)), [(4, Told::Lost(Fate::TimedOut))]);
        assert!(window.uncertain && window.bytes == 0);
    }

    #[test]
    fn the_window_has_a_limit_of_messages_and_one_of_bytes() {
        let mut window = window(&[]);
        (0..MESSAGES_MAX as u64).for_each(|number| window.push(message(number, 1)).unwrap());
        assert_eq!(window.push(message(99, 1)).unwrap_err().fate, 99);
        let mut window = self::window(&[]);
        let large = |bytes| Message { bytes: vec![0; bytes], deadline: 1, fate: 0 };
        window.push(large(LARGEST)).unwrap();
        assert!(window.push(large(BYTES_MAX - LARGEST + 1)).is_err());
        window.push(large(BYTES_MAX - LARGEST)).unwrap();
        let first = window.begin().unwrap();
        assert_eq!(first.len(), 1, "both are larger than a frame");
        assert_eq!(KEY + LENGTH + first[0].bytes.len(), LARGEST_BODY);
    }

    /// Plays schedules of a sender, a mailbox that is full at times, and a network that loses calls and
    /// answers. Returns the first violation.
    fn violation(seed: u64) -> Option<&'static str> {
        let mut random = Random::new(seed);
        let (mut window, mut calls) = (Window::new(), Vec::new());
        let (mut now, mut sent) = (0, 0);
        // The messages in the mailbox, those that are to be sent again, and the limits of those on their way.
        let (mut mailbox, mut refused, mut limits) = (Vec::new(), Vec::new(), BTreeMap::new());
        while sent < 200 || !limits.is_empty() {
            now += random.below(4);
            if random.below(3) > 0 && sent < 200 {
                sent += 1;
                let deadline = now + random.below(60);
                if window.push(message(sent, deadline)).is_ok() {
                    limits.insert(sent, deadline);
                }
            }
            if random.below(2) == 0 {
                calls.extend(window.begin());
            }
            if calls.len() > 1 {
                return Some("two calls are under way");
            }
            let mut fates = window.expire(now);
            if let Some(messages) =
                calls.pop_if(|call: &mut Vec<Message<u64>>| now >= call[0].deadline || random.below(4) == 0)
            {
                if messages.iter().any(|message| message.deadline < messages[0].deadline) {
                    return Some("a message waits beyond its limit");
                }
                let is_late = now >= messages[0].deadline;
                let result = match random.below(4) {
                    0 if is_late => Err(Fate::NotAccepted),
                    1 => Err(Fate::ServerLost),
                    _ => {
                        let room = if random.below(3) == 0 { random.below(8) as usize } else { 64 };
                        let told = |at| if at < room { Delivered::Accepted } else { Delivered::Full };
                        let told: Vec<Delivered> = (0..messages.len()).map(told).collect();
                        mailbox.extend(numbers(&messages).into_iter().take(room));
                        Ok(Delivered::encode(&told))
                    }
                };
                fates.extend(window.end(now, messages, result));
            }
            for (number, told) in fates {
                let Some(limit) = limits.remove(&number) else { return Some("a message has two fates") };
                match told {
                    Told::Delivered(Delivered::Full) => refused.push(number),
                    Told::Lost(Fate::NotAccepted) if now < limit => {
                        return Some("a message was given up before its limit");
                    }
                    _ => {}
                }
            }
            // The sender sends the refused ones again. No message behind them on its way may pass them.
            let first = refused.iter().min();
            if first.is_some_and(|first| limits.keys().any(|number| number > first)) {
                return Some("a message passes a refused one");
            }
            refused.clear();
            if !mailbox.is_sorted() {
                return Some("the mailbox has another order");
            }
        }
        (window.bytes > 0 || window.carried > 0).then_some("the window counts messages that have a fate")
    }

    #[test]
    fn schedules_break_no_invariant_and_each_safeguard_is_missed() {
        let first_violation = || (0..1_000).find_map(violation);
        assert_eq!(first_violation(), None);
        for (guard, expected) in [
            (Guard::OneCall, "two calls are under way"),
            (Guard::RefusedBehind, "a message passes a refused one"),
            (Guard::EarlierLimit, "a message waits beyond its limit"),
            (Guard::WaitsAgain, "a message was given up before its limit"),
        ] {
            assert_eq!(Guard::without(Some(guard), first_violation), Some(expected), "{guard:?}");
        }
        assert_eq!(Guard::ALL.len(), 4);
    }
}
