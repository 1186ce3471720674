//! Forms of the queue: KTK's, and those of Squall.
//!
//! Source: KTK, §3 and §4 (KT-11 to KT-13): the central queue, the distributed one, and the one with a ring.

use squall::parts::queue::{self, Topology};

use super::object;

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
    /// The ring as an object, with attributes that are set by name: KTK's `Distributed_DSA`.
    Object,
    /// An object with a policy that chooses between one heap for all and the relaxed form.
    Adaptive,
}

impl Form {
    /// All forms.
    pub const ALL: [Form; 10] = [
        Form::Central,
        Form::Naive,
        Form::Unbalanced,
        Form::Ring,
        Form::Tree,
        Form::Star,
        Form::All,
        Form::Relaxed,
        Form::Object,
        Form::Adaptive,
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
            Form::Object => "object",
            Form::Adaptive => "adaptive",
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

    /// Whether the queue is an object.
    #[must_use]
    pub fn is_object(self) -> bool {
        matches!(self, Form::Object | Form::Adaptive)
    }

    /// Whether one thread can step this many searchers over the form. An object tells its callers apart by
    /// their VPs, so it needs a virtual topology with a VP for each searcher.
    ///
    /// ```
    /// use squall_tsp::Form;
    ///
    /// assert!(Form::Ring.can_step(15));
    /// assert_eq!(Form::Object.can_step(2), squall::machine().is_virtual());
    /// ```
    #[must_use]
    pub fn can_step(self, searchers: usize) -> bool {
        !self.is_object() || object::has_vps(searchers)
    }

    /// The forms over which one thread can step this many searchers.
    pub fn steppable(searchers: usize) -> impl Iterator<Item = Form> {
        Form::ALL.into_iter().filter(move |form| form.can_step(searchers))
    }

    /// Like [`steppable`](Form::steppable), without [`Adaptive`](Form::Adaptive): a policy depends on time.
    pub fn modelled(searchers: usize) -> impl Iterator<Item = Form> {
        Form::steppable(searchers).filter(|form| *form != Form::Adaptive)
    }

    pub(super) fn of_queue(self) -> queue::Form {
        match self {
            Form::Central => queue::Form::Strict,
            Form::Relaxed => queue::Form::Relaxed,
            _ => queue::Form::Local,
        }
    }

    pub(super) fn topology(self) -> Option<Topology> {
        match self {
            Form::Ring => Some(Topology::Ring),
            Form::Tree => Some(Topology::Tree),
            Form::Star => Some(Topology::Star),
            Form::All => Some(Topology::All),
            _ => None,
        }
    }
}
