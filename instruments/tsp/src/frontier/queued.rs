//! Squall's queue as a frontier: KTK's forms, and those of Squall.
//!
//! Source: KTK, §3 and §4 (KT-11 to KT-13): the central queue, the distributed one, and the one with a ring.

use crossbeam_utils::CachePadded;
use squall::parts::queue::{self, Queue, Topology};
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Frontier, FrontierCounts, priority};
use crate::Node;

/// A form of the distributed queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One ordered heap for all: KTK's `Centralized`.
    Central,
    /// A fragment for each searcher, in the order of arrival and without balance: KTK's `Distributed`.
    Naive,
    /// An ordered heap for each searcher, without balance.
    Unbalanced,
    /// An ordered heap for each searcher. After every second get the second best subproblem moves to the next
    /// searcher of a ring: KTK's `Distributed_Q`.
    Ring,
    /// Like [`Ring`](Form::Ring), but a binary tree.
    Tree,
    /// Like [`Ring`](Form::Ring), but by way of the first searcher.
    Star,
    /// Like [`Ring`](Form::Ring), but to all others in turn.
    All,
    /// Two heaps for each searcher, and a get takes the better of two random ones.
    Relaxed,
}

impl Form {
    /// All forms.
    pub const ALL: [Form; 8] = [
        Form::Central,
        Form::Naive,
        Form::Unbalanced,
        Form::Ring,
        Form::Tree,
        Form::Star,
        Form::All,
        Form::Relaxed,
    ];

    /// The name in tables and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Form::Central => "central",
            Form::Naive => "naive",
            Form::Unbalanced => "unbalanced",
            Form::Ring => "ring",
            Form::Tree => "tree",
            Form::Star => "star",
            Form::All => "all",
            Form::Relaxed => "relaxed",
        }
    }

    /// The form of this name.
    ///
    /// ```
    /// use squall_tsp::Form;
    ///
    /// assert_eq!(Form::named("ring"), Some(Form::Ring));
    /// assert_eq!(Form::named("rings"), None);
    /// ```
    #[must_use]
    pub fn named(name: &str) -> Option<Form> {
        Form::ALL.into_iter().find(|form| form.name() == name)
    }

    fn of_queue(self) -> queue::Form {
        match self {
            Form::Central => queue::Form::Strict,
            Form::Relaxed => queue::Form::Relaxed,
            _ => queue::Form::Local,
        }
    }

    fn topology(self) -> Option<Topology> {
        match self {
            Form::Ring => Some(Topology::Ring),
            Form::Tree => Some(Topology::Tree),
            Form::Star => Some(Topology::Star),
            Form::All => Some(Topology::All),
            _ => None,
        }
    }
}

/// Squall's queue with a place for each searcher.
///
/// ```
/// use squall_tsp::{Form, Frontier, Instance, Node, Queued};
///
/// let instance = Instance::new("three", vec![0, 1, 9, 9, 0, 1, 1, 9, 0]).unwrap();
/// let frontier = Queued::new(Form::Naive, 2);
/// frontier.put(0, Node::root(&instance).unwrap());
/// assert!(frontier.get(1).is_some());
/// assert_eq!(frontier.counts().remote_gets, Some(1));
/// ```
#[derive(Debug)]
pub struct Queued {
    form: Form,
    queue: Queue<Node>,
    /// Number of puts of the form without an order.
    arrivals: CachePadded<AtomicU64>,
    /// Gets by searcher.
    gets: Vec<CachePadded<AtomicU64>>,
}

impl Queued {
    /// Makes an empty queue for this many searchers.
    ///
    /// # Panics
    /// If there is no searcher.
    #[must_use]
    pub fn new(form: Form, searchers: usize) -> Queued {
        let queue = Queue::with_places(form.of_queue(), searchers);
        match form.topology() {
            Some(topology) => queue.attributes().set_topology(topology),
            None => queue.attributes().set_balance_every(0),
        }
        // A place joins at its first use, and neighbours are those that joined.
        (0..searchers).for_each(|searcher| {
            let _ = queue.client(searcher);
        });
        let gets = (0..searchers).map(|_| CachePadded::default()).collect();
        Queued { form, queue, arrivals: CachePadded::default(), gets }
    }

    /// The form.
    #[must_use]
    pub fn form(&self) -> Form {
        self.form
    }

    /// The queue.
    pub(crate) fn queue(&self) -> &Queue<Node> {
        &self.queue
    }

    /// Counts a get of this searcher.
    pub(crate) fn count_get(&self, searcher: usize) {
        // Relaxed: counts order no other data.
        self.gets[searcher].fetch_add(1, Ordering::Relaxed);
    }
}

impl Frontier for Queued {
    fn put(&self, searcher: usize, node: Node) {
        let priority = match self.form {
            Form::Naive => self.arrivals.fetch_add(1, Ordering::Relaxed),
            _ => priority(&node),
        };
        // A queue is closed at the end of a search alone. A rejected subproblem is missed by the search.
        let _ = self.queue.client(searcher).put(priority, node);
    }

    fn get(&self, searcher: usize) -> Option<Node> {
        let (_, node) = self.queue.client(searcher).get()?;
        self.count_get(searcher);
        Some(node)
    }

    fn counts(&self) -> FrontierCounts {
        let gets = |from: usize| self.gets[from..].iter().map(|gets| gets.load(Ordering::Relaxed)).sum();
        let counts = self.queue.counts();
        let remote_gets = match self.form {
            Form::Central => Some(gets(1)),
            // The queue does not count from which searcher a random heap is.
            Form::Relaxed => None,
            _ => Some(counts.remote_gets),
        };
        FrontierCounts { gets: gets(0), remote_gets, moved: counts.moved }
    }
}
