//! How many accesses to another node's memory, or to what another node wrote last, a load costs in each structure that a map can have.
//!
//! One thread takes the place of each of the [`VPS`] processors in turn, and does to real objects what the load says. What happens is theirs to
//! say: a value tells whether it is the original or a copy, and on which processor it was made; a table in many places whether it made a
//! replica; a counter who added elsewhere. Which lines of a table an operation touches follows from what its code says of itself ([`Lines`]):
//! buckets, stripes, elements. Caches keep nothing from one operation to the next, as where a table is larger than they are. So this is a
//! model of distance, with real events; nothing waits in it.

use squall_core::{Handle, info_of};
use squall_parts::dhash::{Local, Locking, Master, Verdict};
use squall_machine::{ClusterSize, Machine, Vp, machine};
use squall_objects::counter::{self, Counter};
use squall_objects::map::{self, MapExt, OwnedMap};
use std::collections::HashMap;
use std::sync::Once;

/// Hurricane's machine: four stations of four processors.
pub(crate) const TOPOLOGY: &str = "nodes:4,cores:4";
pub(crate) const VPS: u64 = 16;
/// Keys of each processor.
const KEYS: u64 = 64;
/// How often each key is looked up after its first touch, where one processor has it to itself.
const AGAIN: u64 = 3;
/// Rounds over all keys where all read them, and one change in so many looks.
const ROUNDS: u64 = 4;
const CHANGE: u64 = 1000;

/// Makes this process's machine that of the experiment.
pub(crate) fn set_machine() {
    static SET: Once = Once::new();
    SET.call_once(|| {
        _ = Machine::set_virtual(TOPOLOGY.parse().expect("a topology")).expect("nobody asked for it before")
    });
}

/// What keys are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Structure {
    Shared,
    Partitioned,
    Replicated,
    Dhash,
}

impl Structure {
    pub(crate) const ALL: [Structure; 4] =
        [Structure::Shared, Structure::Partitioned, Structure::Replicated, Structure::Dhash];
}

/// How it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Each key by one processor only, from its first touch on (EX-K7).
    Alone,
    /// All keys by all processors, and hardly ever changed.
    ReadEverywhere,
}

/// A value that knows where it lies.
#[derive(Debug)]
struct Page {
    home: usize,
    is_copy: bool,
}

fn node() -> usize {
    machine().clusters(ClusterSize::Node).cluster_of(Vp::current()).index()
}

impl Page {
    fn here() -> Page {
        Page { home: node(), is_copy: false }
    }
}

impl Clone for Page {
    fn clone(&self) -> Page {
        Page { home: node(), is_copy: true }
    }
}

