//! The nodes of this process, for people and for the programs that they look with.
//!
//! - I1. A node is in the list from its start to its end. The list keeps no node alive.
//! - I2. No lock of a node is taken under the lock of the list.
//!
//! Cost: a lock at the start and at the end of a node.

use super::driver::Driver;
use super::show::GroupInfo;
use super::{RequestError, RequestError::NoMember};
use crate::NodeId;
use crate::protocol::NodeFigures;
use squall_sys::fork::forked;
use squall_sys::sync::{Mutex, MutexGuard, StdArc as Arc, Weak, lock};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

struct Nodes {
    last: u64,
    drivers: BTreeMap<u64, Weak<Driver>>,
}

static NODES: Mutex<Nodes> = Mutex::new(Nodes { last: 0, drivers: BTreeMap::new() });

fn list() -> MutexGuard<'static, Nodes> {
    lock(&NODES, "the list of nodes")
}

/// Adds a node, and returns its number in the list.
pub(super) fn add(driver: &Arc<Driver>) -> u64 {
    let mut nodes = list();
    nodes.last += 1;
    let number = nodes.last;
    nodes.drivers.insert(number, Arc::downgrade(driver));
    number
}

pub(super) fn remove(number: u64) {
    let removed = list().drivers.remove(&number);
    drop(removed);
}

/// A node of this process, as [`nodes`] found it.
#[derive(Clone)]
#[non_exhaustive]
pub struct NodeInfo {
    /// Its number in this process. No other node of the process has ever had it.
    pub number: u64,
    /// Its number in its group.
    pub node: NodeId,
    /// Where other nodes reach it.
    pub endpoint: String,
    /// The number of its machine.
    pub host: u64,
    /// Its figures.
    pub figures: NodeFigures,
    driver: Weak<Driver>,
}

impl fmt::Debug for NodeInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeInfo")
            .field("number", &self.number)
            .field("node", &self.node)
            .field("endpoint", &self.endpoint)
            .field("figures", &self.figures)
            .finish_non_exhaustive()
    }
}

/// Lists the living nodes of this process, in the order of their starts.
///
/// # Cost
/// Locks each node for a moment. Calls of a node wait for that lock.
/// # Examples
#[cfg_attr(all(target_os = "linux", not(miri)), doc = "```")]
#[cfg_attr(not(all(target_os = "linux", not(miri))), doc = "```ignore")]
/// use squall::fleet::{GroupKey, LocalNetwork, NodeBuilder, nodes};
///
/// let network = LocalNetwork::new();
/// let (node, _) = NodeBuilder::new(GroupKey::random()).found(network.bind("a")?, &[])?;
/// let info = nodes().into_iter().find(|info| info.node == node.id()).unwrap();
/// assert_eq!((&*info.endpoint, info.figures.joined), ("local/a", 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn nodes() -> Vec<NodeInfo> {
    // The locks of a forked child may be held by threads that it does not have.
    if forked() {
        return Vec::new();
    }
    let drivers: Vec<(u64, Weak<Driver>)> =
        list().drivers.iter().map(|(number, driver)| (*number, driver.clone())).collect();
    let info = |(number, weak): (u64, Weak<Driver>)| {
        let driver = weak.upgrade()?;
        let (node, figures) = driver.look_at_itself();
        let (endpoint, host) = (driver.transport.endpoint(), driver.host);
        Some(NodeInfo { number, node, endpoint, host, figures, driver: weak })
    };
    drivers.into_iter().filter_map(info).collect()
}

impl NodeInfo {
    /// Returns the directory of the node's group, like [`Node::show`](crate::Node::show).
    ///
    /// # Errors
    /// No member answers within `limit`, or the node has ended.
    pub fn show(&self, limit: Duration) -> Result<GroupInfo, RequestError> {
        self.driver.upgrade().ok_or(NoMember)?.show_within(limit)
    }

    /// Asks these members for their figures, like [`Node::figures_of`](crate::Node::figures_of).
    pub fn figures_of(&self, members: &[NodeId], limit: Duration) -> BTreeMap<NodeId, NodeFigures> {
        let driver = self.driver.upgrade();
        driver.map_or_else(BTreeMap::new, |driver| driver.figures_of(members, limit))
    }

    /// Leaves the group, like [`Node::leave`](crate::Node::leave). The program keeps its node, which is a
    /// member no more.
    ///
    /// # Errors
    /// The time is over, and the node goes on leaving. Or the node has ended, or is no member and joins none.
    pub fn leave(&self, limit: Duration) -> Result<(), RequestError> {
        let driver = self.driver.upgrade().ok_or(NoMember)?;
        let state = driver.state();
        let can_leave = state.left || state.core.is_joining() || state.core.group().is_member();
        drop(state);
        if can_leave { driver.leave(limit) } else { Err(NoMember) }
    }
}
