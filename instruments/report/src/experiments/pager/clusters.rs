//! Pages in clusters of processors: the memory of Hurricane, over the regions and caches of the library.
//!
//! Problem: EX-H5 and EX-H6 time programs on a machine of 1995, in each configuration of its clusters.
//! Idea: each cluster has a region, a file cache and a pool of the library. One thread steps all workers. A
//! directory, a model of this file alone, says which clusters have a page. The source of a cache fetches
//! absent pages from the cache of the page's home.
//!
//! - I1. The *home* of a page is the cluster of the worker that touched it first. It always has the page.
//! - I2. A page that other clusters read is copied to each of them once, by a fill of the library. From the
//!   first write after a copy on, it is *write-shared*: no cluster copies it, and all use it at its home.
//!
//! Not promised: the library has no call that drops one clean page. A copy that a write made stale stays in
//! memory, unused, and counts as memory.
//! Cost: times are computed from the counted events, with the costs that the paper gives. A module of memory
//! and the structures of a cluster serve one request at a time, in the order of the workers' clocks.
//! Source: Unrau et al. 1995, §4.3 (HU-13, HU-15) and §5.1.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use squall::objects::pages::{self, PagePool, Supply};
use squall::pager::cache::{self, FileCache, FileCacheExt, PAGE_BYTES};
use squall::pager::region::{self, Mapping, Region, RegionExt, SharedCache};
use squall::pager::source::{Filled, Source, SourceError, SourceErrorKind, SourceStatistics};
use squall::{Handle, Owned};

/// Numbers in a page.
pub(super) const NUMBERS: usize = PAGE_BYTES / 8;
/// A page of numbers.
pub(super) type Row = [f64; NUMBERS];

/// Microseconds of a cycle, at 16.67 MHz.
const CYCLE_US: f64 = 0.06;
/// Lines of 16 bytes in a page.
const LINES: f64 = (PAGE_BYTES / 16) as f64;
/// Cycles of a load of a line: from the processor's own memory, from its station, and from another one.
const LOAD_CYCLES: [f64; 3] = [19.0, 29.0, 34.0];
/// Microseconds of a fault on a page that is in the cluster, and on one that another cluster has.
const FAULT_US: [f64; 2] = [128.0, 243.0];
/// Microseconds for which a fault keeps other faults of the cluster waiting. The paper names the contention,
/// and not its length.
const HELD_US: f64 = 32.0;
/// Microseconds of a call to another cluster. Calls to a cluster wait for each other.
const CALL_US: f64 = 27.0;
/// Microseconds of a message, within a cluster and across clusters.
const MESSAGE_US: [f64; 2] = [328.0, 403.0];

/// Events of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Tally {
    /// First uses of a page by a worker, and uses after its mapping was taken away.
    pub(super) faults: u64,
    /// Faults that needed another cluster.
    pub(super) far_faults: u64,
    /// Pages that a cache fetched from its home cluster.
    pub(super) copies: u64,
    /// Writes that made copies stale.
    pub(super) invalidations: u64,
    /// Uses of a page in another cluster's memory.
    pub(super) remote: u64,
    /// Passes over a page in the memory of another station.
    pub(super) far_passes: u64,
    /// Pages of memory that copies take at the end.
    pub(super) copied_pages: u64,
    /// Time of the whole program in microseconds, by the model.
    pub(super) modelled_us: f64,
}

/// A machine and its configuration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    pub(super) processors: usize,
    /// Processors of a station.
    pub(super) station: usize,
    /// Processors of a cluster.
    pub(super) cluster: usize,
    /// Limit of the pages of a cluster.
    pub(super) max_pages: usize,
}

impl Machine {
    /// Makes a machine with memory for all copies.
    pub(super) fn new(processors: usize, station: usize, cluster: usize) -> Machine {
        Machine { processors, station, cluster, max_pages: 1 << 16 }
    }

    fn is_far(&self, processor: usize, memory: usize) -> bool {
        processor / self.station != memory / self.station
    }

    /// Cycles of a load of a line by a processor from the memory of another one.
    fn load_cycles(&self, processor: usize, memory: usize) -> f64 {
        LOAD_CYCLES[if processor == memory { 0 } else { 1 + usize::from(self.is_far(processor, memory)) }]
    }
}