/// A line of a structure: of which table, and where in it.
type Line = (&'static str, u64, u64);

/// Where lines lie, who wrote them last, and what was far.
#[derive(Default)]
struct Lines {
    /// Home and last writer.
    lines: HashMap<Line, (usize, usize)>,
    remote: u64,
}

impl Lines {
    fn read(&mut self, line: Line) {
        let here = node();
        let (home, last) = *self.lines.entry(line).or_insert((here, here));
        self.remote += u64::from(home != here || last != here);
    }

    fn write(&mut self, line: Line) {
        self.read(line);
        self.lines.get_mut(&line).expect("read just now").1 = node();
    }

    fn value(&mut self, page: &Page) {
        self.remote += u64::from(page.home != node());
    }
}

/// The bucket of a key, of eight: neighbours in a table have nothing to do with each other.
fn bucket(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40 & (VPS * KEYS / 8 - 1)
}

/// A structure, and what its operations touch.
enum Subject {
    Map(Structure, OwnedMap<u64, Page>),
    Dhash(Master<u64, Page, Page>, Vec<Local<u64, Page, Page>>),
}

impl Subject {
    fn new(structure: Structure) -> Subject {
        match structure {
            Structure::Shared => Subject::Map(structure, map::shared()),
            Structure::Partitioned => {
                Subject::Map(structure, map::partitioned(VPS as usize, |key| (key / KEYS) as usize))
            }
            Structure::Replicated => Subject::Map(structure, map::replicated(ClusterSize::Node)),
            Structure::Dhash => {
                let master = Master::new(Page::clone);
                let locals = (0..4).map(|_| master.local()).collect();
                Subject::Dhash(master, locals)
            }
        }
    }

    /// The line of a key's bucket in the one table, or in its part.
    fn at(structure: Structure, key: u64) -> Line {
        let part = if structure == Structure::Partitioned { 1 + key / KEYS } else { 0 };
        ("table", part, bucket(key))
    }

    /// Puts a key in that nobody has touched.
    fn first(&self, lines: &mut Lines, key: u64) {
        match self {
            Subject::Map(structure, map) => {
                assert!(map.try_insert(key, Page::here()).is_ok());
                lines.write(Subject::at(*structure, key));
            }
            Subject::Dhash(..) => self.look(lines, key),
        }
    }

    /// Looks a key up.
    fn look(&self, lines: &mut Lines, key: u64) {
        let here = node() as u64;
        match self {
            Subject::Map(structure, map) => {
                let own = ("copies", here, bucket(key));
                let page = map.with(&key, |page| Page { ..*page }).expect("it is there");
                if *structure == Structure::Replicated {
                    lines.read(own);
                    if page.is_copy {
                        return lines.value(&page);
                    }
                    // It was copied: under the lock of a stripe, after a look at it.
                    (0..2).for_each(|_| lines.write(("stripe", 0, key % 64)));
                    lines.write(own);
                }
                lines.read(Subject::at(*structure, key));
                lines.value(&page);
            }
            Subject::Dhash(_, locals) => {
                let local = &locals[here as usize];
                let replicas = local.len();
                let then = |verdict, _: &Page, page: &mut Page| (verdict, Page { ..*page });
                let (verdict, page) = local.find_or_allocate_and_lock(&key, Page::here, then);
                // The count of this table's, and the lock of the replica: this node's own.
                lines.write(("local", here, bucket(key)));
                if local.len() > replicas {
                    // The master was asked: its bucket, its element's lock, the element's list of replicas.
                    match verdict {
                        Verdict::Empty => lines.write(("master", 0, bucket(key))),
                        Verdict::Found => lines.read(("master", 0, bucket(key))),
                    }
                    (0..2).for_each(|_| lines.write(("element", 0, key)));
                }
                lines.value(&page);
            }
        }
    }

    /// Changes what is under a key.
    fn change(&self, lines: &mut Lines, key: u64) {
        match self {
            Subject::Map(structure, map) => {
                assert!(map.update(&key, |_| Page::here()));
                if *structure == Structure::Replicated {
                    // Announced and over; the list of places; and a look at, or a removal from, each of them.
                    (0..2).for_each(|_| lines.write(("stripe", 0, key % 64)));
                    lines.write(("places", 0, 0));
                    (0..4).for_each(|node| lines.write(("copies", node, bucket(key))));
                }
                lines.write(Subject::at(*structure, key));
            }
            Subject::Dhash(master, _) => {
                let mut replicas = 0;
                let told = |replicas: &mut u64, _: &Page, _: &mut Page| *replicas += 1;
                replicas = master.do_op(&key, Locking::All, replicas, |_, _| (), told).expect("it is there");
                lines.write(("element", 0, key));
                (0..4).take(replicas as usize).for_each(|node| lines.write(("local", node, bucket(key))));
            }
        }
    }
}

fn on<T>(vp: u64, f: impl FnOnce() -> T) -> T {
    Vp::with_vp(Vp::new(vp as u32), f).expect("a processor of the virtual machine")
}

/// Remote accesses, and operations, of a load.
pub(crate) fn count(structure: Structure, used: Use) -> (u64, u64) {
    let (subject, mut lines, mut operations) = (Subject::new(structure), Lines::default(), 0);
    match used {
        Use::Alone => {
            // All at once: one operation of each processor after the other.
            for at in 0..KEYS {
                for vp in 0..VPS {
                    on(vp, || subject.first(&mut lines, vp * KEYS + at));
                }
                for vp in (0..AGAIN).flat_map(|_| 0..VPS) {
                    on(vp, || subject.look(&mut lines, vp * KEYS + at));
                }
                operations += VPS * (1 + AGAIN);
            }
        }
        Use::ReadEverywhere => {
            (0..VPS * KEYS).for_each(|key| on(key / KEYS, || subject.first(&mut lines, key)));
            // What everybody looks up for the first time counts, too: it is paid for by the rounds after.
            for (round, key) in (0..ROUNDS).flat_map(|round| (0..VPS * KEYS).map(move |key| (round, key))) {
                for vp in 0..VPS {
                    operations += 1;
                    if operations % CHANGE == 0 {
                        on(vp, || subject.change(&mut lines, key));
                    } else {
                        on(vp, || subject.look(&mut lines, key));
                    }
                }
                debug_assert!(round < ROUNDS);
            }
        }
    }
    (lines.remote, operations)
}

/// Additions to a counter inside, which each operation makes, that went to a line which another processor has to itself: by where the counter
/// says that it is at home, or where its representatives are (EX-K5).
pub(crate) fn counted_inside(distributed: bool) -> (u64, u64) {
    let inside = on(0, || if distributed { counter::distributed() } else { counter::shared() });
    let operations = VPS * KEYS;
    let by = |at: u64| at % VPS;
    (0..operations).for_each(|at| on(by(at), || inside.inc()));
    assert_eq!(inside.total(), operations);
    let homes: Vec<Option<Vp>> = if distributed {
        info_of(Handle::id(inside.handle())).expect("it lives").reps.iter().map(|rep| rep.vp).collect()
    } else {
        vec![inside.sensors().place]
    };
    let is_elsewhere = |at: &u64| !homes.contains(&Some(Vp::new(by(*at) as u32)));
    ((0..operations).filter(is_elsewhere).count() as u64, operations)
}
