//! Topology: the machine's virtual processors, and which of them are neighbours.
//!
//! Problem: the kernel's lists of processors may be missing (containers, small VMs), partial (offline
//! processors), or contradictory (a cache said to span two nodes). The layers above want one clean answer.
//!
//! Idea: five levels, cpu ⊂ core ⊂ cache ⊂ node ⊂ machine, each a partition of the VPs. A [`Reader`] reads
//! the kernel's files. A [`Topology`] is the normalized result. A [`VirtualSpec`] describes a made-up
//! machine.
//!
//! - I1. VPs are the processors that the kernel calls *possible*; a VP's index is the CPU's number. The
//!   kernel runs threads on no other processor, so an array of [`Topology::vp_limit`] elements can be indexed
//!   by the current CPU. If that set is unknown, the reader takes a set that is certainly no smaller
//!   ([`Source::MaskWidth`]). If even that fails, the topology is virtual ([`Source::Count`]), and the CPU's
//!   number is never used.
//! - I2. At each level every VP is in exactly one cluster, and each level nests in the next. Where the
//!   kernel's lists do not nest, the finer one is cut at the borders of the coarser one, with a warning. A
//!   cache shared by two nodes thus counts as one cache in each. The node decides because memory is placed by
//!   node.
//! - I3. A level is the coarsest of its kind. *Cache* is the highest level of data or unified cache that a
//!   processor has, so processors of one machine may differ in it.
//! - I4. A processor without topology files is *unplaced*: it has been offline, or is not plugged in. It
//!   counts as a core and a cache of its own, in the node that the kernel names for it, or else in the first
//!   node. Once it is online, [`Topology::place_online`] places it. Learning never separates VPs that an
//!   earlier topology had in one core.
//! - I5. A present but malformed file is an error that names the file. The value of an absent file is
//!   assumed, with a warning.
//!
//! Not promised: distances between nodes, the finer caches, or any fact about speed except
//! [`Topology::kinds`].
//! Cost: reading opens one file per VP, one more per core, and about ten per cache. Every later query is a
//! lookup.
//! Source: the levels are this library's own; Linux documents the files in
//! `Documentation/admin-guide/cputopology.rst` and `Documentation/ABI/testing/sysfs-devices-system-cpu`.

mod allowance;
mod cgroup;
pub(crate) mod chain;
mod groups;
mod reader;
mod spec;
mod sysfs;
mod vpset;

pub use allowance::Allowance;
pub use cgroup::Quota;
pub use reader::{ReadError, Reader};
pub use spec::{SpecError, VirtualSpec};
pub use vpset::{Iter, VpSet, VpSetError};

use std::collections::BTreeSet;
use std::fmt;

use crate::Vp;
use crate::cluster::{ClusterSize, Clusters};
use groups::{Groups, cut};
use vpset::shorten;

/// Origin of a topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// The kernel's files in `/sys`.
    Sysfs,
    /// `/sys` lists no processors. The number of VPs is the width of an affinity mask, at most three too
    /// many.
    MaskWidth,
    /// Neither `/sys` nor `/proc` is usable. The topology is virtual, with as many VPs as std counts
    /// processors.
    Count,
    /// A virtual topology, made on request.
    Spec(VirtualSpec),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Sysfs => f.write_str("/sys"),
            Source::MaskWidth => f.write_str("width of the affinity mask in /proc"),
            Source::Count => f.write_str("number of processors, from the standard library"),
            Source::Spec(spec) => write!(f, "virtual: {spec}"),
        }
    }
}

/// The VPs of a machine and their levels, as read at one time. Immutable.
///
/// # Example
/// ```
/// use squall::ClusterSize;
/// use squall::topology::Reader;
///
/// let topology = Reader::system().topology_or_flat();
/// println!("{} cores", topology.clusters(ClusterSize::Core).len());
/// ```
#[derive(Clone, Debug)]
pub struct Topology {
    source: Source,
    possible: VpSet,
    unplaced: VpSet,
    /// The levels as read, before any cut. Learning starts from here.
    read: Levels,
    /// Labels of each VP at the levels core, cache and node, by index. Elements at gaps are unused.
    labels: [Vec<u32>; 3],
    has_node_numbers: bool,
    memory_nodes: Vec<u32>,
    kinds: Vec<VpSet>,
    warnings: Vec<String>,
}

