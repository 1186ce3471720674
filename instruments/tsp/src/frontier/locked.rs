//! The reference: std's heap under std's lock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Mutex, MutexGuard};

use super::{Frontier, FrontierCounts, priority};
use crate::Node;

/// One heap for all searchers, under one lock of std.
///
/// ```
/// use squall_tsp::{Frontier, Instance, Locked, Node};
///
/// let instance = Instance::new("three", vec![0, 1, 9, 9, 0, 1, 1, 9, 0]).unwrap();
/// let frontier = Locked::default();
/// frontier.put(0, Node::root(&instance).unwrap());
/// assert!(frontier.get(1).is_some() && frontier.get(0).is_none());
/// assert_eq!(frontier.counts().remote_gets, Some(1));
/// ```
#[derive(Debug, Default)]
pub struct Locked {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    heap: BinaryHeap<Entry>,
    puts: u64,
    gets: u64,
    remote_gets: u64,
}

/// A subproblem with its priority and its number. The greatest entry is the first subproblem.
#[derive(Debug)]
struct Entry(Reverse<(u64, u64)>, Node);

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.0 == other.0
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

impl Locked {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no call panics under the lock")
    }
}

impl Frontier for Locked {
    fn put(&self, _: usize, node: Node) {
        let mut state = self.lock();
        state.puts += 1;
        let number = state.puts;
        state.heap.push(Entry(Reverse((priority(&node), number)), node));
    }

    fn get(&self, searcher: usize) -> Option<Node> {
        let mut state = self.lock();
        let Entry(_, node) = state.heap.pop()?;
        state.gets += 1;
        state.remote_gets += u64::from(searcher != 0);
        Some(node)
    }

    fn counts(&self) -> FrontierCounts {
        let state = self.lock();
        FrontierCounts { gets: state.gets, remote_gets: Some(state.remote_gets), moved: 0 }
    }
}
