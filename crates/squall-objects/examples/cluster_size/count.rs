//! Counts the accesses to another node's memory, and the updates of representatives, for a load at each
//! cluster size.
//!
//! One thread plays the load. It takes the place of each of the [`VPS`] processors in turn, in an order that
//! a generator fixes for all sizes. The objects' sensors report the lookups that missed their cluster, and
//! the copies that a change invalidated or updated. The values count their clones. From this follows the
//! content of each processor's own cache: a processor reads a copy from memory if the copy was written since
//! its last read. Such a read is remote if the memory belongs to another node. Memory belongs to the node of
//! the processor that first wrote it.
//!
//! So the sum has the shape of Unrau et al. 1995 (Hurricane), Fig. 4. Small clusters pay for updates, large
//! ones for distance. Waiting does not occur, since lookups of these objects never wait.

use squall_core::{Handle, Id, info_of};
use squall_machine::{Cluster, ClusterSize, Machine, Vp, machine};
use squall_objects::cached::{self, CachedMap, CachedMapExt, Form};
use squall_objects::read_mostly::{self, ReadMostly, ReadMostlyExt};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Once};

/// The machine of Hurricane: four stations of four processors.
pub(crate) const TOPOLOGY: &str = "nodes:4,cores:4";
pub(crate) const VPS: u32 = 16;
pub(crate) const SIZES: [u32; 5] = [1, 2, 4, 8, 16];
/// Number of keys of a map. A read-mostly value counts as one key.
const KEYS: u64 = 4;

/// Sets the machine of this process.
pub(crate) fn set_machine() {
    static SET: Once = Once::new();
    SET.call_once(|| {
        let spec = TOPOLOGY.parse().expect("a topology");
        // An error means that another test of this process has made the same machine.
        let _ = Machine::set_virtual(spec);
    });
    assert_eq!(machine().vps().len(), VPS as usize);
}

/// Object under test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Subject {
    CellCopied,
    CellDistributed,
    MapInvalidated,
    MapUpdated,
}

impl Subject {
    pub(crate) const ALL: [Subject; 4] =
        [Subject::CellCopied, Subject::CellDistributed, Subject::MapInvalidated, Subject::MapUpdated];

    fn keys(self) -> u64 {
        match self {
            Subject::CellCopied | Subject::CellDistributed => 1,
            Subject::MapInvalidated | Subject::MapUpdated => KEYS,
        }
    }

    /// Returns whether a cluster has the value itself in its memory, instead of a pointer to it.
    fn has_copies(self) -> bool {
        matches!(self, Subject::CellCopied | Subject::MapInvalidated)
    }

    fn make(self, vps: u32) -> Box<dyn Counting> {
        let (size, copies) = (ClusterSize::fixed(vps), Arc::new(AtomicU64::new(0)));
        let value = Value { number: 0, copies: copies.clone() };
        let form = Form::distributed(size);
        match self {
            Subject::CellCopied => {
                Box::new(Cell { cell: read_mostly::copied(value, size), copies, updates: 0 })
            }
            Subject::CellDistributed => {
                Box::new(Cell { cell: read_mostly::distributed(value, size), copies, updates: 0 })
            }
            Subject::MapInvalidated => Box::new(cached::map::<u64, u64>(form)),
            Subject::MapUpdated => Box::new(cached::map::<u64, u64>(form.updated())),
        }
    }
}

/// An object with counters. Each call is made by the current VP.
trait Counting {
    fn read(&self, key: u64) -> Option<u64>;
    fn change(&mut self, key: u64, number: u64);
    /// Returns the number of lookups that searched the store.
    fn asked(&self) -> u64;
    /// Returns the number of copies that changes invalidated or updated.
    fn updates(&self) -> u64;
    /// Returns, for each cluster, the VP that has the representative in its memory.
    fn homes(&self) -> Vec<Option<Vp>>;
}

fn homes(id: Id) -> Vec<Option<Vp>> {
    let info = info_of(id).expect("it lives");
    let home =
        |cluster: usize| info.reps.iter().find(|rep| rep.cluster == Some(Cluster::new(cluster as u32)));
    (0..VPS as usize).map(|cluster| home(cluster)?.vp).collect()
}

impl Counting for cached::OwnedCachedMap<u64, u64> {
    fn read(&self, key: u64) -> Option<u64> {
        self.get(&key)
    }

    fn change(&mut self, key: u64, number: u64) {
        self.insert(key, number);
    }

    fn asked(&self) -> u64 {
        self.sensors().asked
    }

    fn updates(&self) -> u64 {
        self.sensors().reached
    }

    fn homes(&self) -> Vec<Option<Vp>> {
        homes(Handle::id(self.handle()))
    }
}

/// A number that counts its clones.
struct Value {
    number: u64,
    copies: Arc<AtomicU64>,
}

impl Clone for Value {
    fn clone(&self) -> Value {
        self.copies.fetch_add(1, Relaxed);
        Value { number: self.number, copies: self.copies.clone() }
    }
}

struct Cell {
    cell: read_mostly::OwnedReadMostly<Value>,
    copies: Arc<AtomicU64>,
    updates: u64,
}

impl Counting for Cell {
    fn read(&self, _: u64) -> Option<u64> {
        Some(self.cell.read(|value| value.number))
    }

    fn change(&mut self, _: u64, number: u64) {
        self.cell.set(Value { number, copies: self.copies.clone() });
        // A change visits all existing representatives.
        self.updates += self.cell.sensors().reps as u64;
    }

