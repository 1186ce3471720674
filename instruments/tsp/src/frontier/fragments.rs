//! The forms of KTK's queue as plain fragments behind locks: the reference of the searches.
//!
//! - I1. A subproblem is in one fragment, or in the hands of one call.
//! - I2. A call holds one lock at a time.
//!
//! Source: KTK, §4 (KT-11 to KT-13): central, distributed, and distributed with a ring.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard};

use super::{Frontier, FrontierCounts, priority};
use crate::Node;

/// A form of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// One ordered fragment for all, at the first searcher.
    Central,
    /// A fragment per searcher without any order. A searcher asks other fragments if its own is empty.
    Naive,
    /// An ordered fragment per searcher, without balance.
    Ordered,
    /// An ordered fragment per searcher. After every second get from its own fragment, a searcher moves that
    /// fragment's second best subproblem to the next one on the ring.
    Ring,
}

impl Model {
    /// All forms.
    pub const ALL: [Model; 4] = [Model::Central, Model::Naive, Model::Ordered, Model::Ring];

    /// The name in tables and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Model::Central => "central",
            Model::Naive => "naive",
            Model::Ordered => "ordered",
            Model::Ring => "ring",
        }
    }
}

/// Gets from a searcher's own fragment between two moves on the ring.
const BALANCE_EVERY: u64 = 2;

/// One fragment, with the counts of its searcher.
#[derive(Default)]
struct Fragment {
    /// Subproblems by priority, those of one priority in the order of their puts.
    ordered: BTreeMap<(u64, u64), Node>,
    unordered: VecDeque<Node>,
    puts: u64,
    counts: FrontierCounts,
}

impl Fragment {
    fn put(&mut self, model: Model, node: Node) {
        if model == Model::Naive {
            self.unordered.push_back(node);
        } else {
            self.puts += 1;
            self.ordered.insert((priority(&node), self.puts), node);
        }
    }

    fn get(&mut self) -> Option<Node> {
        self.ordered.pop_first().map(|(_, node)| node).or_else(|| self.unordered.pop_front())
    }

    fn take_second(&mut self) -> Option<Node> {
        let second = self.ordered.keys().nth(1).copied()?;
        self.ordered.remove(&second)
    }
}

/// Subproblems in fragments, one per searcher.
///
/// ```
/// use squall_tsp::{Fragments, Frontier, Instance, Model, Node};
///
/// let instance = Instance::new("three", vec![0, 1, 9, 9, 0, 1, 1, 9, 0]).unwrap();
/// let frontier = Fragments::new(Model::Naive, 2);
/// frontier.put(0, Node::root(&instance).unwrap());
/// assert!(frontier.get(1).is_some());
/// assert_eq!(frontier.counts().remote_gets, 1);
/// ```
pub struct Fragments {
    model: Model,
    fragments: Vec<Mutex<Fragment>>,
}

impl Fragments {
    /// Makes empty fragments for this many searchers.
    ///
    /// # Panics
    /// If there is no searcher.
    #[must_use]
    pub fn new(model: Model, searchers: usize) -> Fragments {
        assert!(searchers > 0, "a frontier has a searcher");
        Fragments { model, fragments: (0..searchers).map(|_| Mutex::default()).collect() }
    }

    fn lock(&self, fragment: usize) -> MutexGuard<'_, Fragment> {
        self.fragments[fragment].lock().expect("no call panics under the lock")
    }

    /// Moves the second best subproblem to the next fragment, if it is time for it.
    fn balance(&self, searcher: usize) {
        let next = (searcher + 1) % self.fragments.len();
        let mut own = self.lock(searcher);
        if self.model != Model::Ring
            || next == searcher
            || !own.counts.local_gets.is_multiple_of(BALANCE_EVERY)
        {
            return;
        }
        if let Some(node) = own.take_second() {
            own.counts.moved += 1;
            drop(own);
            self.lock(next).put(self.model, node);
        }
    }
}

impl Frontier for Fragments {
    fn put(&self, searcher: usize, node: Node) {
        if self.model == Model::Central && searcher != 0 {
            self.lock(searcher).counts.remote_puts += 1;
            return self.lock(0).put(self.model, node);
        }
        self.lock(searcher).put(self.model, node);
    }

    fn get(&self, searcher: usize) -> Option<Node> {
        if self.model != Model::Central || searcher == 0 {
            let mut own = self.lock(searcher);
            if let Some(node) = own.get() {
                own.counts.local_gets += 1;
                drop(own);
                self.balance(searcher);
                return Some(node);
            }
        }
        let searchers = self.fragments.len();
        let others = (1..searchers).map(|step| (searcher + step) % searchers);
        let node = others.into_iter().find_map(|other| self.lock(other).get())?;
        self.lock(searcher).counts.remote_gets += 1;
        Some(node)
    }

    fn counts(&self) -> FrontierCounts {
        (0..self.fragments.len()).map(|it| self.lock(it).counts).fold(
            FrontierCounts::default(),
            |sum, one| FrontierCounts {
                local_gets: sum.local_gets + one.local_gets,
                remote_gets: sum.remote_gets + one.remote_gets,
                remote_puts: sum.remote_puts + one.remote_puts,
                moved: sum.moved + one.moved,
            },
        )
    }
}