/// A page in the directory.
#[derive(Clone, Debug, Default)]
struct Listed {
    home: Option<usize>,
    is_write_shared: bool,
    /// The processor with the frame, in each cluster that has a valid copy.
    frames: Vec<Option<usize>>,
    /// The time from which on the frame is filled.
    filled_us: Vec<f64>,
}

/// The directory, and the caches for the sources. The sources and the run share it.
#[derive(Default)]
struct Directory {
    pages: Vec<Listed>,
    caches: Vec<Handle<dyn FileCache>>,
    copies: u64,
}

type Shared = Arc<Mutex<Directory>>;

fn locked(directory: &Shared) -> MutexGuard<'_, Directory> {
    directory.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The source of a cluster's cache: zeros for pages that it touches first, and the home's cache for others.
struct FromHome {
    cluster: usize,
    bytes: u64,
    directory: Shared,
}

impl FromHome {
    fn error(page: u64, kind: SourceErrorKind) -> SourceError {
        SourceError::new("the home cluster", Some(page), kind)
    }
}

impl Source for FromHome {
    fn len(&self) -> u64 {
        self.bytes
    }

    fn fill(&self, page: u64, into: &mut [u8]) -> Result<Filled, SourceError> {
        let home = {
            let mut directory = locked(&self.directory);
            let home = directory.pages[page as usize].home.filter(|home| *home != self.cluster);
            directory.copies += u64::from(home.is_some());
            home.map(|home| directory.caches[home])
        };
        let Some(home) = home else { return Ok(Filled::Zeros) };
        let frame = home
            .pin(page)
            .map_err(|error| FromHome::error(page, SourceErrorKind::Other(error.to_string().into())))?;
        into.copy_from_slice(&frame);
        Ok(Filled::Read)
    }

    fn write(&self, page: u64, _: &[u8]) -> Result<(), SourceError> {
        Err(FromHome::error(page, SourceErrorKind::KeepsNothing))
    }

    fn set_len(&self, _: u64) -> Result<(), SourceError> {
        Err(FromHome::error(0, SourceErrorKind::Other("its length is fixed".into())))
    }

    fn sync(&self) -> Result<(), SourceError> {
        Ok(())
    }

    fn statistics(&self) -> SourceStatistics {
        SourceStatistics::default()
    }
}

/// The memory of a cluster. Fields are dropped in this order.
struct Cluster {
    region: Owned<dyn Region>,
    cache: SharedCache,
    _memory: Owned<dyn PagePool>,
    /// The time from which on its structures serve the next fault.
    free_us: f64,
    /// The time from which on it serves the next call of another cluster.
    answers_us: f64,
}

impl Cluster {
    fn new(cluster: usize, pages: u64, max_pages: usize, directory: &Shared) -> Cluster {
        let memory = pages::distributed(Supply::system(max_pages));
        // A cluster that is short evicts one page at a time.
        memory.set_attribute(pages::Attribute::Chunk, 1);
        memory.set_attribute(pages::Attribute::Batch, 1);
        let source = FromHome { cluster, bytes: pages * PAGE_BYTES as u64, directory: directory.clone() };
        let source = squall::shared::<dyn Source, _>(source);
        let cache = Arc::new(cache::shared(source, memory.handle()));
        locked(directory).caches.push(cache.handle());
        let region = region::with_form(region::Form::Shared, 0, Mapping::new(cache.clone()));
        Cluster { region, cache, _memory: memory, free_us: 0.0, answers_us: 0.0 }
    }
}

/// The use of a page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Read,
    Write,
}

/// A program in the middle of its run, on a machine.
pub(super) struct Run {
    machine: Machine,
    clusters: Vec<Cluster>,
    directory: Shared,
    /// Whether a worker has a page mapped, by worker and page.
    is_mapped: Vec<Vec<bool>>,
    /// The clocks of the workers, in microseconds.
    clocks: Vec<f64>,
    /// The time from which on the memory of a processor serves the next page.
    memory_us: Vec<f64>,
    tally: Tally,
}

