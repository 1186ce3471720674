//! What machine this is: its virtual processors, and which of them are neighbours.
//!
//! Linux tells much about a machine, but in lists that may be missing (containers, small VMs), partial (processors
//! that are offline), or at odds with one another (a cache said to span two nodes). Everything above wants one clean
//! answer: five levels, cpu ⊂ core ⊂ cache ⊂ node ⊂ machine, each a partition of the VPs. A [`Reader`] reads,
//! a [`Topology`] is the answer, a [`VirtualSpec`] makes one up.
//!
//! - I1. VPs are the processors the kernel calls *possible*; a VP's index is the CPU's number. No thread ever runs on
//!   another one, so whoever sizes an array by [`Topology::vp_limit`] can index it by the current CPU. Where that set
//!   is unknown it is replaced by one that is surely no smaller ([`Source::MaskWidth`]), or else the topology is
//!   virtual ([`Source::Count`]) and nobody looks at the CPU's number at all.
//! - I2. At each level every VP is in exactly one cluster, and each level nests in the next. Where the kernel's lists
//!   do not nest, the finer one is cut at the coarser one's borders, with a warning: a cache that two nodes share
//!   counts as one cache in each. The node decides because memory is placed by node.
//! - I3. A level is the coarsest of its kind: *cache* is the highest level of data or unified cache that a processor
//!   has, so processors of one machine may differ in it.
//! - I4. A processor without topology files (it has been offline, or is not plugged in) is *unplaced*: a core and a
//!   cache of its own, in the node that the kernel names for it, else in the first. When it is seen online,
//!   [`Topology::learn`] places it. Learning never parts VPs that an earlier topology had in one core.
//! - I5. A file that is there but makes no sense is an error that names it; what is absent is assumed, with a warning.
//!
//! Not promised: distances between nodes, the finer caches, or anything about speed but [`Topology::kinds`].
//! Cost: reading opens one file for each VP, one more for each core, and about ten for each cache; every later question
//! is a lookup.
//! Source: the levels are this library's; Linux documents the files in `Documentation/admin-guide/cputopology.rst` and
//! `Documentation/ABI/testing/sysfs-devices-system-cpu`.

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

/// Where a topology comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// The kernel's files in `/sys`.
    Sysfs,
    /// `/sys` has no list of processors: the VPs are as many as an affinity mask is wide, at most three too many.
    MaskWidth,
    /// Neither `/sys` nor `/proc` can be used: a virtual topology of as many VPs as std counts processors.
    Count,
    /// Asked for: a virtual topology.
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
#[derive(Clone, Debug)]
pub struct Topology {
    source: Source,
    possible: VpSet,
    unplaced: VpSet,
    /// What was read, before anything was cut: learning goes on from here.
    read: Levels,
    /// The label of each VP at the levels core, cache, node; by index, gaps hold anything.
    labels: [Vec<u32>; 3],
    has_node_numbers: bool,
    memory_nodes: Vec<u32>,
    kinds: Vec<VpSet>,
    warnings: Vec<String>,
}

/// The levels as they were read. Node: the kernel's number by VP index.
#[derive(Clone, Debug)]
struct Levels {
    core: Groups,
    cache: Groups,
    node: Vec<u32>,
}

impl Topology {
    /// The topology of a virtual machine.
    pub fn virtual_of(spec: VirtualSpec) -> Topology {
        let vps = spec.vps() as usize;
        let group_of = |stride: u32| {
            let mut groups = Groups::apart(vps);
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

    /// A topology of which nothing is known but its VPs: each a core of its own, one cache, one node.
    fn flat(source: Source, possible: VpSet, warning: String) -> Topology {
        let limit = limit_of(&possible);
        let mut cache = Groups::apart(limit);
        cache.join_all(&possible);
        let read = Levels { core: Groups::apart(limit), cache, node: vec![0; limit] };
        let mut flat = Topology::build(source, possible, read);
        flat.warnings.push(warning);
        flat
    }

    /// Normalises what was read (I2). The caller fills in what else it knows.
    fn build(source: Source, possible: VpSet, read: Levels) -> Topology {
        assert!(!possible.is_empty(), "a machine has a processor");
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

    /// This topology with the VPs placed that it lacks and `newer`, a later reading of the same machine, has (I4);
    /// `None` if `newer` places none of them.
    pub fn learn(&self, newer: &Topology) -> Option<Topology> {
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
        learnt.warnings.extend(sysfs::unplaced_warning(&learnt.unplaced));
        Some(learnt)
    }

    /// Where it comes from.
    pub fn source(&self) -> Source {
        self.source
    }

    /// Whether VPs are given to threads, not found by where they run.
    pub fn is_virtual(&self) -> bool {
        matches!(self.source, Source::Spec(_) | Source::Count)
    }

    /// All VPs, whether online or not.
    pub fn possible(&self) -> &VpSet {
        &self.possible
    }

    /// The highest VP index plus one: the length of an array with a place for each VP. Indices may have gaps.
    pub fn vp_limit(&self) -> usize {
        limit_of(&self.possible)
    }

    /// VPs of which nothing was known yet (I4).
    pub fn unplaced(&self) -> &VpSet {
        &self.unplaced
    }

    /// The kernel's number of the node that `vp` is in; `None` where the machine has no node numbers.
    ///
    /// # Panics
    /// If `vp` is not below [`Topology::vp_limit`].
    pub fn node_number(&self, vp: Vp) -> Option<u32> {
        let number = self.read.node[vp.index()];
        self.has_node_numbers.then_some(number)
    }

    /// The kernel's numbers of the nodes that have memory but no processor. They form no cluster.
    pub fn memory_nodes(&self) -> &[u32] {
        &self.memory_nodes
    }

    /// The VPs by kind of processor, fastest first: one set, unless the machine mixes processors (big and little ones).
    /// VPs that have been offline may be in no set.
    pub fn kinds(&self) -> &[VpSet] {
        &self.kinds
    }

    /// What was assumed or cut, in sentences for people.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The clusters of one size, made anew: see [`crate::Machine::clusters`] for the shared ones.
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
