//! The machine the process runs on, chosen once: the real one, or a virtual one that was asked for.
//!
//! Sizes of arrays, home VPs and clusters are all derived from the machine, so it must not change under them; what may
//! change is how much of it we are allowed to use, and that is a snapshot which is read when somebody asks.
//!
//! - I1. The process-wide machine is set at its first use and never again. Its VPs never change.
//! - I2. `Machine::clusters` of one machine and size gives one and the same [`Clusters`], until the machine learns where
//!   a VP belongs that was offline before (topology/I4). Objects keep the one they began with.
//! - I3. The allowance is read by whoever calls `refresh`, never by a thread of ours. Its generation grows exactly when
//!   a refresh finds a difference; snapshots are stored in the order in which they were read.
//!
//! Not promised: that an allowance is still true when it is looked at.
//! Cost: first use opens files for each VP, core and cache (see `topology`); `machine()` afterwards is one acquire load. `clusters`
//! is lock-free and writes nothing after the first call for a size. `allowance` takes a lock for one reference count.
//! Source: Unrau et al., "Hierarchical Clustering", §3.3 (the size that is set for the whole system).

mod describe;

pub use describe::{Description, LevelDescription};

use std::ffi::OsStr;
use std::fmt;
use std::num::NonZeroU32;

use squall_sync::atomic::{AtomicU64, Ordering};
use squall_sync::sync::{Arc, Mutex, MutexGuard, OnceLock};

use crate::cluster::{ClusterSize, ClusterTree, Clusters, TreeError};
use crate::topology::chain::Chain;
use crate::topology::{Allowance, Reader, SpecError, Topology, VirtualSpec, VpSet};

/// The environment variable that asks for a virtual topology.
const VARIABLE: &str = "SQUALL_TOPOLOGY";

static MACHINE: OnceLock<Machine> = OnceLock::new();

/// The machine of this process: virtual if [`Machine::set_virtual`] or the environment variable `SQUALL_TOPOLOGY`
/// asked for that (the format is that of [`VirtualSpec`]; an empty variable asks for nothing), else the real one.
///
/// # Panics
/// At first use, if `SQUALL_TOPOLOGY` is wrong; the message names the variable and the reason.
/// [`try_machine`] gives that as an error.
#[inline]
pub fn machine() -> &'static Machine {
    match MACHINE.get() {
        Some(machine) => machine,
        None => first_use(),
    }
}

#[cold]
fn first_use() -> &'static Machine {
    match try_machine() {
        Ok(machine) => machine,
        Err(error) => panic!("{error}"),
    }
}

/// The machine of this process, like [`machine`].
///
/// # Errors
/// [`MachineError::Variable`] if `SQUALL_TOPOLOGY` is wrong. The machine is then not in use yet, and
/// [`Machine::set_virtual`] still sets it.
pub fn try_machine() -> Result<&'static Machine, MachineError> {
    if let Some(machine) = MACHINE.get() {
        return Ok(machine);
    }
    let asked = std::env::var_os(VARIABLE);
    let machine = Machine::configured(asked.as_deref(), Reader::system())?;
    // Another thread may have been first. Then its machine counts, and ours, which nobody has seen, is dropped.
    Ok(MACHINE.get_or_init(|| machine))
}

/// A machine: its VPs, their clusters, and what of it may be used.
#[derive(Debug)]
pub struct Machine {
    reader: Reader,
    /// One element at set-up, and one more each time that VPs were placed: at most one for each VP.
    versions: Chain<Version>,
    /// Equal groups do not depend on the version. At most one element for each VP.
    fixed: Chain<Clusters>,
    /// A `ClusterSize`, see `encode`.
    default_size: AtomicU64,
    /// Held by the thread that is refreshing, while it reads files.
    refreshing: Mutex<()>,
    /// Held for moments; written only under `refreshing`.
    latest: Mutex<Option<Arc<Allowance>>>,
    /// The generation in `latest`; 0 while there is none.
    generation: AtomicU64,
}

/// What is known of the levels, and the clusters made of that so far.
#[derive(Debug)]
struct Version {
    topology: Topology,
    levels: [OnceLock<Clusters>; ClusterSize::LEVELS.len()],
}

impl Version {
    fn new(topology: Topology) -> Version {
        Version { topology, levels: [const { OnceLock::new() }; ClusterSize::LEVELS.len()] }
    }
}

impl Machine {
    /// The machine that `reader` reads. If a file makes no sense, a flat one with the reason among its warnings.
    pub fn read(reader: Reader) -> Machine {
        let topology = reader.topology_or_flat();
        Machine::with(reader, topology)
    }

    /// A virtual machine, for this process's limits of processor time.
    pub fn virtual_of(spec: VirtualSpec) -> Machine {
        Machine::with(Reader::system(), Topology::virtual_of(spec))
    }

