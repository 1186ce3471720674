//! Replies that wait for room at their callers.
//!
//! - I1. All of them have at most [`BYTES_MAX`] bytes, with the one of each way that a task sends now.
//! - I2. At most [`COUNT_MAX`] replies wait behind those. Beyond a limit, a way loses its oldest reply: the
//!   way with most bytes, or with most replies.
//! - I3. The replies of a way leave in order.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// The most replies, over all ways.
const COUNT_MAX: usize = 1024;
/// The most bytes of replies, over all ways.
const BYTES_MAX: usize = 16 << 20;

/// The replies that wait, by their ways.
#[derive(Debug)]
pub(crate) struct Late<W> {
    queues: HashMap<W, Queue>,
    count: usize,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Queue {
    messages: VecDeque<Vec<u8>>,
    /// Bytes of `messages`, and of the message that is sent now.
    bytes: usize,
    /// Bytes of the message that is sent now.
    sending: usize,
}

impl<W: Copy + Eq + Hash> Late<W> {
    pub(crate) fn new() -> Late<W> {
        Late { queues: HashMap::new(), count: 0, bytes: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Returns whether replies of a way wait, or one is sent now.
    pub(crate) fn contains(&self, way: &W) -> bool {
        self.queues.contains_key(way)
    }

    /// Adds a reply. Returns the number of replies that were lost for it (I2).
    pub(crate) fn push(&mut self, way: W, message: Vec<u8>) -> usize {
        let queue = self.queues.entry(way).or_default();
        self.bytes += message.len();
        queue.bytes += message.len();
        self.count += 1;
        queue.messages.push_back(message);
        let mut lost = 0;
        while self.bytes > BYTES_MAX && self.lose(|queue| queue.bytes) {
            lost += 1;
        }
        while self.count > COUNT_MAX && self.lose(|queue| queue.messages.len()) {
            lost += 1;
        }
        lost
    }

    /// Drops the oldest reply of the way with most by this measure. Returns false if the ways are empty.
    fn lose(&mut self, measure: impl Fn(&Queue) -> usize) -> bool {
        let waits = self.queues.values_mut().filter(|queue| !queue.messages.is_empty());
        let Some(queue) = waits.max_by_key(|queue| measure(queue)) else { return false };
        let Some(message) = queue.messages.pop_front() else { return false };
        queue.bytes -= message.len();
        self.bytes -= message.len();
        self.count -= 1;
        true
    }

    /// Ends the sending of a reply, and takes the next one of the way to send it. Forgets a way without one.
    pub(crate) fn next(&mut self, way: &W) -> Option<Vec<u8>> {
        let queue = self.queues.get_mut(way)?;
        let sent = std::mem::take(&mut queue.sending);
        queue.bytes -= sent;
        self.bytes -= sent;
        let Some(message) = queue.messages.pop_front() else {
            self.queues.remove(way);
            return None;
        };
        queue.sending = message.len();
        self.count -= 1;
        Some(message)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn replies_leave_in_order_and_an_empty_way_is_forgotten() {
        let mut late = Late::new();
        assert_eq!((late.push(1, vec![1]), late.push(2, vec![2]), late.push(1, vec![3, 4])), (0, 0, 0));
        assert_eq!(late.next(&1), Some(vec![1]));
        assert_eq!(late.next(&1), Some(vec![3, 4]));
        assert!(late.contains(&1), "the last one is sent now");
        assert_eq!((late.next(&1), late.contains(&1)), (None, false));
        assert_eq!((late.bytes, late.count, late.is_empty()), (1, 1, false));
        assert_eq!((late.next(&2), late.next(&2)), (Some(vec![2]), None));
        assert!(late.is_empty());
        assert_eq!((late.bytes, late.count), (0, 0));
    }

    #[test]
    fn a_way_with_large_replies_loses_its_oldest_ones() {
        const LARGE: usize = 1 << 20;
        let mut late = Late::new();
        assert_eq!((late.push(1, vec![1; 100]), late.push(2, vec![0; LARGE])), (0, 0));
        // A large one is sent, and counts until it is through.
        assert_eq!(late.next(&2).map(|message| message.len()), Some(LARGE));
        let lost: usize = (1..=40_u8).map(|n| late.push(2, vec![n; LARGE])).sum();
        assert_eq!(lost, 26);
        assert!(late.bytes <= BYTES_MAX);
        // The small one of the other way is kept.
        assert_eq!(late.next(&1), Some(vec![1; 100]));
        let kept: Vec<u8> = std::iter::from_fn(|| late.next(&2)).map(|message| message[0]).collect();
        assert_eq!(kept, (27..=40).collect::<Vec<u8>>());
        assert_eq!(late.bytes, 100);
        assert_eq!(late.push(3, vec![0; BYTES_MAX + 1]), 1, "a reply beyond the limit is lost");
    }

    #[test]
    fn a_way_with_many_replies_loses_its_oldest_ones() {
        let mut late = Late::new();
        assert_eq!(late.push(1, vec![0; 1 << 20]), 0);
        let lost: usize = (0..COUNT_MAX + 9).map(|_| late.push(2, Vec::new())).sum();
        assert_eq!((lost, late.count), (10, COUNT_MAX));
        assert!(late.next(&1).is_some());
    }
}
