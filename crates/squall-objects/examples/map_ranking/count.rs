//! Counts the accesses of a load to another node's memory, or to data that another node wrote last, for
//! each structure of a map.
//!
//! One thread plays each of the [`VPS`] processors in turn, and runs the load on real objects. The objects
//! report the events. A value knows whether it is the original or a copy, and on which processor it was
//! made. A table in many places knows whether it made a replica, and a counter knows the processor of each
//! addition. The lines that an operation touches follow from its code ([`Lines`]): buckets, stripes,
//! elements. Caches keep no line between operations, as if the table were larger than they are. So this is
//! a model of distance with real events, without waiting.

use squall_core::{Handle, info_of};
use squall_machine::{ClusterSize, Machine, Vp, machine};
use squall_objects::counter::{self, Counter};
use squall_objects::map::{self, MapExt, OwnedMap};
use squall_parts::dhash::{LocalTable, Locking, MasterTable, Verdict};
use std::collections::HashMap;
use std::sync::Once;

/// The machine of Hurricane: four stations of four processors.
pub(crate) const TOPOLOGY: &str = "nodes:4,cores:4";
pub(crate) const VPS: u64 = 16;
/// Keys of each processor.
const KEYS: u64 = 64;
/// Lookups of each key after its first touch, by the processor that uses it alone.
const AGAIN: u64 = 3;
/// Rounds over all keys if all processors read them, with one change in this many lookups.
const ROUNDS: u64 = 4;
const CHANGE: u64 = 1000;

/// Sets this process's machine to that of the experiment.
pub(crate) fn set_machine() {
    static SET: Once = Once::new();
    SET.call_once(|| {
        // An error means that another test of this process has made the same machine.
        let _ = Machine::set_virtual(TOPOLOGY.parse().expect("a topology"));
    });
    assert_eq!(machine().vps().len(), 16);
}

/// A structure that holds the keys.
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

/// A use of the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Each key is touched once, by one processor (EX-K7).
    FirstTouch,
    /// Each key is looked up again by the processor that touched it first. First touches are not counted.
    Reuse,
    /// All keys are read by all processors, and hardly ever changed.
    ReadEverywhere,
}

/// A value that knows its place.
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

/// A cache line of a structure: the table, and the position in it.
type Line = (&'static str, u64, u64);

/// The accesses of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Lines read and written.
    pub(crate) accesses: u64,
    /// Accesses to another node's memory, or to a line that another node wrote last.
    pub(crate) remote: u64,
    pub(crate) operations: u64,
}

/// The home and the last writer of each line, and the accesses so far.
#[derive(Default)]
struct Lines {
    /// Home and last writer.
    lines: HashMap<Line, (usize, usize)>,
    count: Count,
}

impl Lines {
    fn read(&mut self, line: Line) {
        let here = node();
        let (home, last) = *self.lines.entry(line).or_insert((here, here));
        self.count.accesses += 1;
        self.count.remote += u64::from(home != here || last != here);
    }

    fn write(&mut self, line: Line) {
        self.read(line);
        self.lines.get_mut(&line).expect("it was just read").1 = node();
    }

    fn value(&mut self, page: &Page) {
        self.count.accesses += 1;
        self.count.remote += u64::from(page.home != node());
    }
}

/// Returns the bucket of a key, of eight. Neighbours in a table are unrelated keys.
fn bucket(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40 & (VPS * KEYS / 8 - 1)
}

