//! Placement of representatives: on cache lines that no other VP uses, in memory of their VP's node. Their
//! memory is not leaked.
//!
//! Each test runs in processes of its own, because it inspects the memory of the whole process.

use crate::support::alone;
use squall_alloc::{Arena, Placement, home_of, stats, trim};
use squall_core::{Owned, RepContext, RepMemory, Root, shared, tables};
use squall_machine::{ClusterSize, Vp, machine};
use std::alloc::Layout;
use std::collections::HashMap;
use std::io::Write;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs `body` in a process of its own on each of these machines.
fn on_machines(test: &str, body: impl FnOnce()) {
    const TOPOLOGY: (&str, &str) = ("SQUALL_TOPOLOGY", "nodes:2,cores:2,threads:2");
    if alone(test, &[&[], &[TOPOLOGY], &[("SQUALL_ALLOC_DEBUG", "1")]]) {
        body();
    }
}

/// Reports why a test is skipped on this machine; `alone` passes the line on.
fn skip(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIP: {why}");
}

/// A block of the general pool, between those under test.
struct Between(std::ptr::NonNull<u8>);

impl Between {
    /// The size of a representative under test.
    const LAYOUT: Layout = Layout::new::<[u64; 20]>();

    fn new() -> Between {
        Between(Arena::new(Placement::General).allocate(Between::LAYOUT).expect("there is memory"))
    }

    fn piece(&self) -> Piece {
        (Owner::Between, self.0.addr().get(), Between::LAYOUT.size())
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        // SAFETY: freed once, with its layout.
        unsafe { Arena::new(Placement::General).free(self.0, Between::LAYOUT) };
    }
}

/// The owner of a cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The strictly local data of a cluster, without representatives.
    Of(usize),
    /// The representative or root at this address.
    Alone(usize),
    /// The blocks between those under test.
    Between,
}

/// A piece of memory: its owner, address and size in bytes.
type Piece = (Owner, usize, usize);

/// The address of a representative, and the VP and cluster it serves.
#[derive(Clone, Copy, Debug)]
struct Place {
    vp: Vp,
    cluster: usize,
    at: usize,
    bytes: usize,
    of_its: usize,
    root: usize,
}

impl Place {
    fn piece(&self) -> Piece {
        (Owner::Alone(self.at), self.at - PREFIX_BYTES, self.bytes + PREFIX_BYTES)
    }

    fn of_its(&self) -> Piece {
        (Owner::Of(self.cluster), self.of_its, 8)
    }
}

#[squall_macros::interface(crate = squall_core)]
trait Places: Send + Sync {
    fn places(&self) -> Vec<Place>;
}

trait Kind: Send + Sync + 'static {
    const MEMORY: RepMemory;
}

struct ByCluster;
impl Kind for ByCluster {
    const MEMORY: RepMemory = RepMemory::ByCluster;
}

struct OwnLines;
impl Kind for OwnLines {
    const MEMORY: RepMemory = RepMemory::OwnLines;
}

/// A root that makes the representatives of all clusters ahead of calls.
struct Spread<K>(PhantomData<K>, u64);

struct Rep<K: Kind> {
    at: RepContext<Spread<K>>,
    of_its: squall_alloc::Placed<u64>,
    /// Makes the block's size differ from a multiple of a cache line.
    _more: [u64; 3],
}

/// Bytes in front of the value in a representative's block: the bookkeeping and one header.
const PREFIX_BYTES: usize = 96;

impl<K: Kind> Root for Spread<K> {
    type Interface = dyn Places;
    type Rep = Rep<K>;
    const EAGER: bool = true;
    const REP_MEMORY: RepMemory = K::MEMORY;
    const ROOT_LINES: bool = true;

    fn make_rep(&self, at: RepContext<Self>) -> Rep<K> {
        Rep { of_its: at.pool().place(self.1).expect("there is memory"), at, _more: [0; 3] }
    }
}

impl<K: Kind> Places for Rep<K> {
    fn places(&self) -> Vec<Place> {
        let place = |rep: &Rep<K>| Place {
            vp: rep.at.vp(),
            cluster: rep.at.cluster().index(),
            at: std::ptr::from_ref(rep).expose_provenance(),
            bytes: size_of::<Rep<K>>(),
            of_its: rep.of_its.as_ptr().as_ptr().expose_provenance(),
            root: std::ptr::from_ref(rep.at.root()).addr(),
        };
        self.at.reps().map(place).collect()
    }
}

/// An object, its representatives, and a block beside it.
type Made = (Owned<dyn Places>, Vec<Place>, Between);

fn make<K: Kind>(count: usize, size: ClusterSize) -> Vec<Made> {
    let make = |_| {
        let between = Between::new();
        let object = Spread::<K>(PhantomData, 0).create(size);
        let places = object.places();
        assert_eq!(places.len(), machine().clusters(size).iter().count());
        (object, places, between)
    };
    (0..count).map(make).collect()
}

