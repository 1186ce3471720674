//! Squall's queue as a frontier, in each form.

use crossbeam_utils::CachePadded;
use squall::adapt::control::history;
use squall::objects::queue::Queue as _;
use squall::parts::queue::{End, Queue, WaitTaken};
use std::sync::atomic::{AtomicU64, Ordering};

use super::object::{self, Object};
use super::{Form, Frontier, FrontierCounts, priority};
use crate::Node;

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
    kind: Kind,
    /// Number of puts of the form without an order.
    arrivals: CachePadded<AtomicU64>,
    /// Gets by searcher.
    gets: Vec<CachePadded<AtomicU64>>,
}

#[derive(Debug)]
enum Kind {
    /// The queue without an object.
    Part(Box<Queue<Node>>),
    Object(Object),
}

/// A subproblem that its searcher has not finished yet.
pub(crate) enum Unfinished {
    /// Taken from a queue without an object. Dropping it leaves the subproblem unfinished.
    Part,
    /// Taken from an object. Dropping it finishes the subproblem.
    Object(object::Unfinished),
}

impl Queued {
    /// Makes an empty queue for this many searchers.
    ///
    /// # Panics
    /// If there is no searcher.
    #[must_use]
    pub fn new(form: Form, searchers: usize) -> Queued {
        assert!(searchers > 0, "a queue has a searcher");
        let kind = match form {
            Form::Object | Form::Adaptive => Kind::Object(Object::new(form, searchers)),
            _ => Kind::Part(Box::new(part(form, searchers))),
        };
        let gets = (0..searchers).map(|_| CachePadded::default()).collect();
        Queued { form, kind, arrivals: CachePadded::default(), gets }
    }

    /// The form.
    #[must_use]
    pub fn form(&self) -> Form {
        self.form
    }

    /// Takes a subproblem for a searcher that will [finish](Queued::finish) it.
    pub(crate) fn take(&self, searcher: usize) -> Option<(Node, Unfinished)> {
        match &self.kind {
            Kind::Part(queue) => queue.client(searcher).take_raw().map(|(_, node)| (node, Unfinished::Part)),
            Kind::Object(object) => {
                object.take(searcher).map(|(node, taken)| (node, Unfinished::Object(taken)))
            }
        }
    }

    /// Like [`take`](Queued::take), but waits while the queue is empty. The result is empty if the work is
    /// done, or the queue is closed.
    pub(crate) fn take_wait(&self, searcher: usize) -> Option<(Node, Unfinished)> {
        match &self.kind {
            Kind::Part(queue) => match WaitTaken::at(&**queue, searcher).block() {
                Ok((_, node)) => Some((node, Unfinished::Part)),
                Err(End::Done | End::Closed) => None,
            },
            Kind::Object(object) => {
                object.take_wait(searcher).map(|(node, taken)| (node, Unfinished::Object(taken)))
            }
        }
    }

    /// Finishes a subproblem that this searcher took.
    pub(crate) fn finish(&self, searcher: usize, unfinished: Unfinished) {
        match (&self.kind, unfinished) {
            (Kind::Object(object), Unfinished::Object(taken)) => object.finish(searcher, taken),
            (Kind::Part(queue), _) => queue.client(searcher).finish(1),
            (Kind::Object(_), Unfinished::Part) => unreachable!("an object returns its own subproblems"),
        }
    }

    /// Closes the queue, so that all searchers end.
    pub(crate) fn close(&self) {
        match &self.kind {
            Kind::Part(queue) => queue.close(),
            Kind::Object(object) => object.with(|queue| queue.close()),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        match &self.kind {
            Kind::Part(queue) => queue.is_closed(),
            Kind::Object(object) => object.with(|queue| queue.is_closed()),
        }
    }

    /// The number of open subproblems in the queue: an estimate while others search.
    pub(crate) fn len(&self) -> usize {
        match &self.kind {
            Kind::Part(queue) => queue.len(),
            Kind::Object(object) => object.with(|queue| queue.len()),
        }
    }

    /// Sets an attribute of an object by its name.
    pub(crate) fn set(&self, name: &str, value: &str) {
        if let Kind::Object(object) = &self.kind {
            object.set(name, value);
        }
    }

    /// The decisions about the form of an object so far, in words.
    #[must_use]
    pub fn changes(&self) -> Vec<String> {
        match &self.kind {
            Kind::Part(_) => Vec::new(),
            Kind::Object(object) => history(object.id()).iter().map(ToString::to_string).collect(),
        }
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
        match &self.kind {
            // A queue is closed at the end of a search alone. A rejected subproblem is missed by the search.
            Kind::Part(queue) => drop(queue.client(searcher).put(priority, node)),
            Kind::Object(object) => object.put(searcher, priority, node),
        }
    }

    fn get(&self, searcher: usize) -> Option<Node> {
        let node = match &self.kind {
            Kind::Part(queue) => queue.client(searcher).get()?.1,
            Kind::Object(object) => object.get(searcher)?,
        };
        self.count_get(searcher);
        Some(node)
    }

    fn counts(&self) -> FrontierCounts {
        let gets = |from: usize| self.gets[from..].iter().map(|gets| gets.load(Ordering::Relaxed)).sum();
        let counts = match &self.kind {
            Kind::Part(queue) => queue.counts(),
            Kind::Object(object) => object.with(|queue| queue.counts()),
        };
        let remote_gets = match self.form {
            Form::Central => Some(gets(1)),
            // The queue does not count from which searcher a random heap is.
            Form::Relaxed | Form::Adaptive => None,
            _ => Some(counts.remote_gets),
        };
        FrontierCounts { gets: gets(0), remote_gets, moved: counts.moved }
    }
}

/// Makes the queue of a form without an object.
fn part(form: Form, searchers: usize) -> Queue<Node> {
    let queue = Queue::with_places(form.of_queue(), searchers);
    match form.topology() {
        Some(topology) => queue.attributes().set_topology(topology),
        None => queue.attributes().set_balance_every(0),
    }
    // A place joins at its first use, and neighbours are those that joined.
    (0..searchers).for_each(|searcher| {
        let _ = queue.client(searcher);
    });
    queue
}
