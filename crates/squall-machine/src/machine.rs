//! The machine that the process runs on, chosen once: the real one, or a virtual one on request.
//!
//! Problem: array lengths, home VPs and clusters are all derived from the machine, so it must not change
//! under them. The share of the machine that the process may use does change.
//!
//! Idea: the machine is set once. Its allowance is a snapshot, which a caller refreshes on request.
//!
//! - I1. The process-wide machine is set at its first use and never again. Its VPs never change.
//! - I2. `Machine::clusters` returns the same [`Clusters`] for the same machine and size, until the machine
//!   places a VP that was offline before (topology/I4). Objects keep the clusters that they began with.
//! - I3. The thread that calls `refresh` reads the allowance; Squall starts no thread for it. The generation
//!   grows exactly when a refresh finds a difference. Snapshots are stored in the order in which they were
//!   read.
//!
//! Not promised: an allowance may be out of date when it is used.
//! Cost: the first use opens files for each VP, core and cache (see `topology`). Later `machine()` is one
//! acquire load. `clusters` is lock-free and writes shared memory only in the first call for a size.
//! `allowance` takes a lock for one reference count.
//! Source: Unrau et al., "Hierarchical Clustering", §3.3 (the size that is set for the whole system).

mod describe;

pub use describe::{Description, LevelDescription};

use std::ffi::OsStr;
use std::fmt;
use std::num::NonZeroU32;

use squall_sys::sync::atomic::{AtomicU64, Ordering};
use squall_sys::sync::{Arc, Mutex, MutexGuard, OnceLock};

use crate::cluster::{ClusterSize, ClusterSizeError, ClusterTree, Clusters, TreeError};
use crate::topology::chain::Chain;
use crate::topology::{Allowance, Reader, SpecError, Topology, VirtualSpec, VpSet};

/// Environment variable that asks for a virtual topology.
const VARIABLE: &str = "SQUALL_TOPOLOGY";
/// Environment variable that sets the default cluster size.
const SIZE_VARIABLE: &str = "SQUALL_CLUSTER_SIZE";
/// The coded default cluster size until one is set.
const UNSET: u64 = u32::MAX as u64;

static MACHINE: OnceLock<Machine> = OnceLock::new();

/// Returns the machine of this process.
///
/// It is virtual if [`Machine::set_virtual`] or the environment variable `SQUALL_TOPOLOGY` asked for that,
/// else real. The variable has the format of [`VirtualSpec`]; an empty one is ignored. The variable
/// `SQUALL_CLUSTER_SIZE` sets the [default cluster size](Machine::set_default_cluster_size), for example to
/// `node`.
///
/// # Panics
/// At first use, if one of the variables is malformed. The message names the variable and the reason.
/// [`try_machine`] returns that as an error instead.
///
/// # Example
/// ```
/// let machine = squall::machine();
/// println!("{} VPs below index {}", machine.vps().len(), machine.vp_limit());
/// assert!(machine.vps().contains(squall::Vp::current()));
/// ```
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

/// Returns the machine of this process, like [`machine`], but reports a malformed variable as an error.
///
/// # Errors
/// [`MachineError::Variable`] if `SQUALL_TOPOLOGY` is malformed, [`MachineError::ClusterSize`] if
/// `SQUALL_CLUSTER_SIZE` is. The machine is then still unset, and [`Machine::set_virtual`] can set it.
///
/// # Example
/// ```
/// match squall_machine::try_machine() {
///     Ok(machine) => println!("{} VPs", machine.vps().len()),
///     Err(error) => eprintln!("{error}"), // names the variable and the reason
/// }
/// ```
pub fn try_machine() -> Result<&'static Machine, MachineError> {
    if let Some(machine) = MACHINE.get() {
        return Ok(machine);
    }
    let (asked, size) = (std::env::var_os(VARIABLE), std::env::var_os(SIZE_VARIABLE));
    let machine = Machine::configured(asked.as_deref(), Reader::system())?;
    machine.configure_size(size.as_deref())?;
    // If another thread set the machine first, its machine wins. Ours was never shared and is dropped.
    Ok(MACHINE.get_or_init(|| machine))
}

