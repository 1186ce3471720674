//! The attributes of a pool: its strategy, and the strategy's constants.

use super::Time;
pub use squall_parts::bag::Strategy;

/// The attributes of a pool. All members of a pool have equal ones.
///
/// The defaults of the first seven are those of the thesis.
///
/// # Example
/// ```
/// use squall::fleet::pool::protocol::{Attributes, Strategy};
///
/// let attributes = Attributes { bulk: 10, ..Attributes::new(Strategy::BulkTransfer) };
/// assert_eq!((attributes.bulk, attributes.push_above), (10, 20_000));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The way in which elements move. [`Strategy::Directory`] asks the master for a shard with elements.
    pub strategy: Strategy,
    /// The most elements of one transfer; 0 counts as 1. Default: 50.
    pub bulk: usize,
    /// The number of idle events after which an idle shard acts once. Default: 100.
    pub idle_events: u32,
    /// The size of a shard below which it pulls when idle. Default: 1,024.
    pub pull_below: usize,
    /// The size of a shard above which it pushes when idle. Default: 20,000.
    pub push_above: usize,
    /// The change of a shard's size after which it tells the master. Default: 500.
    pub estimate_step: usize,
    /// The least difference to the estimate of a shard that is given elements. Default: 2,048.
    pub push_margin: usize,
    /// The number of its idle acts after which the master sends new estimates to all. Default: 1.
    pub broadcast_acts: u32,
    /// The most bytes of the elements of one transfer, unless one element is larger. At most
    /// [`ELEMENT_BYTES_MAX`](super::ELEMENT_BYTES_MAX). Default: 256 KiB.
    pub transfer_bytes: usize,
    /// Whether each member has a copy at another node, so that its death loses no element: see
    /// [`Host`](super::Host). Each operation then waits for that node. Default: no.
    pub replicated: bool,
    /// The time after which an unanswered frame is sent again. It doubles up to 16 times for a silent peer.
    /// In microseconds. Default: 100,000.
    pub resend: Time,
}

impl Attributes {
    /// Returns the default attributes with this strategy.
    pub fn new(strategy: Strategy) -> Attributes {
        Attributes {
            strategy,
            bulk: 50,
            idle_events: 100,
            pull_below: 1024,
            push_above: 20_000,
            estimate_step: 500,
            push_margin: 2048,
            broadcast_acts: 1,
            transfer_bytes: 256 << 10,
            replicated: false,
            resend: 100_000,
        }
    }

    /// Returns a number of these attributes: members with other ones are refused.
    pub(crate) fn tag(&self) -> u64 {
        let text = format!("{self:?}");
        // FNV-1a, by Fowler, Noll and Vo.
        text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }

    pub(super) fn directory(&self) -> bool {
        self.strategy == Strategy::Directory
    }

    pub(super) fn estimates(&self) -> bool {
        matches!(self.strategy, Strategy::EstimatedPush | Strategy::Directory)
    }

    pub(super) fn pushes(&self) -> bool {
        self.strategy == Strategy::BackgroundPush || self.estimates()
    }

    /// The most elements of one transfer.
    pub(super) fn batch(&self) -> usize {
        match self.strategy {
            Strategy::Centralized | Strategy::Distributed => 1,
            _ => self.bulk.max(1),
        }
    }
}

impl Default for Attributes {
    /// Returns the attributes of [`Strategy::Directory`].
    fn default() -> Attributes {
        Attributes::new(Strategy::Directory)
    }
}