/// Returns two pieces on one line of this length that have different owners.
fn on_one_line(line: usize, pieces: impl Iterator<Item = Piece>) -> Option<(Piece, Piece)> {
    let mut owners: HashMap<usize, Piece> = HashMap::new();
    for piece in pieces {
        let (owner, at, bytes) = piece;
        for number in at / line..=(at + bytes - 1) / line {
            let first = owners.entry(number).or_insert(piece);
            if first.0 != owner {
                return Some((*first, piece));
            }
        }
    }
    None
}

fn places(made: &[Made]) -> impl Iterator<Item = Place> {
    made.iter().flat_map(|(_, places, _)| places.iter().copied())
}

fn between(made: &[Made]) -> impl Iterator<Item = Piece> {
    made.iter().map(|(_, _, between)| between.piece())
}

/// Asserts that blocks come from the heap of their VP, and their pages from the pool of its node. Only for
/// the known topology of a child: on other machines the allocator may number the processors differently.
fn are_at_home(places: impl Iterator<Item = Place>) {
    if std::env::var_os("SQUALL_TOPOLOGY").is_none() {
        return;
    }
    for place in places {
        for address in [place.at, place.of_its] {
            // SAFETY: within a representative or memory that it owns, which its object keeps.
            let home = unsafe { home_of(std::ptr::with_exposed_provenance_mut(address)) };
            let (vp, node) = home.expect("it is of a slab");
            assert_eq!(vp as usize, place.vp.index(), "{place:?}");
            // Eight VPs on two nodes.
            assert_eq!(node as usize, place.vp.index() / 4, "{place:?}");
        }
    }
}

#[test]
fn co_14_representatives_of_different_vps_are_never_on_one_line_and_are_at_home() {
    const TEST: &str =
        "placement::co_14_representatives_of_different_vps_are_never_on_one_line_and_are_at_home";
    on_machines(TEST, || {
        let made = make::<ByCluster>(200, ClusterSize::Cpu);
        if machine().vp_limit() == 1 {
            skip("there is one VP");
        }
        // Two representatives of one VP do not share a line either, nor one and the memory of another: other
        // VPs write a representative's bookkeeping.
        let pieces = places(&made).flat_map(|place| [place.piece(), place.of_its()]);
        let two = on_one_line(64, pieces.chain(between(&made)));
        assert!(two.is_none(), "{two:?}");
        assert!(places(&made).all(|place| place.piece().1.is_multiple_of(64)), "each begins with a line");
        are_at_home(places(&made));
    });
}

#[test]
fn co_14_a_representative_that_several_vps_use_has_its_lines_for_itself() {
    const TEST: &str = "placement::co_14_a_representative_that_several_vps_use_has_its_lines_for_itself";
    on_machines(TEST, || {
        if machine().vp_limit() == 1 {
            return skip("there is one VP");
        }
        let wide = make::<ByCluster>(100, ClusterSize::Machine);
        let lines = make::<OwnLines>(100, ClusterSize::Cpu);
        are_at_home(places(&wide).chain(places(&lines)));
        let pieces = places(&wide).chain(places(&lines)).map(|place| place.piece());
        let two = on_one_line(128, pieces.chain(between(&wide)).chain(between(&lines)));
        assert!(two.is_none(), "{two:?}");
    });
}

/// Returns the number of strictly local blocks that were freed on another VP than their own. The root is in
/// shared memory, so it does not count.
fn freed_elsewhere() -> u64 {
    // Sends home the blocks that wait for it.
    let _ = trim();
    let stats = stats().expect("the allocator is in use");
    let local = stats.vps.iter().flat_map(|vp| &vp.classes).filter(|class| class.is_local);
    local.map(|class| class.sent_home_count).sum()
}

#[test]
fn co_30_the_memory_of_a_representative_is_freed_on_its_vp() {
    const TEST: &str = "placement::co_30_the_memory_of_a_representative_is_freed_on_its_vp";
    if !alone(TEST, &[&[("SQUALL_TOPOLOGY", "nodes:1,cores:8")]]) {
        return;
    }
    let made = make::<ByCluster>(20, ClusterSize::Cpu);
    let before = freed_elsewhere();
    let mut kept = Vec::new();
    for (object, places, between) in made {
        assert_eq!(places.len(), 8);
        kept.push(between);
        Owned::destroy(object).wait().expect("not in an operation");
    }
    assert_eq!(
        freed_elsewhere(),
        before,
        "blocks were freed on another VP than that of their representative"
    );
}

struct Beside(usize);

impl Count for Beside {
    fn count(&self) -> usize {
        self.0
    }
}

