//! Where representatives lie: on lines that no other VP's have, in memory of their VP's node; and that nothing of them is lost.
#![cfg(not(any(loom, miri, squall_asan, squall_tsan)))]

use squall_alloc::{Arena, Placement, home_of, stats, trim};
use squall_core::{Owned, RepContext, RepMemory, Root, shared, tables};
use squall_machine::{ClusterSize, Vp, machine};
use std::alloc::Layout;
use std::collections::HashMap;
use std::io::Write;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const CHILD: &str = "SQUALL_TEST_CHILD";

/// The tests of this file, one at a time: they look at what the whole process has.
static TURN: Mutex<()> = Mutex::new(());

/// Runs `body` here, and in a child on each of these machines.
fn on_machines(test: &str, body: impl FnOnce()) {
    let _turn = TURN.lock().unwrap_or_else(|poison| poison.into_inner());
    body();
    if std::env::var_os(CHILD).is_some() {
        return;
    }
    for variable in [("SQUALL_TOPOLOGY", "nodes:2,cores:2,threads:2"), ("SQUALL_ALLOC_DEBUG", "1")] {
        in_child(test, variable);
    }
}

/// Runs a test in a child with this variable; it must pass.
fn in_child(test: &str, variable: (&str, &str)) {
    let program = std::env::current_exe().expect("this program has a path");
    // Emulated programs start others through the emulator.
    let mut command = match std::env::var("SQUALL_TEST_RUNNER") {
        Ok(runner) => {
            let mut words = runner.split_whitespace();
            let mut command = Command::new(words.next().expect("a runner"));
            command.args(words).arg(program);
            command
        }
        Err(_) => Command::new(program),
    };
    command.args(["--exact", test, "--nocapture"]).env(CHILD, "1").env(variable.0, variable.1);
    let output = command.output().expect("a child");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{test} {variable:?}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Says why a test shows nothing here, where nobody swallows it.
fn skip(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIP: {why}");
}

/// A block of the general pool, which others lie between.
struct Between(std::ptr::NonNull<u8>);

impl Between {
    /// As long as a representative may be.
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
        // SAFETY: of this layout, once.
        unsafe { Arena::new(Placement::General).free(self.0, Between::LAYOUT) };
    }
}

/// Whose a line may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The strictly local things of a cluster together, as far as they are no representatives.
    Of(usize),
    /// A representative, or a root, at this address.
    Alone(usize),
    /// The blocks between them together.
    Between,
}

/// A part of something: its owner, its address and its bytes.
type Piece = (Owner, usize, usize);

/// Where a representative lies, and for whom it is.
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

/// Makes a representative for each cluster, ahead of calls.
struct Spread<K>(PhantomData<K>, u64);

struct Rep<K: Kind> {
    at: RepContext<Spread<K>>,
    of_its: squall_alloc::Placed<u64>,
    /// So that what is in its block is no multiple of a line.
    _more: [u64; 3],
}

/// What precedes the value in a representative's block: what leads to its peers, and the header of one interface.
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

/// An object, with the representatives that it has, and a block beside it.
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

/// Two on one line of this length that are not of one owner.
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