    fn asked(&self) -> u64 {
        self.copies.load(Relaxed)
    }

    fn updates(&self) -> u64 {
        self.updates
    }

    fn homes(&self) -> Vec<Option<Vp>> {
        homes(Handle::id(self.cell.handle()))
    }
}

/// Costs of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cost {
    /// Lookups that searched the store.
    pub(crate) asked: u64,
    /// Accesses to memory of another node.
    pub(crate) remote: u64,
    /// Copies that changes invalidated or updated.
    pub(crate) updates: u64,
}

impl Cost {
    pub(crate) fn total(self) -> u64 {
        self.remote + self.updates
    }
}

/// Model of the processors' caches, and of the places of memory.
struct Caches {
    /// Writer of each key's value.
    writer: Vec<Vp>,
    /// Per key and cluster, the VP that has the copy in its memory: the one that filled it, or else made the
    /// representative.
    filler: Vec<Vec<Option<Vp>>>,
    /// Per VP and key, whether the VP has read the present value.
    fresh: Vec<Vec<bool>>,
}

impl Caches {
    fn new(keys: usize, clusters: usize) -> Caches {
        Caches {
            writer: vec![Vp::new(0); keys],
            filler: vec![vec![None; keys]; clusters],
            fresh: vec![vec![false; keys]; VPS as usize],
        }
    }
}

/// Returns 1 if the two VPs are on different nodes, else 0.
fn far(one: Vp, other: Vp) -> u64 {
    let nodes = machine().clusters(ClusterSize::Node);
    u64::from(nodes.cluster_of(one) != nodes.cluster_of(other))
}

/// Pseudo-random numbers (xorshift64*), the same for each size.
struct Draws(u64);

impl Draws {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % limit
    }
}

/// A load: its number of operations, and how many in ten thousand are changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) operations: u64,
    pub(crate) changes_of_10k: u64,
    pub(crate) seed: u64,
}

/// Plays a load with clusters of `vps` VPs, and counts.
pub(crate) fn count(subject: Subject, vps: u32, load: Load) -> Cost {
    let clusters = machine().clusters(ClusterSize::fixed(vps));
    let (mut object, mut draws, mut cost) = (subject.make(vps), Draws(load.seed), Cost::default());
    let keys = subject.keys() as usize;
    let mut caches = Caches::new(keys, clusters.len());
    let mut numbers = vec![0; keys];
    for key in 0..subject.keys() {
        on(Vp::new(0), || object.change(key, 0));
    }
    // Each VP reads each key before the count begins.
    let warm = u64::from(VPS) * subject.keys();
    for step in 0..warm + load.operations {
        let is_warm = step >= warm;
        if step == warm {
            for (copies, home) in caches.filler.iter_mut().zip(object.homes()) {
                copies.iter_mut().for_each(|filler| *filler = filler.or(home));
            }
        }
        let (vp, key) = match is_warm {
            true => (Vp::new(draws.below(u64::from(VPS)) as u32), draws.below(subject.keys()) as usize),
            false => (Vp::new((step % u64::from(VPS)) as u32), (step / u64::from(VPS)) as usize),
        };
        let cluster = clusters.cluster_of(vp).index();
        let counted = if is_warm && draws.below(10_000) < load.changes_of_10k {
            numbers[key] += 1;
            on(vp, || change(object.as_mut(), &mut caches, vp, key, numbers[key]))
        } else {
            let (number, counted) = on(vp, || read(&*object, subject, &mut caches, vp, key, cluster));
            assert_eq!(number, Some(numbers[key]), "a wrong value was read");
            if counted.asked > 0 {
                // The neighbours have to read the line that this VP wrote into its cluster's memory.
                let fetch = |of: &Vp| caches.fresh[of.index()][key] = *of == vp;
                clusters.members(clusters.cluster_of(vp)).iter().for_each(fetch);
            }
            counted
        };
        if is_warm {
            cost.asked += counted.asked;
            cost.remote += counted.remote;
            cost.updates += counted.updates;
        }
    }
    cost
}

fn read(
    object: &dyn Counting,
    subject: Subject,
    caches: &mut Caches,
    vp: Vp,
    key: usize,
    cluster: usize,
) -> (Option<u64>, Cost) {
    let before = object.asked();
    let number = object.read(key as u64);
    let asked = object.asked() - before;
    let mut remote = 0;
    if asked > 0 {
        remote += far(vp, caches.writer[key]);
        caches.filler[cluster][key] = Some(vp);
    } else if !caches.fresh[vp.index()][key] {
        remote += caches.filler[cluster][key].map_or(0, |filler| far(vp, filler));
        if !subject.has_copies() {
            remote += far(vp, caches.writer[key]);
        }
    }
    caches.fresh[vp.index()][key] = true;
    (number, Cost { asked, remote, updates: 0 })
}

fn change(object: &mut dyn Counting, caches: &mut Caches, vp: Vp, key: usize, number: u64) -> Cost {
    let before = object.updates();
    object.change(key as u64, number);
    caches.writer[key] = vp;
    caches.fresh.iter_mut().for_each(|fresh| fresh[key] = false);
    Cost { updates: object.updates() - before, ..Cost::default() }
}

fn on<T>(vp: Vp, f: impl FnOnce() -> T) -> T {
    Vp::with_vp(vp, f).expect("a processor of the virtual machine")
}

/// Returns the costs at each cluster size.
pub(crate) fn curve(subject: Subject, load: Load) -> [Cost; SIZES.len()] {
    SIZES.map(|vps| count(subject, vps, load))
}
