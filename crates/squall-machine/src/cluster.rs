//! Clusters: sets of neighbouring VPs that share one representative. Each object chooses its own cluster
//! size.
//!
//! Problem: one cluster size does not suit a whole machine. Small clusters cost memory and consistency
//! traffic, large ones cause contention, and the best size depends on the object. Hurricane set one size at
//! boot, K42 one per object.
//!
//! Idea: a size is a value, and any number of sizes are in use at once.
//! [`crate::Machine::set_default_cluster_size`] sets the size of objects that choose no size.
//!
//! - I1. The clusters of one size are a partition of the VPs: every VP is in exactly one cluster, and every
//!   cluster has a VP.
//! - I2. Clusters are numbered densely in the order of their lowest VP, and a [`Clusters`] never changes. A
//!   machine that learns more about itself makes new ones (topology/I4) and leaves the earlier ones as they
//!   are.
//!
//! Not promised: a cluster number has a meaning only within its [`Clusters`]. A later [`Clusters`] of the
//! same size may number differently.
//! Cost: `cluster_of` is one array read and two compares that never fail in a correct program. A `Clusters`
//! owns 8 bytes per VP and 4 per cluster, once per machine and size, never per object.
//! Source: Unrau et al., "Hierarchical Clustering", J. Supercomputing 1995, §3.3 and §5; Appavoo, "Clustered
//! Objects", 2005, §5.1. Deviation: sizes follow the machine's levels; equal groups of consecutive numbers
//! are one choice.

mod tree;

pub use tree::{ClusterTree, TreeError, TreeNode};

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use crate::Vp;
use crate::topology::VpSet;

/// Size of a cluster: a level of the machine, or a number of VPs.
///
/// Text form, for parsing and display: `cpu`, `core`, `cache`, `node`, `machine`, `fixed:4`.
///
/// # Example
/// ```
/// use squall::ClusterSize;
///
/// let size: ClusterSize = "fixed:4".parse().unwrap();
/// assert_eq!(size, ClusterSize::fixed(4));
/// assert_eq!(ClusterSize::Node.to_string(), "node");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ClusterSize {
    /// One VP per cluster: a fully distributed object.
    Cpu,
    /// All hardware threads of one core.
    Core,
    /// The VPs of one node that share a cache of the highest level.
    Cache,
    /// All VPs of one NUMA node.
    Node,
    /// All VPs of the machine: a shared object.
    Machine,
    /// Groups of `n` consecutive VP numbers, as in Hurricane and K42: VP `p` is in group `p / n`. On machines
    /// that number the hardware threads of different cores or nodes alternately, consecutive VPs are not
    /// neighbours.
    Fixed(NonZeroU32),
}

impl ClusterSize {
    /// The levels of the machine, finest first. Each level nests in the next.
    ///
    /// # Example
    /// ```
    /// use squall::{ClusterSize, machine};
    ///
    /// for size in ClusterSize::LEVELS {
    ///     println!("{size}: {} clusters", machine().clusters(size).len());
    /// }
    /// ```
    pub const LEVELS: [ClusterSize; 5] =
        [ClusterSize::Cpu, ClusterSize::Core, ClusterSize::Cache, ClusterSize::Node, ClusterSize::Machine];

    /// Returns the size of clusters of `vps` consecutive VPs.
    ///
    /// # Panics
    /// If `vps` is zero.
    pub const fn fixed(vps: u32) -> ClusterSize {
        match NonZeroU32::new(vps) {
            Some(vps) => ClusterSize::Fixed(vps),
            None => panic!("a cluster size of zero VPs was given"),
        }
    }
}

impl fmt::Display for ClusterSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClusterSize::Cpu => f.pad("cpu"),
            ClusterSize::Core => f.pad("core"),
            ClusterSize::Cache => f.pad("cache"),
            ClusterSize::Node => f.pad("node"),
            ClusterSize::Machine => f.pad("machine"),
            ClusterSize::Fixed(vps) => f.pad(&format!("fixed:{vps}")),
        }
    }
}

/// Error: a text is not a cluster size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSizeError {
    text: String,
}

impl fmt::Display for ClusterSizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a cluster size; use cpu, core, cache, node, machine, or fixed:4", self.text)
    }
}

impl std::error::Error for ClusterSizeError {}

impl FromStr for ClusterSize {
    type Err = ClusterSizeError;

    fn from_str(text: &str) -> Result<ClusterSize, ClusterSizeError> {
        if let Some(level) = ClusterSize::LEVELS.into_iter().find(|level| level.to_string() == text) {
            return Ok(level);
        }
        let digits = text.strip_prefix("fixed:").filter(|n| n.bytes().all(|b| b.is_ascii_digit()));
        let count = digits.and_then(|n| n.parse().ok());
        count.map(ClusterSize::Fixed).ok_or_else(|| ClusterSizeError { text: text.to_owned() })
    }
}

/// A cluster: its number among the clusters of its size, dense from 0. The number has a meaning only within
/// the [`Clusters`] that returned it.
///
/// # Example
/// ```
/// use squall::{ClusterSize, Vp, machine};
///
/// let nodes = machine().clusters(ClusterSize::Node);
/// let mut requests = vec![0; nodes.len()];
/// requests[nodes.cluster_of(Vp::current()).index()] += 1;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cluster(u32);