/// A structure, and the lines that its operations touch.
enum Subject {
    Map(Structure, OwnedMap<u64, Page>),
    Dhash(MasterTable<u64, Page, Page>, Vec<LocalTable<u64, Page, Page>>),
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
                let master = MasterTable::new(Page::clone);
                let locals = (0..4).map(|_| master.local()).collect();
                Subject::Dhash(master, locals)
            }
        }
    }

    /// Returns the line of a key's bucket, in the one table or in the key's part.
    fn at(structure: Structure, key: u64) -> Line {
        let part = if structure == Structure::Partitioned { 1 + key / KEYS } else { 0 };
        ("table", part, bucket(key))
    }

    /// Inserts a key at its first touch.
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
                let page = map.with(&key, |page| Page { ..*page }).expect("the key is present");
                if *structure == Structure::Replicated {
                    lines.read(own);
                    if page.is_copy {
                        return lines.value(&page);
                    }
                    // The key was copied, under the lock of a stripe, after a lookup in the main table.
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
                // The count of this node's table and the lock of its replica are local.
                lines.write(("local", here, bucket(key)));
                if local.len() > replicas {
                    // The master was asked: its bucket, the lock of its element, and the element's list of
                    // replicas.
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

    /// Changes a key's value.
    fn change(&self, lines: &mut Lines, key: u64) {
        match self {
            Subject::Map(structure, map) => {
                assert!(map.update(&key, |_| Page::here()));
                if *structure == Structure::Replicated {
                    // Announcement and its end, the list of tables of copies, and a lookup in, or a removal
                    // from, each of them.
                    (0..2).for_each(|_| lines.write(("stripe", 0, key % 64)));
                    lines.write(("places", 0, 0));
                    (0..4).for_each(|node| lines.write(("copies", node, bucket(key))));
                }
                lines.write(Subject::at(*structure, key));
            }
            Subject::Dhash(master, _) => {
                let mut replicas = 0;
                let told = |replicas: &mut u64, _: &Page, _: &mut Page| *replicas += 1;
                replicas =
                    master.do_op(&key, Locking::All, replicas, |_, _| (), told).expect("the key is present");
                lines.write(("element", 0, key));
                (0..4).take(replicas as usize).for_each(|node| lines.write(("local", node, bucket(key))));
            }
        }
    }
}

fn on<T>(vp: u64, f: impl FnOnce() -> T) -> T {
    Vp::with_vp(Vp::new(vp as u32), f).expect("a processor of the virtual machine")
}

/// Runs a load, and returns its accesses.
pub(crate) fn count(structure: Structure, used: Use) -> Count {
    let (subject, mut lines) = (Subject::new(structure), Lines::default());
    // The processors run at once: one operation of each after the other.
    let own_keys = || (0..KEYS).flat_map(|at| (0..VPS).map(move |vp| vp * KEYS + at));
    let mut operations = VPS * KEYS;
    own_keys().for_each(|key| on(key / KEYS, || subject.first(&mut lines, key)));
    match used {
        Use::FirstTouch => {}
        Use::Reuse => {
            (lines.count, operations) = (Count::default(), AGAIN * VPS * KEYS);
            let again = (0..AGAIN).flat_map(|_| own_keys());
            again.for_each(|key| on(key / KEYS, || subject.look(&mut lines, key)));
        }
        Use::ReadEverywhere => {
            // The first lookups count too, since the later rounds pay for them. First touches do not.
            (lines.count, operations) = (Count::default(), 0);
            for key in (0..ROUNDS).flat_map(|_| 0..VPS * KEYS) {
                for vp in 0..VPS {
                    operations += 1;
                    if operations.is_multiple_of(CHANGE) {
                        on(vp, || subject.change(&mut lines, key));
                    } else {
                        on(vp, || subject.look(&mut lines, key));
                    }
                }
            }
        }
    }
    Count { operations, ..lines.count }
}

/// Returns the remote additions and all additions to a counter inside the object, which each operation
/// makes. An addition is remote if it goes to a line of another processor: the counter's home, or the place
/// of its representative (EX-K5).
pub(crate) fn counted_inside(distributed: bool) -> (u64, u64) {
    let inside = on(0, || if distributed { counter::distributed() } else { counter::shared() });
    let operations = VPS * KEYS;
    let by = |at: u64| at % VPS;
    (0..operations).for_each(|at| on(by(at), || inside.inc()));
    assert_eq!(inside.total(), operations);
    let homes: Vec<Option<Vp>> = if distributed {
        info_of(Handle::id(inside.handle()))
            .expect("the counter lives")
            .reps
            .iter()
            .map(|rep| rep.vp)
            .collect()
    } else {
        vec![inside.sensors().place]
    };
    let is_elsewhere = |at: &u64| !homes.contains(&Some(Vp::new(by(*at) as u32)));
    ((0..operations).filter(is_elsewhere).count() as u64, operations)
}