/// A machine: its VPs, their clusters, and the share of it that the process may use.
///
/// # Example
/// ```
/// use squall::{ClusterSize, Machine};
///
/// let machine = Machine::virtual_of("nodes:2,cores:4".parse().unwrap());
/// assert_eq!(machine.vps().to_string(), "0-7");
/// assert_eq!(machine.clusters(ClusterSize::Node).len(), 2);
/// ```
#[derive(Debug)]
pub struct Machine {
    reader: Reader,
    /// One element at set-up, and one more for each refresh that placed VPs; at most one per VP.
    versions: Chain<Version>,
    /// Clusters of fixed sizes, which do not depend on the version. At most one element per VP.
    fixed: Chain<Clusters>,
    /// A `ClusterSize`, coded by `encode`, or [`UNSET`].
    default_size: AtomicU64,
    /// Held by the refreshing thread while it reads files.
    refreshing: Mutex<()>,
    /// Held briefly; written only under `refreshing`.
    latest: Mutex<Option<Arc<Allowance>>>,
    /// The generation in `latest`; 0 before the first snapshot.
    generation: AtomicU64,
}

/// One state of knowledge about the levels, and the clusters built from it so far.
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
    /// Reads a machine with `reader`. If a file is malformed, the result is a flat machine, and the reason is
    /// among its warnings.
    pub fn read(reader: Reader) -> Machine {
        let topology = reader.topology_or_flat();
        Machine::with(reader, topology)
    }

    /// Creates a virtual machine. Limits of processor time are those of this process.
    pub fn virtual_of(spec: VirtualSpec) -> Machine {
        Machine::with(Reader::system(), Topology::virtual_of(spec))
    }

    /// Makes the process-wide machine a virtual one and ignores the environment variable.
    ///
    /// # Errors
    /// [`MachineError::InUse`] if the machine is already set, by [`machine`] or by an earlier call of this
    /// function.
    ///
    /// # Example
    /// ```standalone_crate
    /// use squall::{Machine, machine};
    ///
    /// Machine::set_virtual("nodes:2,cores:2".parse().unwrap()).unwrap();
    /// assert!(machine().is_virtual());
    /// assert_eq!(machine().vp_limit(), 4);
    /// ```
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
            default_size: AtomicU64::new(UNSET),
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

    fn configure_size(&self, asked: Option<&OsStr>) -> Result<(), MachineError> {
        let Some(asked) = asked.filter(|text| !text.is_empty()) else { return Ok(()) };
        let size = asked.to_string_lossy().parse().map_err(|reason| MachineError::ClusterSize { reason })?;
        self.set_default_cluster_size(size);
        Ok(())
    }

    fn version(&self) -> &Version {
        self.versions.last().expect("no version of the topology was stored")
    }

    /// Returns the topology as known now.
    ///
    /// # Example
    /// ```
    /// let topology = squall::machine().topology();
    /// println!("read from {}", topology.source());
    /// topology.warnings().iter().for_each(|warning| eprintln!("{warning}"));
    /// ```
    pub fn topology(&self) -> &Topology {
        &self.version().topology
    }

    /// Returns all VPs, online or not.
    pub fn vps(&self) -> &VpSet {
        self.topology().possible()
    }

    /// Returns the highest VP index plus one: the length of an array with one element per VP. Indices may
    /// have gaps.
    ///
    /// # Example
    /// ```
    /// use squall::{Vp, machine};
    /// use std::sync::atomic::{AtomicU64, Ordering};
    ///
    /// let counts: Vec<AtomicU64> = (0..machine().vp_limit()).map(|_| AtomicU64::new(0)).collect();
    /// counts[Vp::current().index()].fetch_add(1, Ordering::Relaxed);
    /// ```
    pub fn vp_limit(&self) -> usize {
        self.topology().vp_limit()
    }

    /// True if the machine is virtual: threads are then assigned VPs, wherever they run.
    pub fn is_virtual(&self) -> bool {
        self.topology().is_virtual()
    }

    /// Returns the clusters of one size. They are built at first need and shared (machine/I2). A fixed size
    /// above the number of VPs is reduced to it.
    ///
    /// # Example
    /// ```
    /// use squall::{ClusterSize, Vp, machine};
    ///
    /// let nodes = machine().clusters(ClusterSize::Node);
    /// let mine = nodes.cluster_of(Vp::current());
    /// println!("node {} of {} has {} VPs", mine.index(), nodes.len(), nodes.members(mine).len());
    /// ```
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
                let limit = NonZeroU32::new(self.vp_limit() as u32).expect("the machine has no VP");
                let size = ClusterSize::Fixed(vps.min(limit));
                let make = || version.topology.clusters(size);
                return self.fixed.find_or_push(|clusters| clusters.size() == size, make);
            }
        };
        version.levels[level].get_or_init(|| version.topology.clusters(size))
    }

    /// Builds a tree from the clusters of several sizes, finest size first.
    ///
    /// # Errors
    /// [`TreeError`] if `sizes` is empty, or if a cluster lies across two clusters of the next size. Any
    /// selection of [`ClusterSize::LEVELS`] in their order works.
    ///
    /// # Example
    /// ```
    /// use squall::{ClusterSize, machine};
    ///
    /// let tree = machine().tree(&[ClusterSize::Core, ClusterSize::Node, ClusterSize::Machine]).unwrap();
    /// assert_eq!(tree.roots().len(), 1);
    /// ```
    pub fn tree(&self, sizes: &[ClusterSize]) -> Result<ClusterTree<'_>, TreeError> {
        // All sizes come from one version, because a refresh may place VPs between two calls.
        let version = self.version();
        ClusterTree::new(sizes.iter().map(|size| self.clusters_in(version, *size)))
    }

    /// Returns the cluster size of objects that choose no size themselves. It is [`ClusterSize::Core`] until
    /// one is set. Hardware threads of a core share its first cache, so a second representative there would
    /// cost memory and save no traffic.
    pub fn default_cluster_size(&self) -> ClusterSize {
        self.cluster_size_or(ClusterSize::Core)
    }

    /// Returns the default cluster size if one was set, else `own`. For objects with a good size of their
    /// own, which the user of the system may override.
    ///
    /// # Example
    /// ```
    /// use squall::{ClusterSize, Machine};
    ///
    /// let machine = Machine::virtual_of("nodes:2,cores:4".parse().unwrap());
    /// assert_eq!(machine.cluster_size_or(ClusterSize::Cpu), ClusterSize::Cpu);
    /// machine.set_default_cluster_size(ClusterSize::Node);
    /// assert_eq!(machine.cluster_size_or(ClusterSize::Cpu), ClusterSize::Node);
    /// ```
    pub fn cluster_size_or(&self, own: ClusterSize) -> ClusterSize {
        // Relaxed, here and below: the word guards no other data.
        decode(self.default_size.load(Ordering::Relaxed)).unwrap_or(own)
    }

    /// Sets the cluster size of objects that choose no size themselves. Objects made later have it; existing
    /// objects keep their size. The environment variable `SQUALL_CLUSTER_SIZE` sets it at the first use of
    /// the machine.
    ///
    /// # Example
    /// ```
    /// use squall::{ClusterSize, Machine};
    ///
    /// let machine = Machine::virtual_of("nodes:2,cores:4".parse().unwrap());
    /// assert_eq!(machine.default_cluster_size(), ClusterSize::Core);
    /// machine.set_default_cluster_size(ClusterSize::Node);
    /// assert_eq!(machine.default_cluster_size(), ClusterSize::Node);
    /// ```
    pub fn set_default_cluster_size(&self, size: ClusterSize) {
        self.default_size.store(encode(size), Ordering::Relaxed);
    }

    /// Reads which VPs are online now. Returns all VPs if the kernel does not tell, or if the machine is
    /// virtual.
    pub fn online(&self) -> VpSet {
        let possible = self.vps();
        if self.is_virtual() {
            return possible.clone();
        }
        self.reader.online(possible).unwrap_or_else(|_| possible.clone())
    }

    /// Reads the affinity mask of the calling thread. Returns all VPs if the kernel does not tell, or if the
    /// machine is virtual. The set may contain offline VPs; it is never empty.
    ///
    /// # Example
    /// ```
    /// let machine = squall::machine();
    /// println!("this thread may run on {}", machine.thread_allowed().intersection(&machine.online()));
    /// ```
    pub fn thread_allowed(&self) -> VpSet {
        let possible = self.vps();
        if self.is_virtual() {
            return possible.clone();
        }
        self.reader.mask("proc/thread-self/status", possible).unwrap_or_else(|_| possible.clone())
    }

    /// Returns the last snapshot of the share that the process may use. The first call takes
    /// the first snapshot.
    ///
    /// # Panics
    /// In the child of a fork, if another thread was in this call or in [`refresh`](Machine::refresh).
    ///
    /// # Example
    /// ```
    /// let allowance = squall::machine().allowance();
    /// assert!(allowance.parallelism() >= 1);
    /// ```
    pub fn allowance(&self) -> Arc<Allowance> {
        let latest = lock(&self.latest).clone();
        latest.unwrap_or_else(|| self.refresh())
    }

    /// Returns the generation of the last snapshot, 0 before the first. A cheap way to notice a refresh by
    /// another thread.
    pub fn generation(&self) -> u64 {
        // Acquire: pairs with the Release in `refresh`. After reading generation n, `allowance` returns n or
        // a later one by its lock alone. The pair lets a refreshing thread publish other data with the
        // number.
        self.generation.load(Ordering::Acquire)
    }

    /// Reads the allowance again. Also places VPs that were offline when the machine was read and are online
    /// now. The snapshot keeps its generation if no reading has changed.
    ///
    /// # Panics
    /// In the child of a fork, if another thread was in this call or in [`allowance`](Machine::allowance).
    ///
    /// # Cost
    /// Opens about five files, and two per control group on the way to the root, and allocates. Blocks while
    /// another thread refreshes, then reads for itself.
    ///
    /// # Example
    /// ```
    /// let machine = squall::machine();
    /// let before = machine.refresh();
    /// // Later, for example once a second:
    /// let now = machine.refresh();
    /// if now.generation() != before.generation() {
    ///     println!("now {} threads can run at once", now.parallelism());
    /// }
    /// ```
    pub fn refresh(&self) -> Arc<Allowance> {
        let _one_at_a_time = lock(&self.refreshing);
        let topology = self.topology();
        let mut readings = self.reader.readings(topology);
        if topology.unknown_vps().intersects(readings.online()) {
            match self.reader.topology() {
                Ok(newer) => topology
                    .place_online(&newer)
                    .into_iter()
                    .for_each(|t| self.versions.push(Version::new(t))),
                Err(error) => readings.warn(format!("{error}; so VPs that came online stay unplaced")),
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

/// Locks `mutex` and ignores poison: data under these locks is never left half changed, so a panic of another
/// holder does no harm.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    squall_sys::sync::lock(mutex, "the machine's allowance")
}

/// Codes a level as its index in `LEVELS`, and a fixed size as its number of VPs in the upper half.
fn encode(size: ClusterSize) -> u64 {
    match size {
        ClusterSize::Fixed(vps) => u64::from(vps.get()) << 32,
        level => ClusterSize::LEVELS
            .iter()
            .position(|l| *l == level)
            .expect("the cluster size is not in `ClusterSize::LEVELS`") as u64,
    }
}

/// Returns the coded size, or `None` for [`UNSET`].
fn decode(word: u64) -> Option<ClusterSize> {
    match NonZeroU32::new((word >> 32) as u32) {
        Some(vps) => Some(ClusterSize::Fixed(vps)),
        None => ClusterSize::LEVELS.get(word as usize).copied(),
    }
}

/// Error: the requested machine is not available.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MachineError {
    /// The environment variable `SQUALL_TOPOLOGY` is malformed.
    Variable {
        /// Value of the variable.
        value: String,
        /// Fault in the value.
        reason: SpecError,
    },
    /// The environment variable `SQUALL_CLUSTER_SIZE` is malformed.
    ClusterSize {
        /// Fault in the value.
        reason: ClusterSizeError,
    },
    /// A virtual machine was requested after the first use of the machine.
    InUse {
        /// The requested topology.
        asked: VirtualSpec,
    },
}

impl fmt::Display for MachineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MachineError::Variable { value, reason } => {
                write!(f, "environment variable {VARIABLE}=\"{}\": {reason}", value.escape_debug())
            }
            MachineError::ClusterSize { reason } => {
                write!(f, "environment variable {SIZE_VARIABLE}: {reason}")
            }
            MachineError::InUse { asked } => {
                write!(
                    f,
                    "the machine cannot become virtual ({asked}): it is in use already; set it before its first use"
                )
            }
        }
    }
}

impl std::error::Error for MachineError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            MachineError::Variable { reason, .. } => Some(reason),
            MachineError::ClusterSize { reason } => Some(reason),
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
            assert_eq!(decode(encode(size)), Some(size));
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
