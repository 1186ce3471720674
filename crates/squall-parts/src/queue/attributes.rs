//! The attributes of a queue: they change how elements are placed and moved, and can change while it is used.

use squall_sys::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::fmt;

/// The way in which a queue keeps its elements, and the order that it promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Form {
    /// One heap under one lock. A get returns the first element of the queue.
    Strict,
    /// Two heaps for each client. A get takes the better first element of the two, or goes to another
    /// client's heap that is better for a while. It returns one of the first elements.
    Relaxed,
    /// A heap for each client, and a get takes the first element of its own client's heap. Balancing moves
    /// good elements to the neighbours.
    Local,
}

impl Form {
    /// All forms.
    pub const ALL: [Form; 3] = [Form::Strict, Form::Relaxed, Form::Local];
}

/// The priorities that come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum WhichPriority {
    /// The lowest number comes first.
    Lowest,
    /// The highest number comes first.
    Highest,
}

impl WhichPriority {
    /// Both.
    pub const ALL: [WhichPriority; 2] = [WhichPriority::Lowest, WhichPriority::Highest];
}

/// The neighbours to which the clients of a [`Form::Local`] queue move elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Topology {
    /// The next client. The last one has the first one as its neighbour.
    Ring,
    /// The parent and the children in a binary tree, in turn.
    Tree,
    /// The first client moves elements to all others in turn. The others move elements to the first one.
    Star,
    /// All other clients, in turn.
    All,
}

impl Topology {
    /// All topologies.
    pub const ALL: [Topology; 4] = [Topology::Ring, Topology::Tree, Topology::Star, Topology::All];
}

/// The calls that balance a [`Form::Local`] queue: KTK's `InsertionType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Insertion {
    /// Puts go to the client's own heap. Gets balance: after every
    /// [`balance_every`](Attributes::balance_every) of them, the second element moves to a neighbour.
    LocalFragment,
    /// Puts balance: one of every [`balance_every`](Attributes::balance_every) goes to a neighbour's heap.
    LoadBalance,
}

impl Insertion {
    /// Both.
    pub const ALL: [Insertion; 2] = [Insertion::LocalFragment, Insertion::LoadBalance];
}

/// The attributes of a [`Queue`](super::Queue) that the next call reads. The form and the order are
/// attributes too: [`Queue::set_form`](super::Queue::set_form) and
/// [`Queue::set_which_priority`](super::Queue::set_which_priority) change them, because elements move then.
pub struct Attributes {
    topology: AtomicU8,
    insertion: AtomicU8,
    balance_every: AtomicUsize,
    stickiness: AtomicUsize,
}

impl Attributes {
    pub(super) fn new() -> Attributes {
        Attributes {
            topology: AtomicU8::new(Topology::Ring as u8),
            insertion: AtomicU8::new(Insertion::LocalFragment as u8),
            balance_every: AtomicUsize::new(2),
            stickiness: AtomicUsize::new(8),
        }
    }

    /// Returns the topology. The default is [`Topology::Ring`].
    pub fn topology(&self) -> Topology {
        // Relaxed, here and below: no order is promised.
        Topology::ALL[usize::from(self.topology.load(Ordering::Relaxed))]
    }

    /// Sets the topology.
    pub fn set_topology(&self, topology: Topology) {
        self.topology.store(topology as u8, Ordering::Relaxed);
    }

    /// Returns the calls that balance. The default is [`Insertion::LocalFragment`].
    pub fn insertion(&self) -> Insertion {
        Insertion::ALL[usize::from(self.insertion.load(Ordering::Relaxed))]
    }

    /// Sets the calls that balance.
    pub fn set_insertion(&self, insertion: Insertion) {
        self.insertion.store(insertion as u8, Ordering::Relaxed);
    }

    /// Returns the number of calls of a client after which it balances once; 0 is never. The default is 2, as
    /// in KTK.
    pub fn balance_every(&self) -> usize {
        self.balance_every.load(Ordering::Relaxed)
    }

    /// Sets the number of calls of a client after which it balances once; 0 is never.
    pub fn set_balance_every(&self, calls: usize) {
        self.balance_every.store(calls, Ordering::Relaxed);
    }

    /// Returns the number of gets after which a client of a [`Form::Relaxed`] queue compares its own heaps
    /// with a random one of another client; 0 counts as 1. More gets cost less, and give a worse order. The
    /// default is 8.
    pub fn stickiness(&self) -> usize {
        self.stickiness.load(Ordering::Relaxed)
    }

    /// Sets the number of gets after which a client of a [`Form::Relaxed`] queue looks at another client's
    /// heap.
    pub fn set_stickiness(&self, calls: usize) {
        self.stickiness.store(calls, Ordering::Relaxed);
    }
}

impl fmt::Debug for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attributes")
            .field("topology", &self.topology())
            .field("insertion", &self.insertion())
            .field("balance_every", &self.balance_every())
            .field("stickiness", &self.stickiness())
            .finish()
    }
}