/// The levels as they were read. `node` is the kernel's node number by VP index.
#[derive(Clone, Debug)]
struct Levels {
    core: Groups,
    cache: Groups,
    node: Vec<u32>,
}

impl Topology {
    /// Builds the topology of a virtual machine.
    ///
    /// # Example
    /// ```
    /// use squall::topology::{Topology, VirtualSpec};
    ///
    /// let spec: VirtualSpec = "nodes:2,cores:4".parse().unwrap();
    /// let topology = Topology::virtual_of(spec);
    /// assert!(topology.is_virtual());
    /// assert_eq!(topology.possible().to_string(), "0-7");
    /// ```
    pub fn virtual_of(spec: VirtualSpec) -> Topology {
        let vps = spec.vps() as usize;
        let group_of = |stride: u32| {
            let mut groups = Groups::singletons(vps);
            (0..spec.vps()).for_each(|id| groups.join(id, id - id % stride));
            groups
        };
        let [core, cache, node] = spec.strides();
        let read = Levels {
            core: group_of(core),
            cache: group_of(cache),
            node: (0..spec.vps()).map(|id| id / node).collect(),
        };
        let source = Source::Spec(spec);
        Topology::build(source, VpSet::first_n(vps), read)
    }

    /// Builds a topology from VPs alone: each VP is a core; there is one cache and one node.
    fn flat(source: Source, possible: VpSet, warning: String) -> Topology {
        let limit = limit_of(&possible);
        let mut cache = Groups::singletons(limit);
        cache.join_all(&possible);
        let read = Levels { core: Groups::singletons(limit), cache, node: vec![0; limit] };
        let mut flat = Topology::build(source, possible, read);
        flat.warnings.push(warning);
        flat
    }

    /// Normalises the levels that were read (I2). The caller fills in the rest.
    fn build(source: Source, possible: VpSet, read: Levels) -> Topology {
        assert!(!possible.is_empty(), "the topology has no processor");
        let (cache, cache_cut) = cut(&possible, &read.cache.labels(), &read.node);
        let (core, core_cut) = cut(&possible, &read.core.labels(), &cache);
        let mut warnings = Vec::new();
        if cache_cut {
            warnings.push("a cache spans several nodes: its part in each node counts as a cache".to_owned());
        }
        if core_cut {
            warnings
                .push("a core spans several caches or nodes: each part of it counts as a core".to_owned());
        }
        let kinds = vec![possible.clone()];
        let labels = [core, cache, read.node.clone()];
        let (unplaced, memory_nodes) = (VpSet::new(), Vec::new());
        let has_node_numbers = false;
        Topology { source, possible, unplaced, read, labels, has_node_numbers, memory_nodes, kinds, warnings }
    }

    /// Places unplaced VPs with the help of `newer`, a later reading of the same machine (I4). Returns the
    /// new topology, or `None` if `newer` places no further VP.
    pub fn place_online(&self, newer: &Topology) -> Option<Topology> {
        let fresh = self.unplaced.difference(&newer.unplaced);
        if fresh.is_empty() || self.possible != newer.possible || self.is_virtual() {
            return None;
        }
        let mut read = self.read.clone();
        for vp in &fresh {
            read.node[vp.index()] = newer.read.node[vp.index()];
        }
        for (ours, theirs) in [(&mut read.core, &newer.read.core), (&mut read.cache, &newer.read.cache)] {
            let labels = theirs.labels();
            let grown: BTreeSet<u32> = fresh.iter().map(|vp| labels[vp.index()]).collect();
            for (id, label) in labels.into_iter().enumerate() {
                if grown.contains(&label) {
                    ours.join(id as u32, label);
                }
            }
        }
        let mut learnt = Topology::build(self.source, self.possible.clone(), read);
        learnt.unplaced = self.unplaced.difference(&fresh);
        learnt.has_node_numbers = newer.has_node_numbers;
        learnt.memory_nodes = newer.memory_nodes.clone();
        learnt.kinds = newer.kinds.clone();
        learnt.warnings.extend(unplaced_warning(&learnt.unplaced));
        Some(learnt)
    }

