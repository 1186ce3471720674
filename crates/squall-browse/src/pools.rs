//! Views of the members of pools in the program. Without the feature `pool` the list is empty.

#[cfg(not(feature = "pool"))]
use crate::protocol::PoolView;

#[cfg(feature = "pool")]
pub(crate) use members::list;

/// Lists no member: the program is built without pools.
#[cfg(not(feature = "pool"))]
pub(crate) fn list() -> Vec<PoolView> {
    Vec::new()
}

#[cfg(feature = "pool")]
mod members {
    use squall_pool::{PoolInfo, Strategy, pools};

    use crate::protocol::{PoolCountsView, PoolView};

    /// Lists the members of pools in the program.
    pub(crate) fn list() -> Vec<PoolView> {
        pools().iter().map(view).collect()
    }

    fn view(info: &PoolInfo) -> PoolView {
        let counts = info.counts;
        PoolView {
            number: info.number,
            name: info.name.to_string(),
            node: info.node.map(|node| node.to_string()),
            location: info.location.map(|location| location.0),
            state: info.state.to_string(),
            master: info.location.is_some() && info.location == info.locations.first().copied(),
            members: info.locations.len(),
            strategy: strategy(info.strategy).to_owned(),
            elements: info.len_here,
            open_operations: info.open_operations,
            untaken: info.untaken,
            has_heir: info.has_heir,
            counts: PoolCountsView {
                operations: counts.operations,
                messages: counts.messages,
                frames: counts.frames,
                demanded: counts.demanded,
                demand_transfers: counts.demand_transfers,
                background_transfers: counts.background_transfers,
            },
        }
    }

    fn strategy(strategy: Strategy) -> &'static str {
        match strategy {
            Strategy::Centralized => "centralized",
            Strategy::Distributed => "distributed",
            Strategy::BulkTransfer => "bulk transfer",
            Strategy::BackgroundPull => "background pull",
            Strategy::BackgroundPush => "background push",
            Strategy::EstimatedPush => "estimated push",
            Strategy::Directory => "directory",
        }
    }
}