impl Run {
    /// Makes the clusters, and starts a worker on each processor.
    pub(super) fn new(machine: Machine, pages: u64) -> Run {
        let count = machine.processors.div_ceil(machine.cluster);
        let listed = Listed { frames: vec![None; count], filled_us: vec![0.0; count], ..Listed::default() };
        let directory = Directory { pages: vec![listed; pages as usize], ..Directory::default() };
        let directory = Arc::new(Mutex::new(directory));
        let mut run = Run {
            machine,
            clusters: (0..count)
                .map(|cluster| Cluster::new(cluster, pages, machine.max_pages, &directory))
                .collect(),
            directory,
            is_mapped: vec![vec![false; pages as usize]; machine.processors],
            clocks: vec![0.0; machine.processors],
            memory_us: vec![0.0; machine.processors],
            tally: Tally::default(),
        };
        run.tell_all();
        run.barrier();
        run
    }

    /// Returns the processor with the copy of a page: a cluster spreads its copies over its processors.
    fn spread(&self, cluster: usize, page: usize) -> usize {
        cluster * self.machine.cluster + page % self.machine.cluster
    }

    fn cluster_of(&self, worker: usize) -> usize {
        worker / self.machine.cluster
    }

    /// The parent on processor 0 sends a message to each worker, one after the other.
    fn tell_all(&mut self) {
        let mut at = self.now();
        for worker in 0..self.clocks.len() {
            at += MESSAGE_US[usize::from(self.cluster_of(worker) != 0)];
            self.clocks[worker] = at;
        }
    }

    fn now(&self) -> f64 {
        self.clocks.iter().copied().fold(0.0, f64::max)
    }

    /// Ends the workers, and returns the counts.
    pub(super) fn end(mut self) -> Tally {
        self.barrier();
        self.tell_all();
        let resident: usize = self.clusters.iter().map(|cluster| cluster.cache.sensors().resident).sum();
        let directory = locked(&self.directory);
        let homes = directory.pages.iter().filter(|page| page.home.is_some()).count();
        Tally {
            copies: directory.copies,
            copied_pages: resident as u64 - homes as u64,
            modelled_us: self.now(),
            ..self.tally
        }
    }

    /// Runs `steps` steps of each worker. The worker with the earliest clock makes the next step. At the end
    /// all wait for the last one.
    pub(super) fn phase(&mut self, steps: usize, mut step: impl FnMut(&mut Run, usize, usize)) {
        let mut done = vec![0; self.clocks.len()];
        loop {
            let open = (0..done.len()).filter(|worker| done[*worker] < steps);
            let Some(worker) = open.min_by(|a, b| self.clocks[*a].total_cmp(&self.clocks[*b])) else { break };
            step(self, worker, done[worker]);
            done[worker] += 1;
        }
        self.barrier();
    }

    fn barrier(&mut self) {
        let now = self.now();
        self.clocks.fill(now);
    }

    /// Lets a worker compute.
    pub(super) fn compute(&mut self, worker: usize, cycles: f64) {
        self.clocks[worker] += cycles * CYCLE_US;
    }

    /// Reads a page, as one pass over its lines.
    pub(super) fn read(&mut self, worker: usize, page: u64) -> Row {
        let before = locked(&self.directory).copies;
        let holder = self.use_page(worker, page, Use::Read);
        let region = self.clusters[holder].region.handle();
        let row = row(&region.pin(page * PAGE_BYTES as u64).expect("memory suffices"));
        if locked(&self.directory).copies > before {
            self.copied(worker, page as usize, holder);
        }
        row
    }

    /// Takes the time of a copy from the home of a page to another cluster.
    fn copied(&mut self, worker: usize, page: usize, to: usize) {
        let (from, to_memory) = {
            let listed = &locked(&self.directory).pages[page];
            (listed.home.and_then(|home| listed.frames[home]), listed.frames[to])
        };
        self.pass(worker, from.unwrap_or(worker));
        self.pass(worker, to_memory.unwrap_or(worker));
        locked(&self.directory).pages[page].filled_us[to] = self.clocks[worker];
    }

    /// Reads a page of the worker that is in its processor's cache.
    pub(super) fn read_cached(&self, worker: usize, page: u64) -> Row {
        let region = self.clusters[self.cluster_of(worker)].region.handle();
        row(&region.pin(page * PAGE_BYTES as u64).expect("memory suffices"))
    }

    /// Changes a page of the worker that is in its processor's cache.
    pub(super) fn write_cached(&self, worker: usize, page: u64, f: impl FnOnce(&mut Row)) {
        self.change(self.cluster_of(worker), page, f);
    }

