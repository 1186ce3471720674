//! The machine in strings and numbers, for whoever shows it to people.

use super::Machine;
use crate::cluster::ClusterSize;

/// A machine as `squall info` shows it. Sets of VPs are texts in the kernel's list format.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Description {
    /// Whether VPs are given to threads, not found by where they run.
    pub is_virtual: bool,
    /// Where the topology comes from.
    pub source: String,
    /// The highest VP index plus one.
    pub vp_limit: usize,
    /// All VPs.
    pub possible: String,
    /// How many VPs there are.
    pub possible_count: usize,
    /// VPs that are online.
    pub online: String,
    /// How many VPs are online.
    pub online_count: usize,
    /// VPs in the affinity mask of the process's first thread.
    pub allowed: String,
    /// How many VPs are allowed.
    pub allowed_count: usize,
    /// VPs that the control group may use.
    pub cpuset: Option<String>,
    /// The limit of processor time, in processors.
    pub quota_cpus: Option<f64>,
    /// How many threads can run at once.
    pub parallelism: usize,
    /// The levels, finest first.
    pub levels: Vec<LevelDescription>,
    /// The cluster size of whoever names none.
    pub default_cluster_size: String,
    /// Numbers of the nodes that have memory but no processor.
    pub memory_nodes: Vec<u32>,
    /// VPs by kind of processor, fastest first; one kind as a rule.
    pub kinds: Vec<String>,
    /// VPs of which nothing is known, since they have been offline.
    pub unplaced: String,
    /// Generation of the allowance.
    pub generation: u64,
    /// What was assumed, in sentences.
    pub warnings: Vec<String>,
}

/// One level of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LevelDescription {
    /// Its name, as a cluster size.
    pub name: String,
    /// How many clusters it has.
    pub clusters_count: usize,
    /// VPs in its smallest cluster.
    pub vps_min: usize,
    /// VPs in its largest cluster.
    pub vps_max: usize,
}

impl Machine {
    /// The machine in strings and numbers; refreshes the allowance first.
    pub fn describe(&self) -> Description {
        let allowance = self.refresh();
        let topology = self.topology();
        let warnings = topology.warnings().iter().chain(allowance.warnings()).cloned().collect();
        Description {
            is_virtual: self.is_virtual(),
            source: topology.source().to_string(),
            vp_limit: self.vp_limit(),
            possible: self.vps().to_string(),
            possible_count: self.vps().len(),
            online: allowance.online().to_string(),
            online_count: allowance.online().len(),
            allowed: allowance.allowed().to_string(),
            allowed_count: allowance.allowed().len(),
            cpuset: allowance.cpuset().map(ToString::to_string),
            quota_cpus: allowance.quota().map(|quota| quota.cpus()),
            parallelism: allowance.parallelism(),
            levels: ClusterSize::LEVELS.into_iter().map(|level| self.describe_level(level)).collect(),
            default_cluster_size: self.default_cluster_size().to_string(),
            memory_nodes: topology.memory_nodes().to_vec(),
            kinds: topology.kinds().iter().map(ToString::to_string).collect(),
            unplaced: topology.unplaced().to_string(),
            generation: allowance.generation(),
            warnings,
        }
    }

    fn describe_level(&self, level: ClusterSize) -> LevelDescription {
        let clusters = self.clusters(level);
        let vps = || clusters.iter().map(|cluster| clusters.members(cluster).len());
        LevelDescription {
            name: level.to_string(),
            clusters_count: clusters.len(),
            vps_min: vps().min().unwrap_or(0),
            vps_max: vps().max().unwrap_or(0),
        }
    }
}