#[test]
fn co_14_a_root_that_is_to_have_lines_to_itself_is_of_the_pool_of_shared_memory() {
    on_machines(
        "placement::co_14_a_root_that_is_to_have_lines_to_itself_is_of_the_pool_of_shared_memory",
        || {
            // Alternates with objects in blocks of the program's allocator.
            let (mut made, mut beside) = (Vec::new(), Vec::new());
            for number in 0..100 {
                made.extend(make::<OwnLines>(1, ClusterSize::Machine));
                beside.push(shared::<dyn Count, _>(Beside(number)));
            }
            let roots: Vec<usize> = made.iter().map(|(_, places, _)| places[0].root).collect();
            let pieces = roots.iter().map(|root| (Owner::Alone(*root), *root, size_of::<Spread<OwnLines>>()));
            let two = on_one_line(
                128,
                pieces.chain(places(&made).map(|place| place.piece())).chain(between(&made)),
            );
            assert!(two.is_none(), "{two:?}");
            // They are at the same offset in blocks that start at pairs of lines.
            assert!(
                roots.windows(2).all(|two| two[1].abs_diff(two[0]).is_multiple_of(128) && two[0] != two[1])
            );
            for root in roots {
                // SAFETY: within an object's block, which is kept.
                assert!(unsafe { home_of(std::ptr::with_exposed_provenance_mut(root)) }.is_some());
            }
            for (object, ..) in made {
                Owned::destroy(object).wait().expect("not in an operation");
            }
        },
    );
}

const NOT_THIS_TIME: &str = "not this time";

/// A root with a `make_rep` that panics every third time and makes some representatives twice.
struct Fails(AtomicUsize);

#[squall_macros::interface(crate = squall_core)]
trait Count: Send + Sync {
    fn count(&self) -> usize;
}

struct Text {
    #[allow(dead_code)]
    at: RepContext<Fails>,
    text: squall_alloc::PlacedBytes,
}

impl Root for Fails {
    type Interface = dyn Count;
    type Rep = Text;

    fn make_rep(&self, at: RepContext<Fails>) -> Text {
        let text = at.pool().bytes(300, b'x').expect("there is memory");
        assert!(!self.0.fetch_add(1, Ordering::Relaxed).is_multiple_of(3), "{NOT_THIS_TIME}");
        std::thread::yield_now();
        Text { at, text }
    }
}

impl Count for Text {
    fn count(&self) -> usize {
        self.text.len()
    }
}

/// Returns the number of used blocks when all caches are empty; `None` if the caches cannot be emptied.
fn used() -> Option<u64> {
    for _ in 0..3 {
        squall_rcu::barrier().expect("not in an operation");
    }
    tables::trim();
    let emptied = trim() || squall_alloc::mode() == Some(squall_alloc::Mode::Locked);
    let stats = stats()?;
    let used = stats.vps.iter().flat_map(|vp| &vp.classes).map(|class| class.used_count).sum();
    emptied.then_some(used)
}

/// Makes, calls and destroys `count` objects. A second thread calls them, too.
fn live(count: usize) {
    let (next, taken) = std::sync::mpsc::sync_channel(1);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for handle in taken {
                let _ = catch_unwind(AssertUnwindSafe(|| Count::count(&handle)));
            }
        });
        for _ in 0..count {
            let object = Fails(AtomicUsize::new(0)).create(ClusterSize::Cpu);
            next.send(object.handle()).expect("the other thread lives");
            let _ = catch_unwind(AssertUnwindSafe(|| object.count()));
        }
        drop(next);
    });
}

#[test]
fn ended_and_unfinished_representatives_leave_no_memory_behind() {
    const TEST: &str = "placement::ended_and_unfinished_representatives_leave_no_memory_behind";
    on_machines(TEST, || {
        // Hides the hundreds of expected panics; reports all others.
        let told = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if info.payload_as_str() != Some(NOT_THIS_TIME) {
                told(info);
            }
        }));
        live(100);
        let before = used();
        live(1_000);
        let after = used();
        if before.is_none() {
            skip("caches cannot be emptied here");
        }
        // Only these tests use the pools, unless Squall is the program's allocator.
        assert!(
            cfg!(squall_global_alloc) || before.is_none() || after == before,
            "{before:?}, then {after:?}"
        );
    });
}

/// In a virtual topology a thread's VP differs from its processor. The allocator's record of one must not be
/// used for the other.
#[test]
fn the_processor_of_the_allocator_is_not_the_vp() {
    const TEST: &str = "placement::the_processor_of_the_allocator_is_not_the_vp";
    if !alone(TEST, &[&[("SQUALL_TOPOLOGY", "cores:1")]]) {
        return;
    }
    for cpu in 0..std::thread::available_parallelism().map_or(1, |count| count.get()) {
        let vp = std::thread::spawn(move || {
            let _ = squall_sys::affinity::restrict_to(&[cpu]);
            // Allocates before the thread asks for its VP for the first time.
            drop(Between::new());
            Vp::current().index()
        });
        assert_eq!(vp.join().unwrap(), 0, "on processor {cpu}");
    }
}