    /// Makes the process-wide machine a virtual one, whatever the environment says.
    ///
    /// # Errors
    /// [`MachineError::InUse`] if [`machine`] has been used already, or this function.
    pub fn set_virtual(spec: VirtualSpec) -> Result<&'static Machine, MachineError> {
        match MACHINE.set(Machine::virtual_of(spec)) {
            Ok(()) => Ok(machine()),
            Err(_) => Err(MachineError::InUse { asked: spec }),
        }
    }

    fn with(reader: Reader, topology: Topology) -> Machine {
        let versions = Chain::new();
        versions.push(Version::new(topology));
        Machine {
            reader,
            versions,
            fixed: Chain::new(),
            default_size: AtomicU64::new(encode(ClusterSize::Core)),
            refreshing: Mutex::new(()),
            latest: Mutex::new(None),
            generation: AtomicU64::new(0),
        }
    }

    fn configured(asked: Option<&OsStr>, reader: Reader) -> Result<Machine, MachineError> {
        let Some(asked) = asked.filter(|text| !text.is_empty()) else { return Ok(Machine::read(reader)) };
        let asked = asked.to_string_lossy();
        match asked.parse() {
            Ok(spec) => Ok(Machine::with(reader, Topology::virtual_of(spec))),
            Err(reason) => Err(MachineError::Variable { value: asked.into_owned(), reason }),
        }
    }

    fn version(&self) -> &Version {
        self.versions.last().expect("`with` puts in the first version")
    }

    /// What is known of the levels now.
    pub fn topology(&self) -> &Topology {
        &self.version().topology
    }

    /// All VPs, whether online or not.
    pub fn vps(&self) -> &VpSet {
        self.topology().possible()
    }

    /// The highest VP index plus one: the length of an array with a place for each VP. Indices may have gaps.
    pub fn vp_limit(&self) -> usize {
        self.topology().vp_limit()
    }

    /// Whether VPs are given to threads, not found by where they run.
    pub fn is_virtual(&self) -> bool {
        self.topology().is_virtual()
    }

    /// The clusters of one size, made at first need and shared (machine/I2). A fixed size beyond the number of VPs is
    /// cut to it.
    pub fn clusters(&self, size: ClusterSize) -> &Clusters {
        self.clusters_in(self.version(), size)
    }

    fn clusters_in<'a>(&'a self, version: &'a Version, size: ClusterSize) -> &'a Clusters {
        let level = match size {
            ClusterSize::Cpu => 0,
            ClusterSize::Core => 1,
            ClusterSize::Cache => 2,
            ClusterSize::Node => 3,
            ClusterSize::Machine => 4,
            ClusterSize::Fixed(vps) => {
                let limit = NonZeroU32::new(self.vp_limit() as u32).expect("a machine has a VP");
                let size = ClusterSize::Fixed(vps.min(limit));
                let make = || version.topology.clusters(size);
                return self.fixed.find_or_push(|clusters| clusters.size() == size, make);
            }
        };
        version.levels[level].get_or_init(|| version.topology.clusters(size))
    }

    /// The clusters of several sizes as a tree, finest size first.
    ///
    /// # Errors
    /// [`TreeError`] if there are no sizes, or a cluster lies across two of the next size. Any choice of
    /// [`ClusterSize::LEVELS`] in their order is right.
    pub fn tree(&self, sizes: &[ClusterSize]) -> Result<ClusterTree<'_>, TreeError> {
        // One version for all sizes, lest VPs be placed in between.
        let version = self.version();
        ClusterTree::new(sizes.iter().map(|size| self.clusters_in(version, *size)))
    }

    /// The cluster size of whoever names none. At first it is [`ClusterSize::Core`]: hardware threads of a core share
    /// its first cache, so a second representative there would cost memory and save nothing.
    pub fn default_cluster_size(&self) -> ClusterSize {
        // Relaxed, here and below: the word is all there is to see.
        decode(self.default_size.load(Ordering::Relaxed))
    }

    /// Sets the cluster size of whoever names none; what exists keeps the size it has.
    pub fn set_default_cluster_size(&self, size: ClusterSize) {
        self.default_size.store(encode(size), Ordering::Relaxed);
    }

    /// VPs whose processor is online, read now. All of them if the kernel does not tell, or the machine is virtual.
    pub fn online(&self) -> VpSet {
        let possible = self.vps();
        if self.is_virtual() {
            return possible.clone();
        }
        self.reader.online(possible).unwrap_or_else(|_| possible.clone())
    }

    /// VPs in the affinity mask of the calling thread, read now. All of them if the kernel does not tell, or the machine
    /// is virtual. May name VPs that are offline. Never empty.
    pub fn thread_allowed(&self) -> VpSet {
        let possible = self.vps();
        if self.is_virtual() {
            return possible.clone();
        }
        self.reader.mask("proc/thread-self/status", possible).unwrap_or_else(|_| possible.clone())
    }

    /// The last snapshot taken of what may be used; takes the first one if there is none.
    pub fn allowance(&self) -> Arc<Allowance> {
        let latest = lock(&self.latest).clone();
        latest.unwrap_or_else(|| self.refresh())
    }

    /// The generation of the last snapshot, 0 before the first: a cheap way to notice that somebody refreshed.
    pub fn generation(&self) -> u64 {
        // Acquire: pairs with the Release in `refresh`. Who reads generation n gets from `allowance` n or a later one
        // by the lock alone; the pair only lets other data be published with the number.
        self.generation.load(Ordering::Acquire)
    }

    /// Reads anew what may be used, and places VPs that were offline when the machine was read and no longer are.
    /// The snapshot keeps its generation if nothing has changed.
    ///
    /// # Cost
    /// Opens about five files and two for each control group on the way to the root, and allocates. Blocks while another thread refreshes, then reads for itself.
    pub fn refresh(&self) -> Arc<Allowance> {
        let _one_at_a_time = lock(&self.refreshing);
        let topology = self.topology();
        let mut readings = self.reader.readings(topology);
        if topology.unplaced().intersects(readings.online()) {
            match self.reader.topology() {
                Ok(newer) => {
                    topology.learn(&newer).into_iter().for_each(|t| self.versions.push(Version::new(t)))
                }
                Err(error) => readings.warn(format!("{error}; so VPs that came online stay by themselves")),
            }
        }
        let mut latest = lock(&self.latest);
        let last = latest.as_ref();
        if let Some(same) = last.filter(|last| *last.readings() == readings) {
            return same.clone();
        }
        let generation = last.map_or(1, |last| last.generation() + 1);
        let fresh = Arc::new(Allowance::numbered(generation, readings));
        *latest = Some(fresh.clone());
        // Release: pairs with the Acquire in `generation`.
        self.generation.store(generation, Ordering::Release);
        fresh
    }
}

