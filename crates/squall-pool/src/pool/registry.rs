//! The members of pools in this process, for people and for the programs that they look with.
//!
//! - I1. A member is in the list from the begin of its join until no handle and no node has it. The list
//!   keeps no member alive.
//! - I2. No lock of a member or of a node is taken under the lock of the list.
//!
//! Cost: a lock at the start and at the end of a member.

use super::{Inner, PoolLocation};
use crate::protocol::{Counts, Strategy};
use squall_fleet::{Name, NodeId};
use squall_sys::fork::forked;
use squall_sys::sync::atomic::Ordering::Relaxed;
use squall_sys::sync::{Mutex, MutexGuard, StdArc as Arc, Weak, lock};
use std::collections::BTreeMap;
use std::fmt;

struct Members {
    last: u64,
    members: BTreeMap<u64, Weak<Inner>>,
}

static MEMBERS: Mutex<Members> = Mutex::new(Members { last: 0, members: BTreeMap::new() });

fn list() -> MutexGuard<'static, Members> {
    lock(&MEMBERS, "the list of pools")
}

/// Adds a member to the list.
pub(super) fn add(member: &Arc<Inner>) {
    let mut list = list();
    list.last += 1;
    let number = list.last;
    // The list is the only one to set it.
    member.number.get_or_init(|| number);
    list.members.insert(number, Arc::downgrade(member));
}

impl Drop for Inner {
    fn drop(&mut self) {
        // In the child of a fork, the lock may be held by a thread that the child does not have.
        if let Some(number) = self.number.get()
            && !forked()
        {
            let removed = list().members.remove(number);
            drop(removed);
        }
    }
}

/// The part of a member in its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolState {
    /// Joins, for the first time or again after the group took its node for dead. Its operations wait.
    Joining,
    /// Serves.
    Serving,
    /// Is in the pool, but its node has no lease. Its operations wait.
    NoLease,
    /// Gives its elements to other members, to leave.
    Leaving,
}

impl fmt::Display for PoolState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PoolState::Joining => "joining",
            PoolState::Serving => "serving",
            PoolState::NoLease => "no lease",
            PoolState::Leaving => "leaving",
        })
    }
}

/// A member of a pool in this process, as [`pools`] found it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolInfo {
    /// Its number in this process. No other member of the process has ever had it.
    pub number: u64,
    /// The name of the pool.
    pub name: Name,
    /// Its node. `None` while it is not in the pool.
    pub node: Option<NodeId>,
    /// Its place, like [`DistributedPool::location`](super::DistributedPool::location).
    pub location: Option<PoolLocation>,
    /// The places of all members that it knows, in the order of their joins. The first one is the master.
    pub locations: Vec<PoolLocation>,
    /// Its part in the pool.
    pub state: PoolState,
    /// The strategy of the pool.
    pub strategy: Strategy,
    /// The number of elements at it.
    pub len_here: usize,
    /// The number of its operations that have begun and not ended. The member begins some of its own: it adds
    /// elements again that no caller took, and leaves.
    pub open_operations: usize,
    /// The number of elements that futures of gets hold.
    pub untaken: u64,
    /// Whether another member has a complete copy of it, like
    /// [`DistributedPool::has_heir`](super::DistributedPool::has_heir).
    pub has_heir: bool,
    /// The numbers of events at it.
    pub counts: Counts,
}

/// Lists the members of pools in this process, in the order of their joins. A member that has left, or whose
/// node has ended, is not listed.
///
/// # Cost
/// Locks each member for a moment, and once per lease its node. Operations of a member wait for that lock.
/// # Examples
#[cfg_attr(all(target_os = "linux", not(miri)), doc = "```")]
#[cfg_attr(not(all(target_os = "linux", not(miri))), doc = "```ignore")]
/// use squall::fleet::{GroupKey, LocalNetwork, NodeBuilder};
/// use squall::fleet::pool::{Attributes, DistributedPool, pools};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limit = Duration::from_secs(60);
/// let (node, root) = NodeBuilder::new(GroupKey::random()).found(LocalNetwork::new().bind("a")?, &[])?;
/// let pool = DistributedPool::join(&node, &"/pages".parse()?, &root, Attributes::default())?;
/// pool.add(b"page 7", limit)?;
/// let [info] = &pools()[..] else { panic!("one member") };
/// assert_eq!((info.name.as_str(), info.len_here), ("/pages", 1));
/// assert_eq!((info.node, info.location), (Some(node.id()), pool.location()));
/// pool.shutdown(limit)?;
/// assert!(pools().is_empty());
/// # Ok(())
/// # }
/// ```
pub fn pools() -> Vec<PoolInfo> {
    // The locks of a forked child may be held by threads that it does not have.
    if forked() {
        return Vec::new();
    }
    let members: Vec<Weak<Inner>> = list().members.values().cloned().collect();
    members.into_iter().filter_map(|member| member.upgrade()?.look()).collect()
}

impl Inner {
    /// Describes the member, unless it is over.
    fn look(&self) -> Option<PoolInfo> {
        let number = *self.number.get()?;
        let seat = self.seat.get();
        let me = self.locked().state.me();
        // Renews the lease that is read below. It takes the lock of the node (`pool/P1`).
        seat.zip(me).map(|(seat, me)| seat.serves(me));
        let locked = self.locked();
        let state = &locked.state;
        if state.over().is_some() {
            return None;
        }
        let has_lease = seat.zip(state.me()).is_some_and(|(seat, me)| seat.serves_still(me));
        let roster = state.roster();
        let mine = roster.and_then(|roster| roster.members.iter().find(|(number, _)| *number == roster.me));
        let members = roster.into_iter().flat_map(|roster| &roster.members);
        Some(PoolInfo {
            number,
            name: self.name.clone(),
            node: mine.map(|(_, node)| *node),
            location: roster.map(|roster| PoolLocation(roster.me.0)),
            locations: members.map(|(number, _)| PoolLocation(number.0)).collect(),
            state: match (state.is_open(), state.is_ready(), has_lease) {
                (false, _, _) => PoolState::Leaving,
                (true, false, _) => PoolState::Joining,
                (true, true, false) => PoolState::NoLease,
                (true, true, true) => PoolState::Serving,
            },
            strategy: state.attributes().strategy,
            len_here: state.shard().map_or(0, |shard| shard.len()),
            open_operations: state.open_operations(),
            // Relaxed: a figure for people.
            untaken: self.untaken.load(Relaxed),
            has_heir: state.host().is_some_and(|host| host.has_heir()),
            counts: state.counts(),
        })
    }
}