    /// Returns the origin of the topology.
    pub fn source(&self) -> Source {
        self.source
    }

    /// True if threads are assigned VPs, wherever they run.
    pub fn is_virtual(&self) -> bool {
        matches!(self.source, Source::Spec(_) | Source::Count)
    }

    /// Returns all VPs, online or not.
    pub fn possible(&self) -> &VpSet {
        &self.possible
    }

    /// Returns the highest VP index plus one: the length of an array with one element per VP. Indices may
    /// have gaps.
    pub fn vp_limit(&self) -> usize {
        limit_of(&self.possible)
    }

    /// Returns the unplaced VPs: the machine does not tell their position (I4).
    pub fn unknown_vps(&self) -> &VpSet {
        &self.unplaced
    }

    /// Returns the kernel's number of the node that contains `vp`, or `None` if the machine has no node
    /// numbers.
    ///
    /// # Panics
    /// If `vp` is not below [`Topology::vp_limit`].
    ///
    /// # Example
    /// ```
    /// let topology = squall::machine().topology();
    /// for vp in topology.possible() {
    ///     println!("{vp} is in node {:?}", topology.node_number(vp));
    /// }
    /// ```
    pub fn node_number(&self, vp: Vp) -> Option<u32> {
        let number = self.read.node[vp.index()];
        self.has_node_numbers.then_some(number)
    }

    /// Returns the kernel's numbers of the nodes that have memory but no processor. They form no cluster.
    pub fn memory_nodes(&self) -> &[u32] {
        &self.memory_nodes
    }

    /// Returns the VPs by kind of processor, fastest first. There is one set, unless the machine mixes big
    /// and little processors. VPs that have been offline since the start may be in no set.
    ///
    /// # Example
    /// ```
    /// let topology = squall::machine().topology();
    /// if let [fast, .., slow] = topology.kinds() {
    ///     println!("fast processors {fast}, slow ones {slow}");
    /// }
    /// ```
    pub fn kinds(&self) -> &[VpSet] {
        &self.kinds
    }

    /// Returns the assumptions and cuts made while reading, one sentence each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Builds the clusters of one size. [`crate::Machine::clusters`] returns shared ones instead.
    ///
    /// # Example
    /// ```
    /// use squall::topology::Topology;
    /// use squall::{ClusterSize, Vp};
    ///
    /// let caches = Topology::virtual_of("caches:2,cores:2".parse().unwrap()).clusters(ClusterSize::Cache);
    /// assert_eq!(caches.members(caches.cluster_of(Vp::new(3))), [Vp::new(2), Vp::new(3)]);
    /// ```
    pub fn clusters(&self, size: ClusterSize) -> Clusters {
        let [core, cache, node] = &self.labels;
        Clusters::group(size, &self.possible, |id| match size {
            ClusterSize::Cpu => id as u32,
            ClusterSize::Core => core[id],
            ClusterSize::Cache => cache[id],
            ClusterSize::Node => node[id],
            ClusterSize::Machine => 0,
            ClusterSize::Fixed(count) => id as u32 / count,
        })
    }
}

fn limit_of(possible: &VpSet) -> usize {
    possible.last().map_or(0, |vp| vp.index() + 1)
}

/// Builds the warning about unplaced VPs.
fn unplaced_warning(unplaced: &VpSet) -> Option<String> {
    (!unplaced.is_empty()).then(|| {
        format!("VPs {unplaced} have been offline: each counts as a core and a cache until it is seen online")
    })
}
