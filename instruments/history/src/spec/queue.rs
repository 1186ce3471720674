//! Specifications of priority queues: of a strict one, and of one that returns any of its elements.
//!
//! Elements are their priorities. So elements of equal priority need no order.

use super::Spec;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// A priority queue that returns its first element.
#[derive(Clone, Copy, Debug, Default)]
pub struct StrictQueue;

/// Elements of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Elements {
    /// Number of elements of each priority.
    counts: BTreeMap<u64, u32>,
    /// The highest priority comes first.
    highest: bool,
    closed: bool,
}

impl Elements {
    fn put(&self, priority: u64) -> (Elements, QueueRet) {
        let mut next = self.clone();
        if !self.closed {
            *next.counts.entry(priority).or_insert(0) += 1;
        }
        (next, QueueRet::Accepted(!self.closed))
    }

    fn first(&self) -> Option<u64> {
        let (first, last) = (self.counts.first_key_value(), self.counts.last_key_value());
        if self.highest { last } else { first }.map(|(priority, _)| *priority)
    }

    /// Removes one element of a priority, if there is one.
    fn remove(&mut self, priority: u64) -> bool {
        match self.counts.get_mut(&priority) {
            Some(1) => self.counts.remove(&priority).is_some(),
            Some(count) => {
                *count -= 1;
                true
            }
            None => false,
        }
    }
}

/// Operation on a strict queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueueOp {
    /// Puts an element.
    Put(u64),
    /// Removes the first element.
    Get,
    /// Asks whether the queue is empty.
    IsEmpty,
    /// Removes all elements.
    Drain,
    /// Makes the highest priority come first, or the lowest.
    Highest(bool),
    /// Closes the queue.
    Close,
}

/// Answer of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueRet {
    /// A put succeeded, or a closed queue rejected it.
    Accepted(bool),
    /// A get found an element, or an empty queue.
    Got(Option<u64>),
    /// The queue was empty, or had elements.
    Empty(bool),
    /// All elements, the first one first.
    Drained(Vec<u64>),
    /// The operation is over.
    Done,
}

impl Spec for StrictQueue {
    type State = Elements;
    type Op = QueueOp;
    type Ret = QueueRet;

    fn apply(&self, state: &Elements, op: &QueueOp) -> (Elements, QueueRet) {
        let mut next = state.clone();
        let ret = match *op {
            QueueOp::Put(priority) => return state.put(priority),
            QueueOp::Get => {
                let first = state.first();
                first.map(|first| next.remove(first));
                QueueRet::Got(first)
            }
            QueueOp::IsEmpty => QueueRet::Empty(state.counts.is_empty()),
            QueueOp::Drain => {
                let counts = std::mem::take(&mut next.counts);
                let mut all: Vec<u64> =
                    counts.into_iter().flat_map(|(it, count)| (0..count).map(move |_| it)).collect();
                if state.highest {
                    all.reverse();
                }
                QueueRet::Drained(all)
            }
            QueueOp::Highest(highest) => {
                next.highest = highest;
                QueueRet::Done
            }
            QueueOp::Close => {
                next.closed = true;
                QueueRet::Done
            }
        };
        (next, ret)
    }

    fn only_reads(&self, op: &QueueOp) -> bool {
        matches!(op, QueueOp::IsEmpty)
    }
}

/// A queue that returns any of its elements, but says that it is empty only if it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnyQueue;

/// Operation on a queue that returns any element.
#[derive(Clone, Debug)]
pub enum AnyOp {
    /// Puts an element.
    Put(u64),
    /// Removes an element: the one that the thread notes when the call is over. Its answer is
    /// [`QueueRet::Done`].
    Get(Arc<OnceLock<Option<u64>>>),
    /// Asks whether the queue is empty.
    IsEmpty,
    /// Closes the queue.
    Close,
}

impl Spec for AnyQueue {
    type State = Elements;
    type Op = AnyOp;
    type Ret = QueueRet;

