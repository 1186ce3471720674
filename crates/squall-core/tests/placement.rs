//! Where representatives lie: on lines that no other VP's have, in memory of their VP's node; and that nothing of them is lost.
#![cfg(not(any(loom, miri, squall_asan, squall_tsan)))]

use squall_alloc::{home_of, stats, trim};
use squall_core::{At, Owned, RepMemory, Root, tables};
use squall_machine::{ClusterSize, Vp, machine};
use std::collections::HashMap;
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
}

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
    at: At<Spread<K>>,
    of_its: squall_alloc::Placed<u64>,
}

impl<K: Kind> Root for Spread<K> {
    type Interface = dyn Places;
    type Rep = Rep<K>;
    const EAGER: bool = true;
    const REP_MEMORY: RepMemory = K::MEMORY;
    const ROOT_LINES: bool = true;

    fn make_rep(&self, at: At<Self>) -> Rep<K> {
        Rep { of_its: at.pool().place(self.1).expect("there is memory"), at }
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

fn make<K: Kind>(count: usize, size: ClusterSize) -> Vec<(Owned<dyn Places>, Vec<Place>)> {
    let make = |_| {
        let object = Spread::<K>(PhantomData, 0).create(size);
        let places = object.places();
        assert_eq!(places.len(), machine().clusters(size).iter().count());
        (object, places)
    };
    (0..count).map(make).collect()
}

/// Two on one line of this length that are not of one owner.
fn on_one_line(places: impl Iterator<Item = (usize, Place)>) -> Option<(Place, Place)> {
    const LINE: usize = 64;
    let mut owners: HashMap<usize, (usize, Place)> = HashMap::new();
    for (owner, place) in places {
        let ends = [(place.at, place.bytes), (place.of_its, 8)];
        for line in ends.into_iter().flat_map(|(at, bytes)| at / LINE..=(at + bytes - 1) / LINE) {
            let first = owners.entry(line).or_insert((owner, place));
            if first.0 != owner {
                return Some((first.1, place));
            }
        }
    }
    None
}

/// That blocks are of the heap of the VP they were made for, and their pages of its node's pool.
fn are_at_home(places: &[Place]) {
    let nodes = std::env::var_os("SQUALL_TOPOLOGY").is_some();
    // In the debug mode what is to be near is the caller's.
    let is_debug = std::env::var_os("SQUALL_ALLOC_DEBUG").is_some();
    for place in places {
        for address in [place.at, place.of_its] {
            // SAFETY: a representative, or what it owns, which its object keeps.
            let home = unsafe { home_of(std::ptr::with_exposed_provenance_mut(address)) };
            let (vp, node) = home.expect("it is of a slab");
            assert!(is_debug || vp as usize == place.vp.index(), "{place:?} is of the VP {vp}");
            // Eight VPs on two nodes.
            assert!(!nodes || node as usize == place.vp.index() / 4, "{place:?} is on the node {node}");
        }
    }
}

#[test]
fn co_14_representatives_of_different_vps_are_never_on_one_line_and_are_at_home() {
    const TEST: &str = "co_14_representatives_of_different_vps_are_never_on_one_line_and_are_at_home";
    on_machines(TEST, || {
        let made = make::<ByCluster>(200, ClusterSize::Cpu);
        let all: Vec<Place> = made.iter().flat_map(|(_, places)| places.clone()).collect();
        let two = on_one_line(all.iter().map(|place| (place.cluster, *place)));
        assert!(two.is_none(), "{two:?}");
        are_at_home(&all);
    });
}

#[test]
fn co_14_a_representative_that_several_vps_use_has_its_lines_for_itself() {
    const TEST: &str = "co_14_a_representative_that_several_vps_use_has_its_lines_for_itself";
    on_machines(TEST, || {
        if machine().vp_limit() == 1 {
            return;
        }
        let wide = make::<ByCluster>(100, ClusterSize::Machine);
        let lines = make::<OwnLines>(100, ClusterSize::Cpu);
        are_at_home(&wide.iter().chain(&lines).flat_map(|(_, places)| places.clone()).collect::<Vec<_>>());
        // Each is its own owner; what belongs to one lies apart.
        let each = wide.iter().chain(&lines).flat_map(|(_, places)| places.clone()).enumerate();
        let alone = each.map(|(index, place)| (index, Place { of_its: place.at, ..place }));
        assert!(on_one_line(alone).is_none());
    });
}

#[test]
fn co_14_a_root_that_is_to_have_lines_to_itself_is_of_the_pool_of_shared_memory() {
    on_machines("co_14_a_root_that_is_to_have_lines_to_itself_is_of_the_pool_of_shared_memory", || {
        let made = make::<OwnLines>(100, ClusterSize::Machine);
        let mut roots: Vec<usize> = made.iter().map(|(_, places)| places[0].root).collect();
        roots.sort_unstable();
        // They lie at the same place of blocks that begin at pairs of lines.
        assert!(roots.windows(2).all(|two| (two[1] - two[0]).is_multiple_of(128) && two[0] != two[1]));
        for root in roots {
            // SAFETY: a root, which its object keeps.
            assert!(unsafe { home_of(std::ptr::with_exposed_provenance_mut(root)) }.is_some());
        }
        for (object, _) in made {
            Owned::destroy(object).wait().expect("not in an operation");
        }
    });
}

/// Every third `make_rep` panics, and others are made twice.
struct Fails(AtomicUsize);

#[squall_macros::interface(crate = squall_core)]
trait Count: Send + Sync {
    fn count(&self) -> usize;
}

struct Text {
    #[allow(dead_code)]
    at: At<Fails>,
    text: squall_alloc::PlacedBytes,
}

impl Root for Fails {
    type Interface = dyn Count;
    type Rep = Text;

    fn make_rep(&self, at: At<Fails>) -> Text {
        let text = at.pool().bytes(300, b'x').expect("there is memory");
        assert!(!self.0.fetch_add(1, Ordering::Relaxed).is_multiple_of(3), "not this time");
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
            for co in taken {
                let _ = catch_unwind(AssertUnwindSafe(|| Count::count(&co)));
            }
        });
        for _ in 0..count {
            let object = Fails(AtomicUsize::new(0)).create(ClusterSize::Cpu);
            next.send(object.co()).expect("the other thread lives");
            let _ = catch_unwind(AssertUnwindSafe(|| object.count()));
        }
        drop(next);
    });
}

#[test]
fn of_representatives_that_are_over_or_were_never_finished_nothing_is_left() {
    const TEST: &str = "of_representatives_that_are_over_or_were_never_finished_nothing_is_left";
    on_machines(TEST, || {
        // Panics are expected by the hundred.
        std::panic::set_hook(Box::new(|_| ()));
        live(100);
        let before = used();
        live(1_000);
        let after = used();
        let _ = std::panic::take_hook();
        // Beside these tests nobody has blocks of its pools, but where it is the program's allocator.
        assert!(
            cfg!(squall_global_alloc) || before.is_none() || after == before,
            "{before:?}, then {after:?}"
        );
    });
}
