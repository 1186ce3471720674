//! The attributes of a queue by their names, for `squall top`, browsers and
//! [`control::set_attribute`](squall_adapt::control::set_attribute).

use squall_adapt::control::register_setting;
use squall_core::Handle;
use squall_parts::queue as parts;
use squall_policy::attribute::{Attribute, Choice, choices};

use super::{Insertion, Queue, Topology, WhichPriority};

choices! {
    /// A [`Topology`] by its name, in the order of [`Topology::ALL`].
    enum Neighbours {
        Ring = "ring",
        Tree = "tree",
        Star = "star",
        All = "all",
    }
}

choices! {
    /// Values of the attribute [`INSERTION`]: those of [`Insertion`], in its order.
    pub enum InsertionType {
        /// Puts go to the client's own heap, and gets balance.
        LocalFragment = "local-fragment",
        /// Puts balance.
        LoadBalance = "load-balance",
    }
}

impl From<InsertionType> for Insertion {
    fn from(insertion: InsertionType) -> Insertion {
        Insertion::ALL[insertion.index()]
    }
}

choices! {
    /// A [`WhichPriority`] by its name, in the order of [`WhichPriority::ALL`].
    enum Which {
        Lowest = "lowest",
        Highest = "highest",
    }
}

static TOPOLOGY: Attribute<Neighbours> = Attribute::new("topology", Neighbours::Ring)
    .about("neighbours to which the local form moves good elements");

/// The attribute `insertion`: the calls that balance the local form. A single put may have it, too.
///
/// ```
/// use squall::objects::queue::{self, INSERTION, InsertionType, QueueExt};
/// use squall::policy::attribute::with;
///
/// let work = queue::local();
/// let balanced = (&INSERTION, InsertionType::LoadBalance);
/// with(work.handle(), balanced, |work| work.put(7, "a node")).unwrap().unwrap();
/// assert_eq!(work.get(), Some((7, "a node")));
/// ```
pub static INSERTION: Attribute<InsertionType> =
    Attribute::new("insertion", InsertionType::LocalFragment).about("calls that balance the local form");

static WHICH: Attribute<Which> =
    Attribute::new("which-priority", Which::Lowest).about("priorities that come first");
static BALANCE_EVERY: Attribute<u64> = Attribute::<u64>::new("balance-every", 2)
    .in_unit("calls")
    .about("calls of a client of the local form until it balances once; 0: never");
static STICKINESS: Attribute<u64> = Attribute::<u64>::new("stickiness", 8)
    .in_unit("calls")
    .about("calls for which a client of the relaxed form keeps its heaps");
static ALLOW_LOCAL: Attribute<bool> =
    Attribute::new("allow-local", false).about("whether an adaptive queue may become local");

/// Reads the elements of a queue that exists and is not being destroyed.
fn read<T: Send + 'static, V>(
    queue: Handle<dyn Queue<T>>,
    read: impl FnOnce(&parts::Queue<T>) -> V,
) -> Option<V> {
    queue.try_contents_unarbitrated().ok().map(|(contents, _)| read(&contents.queue))
}

/// Returns a number, or the largest one.
fn number(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// Registers the attributes for the queues of a type.
pub(super) fn have<T: Send + 'static>() {
    register_setting::<dyn Queue<T>, Neighbours>(
        &TOPOLOGY,
        |queue| read(queue, |it| Neighbours::ALL[it.attributes().topology() as usize]),
        |queue, value| read(queue, |it| it.attributes().set_topology(Topology::ALL[value.index()])),
    );
    register_setting::<dyn Queue<T>, InsertionType>(
        &INSERTION,
        |queue| read(queue, |it| InsertionType::ALL[it.attributes().insertion() as usize]),
        |queue, value| read(queue, |it| it.attributes().set_insertion(value.into())),
    );
    register_setting::<dyn Queue<T>, Which>(
        &WHICH,
        |queue| read(queue, |it| Which::ALL[it.which_priority() as usize]),
        |queue, value| read(queue, |it| it.set_which_priority(WhichPriority::ALL[value.index()])),
    );
    register_setting::<dyn Queue<T>, u64>(
        &BALANCE_EVERY,
        |queue| read(queue, |it| it.attributes().balance_every() as u64),
        |queue, value| read(queue, |it| it.attributes().set_balance_every(number(value))),
    );
    register_setting::<dyn Queue<T>, u64>(
        &STICKINESS,
        |queue| read(queue, |it| it.attributes().stickiness() as u64),
        |queue, value| read(queue, |it| it.attributes().set_stickiness(number(value))),
    );
    register_setting::<dyn Queue<T>, bool>(
        &ALLOW_LOCAL,
        |queue| queue.try_allows_local().ok(),
        |queue, value| queue.try_allow_local(value).ok(),
    );
}
