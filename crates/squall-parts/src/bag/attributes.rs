//! The attributes of a bag: its strategy and the strategy's constants, which can change while it is used.

use squall_sys::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::fmt;

/// The way in which a bag distributes its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Strategy {
    /// Clients put into the common shard, the first that was made, and take from it. Elements that other
    /// strategies left elsewhere are found there.
    Centralized,
    /// A client with an empty shard takes one element of another shard.
    Distributed,
    /// A client with an empty shard takes up to [`bulk`](Attributes::bulk) elements of another shard.
    BulkTransfer,
    /// Bulk transfers, and an idle client takes elements of others before it needs them.
    BackgroundPull,
    /// Bulk transfers, and an idle client gives elements to the next shard if it has many.
    BackgroundPush,
    /// As with [`BackgroundPush`](Strategy::BackgroundPush), but only to shards with far fewer elements.
    EstimatedPush,
    /// Bulk transfers, and a client with an empty shard finds another one with elements in a directory: a
    /// bit for each shard. It asks two places until it finds an element. To find the bag empty it asks all,
    /// as with the other strategies. Each change of a shard between empty and not empty writes to the
    /// shared directory.
    Directory,
}

impl Strategy {
    /// All strategies: the six of the thesis in its order, and ours.
    pub const ALL: [Strategy; 7] = [
        Strategy::Centralized,
        Strategy::Distributed,
        Strategy::BulkTransfer,
        Strategy::BackgroundPull,
        Strategy::BackgroundPush,
        Strategy::EstimatedPush,
        Strategy::Directory,
    ];
}

/// The attributes of a [`Bag`](super::Bag). Each may change at any time; the next call reads it.
///
/// Numbers count elements, except [`idle_events`](Attributes::idle_events) and
/// [`leave_after`](Attributes::leave_after). The default values of the first six are those of the thesis.
pub struct Attributes {
    strategy: AtomicU8,
    numbers: [AtomicUsize; NUMBERS],
}

const NUMBERS: usize = 8;

/// Makes the reading and the setting method of each number.
macro_rules! numbers {
    ($($index:literal $name:ident $set:ident $default:literal $doc:literal)*) => {
        const DEFAULTS: [usize; NUMBERS] = [$($default),*];

        impl Attributes {
            $(
                #[doc = concat!("Returns ", $doc, " The default is ", stringify!($default), ".")]
                pub fn $name(&self) -> usize {
                    // Relaxed: no order is promised.
                    self.numbers[$index].load(Ordering::Relaxed)
                }

                #[doc = concat!("Sets ", $doc)]
                pub fn $set(&self, value: usize) {
                    self.numbers[$index].store(value, Ordering::Relaxed);
                }
            )*
        }
    };
}

numbers! {
    0 bulk set_bulk 50 "the most elements of one transfer; 0 counts as 1."
    1 idle_events set_idle_events 100 "the number of idle events after which an idle client acts once."
    2 pull_below set_pull_below 1024 "the size of a shard below which its idle client pulls."
    3 push_above set_push_above 20000 "the size of a shard above which its idle client pushes."
    4 estimate_step set_estimate_step 500 "the change of a shard's size after which its estimate is renewed."
    5 push_margin set_push_margin 2048 "the least difference to the estimate of a shard that gets elements."
    6 hoard set_hoard 65536 "the size above which a put moves blocks of its shard to the common shard. So what the clients of any other shard leave there is bounded."
    7 leave_after set_leave_after 16 "the number of idle acts in a row without a put or get after which a shard leaves the bag; 0 is never."
}

impl Attributes {
    pub(super) fn new() -> Attributes {
        Attributes {
            strategy: AtomicU8::new(Strategy::EstimatedPush as u8),
            numbers: DEFAULTS.map(AtomicUsize::new),
        }
    }

    /// Returns the strategy. The default is [`EstimatedPush`](Strategy::EstimatedPush), the best of the
    /// thesis.
    #[inline]
    pub fn strategy(&self) -> Strategy {
        // Relaxed: every strategy finds the elements that another one left (`bag/I4`).
        Strategy::ALL[usize::from(self.strategy.load(Ordering::Relaxed))]
    }

    #[inline]
    pub(super) fn is_centralized(&self) -> bool {
        // Relaxed: as in `strategy`.
        self.strategy.load(Ordering::Relaxed) == Strategy::Centralized as u8
    }

    /// Sets the strategy. Elements stay where they are, and all calls still find them.
    pub fn set_strategy(&self, strategy: Strategy) {
        self.strategy.store(strategy as u8, Ordering::Relaxed);
    }
}

impl fmt::Debug for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attributes")
            .field("strategy", &self.strategy())
            .field("bulk", &self.bulk())
            .field("idle_events", &self.idle_events())
            .field("pull_below", &self.pull_below())
            .field("push_above", &self.push_above())
            .field("estimate_step", &self.estimate_step())
            .field("push_margin", &self.push_margin())
            .field("hoard", &self.hoard())
            .field("leave_after", &self.leave_after())
            .finish()
    }
}