    /// Changes a page, as one pass over its lines.
    pub(super) fn write(&mut self, worker: usize, page: u64, f: impl FnOnce(&mut Row)) {
        let holder = self.use_page(worker, page, Use::Write);
        self.change(holder, page, f);
    }

    fn change(&self, holder: usize, page: u64, f: impl FnOnce(&mut Row)) {
        let region = self.clusters[holder].region.handle();
        let mut frame = region.pin_mut(page * PAGE_BYTES as u64).expect("memory suffices");
        let mut numbers = row(&frame);
        f(&mut numbers);
        frame.chunks_exact_mut(8).zip(numbers).for_each(|(to, from)| to.copy_from_slice(&from.to_le_bytes()));
    }

    /// Counts a use of a page. Returns the cluster that the page is used in.
    fn use_page(&mut self, worker: usize, page: u64, access: Use) -> usize {
        let (own, at) = (self.cluster_of(worker), page as usize);
        let directory = self.directory.clone();
        let mut directory = locked(&directory);
        let listed = &mut directory.pages[at];
        let home = *listed.home.get_or_insert(own);
        let has_copies =
            (0..listed.frames.len()).any(|other| other != home && listed.frames[other].is_some());
        let is_told =
            access == Use::Write && (has_copies || home != own) && self.make_shared(at, listed, home);
        let is_replica = home != own && !listed.is_write_shared;
        let holder = if is_replica { own } else { home };
        self.tally.remote += u64::from(holder != own);
        if !self.is_mapped[worker][at] {
            self.is_mapped[worker][at] = true;
            let is_far = is_told || holder != own || (is_replica && listed.frames[own].is_none());
            self.fault(worker, home, is_far);
        }
        if listed.frames[holder].is_none() {
            listed.frames[holder] = Some(if is_replica { self.spread(own, at) } else { worker });
            listed.filled_us[holder] = self.clocks[worker];
        }
        // A worker that came later waits for the one that fills the page.
        self.clocks[worker] = self.clocks[worker].max(listed.filled_us[holder]);
        let memory = listed.frames[holder].unwrap_or(worker);
        drop(directory);
        self.pass(worker, memory);
        holder
    }

    /// Makes a page write-shared. If there were copies, the workers of their clusters and of the home lose
    /// their mappings, and the result is true.
    fn make_shared(&mut self, page: usize, listed: &mut Listed, home: usize) -> bool {
        listed.is_write_shared = true;
        let had_copy: Vec<_> = (0..listed.frames.len()).filter(|at| listed.frames[*at].is_some()).collect();
        if had_copy.iter().all(|cluster| *cluster == home) {
            return false;
        }
        for cluster in had_copy {
            if cluster != home {
                listed.frames[cluster] = None;
            }
            let workers = cluster * self.machine.cluster..(cluster + 1) * self.machine.cluster;
            workers.for_each(|worker| self.is_mapped[worker][page] = false);
        }
        self.tally.invalidations += 1;
        true
    }

    /// Takes the time of a fault.
    fn fault(&mut self, worker: usize, home: usize, is_far: bool) {
        self.tally.faults += 1;
        self.tally.far_faults += u64::from(is_far);
        let cluster = self.cluster_of(worker);
        let free = &mut self.clusters[cluster].free_us;
        let mut start = self.clocks[worker].max(*free);
        *free = start + HELD_US;
        if is_far {
            let answers = &mut self.clusters[home].answers_us;
            start = start.max(*answers);
            *answers = start + CALL_US;
        }
        self.clocks[worker] = start + FAULT_US[usize::from(is_far)];
    }

    /// Takes the time of a pass over the lines of a page in a processor's memory.
    fn pass(&mut self, worker: usize, memory: usize) {
        let start = self.clocks[worker].max(self.memory_us[memory]);
        self.tally.far_passes += u64::from(self.machine.is_far(worker, memory));
        self.memory_us[memory] = start + LINES * LOAD_CYCLES[0] * CYCLE_US;
        self.clocks[worker] = start + LINES * self.machine.load_cycles(worker, memory) * CYCLE_US;
    }
}

/// Reads the numbers of a page.
fn row(bytes: &[u8]) -> Row {
    let mut row = [0.0; NUMBERS];
    for (number, bytes) in row.iter_mut().zip(bytes.chunks_exact(8)) {
        *number = f64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    }
    row
}