/// Nothing under our locks is ever half changed, so a panic of another holder is no reason to fail.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex.lock() {
        Ok(guard) => guard,
        Err(poisoned) => poisoned.into_inner(),
    }
}

/// A level as its place in `LEVELS`, a fixed size as its number of VPs in the upper half.
fn encode(size: ClusterSize) -> u64 {
    match size {
        ClusterSize::Fixed(vps) => u64::from(vps.get()) << 32,
        level => ClusterSize::LEVELS.iter().position(|l| *l == level).expect("a level is in LEVELS") as u64,
    }
}

fn decode(word: u64) -> ClusterSize {
    match NonZeroU32::new((word >> 32) as u32) {
        Some(vps) => ClusterSize::Fixed(vps),
        None => ClusterSize::LEVELS[word as usize],
    }
}

/// Why there is no machine of the sort asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MachineError {
    /// The environment variable `SQUALL_TOPOLOGY` is wrong.
    Variable {
        /// What it holds.
        value: String,
        /// What is wrong with that.
        reason: SpecError,
    },
    /// A virtual machine was asked for after the first use of the machine.
    InUse {
        /// What was asked for.
        asked: VirtualSpec,
    },
}

impl fmt::Display for MachineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MachineError::Variable { value, reason } => {
                write!(f, "environment variable {VARIABLE}=\"{}\": {reason}", value.escape_debug())
            }
            MachineError::InUse { asked } => {
                write!(f, "the machine cannot become virtual ({asked}): it is in use already")
            }
        }
    }
}

impl std::error::Error for MachineError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            MachineError::Variable { reason, .. } => Some(reason),
            MachineError::InUse { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_size_survives_its_word() {
        let sizes = ClusterSize::LEVELS.into_iter().chain([1, 4, u32::MAX].map(ClusterSize::fixed));
        for size in sizes {
            assert_eq!(decode(encode(size)), size);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "reads the machine's files")]
    fn the_variable_decides_between_virtual_and_real() {
        let reader = Reader::system;
        let machine = Machine::configured(Some("cores:3,threads:2".as_ref()), reader()).unwrap();
        assert!(machine.is_virtual());
        assert_eq!(machine.vps().to_string(), "0-5");
        let real = Machine::read(reader()).is_virtual();
        for nothing in [None, Some("".as_ref())] {
            assert_eq!(Machine::configured(nothing, reader()).unwrap().is_virtual(), real);
        }
        let error = Machine::configured(Some("nodes:0".as_ref()), reader()).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("SQUALL_TOPOLOGY=\"nodes:0\"") && text.contains("at least 1"), "{text}");
    }
}
