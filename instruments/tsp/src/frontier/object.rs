//! The queue as an object: its attributes are set by name, and policies may change its form.
//!
//! - I1. An object knows its callers by their VPs. On a virtual topology, the calls of a searcher are made on
//!   the VP of its number. On a real machine they are made where the thread is.
//! - I2. An element is full until the searcher that took it empties it.
//!
//! Source: KTK, §5.2: `Distributed_DSA`, which is `Distributed_Q` through attributes and policies (EX-Q3).

use squall::adapt::control::set_attribute;
use squall::objects::queue::{self, Queue, QueueExt, Taken};
use squall::{Handle, Id, Owned, Vp, machine};

use super::Form;
use crate::Node;

/// A subproblem in the queue (I2).
type Element = Option<Node>;
/// A subproblem that its searcher has not finished yet.
pub(super) type Unfinished = Taken<Element>;

/// The attributes of [`Form::Object`], as they are set by name.
const ATTRIBUTES: [(&str, &str); 4] = [
    ("topology", "ring"),
    ("insertion", "local-fragment"),
    ("balance-every", "2"),
    ("which-priority", "lowest"),
];

/// Runs `f` for a searcher (I1).
fn on<R>(searcher: usize, f: impl FnOnce() -> R) -> R {
    if !machine().is_virtual() {
        return f();
    }
    let vp = Vp::new((searcher % machine().vp_limit()) as u32);
    Vp::with_vp(vp, f).expect("the virtual topology has the VP")
}

/// Whether each of this many searchers has a VP of its own.
pub(super) fn has_vps(searchers: usize) -> bool {
    machine().is_virtual() && searchers <= machine().vp_limit()
}

/// The queue of [`Form::Object`] or [`Form::Adaptive`].
#[derive(Debug)]
pub(super) struct Object(Owned<dyn Queue<Element>>);

impl Object {
    /// Makes an empty queue. The searchers join its neighbours in their order.
    pub(super) fn new(form: Form, searchers: usize) -> Object {
        let object =
            Object(on(0, || if form == Form::Adaptive { queue::adaptive() } else { queue::local() }));
        if form == Form::Object {
            ATTRIBUTES.iter().for_each(|(name, value)| object.set(name, value));
        }
        for searcher in 0..searchers {
            let _ = on(searcher, || object.0.len());
        }
        object
    }

    pub(super) fn id(&self) -> Id {
        Handle::id(self.0.handle())
    }

    /// Calls `f` for the first searcher, so that the call adds no other neighbour.
    pub(super) fn with<R>(&self, f: impl FnOnce(Handle<dyn Queue<Element>>) -> R) -> R {
        on(0, || f(self.0.handle()))
    }

    /// Sets an attribute by its name.
    pub(super) fn set(&self, name: &str, value: &str) {
        let set = on(0, || set_attribute(self.id(), name, value));
        set.expect("a queue has this attribute");
    }

    pub(super) fn put(&self, searcher: usize, priority: u64, node: Node) {
        // A queue is closed at the end of a search alone. A rejected subproblem is missed by the search.
        on(searcher, || drop(self.0.put(priority, Some(node))));
    }

    pub(super) fn get(&self, searcher: usize) -> Option<Node> {
        on(searcher, || self.0.get())?.1
    }

    pub(super) fn take(&self, searcher: usize) -> Option<(Node, Unfinished)> {
        emptied(on(searcher, || self.0.take())?)
    }

    /// Takes a subproblem, and waits for one. The result is empty at the end of the work.
    pub(super) fn take_wait(&self, searcher: usize) -> Option<(Node, Unfinished)> {
        emptied(on(searcher, || self.0.take_wait()).ok()?)
    }

    pub(super) fn finish(&self, searcher: usize, unfinished: Unfinished) {
        on(searcher, || drop(unfinished));
    }
}

/// Takes the subproblem out of its element (I2).
fn emptied(mut taken: Unfinished) -> Option<(Node, Unfinished)> {
    taken.take().map(|node| (node, taken))
}
