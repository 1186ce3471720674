//! Ended objects leave no memory behind, and a context works only inside its representative. A program of its
//! own, because it counts the bytes of the program's allocator.
#![cfg(not(any(loom, miri, squall_global_alloc)))]

use squall_core::swap::{Replacement, State, StateFormats, swap};
use squall_core::{Owned, RepContext, RepMemory, Root, shared, swappable};
use squall_machine::ClusterSize;
use std::alloc::{GlobalAlloc, Layout, System};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::thread;

/// The system's allocator with a count of the allocated bytes.
struct Counting;

static LIVE: AtomicIsize = AtomicIsize::new(0);

// SAFETY: passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: passed on.
        unsafe { System.dealloc(at, layout) };
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Makes the tests of this file run one at a time.
static TURN: Mutex<()> = Mutex::new(());

#[squall_macros::interface(crate = squall_core)]
trait Count: Send + Sync {
    fn count(&self) -> usize;
}

/// A root with a `make_rep` that panics every third time.
struct Fails(AtomicUsize);

struct Rep {
    #[allow(dead_code)]
    at: RepContext<Fails>,
    text: String,
}

impl Root for Fails {
    type Interface = dyn Count;
    type Rep = Rep;
    // In counted memory; `placement.rs` counts the pools.
    const REP_MEMORY: RepMemory = RepMemory::Program;
    fn make_rep(&self, at: RepContext<Fails>) -> Rep {
        assert!(!self.0.fetch_add(1, Ordering::Relaxed).is_multiple_of(3), "not this time");
        // Another thread may make the same representative meanwhile: all but one are dropped.
        thread::yield_now();
        Rep { at, text: "x".repeat(300) }
    }
}

impl Count for Rep {
    fn count(&self) -> usize {
        self.text.len()
    }
}

struct Text(String);

impl Count for Text {
    fn count(&self) -> usize {
        self.0.len()
    }
}

/// Makes, calls from two threads, and destroys `count` objects of each kind. Returns the bytes that are live
/// afterwards.
fn lives(count: usize) -> isize {
    let (next, taken) = std::sync::mpsc::sync_channel(1);
    thread::scope(|scope| {
        scope.spawn(move || {
            for handle in taken {
                let _ = catch_unwind(AssertUnwindSafe(|| Count::count(&handle)));
            }
        });
        for _ in 0..count {
            let spread = Fails(AtomicUsize::new(0)).create(ClusterSize::Machine);
            next.send(spread.handle()).unwrap();
            let _ = catch_unwind(AssertUnwindSafe(|| spread.count()));
            assert_eq!(spread.count(), 300);
            let text: Owned<dyn Count> = shared(Text("y".repeat(300)));
            assert_eq!(text.count(), 300);
            drop((spread, text));
        }
        drop(next);
    });
    for _ in 0..3 {
        squall_rcu::barrier().unwrap();
    }
    // Blocks kept for recycling are not leaked.
    LIVE.load(Ordering::Relaxed) - squall_core::tables::stats().kept_bytes as isize
}

#[test]
fn co_31_of_objects_that_are_over_nothing_is_left() {
    let _turn = TURN.lock().unwrap_or_else(|poison| poison.into_inner());
    // Hundreds of panics are expected. Their backtraces would be cached, which would count as memory.
    std::panic::set_hook(Box::new(|_| ()));
    // Lists keep their greatest size. A block lost with each object of either kind would be much more.
    const COUNT: usize = if cfg!(debug_assertions) { 4_000 } else { 20_000 };
    let before = lives(COUNT);
    for _ in 0..3 {
        lives(COUNT);
    }
    let lost = lives(COUNT) - before;
    let _ = std::panic::take_hook();
    assert!(lost < 256 << 10, "{lost} bytes were lost with {} objects of each kind", 4 * COUNT);
}

impl State for Text {
    fn formats(formats: &mut StateFormats<'_, Text>) {
        formats.export(|this| Ok(this.0.clone())).import(|_, _: String| Ok(()));
    }
}

