//! The pools, their attributes, and the limits of a run.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use squall::fleet::Name;
use squall::fleet::pool::{Attributes, Strategy};

/// Nanoseconds of the machine's clock.
pub(super) type Time = u64;

/// The strategies of the pools.
const STRATEGIES: [Strategy; POOLS] = [
    Strategy::Centralized,
    Strategy::Distributed,
    Strategy::BulkTransfer,
    Strategy::BackgroundPull,
    Strategy::BackgroundPush,
    Strategy::EstimatedPush,
    Strategy::Directory,
];
/// The number of pools.
pub(super) const POOLS: usize = 7;
/// The most elements of one transfer.
pub(super) const BULK: usize = 4;
/// A node is not removed within this time after it had a lease, in nanoseconds.
pub(super) const LEASE: Time = 500_000_000;
/// The longest time for anything to end or to heal. It takes seconds at most on an idle machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
/// The fewest and the most members. Of four voters, two live if one dies while another one is removed.
pub(super) const MEMBERS_MIN: usize = 4;
pub(super) const MEMBERS_MAX: usize = 5;
/// The time between two looks at a condition.
pub(super) const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// Returns the time of the machine's clock. All processes read one clock.
pub(super) fn now() -> Time {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Returns the name of a pool.
pub(super) fn pool_name(pool: usize) -> Name {
    format!("/{:?}", STRATEGIES[pool])
        .to_lowercase()
        .parse()
        .expect("the names of strategies are well formed")
}

/// Returns the attributes of a pool. Small numbers, so that elements move often.
pub(super) fn attributes(pool: usize) -> Attributes {
    Attributes {
        bulk: BULK,
        idle_events: 2,
        pull_below: 6,
        push_above: 6,
        estimate_step: 2,
        push_margin: 2,
        ..Attributes::new(STRATEGIES[pool])
    }
}

/// Returns whether idle members move elements of a pool.
pub(super) fn moves_when_idle(pool: usize) -> bool {
    !matches!(STRATEGIES[pool], Strategy::Centralized | Strategy::Distributed | Strategy::BulkTransfer)
}
