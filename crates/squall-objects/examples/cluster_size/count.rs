//! How many accesses to another node's memory, and how many updates of representatives, a load costs at each size of clusters.
//!
//! A load is played by one thread, which takes the place of each of the [`VPS`] processors in turn, as a generator says that is the same for all
//! sizes. What is counted happens: which lookup found nothing in its cluster and asked the one place, and how many copies a change took away
//! or gave a new value, is said by the objects' sensors, and by the values, which count their copies. What a processor's own
//! cache would have kept follows from that: it reads a copy from memory if the copy was written since it read it last. That is an
//! access to another node where the memory is another node's, which is that of the processor that wrote it first.
//!
//! So the sum has what Hurricane has it have (Unrau et al. 1995, Fig. 4): small clusters pay for what they tell each other, large ones for
//! what is far from some of them. There is no waiting in it, for lookups of these objects wait for nobody.

use squall_core::{Handle, Id, info_of};
use squall_machine::{Cluster, ClusterSize, Machine, Vp, machine};
use squall_objects::cached::{self, CachedMap, CachedMapExt, Form};
use squall_objects::read_mostly::{self, ReadMostly, ReadMostlyExt};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Once};

/// Hurricane's machine: four stations of four processors.
pub(crate) const TOPOLOGY: &str = "nodes:4,cores:4";
pub(crate) const VPS: u32 = 16;
pub(crate) const SIZES: [u32; 5] = [1, 2, 4, 8, 16];
/// The keys of a map; the value of a cell is one.
const KEYS: u64 = 4;

/// Makes this process's machine that of the experiment.
pub(crate) fn set_machine() {
    static SET: Once = Once::new();
    SET.call_once(|| {
        let spec = TOPOLOGY.parse().expect("a topology");
        _ = Machine::set_virtual(spec).expect("nothing has asked for the machine before");
    });
    assert_eq!(machine().vps().len(), VPS as usize);
}

/// What is looked at and changed.
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

    /// Whether a cluster has the value itself in its memory, and not only the way to it.
    fn has_copies(self) -> bool {
        matches!(self, Subject::CellCopied | Subject::MapInvalidated)
    }

    fn make(self, vps: u32) -> Box<dyn Counting> {
        let (size, copies) = (ClusterSize::fixed(vps), Arc::new(AtomicU64::new(0)));
        let value = Value { number: 0, copies: copies.clone() };
        let form = Form::distributed(size);
        match self {
            Subject::CellCopied => Box::new(Cell { cell: read_mostly::copied(value, size), copies, updates: 0 }),
            Subject::CellDistributed => {
                Box::new(Cell { cell: read_mostly::distributed(value, size), copies, updates: 0 })
            }
            Subject::MapInvalidated => Box::new(cached::map::<u64, u64>(form)),
            Subject::MapUpdated => Box::new(cached::map::<u64, u64>(form.updated())),
        }
    }
}

/// An object that says what it does. Each call is one of the current VP's.
trait Counting {
    fn read(&self, key: u64) -> Option<u64>;
    fn change(&mut self, key: u64, number: u64);
    /// Lookups that asked the one place, so far.
    fn asked(&self) -> u64;
    /// Copies taken away or given a new value, so far.
    fn updates(&self) -> u64;
    /// The VP in whose memory the representative of each cluster is.
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

/// A number that counts its copies.
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
        // A change walks over all representatives that there are.
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

/// What so many operations cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cost {
    /// Lookups that asked the one place.
    pub(crate) asked: u64,
    /// Accesses to memory of another node.
    pub(crate) remote: u64,
    /// Copies that changes took away or gave a new value.
    pub(crate) updates: u64,
}

impl Cost {
    pub(crate) fn total(self) -> u64 {
        self.remote + self.updates
    }
}

/// Who has what in its own cache, and where the memory is: by what happened.
struct Caches {
    /// Who wrote the value of each key.
    writer: Vec<Vp>,
    /// In whose memory the copy of each key is in each cluster: who filled it, or else who made the representative.
    filler: Vec<Vec<Option<Vp>>>,
    /// Whether a VP has read what it reads of a key since that was written.
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

/// 1 where memory of one VP is another node's for the other.
fn far(one: Vp, other: Vp) -> u64 {
    let nodes = machine().clusters(ClusterSize::Node);
    u64::from(nodes.cluster_of(one) != nodes.cluster_of(other))
}

/// Pseudo-random numbers, the same for each size (xorshift64*).
struct Draws(u64);

impl Draws {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % limit
    }
}

/// A load: so many operations, of which so many in ten thousand are changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) operations: u64,
    pub(crate) changes_of_10k: u64,
    pub(crate) seed: u64,
}

/// Plays a load with clusters of so many VPs, and counts.
pub(crate) fn count(subject: Subject, vps: u32, load: Load) -> Cost {
    let clusters = machine().clusters(ClusterSize::fixed(vps));
    let (mut object, mut draws, mut cost) = (subject.make(vps), Draws(load.seed), Cost::default());
    let keys = subject.keys() as usize;
    let mut caches = Caches::new(keys, clusters.len());
    let mut numbers = vec![0; keys];
    for key in 0..subject.keys() {
        on(Vp::new(0), || object.change(key, 0));
    }
    // Everybody reads everything before the count begins.
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
                // What it wrote into its cluster's memory its neighbours have to read.
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

/// The costs at each size.
pub(crate) fn curve(subject: Subject, load: Load) -> [Cost; SIZES.len()] {
    SIZES.map(|vps| count(subject, vps, load))
}