impl Cluster {
    /// Creates the cluster with number `index`.
    pub const fn new(index: u32) -> Cluster {
        Cluster(index)
    }

    /// Returns the cluster's number, for indexing an array with one element per cluster.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// All clusters of one size on one machine.
///
/// # Example
/// ```
/// use squall::topology::{Topology, VirtualSpec};
/// use squall::{ClusterSize, Vp};
///
/// let spec: VirtualSpec = "nodes:2,cores:2,threads:2".parse().unwrap();
/// let cores = Topology::virtual_of(spec).clusters(ClusterSize::Core);
/// assert_eq!(cores.len(), 4);
/// let core = cores.cluster_of(Vp::new(5));
/// assert_eq!(cores.members(core), [Vp::new(4), Vp::new(5)]);
/// ```
#[derive(Debug)]
pub struct Clusters {
    size: ClusterSize,
    /// Cluster number by VP index. `GAP` marks an index without a VP.
    of: Box<[u32]>,
    /// The VPs, sorted by cluster and then by index.
    members: Box<[Vp]>,
    /// Start of each cluster's members in `members`, and one end element.
    bounds: Box<[u32]>,
}

/// Marker in `of`. No cluster has this number, because there are fewer VPs.
const GAP: u32 = u32::MAX;

impl Clusters {
    /// Partitions `possible` into clusters of VPs with equal `key`.
    pub(crate) fn group(size: ClusterSize, possible: &VpSet, key: impl Fn(usize) -> u32) -> Clusters {
        let limit = possible.last().map_or(0, |vp| vp.index() + 1);
        let mut of = vec![GAP; limit].into_boxed_slice();
        let mut numbers = std::collections::BTreeMap::new();
        let mut counts: Vec<u32> = Vec::new();
        for vp in possible {
            let number = *numbers.entry(key(vp.index())).or_insert(counts.len() as u32);
            of[vp.index()] = number;
            if number as usize == counts.len() {
                counts.push(0);
            }
            counts[number as usize] += 1;
        }
        let sums = counts.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        let bounds: Box<[u32]> = std::iter::once(0).chain(sums).collect();
        let mut members: Box<[Vp]> = possible.iter().collect();
        members.sort_by_key(|vp| of[vp.index()]);
        Clusters { size, of, members, bounds }
    }

    /// Returns the size of these clusters.
    pub fn size(&self) -> ClusterSize {
        self.size
    }

    /// Returns the number of clusters, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "a machine has a VP, so there is a cluster")]
    pub fn len(&self) -> usize {
        self.bounds.len() - 1
    }

    /// Returns the cluster that contains `vp`.
    ///
    /// # Panics
    /// If the machine has no VP `vp`.
    ///
    /// # Cost
    /// One read of an array that is never written; wait-free.
    ///
    /// # Example
    /// ```
    /// use squall::topology::Topology;
    /// use squall::{ClusterSize, Vp};
    ///
    /// let cores = Topology::virtual_of("cores:2,threads:2".parse().unwrap()).clusters(ClusterSize::Core);
    /// assert_eq!(cores.cluster_of(Vp::new(0)), cores.cluster_of(Vp::new(1)));
    /// assert_ne!(cores.cluster_of(Vp::new(1)), cores.cluster_of(Vp::new(2)));
    /// ```
    #[inline]
    pub fn cluster_of(&self, vp: Vp) -> Cluster {
        match self.of.get(vp.index()) {
            Some(&number) if number != GAP => Cluster(number),
            _ => no_such_vp(vp),
        }
    }

    /// Returns the cluster that contains `vp`, or `None` if the machine has no such VP.
    ///
    /// # Example
    /// ```
    /// use squall::topology::Topology;
    /// use squall::{ClusterSize, Vp};
    ///
    /// let cores = Topology::virtual_of("cores:2".parse().unwrap()).clusters(ClusterSize::Core);
    /// assert!(cores.get(Vp::new(1)).is_some());
    /// assert!(cores.get(Vp::new(2)).is_none());
    /// ```
    pub fn get(&self, vp: Vp) -> Option<Cluster> {
        self.of.get(vp.index()).filter(|number| **number != GAP).copied().map(Cluster)
    }

    /// Returns the VPs of a cluster, lowest first; at least one.
    ///
    /// # Panics
    /// If `cluster` is not below [`len`](Clusters::len).
    pub fn members(&self, cluster: Cluster) -> &[Vp] {
        let (from, to) = (self.bounds[cluster.index()], self.bounds[cluster.index() + 1]);
        &self.members[from as usize..to as usize]
    }

    /// Iterates over the clusters in the order of their numbers.
    ///
    /// # Example
    /// ```
    /// use squall::{ClusterSize, machine};
    ///
    /// let nodes = machine().clusters(ClusterSize::Node);
    /// let vps: usize = nodes.iter().map(|node| nodes.members(node).len()).sum();
    /// assert_eq!(vps, machine().vps().len());
    /// ```
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Cluster> + DoubleEndedIterator + use<> {
        (0..self.len() as u32).map(Cluster)
    }
}

#[cold]
#[inline(never)]
fn no_such_vp(vp: Vp) -> ! {
    panic!("this machine has no VP {}", vp.index())
}