/// That blocks are of the heap of the VP they were made for, and their pages of its node's pool: in the child with a machine that is
/// known, as the allocator may number the processors of others in its own way.
fn are_at_home(places: impl Iterator<Item = Place>) {
    if std::env::var_os("SQUALL_TOPOLOGY").is_none() {
        return;
    }
    for place in places {
        for address in [place.at, place.of_its] {
            // SAFETY: within a representative, or what it owns, which its object keeps.
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
    const TEST: &str = "co_14_representatives_of_different_vps_are_never_on_one_line_and_are_at_home";
    on_machines(TEST, || {
        let made = make::<ByCluster>(200, ClusterSize::Cpu);
        if machine().vp_limit() == 1 {
            skip("there is one VP");
        }
        // Nor are two of one VP, or one and what another owns: what leads from one to its peers others read and write.
        let pieces = places(&made).flat_map(|place| [place.piece(), place.of_its()]);
        let two = on_one_line(64, pieces.chain(between(&made)));
        assert!(two.is_none(), "{two:?}");
        assert!(places(&made).all(|place| place.piece().1.is_multiple_of(64)), "each begins with a line");
        are_at_home(places(&made));
    });
}

#[test]
fn co_14_a_representative_that_several_vps_use_has_its_lines_for_itself() {
    const TEST: &str = "co_14_a_representative_that_several_vps_use_has_its_lines_for_itself";
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

struct Beside(usize);

impl Count for Beside {
    fn count(&self) -> usize {
        self.0
    }
}

#[test]
fn co_14_a_root_that_is_to_have_lines_to_itself_is_of_the_pool_of_shared_memory() {
    on_machines("co_14_a_root_that_is_to_have_lines_to_itself_is_of_the_pool_of_shared_memory", || {
        // With objects between them whose blocks are the program's allocator's.
        let (mut made, mut beside) = (Vec::new(), Vec::new());
        for number in 0..100 {
            made.extend(make::<OwnLines>(1, ClusterSize::Machine));
            beside.push(shared::<dyn Count, _>(Beside(number)));
        }
        let roots: Vec<usize> = made.iter().map(|(_, places, _)| places[0].root).collect();
        let pieces = roots.iter().map(|root| (Owner::Alone(*root), *root, size_of::<Spread<OwnLines>>()));
        let two =
            on_one_line(128, pieces.chain(places(&made).map(|place| place.piece())).chain(between(&made)));
        assert!(two.is_none(), "{two:?}");
        // They lie at the same place of blocks that begin at pairs of lines.
        assert!(roots.windows(2).all(|two| two[1].abs_diff(two[0]).is_multiple_of(128) && two[0] != two[1]));
        for root in roots {
            // SAFETY: within an object's block, which is kept.
            assert!(unsafe { home_of(std::ptr::with_exposed_provenance_mut(root)) }.is_some());
        }
        for (object, ..) in made {
            Owned::destroy(object).wait().expect("not in an operation");
        }
    });
}

const NOT_THIS_TIME: &str = "not this time";

/// Every third `make_rep` panics, and others are made twice.
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

/// Blocks that have users, when all caches are empty; `None` where they cannot be emptied.
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

/// Makes, calls from two threads, and ends so many objects.
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
fn of_representatives_that_are_over_or_were_never_finished_nothing_is_left() {
    const TEST: &str = "of_representatives_that_are_over_or_were_never_finished_nothing_is_left";
    on_machines(TEST, || {
        // Panics are expected by the hundred; of all others is told as ever.
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
        // Beside these tests nobody has blocks of its pools, but where it is the program's allocator.
        assert!(
            cfg!(squall_global_alloc) || before.is_none() || after == before,
            "{before:?}, then {after:?}"
        );
    });
}

/// In a virtual topology a thread's VP is no processor: what the allocator notes of the one must not be taken for the other.
#[test]
fn what_the_allocator_knows_of_a_thread_is_not_its_vp() {
    const TOPOLOGY: (&str, &str) = ("SQUALL_TOPOLOGY", "cores:1");
    let test = "what_the_allocator_knows_of_a_thread_is_not_its_vp";
    if std::env::var_os(CHILD).is_none() {
        let _turn = TURN.lock().unwrap_or_else(|poison| poison.into_inner());
        return in_child(test, TOPOLOGY);
    }
    for cpu in 0..std::thread::available_parallelism().map_or(1, |count| count.get()) {
        let vp = std::thread::spawn(move || {
            let _ = squall_sys::affinity::restrict_to(&[cpu]);
            // Before the thread asks for its VP for the first time.
            drop(Between::new());
            Vp::current().index()
        });
        assert_eq!(vp.join().unwrap(), 0, "on processor {cpu}");
    }
}