#[test]
fn of_swaps_nothing_is_left() {
    let _turn = TURN.lock().unwrap_or_else(|poison| poison.into_inner());
    const SWAPS: usize = 1_000;
    let text: Owned<dyn Count> = swappable(Text("y".repeat(300)));
    let live_after = |swaps: usize| {
        for _ in 0..swaps {
            swap(text.handle(), Replacement::swappable(Text("y".repeat(300)))).unwrap();
        }
        for _ in 0..3 {
            squall_rcu::barrier().unwrap();
        }
        LIVE.load(Ordering::Relaxed) - squall_core::tables::stats().kept_bytes as isize
    };
    // Lists reach their greatest size.
    let before = live_after(SWAPS);
    let lost = live_after(SWAPS) - before;
    assert_eq!(text.count(), 300);
    assert!(lost < 64 << 10, "{lost} bytes were lost with {SWAPS} swaps");
}

/// A root that gives its contexts away.
struct Escape;

static ESCAPED: Mutex<Vec<RepContext<Escape>>> = Mutex::new(Vec::new());

struct Never;

impl Count for Never {
    fn count(&self) -> usize {
        0
    }
}

/// A representative as large as an array of contexts.
struct Room(#[allow(dead_code)] [Option<RepContext<Escape>>; 20]);

impl Count for Room {
    fn count(&self) -> usize {
        0
    }
}

impl Root for Escape {
    type Interface = dyn Count;
    type Rep = Room;
    // From the allocator of the arrays below.
    const REP_MEMORY: RepMemory = RepMemory::Program;
    fn make_rep(&self, at: RepContext<Escape>) -> Room {
        ESCAPED.lock().unwrap().push(at);
        panic!("it escaped");
    }
}

#[test]
fn a_context_works_only_inside_its_representative() {
    let _turn = TURN.lock().unwrap_or_else(|poison| poison.into_inner());
    std::panic::set_hook(Box::new(|_| ()));
    let _: Owned<dyn Count> = shared(Never);
    let object = Escape.create(ClusterSize::Machine);
    let mut answered = 0;
    for _ in 0..20 {
        assert!(catch_unwind(AssertUnwindSafe(|| object.count())).is_err());
        let mut link = ESCAPED.lock().unwrap().pop();
        // Allocates arrays of about the size of the representative's block. One of them would lie there if
        // the block had been freed.
        let mut kept = Vec::new();
        for length in (20..26).cycle().take(12) {
            let mut array: Vec<Option<RepContext<Escape>>> = Vec::with_capacity(length);
            array.resize_with(length, || None);
            for place in &mut array {
                *place = link.take();
                let at = place.as_ref().unwrap();
                answered += usize::from(catch_unwind(AssertUnwindSafe(|| at.reps().count())).is_ok());
                link = place.take();
            }
            kept.push(array);
        }
    }
    let _ = std::panic::take_hook();
    assert_eq!(answered, 0);
    Owned::destroy(object).wait().unwrap();
}

/// Requires pools, which builds with sanitizers do not have.
#[cfg(not(any(squall_asan, squall_tsan)))]
mod no_memory {
    use super::*;

    /// An object with a root and representatives of a KiB in the pools.
    struct Long;

    struct LongRep {
        at: RepContext<Long>,
        words: [usize; 128],
    }

    impl Root for Long {
        type Interface = dyn Lies;
        type Rep = LongRep;
        const EAGER: bool = true;
        const ROOT_LINES: bool = true;

        fn make_rep(&self, at: RepContext<Long>) -> LongRep {
            LongRep { words: [at.vp().index(); 128], at }
        }
    }

    #[squall_macros::interface(crate = squall_core)]
    trait Lies: Send + Sync {
        /// Returns the addresses of its root and its representatives.
        fn lies(&self) -> Vec<usize>;
    }

    impl Lies for LongRep {
        fn lies(&self) -> Vec<usize> {
            let whole = |rep: &LongRep| rep.words.iter().all(|word| *word == rep.at.vp().index());
            assert!(self.at.reps().all(whole), "each has its memory for itself");
            let reps = self.at.reps().map(|rep| std::ptr::from_ref(rep).addr());
            reps.chain([std::ptr::from_ref(self.at.root()).addr()]).collect()
        }
    }

    /// Counts the parts of these objects that are in pools, and those that are not.
    fn of_pools(objects: &[Owned<dyn Lies>]) -> (usize, usize) {
        let all: Vec<usize> = objects.iter().flat_map(|object| object.lies()).collect();
        let of_pools = all.iter().filter(|at| squall_alloc::owns(std::ptr::without_provenance(**at))).count();
        (of_pools, all.len() - of_pools)
    }

    /// Returns the number of used blocks of the pools when all caches are empty; `None` if they cannot be
    /// emptied.
    fn of_pools_used() -> Option<u64> {
        let emptied = squall_alloc::trim() || squall_alloc::mode() == Some(squall_alloc::Mode::Locked);
        let stats = squall_alloc::stats()?;
        let used = stats.vps.iter().flat_map(|vp| &vp.classes).map(|class| class.used_count).sum();
        emptied.then_some(used)
    }

    #[test]
    fn where_the_pools_have_no_memory_the_programs_allocator_has() {
        const TEST: &str = "no_memory::where_the_pools_have_no_memory_the_programs_allocator_has";
        // Each child has an arena of 4 MiB: one with defaults, one without restartable sequences, one in
        // debug mode, and one without address space at first.
        const CHILD: &str = "SQUALL_TEST_CHILD";
        let Some(child) = std::env::var_os(CHILD) else {
            for variable in ["SQUALL_TEST_NONE", "SQUALL_RSEQ", "SQUALL_ALLOC_DEBUG", "SQUALL_TEST_NO_GROUND"]
            {
                let program = std::env::current_exe().unwrap();
                // Emulated programs start others through the emulator.
                let runner = std::env::var("SQUALL_TEST_RUNNER").unwrap_or_default();
                let mut words =
                    runner.split_whitespace().map(std::ffi::OsString::from).chain([program.into()]);
                let mut command = std::process::Command::new(words.next().unwrap());
                command.args(words).args(["--exact", TEST, "--nocapture"]).env("SQUALL_ALLOC_ARENA_MIB", "4");
                let value = if variable == "SQUALL_RSEQ" { "off" } else { "1" };
                let output = command.env(CHILD, variable).env(variable, value).output().unwrap();
                let text = String::from_utf8_lossy(&output.stdout);
                let errors = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success() && text.contains("1 passed"), "{variable}: {text}{errors}");
            }
            return;
        };
        let end = |objects: Vec<Owned<dyn Lies>>| {
            for object in objects {
                Owned::destroy(object).wait().unwrap();
            }
            squall_rcu::barrier().unwrap();
        };
        let make = |count: usize| (0..count).map(|_| Long.create(ClusterSize::Cpu)).collect::<Vec<_>>();
        if child == "SQUALL_TEST_NO_GROUND" {
            squall_alloc::refuse_after(Some(0));
            let early = make(10);
            squall_alloc::refuse_after(None);
            assert_eq!(of_pools(&early).0, 0);
            let late = make(10);
            assert_eq!(of_pools(&late).1, 0);
            end(early);
            end(late);
            assert!(of_pools_used().is_none_or(|used| used == 0));
        }
        // Fills the arena, and as much again from the program's allocator.
        let (objects, before) = (make(8_000), LIVE.load(Ordering::Relaxed));
        let (inside, outside) = of_pools(&objects);
        assert!(inside > 2_000 && outside > 2_000, "{inside} of pools, {outside} of the program's allocator");
        end(objects);
        let freed = before - LIVE.load(Ordering::Relaxed);
        // At least a KiB each, except for the roots among them.
        assert!(freed > outside as isize / 3 * 1024, "{freed} bytes of {outside} were freed");
        assert!(of_pools_used().is_none_or(|used| used == 0), "{:?} blocks are left", of_pools_used());
        // Freed blocks are allocated again.
        let again = make(100);
        assert_eq!(of_pools(&again).1, 0);
        end(again);
    }
}