    fn apply(&self, state: &Elements, op: &AnyOp) -> (Elements, QueueRet) {
        let mut next = state.clone();
        let ret = match op {
            AnyOp::Put(priority) => return state.put(*priority),
            AnyOp::Get(got) => {
                let fits = match got.get() {
                    Some(Some(priority)) => next.remove(*priority),
                    Some(None) => state.counts.is_empty(),
                    None => false,
                };
                if fits { QueueRet::Done } else { QueueRet::Got(None) }
            }
            AnyOp::IsEmpty => QueueRet::Empty(state.counts.is_empty()),
            AnyOp::Close => {
                next.closed = true;
                QueueRet::Done
            }
        };
        (next, ret)
    }

    fn only_reads(&self, op: &AnyOp) -> bool {
        matches!(op, AnyOp::IsEmpty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Event::{Answer, Ask};
    use crate::{Checker, History};

    fn checks(events: impl IntoIterator<Item = crate::Event<QueueOp, QueueRet>>) -> bool {
        Checker::new(StrictQueue, Elements::default()).check(&History::from_events(events)).is_ok()
    }

    #[test]
    fn a_strict_queue_returns_the_first_element() {
        let got = |first, second| {
            checks([
                Ask(0, QueueOp::Put(2)),
                Answer(0, QueueRet::Accepted(true)),
                Ask(0, QueueOp::Put(1)),
                Answer(0, QueueRet::Accepted(true)),
                Ask(1, QueueOp::Get),
                Answer(1, QueueRet::Got(first)),
                Ask(0, QueueOp::Get),
                Answer(0, QueueRet::Got(second)),
            ])
        };
        assert!(got(Some(1), Some(2)));
        assert!(!got(Some(2), Some(1)) && !got(Some(1), Some(1)) && !got(Some(1), None));
    }

    #[test]
    fn a_get_may_miss_an_element_whose_put_overlaps() {
        let missed = |overlaps: bool| {
            let mut events = vec![Ask(0, QueueOp::Put(2)), Answer(0, QueueRet::Accepted(true))];
            events.insert(if overlaps { 1 } else { 2 }, Ask(1, QueueOp::Get));
            events.push(Answer(1, QueueRet::Got(None)));
            checks(events)
        };
        assert!(missed(true) && !missed(false));
    }

    #[test]
    fn closing_order_and_drains_are_part_of_the_state() {
        let (state, _) = StrictQueue.apply(&Elements::default(), &QueueOp::Put(3));
        let (state, _) = StrictQueue.apply(&state, &QueueOp::Put(5));
        let (state, _) = StrictQueue.apply(&state, &QueueOp::Highest(true));
        let (state, _) = StrictQueue.apply(&state, &QueueOp::Close);
        assert_eq!(StrictQueue.apply(&state, &QueueOp::Put(9)).1, QueueRet::Accepted(false));
        assert_eq!(StrictQueue.apply(&state, &QueueOp::Get).1, QueueRet::Got(Some(5)));
        assert_eq!(StrictQueue.apply(&state, &QueueOp::Drain).1, QueueRet::Drained(vec![5, 3]));
    }

    #[test]
    fn any_element_fits_once_and_empty_must_be_true() {
        let got = |first: Option<u64>, second: Option<u64>| {
            let get = |got| AnyOp::Get(Arc::new(OnceLock::from(got)));
            let history = History::from_events([
                Ask(0, AnyOp::Put(2)),
                Answer(0, QueueRet::Accepted(true)),
                Ask(0, AnyOp::Put(1)),
                Answer(0, QueueRet::Accepted(true)),
                Ask(1, get(first)),
                Answer(1, QueueRet::Done),
                Ask(0, get(second)),
                Answer(0, QueueRet::Done),
            ]);
            Checker::new(AnyQueue, Elements::default()).check(&history).is_ok()
        };
        assert!(got(Some(1), Some(2)) && got(Some(2), Some(1)));
        assert!(!got(Some(2), Some(2)) && !got(Some(3), Some(1)) && !got(Some(1), None));
    }
}
