//! Description of the machine in strings and numbers, for display.

use super::Machine;
use crate::cluster::ClusterSize;

/// A machine in strings and numbers, as `squall info` prints it. Sets of VPs are in the kernel's list format.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Description {
    /// True if threads are assigned VPs, wherever they run.
    pub is_virtual: bool,
    /// Origin of the topology.
    pub source: String,
    /// Highest VP index plus one.
    pub vp_limit: usize,
    /// All VPs, online or not.
    pub possible: String,
    /// Number of VPs.
    pub possible_count: usize,
    /// VPs that are online.
    pub online: String,
    /// Number of online VPs.
    pub online_count: usize,
    /// VPs in the affinity mask of the process's first thread.
    pub allowed: String,
    /// Number of allowed VPs.
    pub allowed_count: usize,
    /// VPs that the control group may use.
    pub cpuset: Option<String>,
    /// Limit of processor time, in processors.
    pub quota_cpus: Option<f64>,
    /// Number of threads that can run at once.
    pub parallelism: usize,
    /// Levels of the machine, finest first.
    pub levels: Vec<LevelDescription>,
    /// Cluster size of objects that choose no size themselves.
    pub default_cluster_size: String,
    /// Numbers of the nodes that have memory but no processor.
    pub memory_nodes: Vec<u32>,
    /// VPs by kind of processor, fastest kind first. Most machines have one kind.
    pub kinds: Vec<String>,
    /// VPs with unknown position, because they have been offline since the start.
    pub unplaced: String,
    /// Generation of the allowance.
    pub generation: u64,
    /// Assumptions made while reading, one sentence each.
    pub warnings: Vec<String>,
}

/// One level of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LevelDescription {
    /// Name of the level, as a cluster size.
    pub name: String,
    /// Number of clusters.
    pub clusters_count: usize,
    /// Number of VPs in the smallest cluster.
    pub vps_min: usize,
    /// Number of VPs in the largest cluster.
    pub vps_max: usize,
}

impl Machine {
    /// Refreshes the allowance, then describes the machine in strings and numbers.
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
            unplaced: topology.unknown_vps().to_string(),
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
