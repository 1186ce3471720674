//! The reference: std's heap under one lock.
//!
//! Source: KTK, §5.2 and table 4: the lock of the central queue, blocking and configurable.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Mutex;

use squall::lock::{ConfigurableLock, Scheduling, Waiting};
use squall::objects::lock::AdaptiveLock;

use super::{Frontier, FrontierCounts, priority};
use crate::Node;

/// The lock of the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// std's mutex.
    Std,
    /// A lock of Squall. A waiting thread sleeps at once.
    Blocking,
    /// A lock of Squall that changes its way of waiting with its load.
    Adaptive,
}

impl Lock {
    /// All locks.
    pub const ALL: [Lock; 3] = [Lock::Std, Lock::Blocking, Lock::Adaptive];

    /// The name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Lock::Std => "lock-std",
            Lock::Blocking => "lock-blocking",
            Lock::Adaptive => "lock-adaptive",
        }
    }
}

/// One heap for all searchers, under one lock.
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
pub struct Locked(Kind);

enum Kind {
    Std(Mutex<State>),
    Blocking(ConfigurableLock<State>),
    Adaptive(AdaptiveLock<State>),
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
    /// Makes an empty heap under this lock.
    #[must_use]
    pub fn new(lock: Lock) -> Locked {
        let state = State::default();
        Locked(match lock {
            Lock::Std => Kind::Std(Mutex::new(state)),
            Lock::Blocking => {
                let scheduling = Scheduling::FREE_FOR_ALL;
                Kind::Blocking(ConfigurableLock::with(state, Waiting::BLOCK, scheduling))
            }
            Lock::Adaptive => Kind::Adaptive(AdaptiveLock::new(state)),
        })
    }

    fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        match &self.0 {
            Kind::Std(lock) => f(&mut lock.lock().expect("no call panics under the lock")),
            Kind::Blocking(lock) => f(&mut lock.lock()),
            Kind::Adaptive(lock) => f(&mut lock.lock()),
        }
    }
}

impl Default for Locked {
    /// A heap under std's mutex.
    fn default() -> Locked {
        Locked::new(Lock::Std)
    }
}

impl Frontier for Locked {
    fn put(&self, _: usize, node: Node) {
        let priority = priority(&node);
        self.with(|state| {
            state.puts += 1;
            state.heap.push(Entry(Reverse((priority, state.puts)), node));
        });
    }

    fn get(&self, searcher: usize) -> Option<Node> {
        self.with(|state| {
            let Entry(_, node) = state.heap.pop()?;
            state.gets += 1;
            state.remote_gets += u64::from(searcher != 0);
            Some(node)
        })
    }

    fn counts(&self) -> FrontierCounts {
        self.with(|state| FrontierCounts { gets: state.gets, remote_gets: Some(state.remote_gets), moved: 0 })
    }
}
