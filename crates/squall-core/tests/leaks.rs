//! Of objects that are over nothing is left, and a link does not answer where its representative is not: seen with an
//! allocator that counts.
#![cfg(not(any(loom, miri, squall_global_alloc)))]

use squall_core::{At, Owned, RepMemory, Root, shared};
use squall_machine::ClusterSize;
use std::alloc::{GlobalAlloc, Layout, System};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::thread;

/// The system's allocator, and how many bytes it has given out.
struct Counting;

static LIVE: AtomicIsize = AtomicIsize::new(0);

// SAFETY: all is passed on.
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

/// The tests of this file, one at a time.
static TURN: Mutex<()> = Mutex::new(());

#[squall_macros::interface(crate = squall_core)]
trait Count: Send + Sync {
    fn count(&self) -> usize;
}

/// Every third `make_rep` panics.
struct Fails(AtomicUsize);

struct Rep {
    #[allow(dead_code)]
    at: At<Fails>,
    text: String,
}

impl Root for Fails {
    type Interface = dyn Count;
    type Rep = Rep;
    // Where it is counted; `placement.rs` counts the others.
    const REP_MEMORY: RepMemory = RepMemory::Program;
    fn make_rep(&self, at: At<Fails>) -> Rep {
        assert!(!self.0.fetch_add(1, Ordering::Relaxed).is_multiple_of(3), "not this time");
        // Others may make the same one meanwhile: all but one of them are dropped.
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

/// Makes, calls from two threads, and ends so many objects of each kind. Returns the bytes that are live after that.
fn lives(count: usize) -> isize {
    let (next, taken) = std::sync::mpsc::sync_channel(1);
    thread::scope(|scope| {
        scope.spawn(move || {
            for co in taken {
                let _ = catch_unwind(AssertUnwindSafe(|| Count::count(&co)));
            }
        });
        for _ in 0..count {
            let spread = Fails(AtomicUsize::new(0)).create(ClusterSize::Machine);
            next.send(spread.co()).unwrap();
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
    // Blocks of ended objects that are kept for the next ones are no loss.
    LIVE.load(Ordering::Relaxed) - squall_core::tables::stats().kept_bytes as isize
}

#[test]
fn co_31_of_objects_that_are_over_nothing_is_left() {
    let _turn = TURN.lock().unwrap_or_else(|poison| poison.into_inner());
    // Panics are expected by the hundred: their backtraces would be cached, which counts.
    std::panic::set_hook(Box::new(|_| ()));
    // Lists grow to what was once needed. A block lost with each object of either kind would be much more.
    const COUNT: usize = if cfg!(debug_assertions) { 4_000 } else { 20_000 };
    let before = lives(COUNT);
    for _ in 0..3 {
        lives(COUNT);
    }
    let lost = lives(COUNT) - before;
    let _ = std::panic::take_hook();
    assert!(lost < 256 << 10, "{lost} bytes were lost with {} objects of each kind", 4 * COUNT);
}

/// Gives its links away.
struct Escape;

static ESCAPED: Mutex<Vec<At<Escape>>> = Mutex::new(Vec::new());

struct Never;

impl Count for Never {
    fn count(&self) -> usize {
        0
    }
}

/// As large as some array of links.
struct Room(#[allow(dead_code)] [Option<At<Escape>>; 20]);

impl Count for Room {
    fn count(&self) -> usize {
        0
    }
}

impl Root for Escape {
    type Interface = dyn Count;
    type Rep = Room;
    // From where the arrays below are.
    const REP_MEMORY: RepMemory = RepMemory::Program;
    fn make_rep(&self, at: At<Escape>) -> Room {
        ESCAPED.lock().unwrap().push(at);
        panic!("it escaped");
    }
}

#[test]
fn a_link_answers_in_no_memory_but_that_of_its_representative() {
    let _turn = TURN.lock().unwrap_or_else(|poison| poison.into_inner());
    std::panic::set_hook(Box::new(|_| ()));
    let _: Owned<dyn Count> = shared(Never);
    let object = Escape.create(ClusterSize::Machine);
    let mut answered = 0;
    for _ in 0..20 {
        assert!(catch_unwind(AssertUnwindSafe(|| object.count())).is_err());
        let mut link = ESCAPED.lock().unwrap().pop();
        // Arrays of about the size of the block in which the representative was to be, so that one of them would lie there
        // if the block had been freed.
        let mut kept = Vec::new();
        for length in (20..26).cycle().take(12) {
            let mut array: Vec<Option<At<Escape>>> = Vec::with_capacity(length);
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
