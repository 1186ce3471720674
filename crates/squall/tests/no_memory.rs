//! Without memory, each constructor that documents an error for that returns it. A program of its own,
//! because its allocator can be told to fail.
#![cfg(not(any(miri, squall_global_alloc)))]

use squall::objects::counter;
use squall::pervp::PerVp;
use squall::swap::{Factory, Replacement, SwapFailure, swap};
use squall::{ClusterSize, CreateError, Owned, RepContext, RepMemory, Root, WellKnown};
use squall_core::wrap::{Around, Invoked, Refusal, Wrap, wrapped};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The system's allocator, which fails on a thread for blocks of a chosen size and more.
struct Failing;

thread_local!(static FAILS_FROM: Cell<usize> = const { Cell::new(usize::MAX) });

// SAFETY: passed on to the system's allocator, or null.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= FAILS_FROM.get() {
            return std::ptr::null_mut();
        }
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: passed on.
        unsafe { System.dealloc(at, layout) };
    }
}

#[global_allocator]
static FAILING: Failing = Failing;

/// Runs `f` while the allocator fails on this thread for blocks of `bytes` and more.
fn without_memory<T>(bytes: usize, f: impl FnOnce() -> T) -> T {
    FAILS_FROM.set(bytes);
    let result = f();
    FAILS_FROM.set(usize::MAX);
    result
}

/// More objects than end in this program.
const RECYCLED_MAX: usize = 100;

/// Checks that `make` fails with the error for lack of memory while every allocation fails, and succeeds
/// afterwards.
fn fails_without_memory<T>(what: &str, make: impl Fn() -> Result<T, CreateError>) {
    // An object may get the block of an ended one, which takes no memory.
    let mut recycled = Vec::with_capacity(RECYCLED_MAX);
    let error = loop {
        match without_memory(1, &make) {
            Ok(made) => recycled.push(made),
            Err(error) => break error,
        }
        assert!(recycled.len() < RECYCLED_MAX, "{what} succeeded without memory");
    };
    match error {
        CreateError::OutOfMemory(cause) => assert_eq!(cause.kind(), std::io::ErrorKind::OutOfMemory),
        error => panic!("{what}: {error}"),
    }
    drop(recycled);
    assert!(make().is_ok(), "{what}");
}

#[squall::interface]
trait Bytes: Send + Sync {
    fn bytes(&self) -> usize;
}

#[squall::interface]
trait More: Bytes {
    fn more(&self) -> usize;
}

/// Larger than any recycled block.
struct Large([u8; 5000], #[expect(dead_code, reason = "its drop counts")] Counted);

/// Counts its drop, if it has a count. Objects of other tests, which may end at any time, lack one.
struct Counted(Option<Arc<AtomicUsize>>);

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(count) = &self.0 {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn large() -> Large {
    Large([0; 5000], Counted(None))
}

impl Bytes for Large {
    fn bytes(&self) -> usize {
        self.0.len()
    }
}

impl More for Large {
    fn more(&self) -> usize {
        self.0.len() + 1
    }
}

impl squall::swap::State for Large {
    fn formats(_: &mut squall::swap::StateFormats<'_, Large>) {}
}

struct Spread(Large);

/// The representatives of this class are made with the object, in the memory of the program's allocator.
struct Eager;

const EAGER_BYTES: usize = 100 << 10;

struct Rep(#[allow(dead_code)] RepContext<Spread>);

struct EagerRep(#[allow(dead_code)] RepContext<Eager>, [u8; EAGER_BYTES]);

impl Bytes for Rep {
    fn bytes(&self) -> usize {
        0
    }
}

impl Bytes for EagerRep {
    fn bytes(&self) -> usize {
        self.1.len()
    }
}

impl Root for Spread {
    type Interface = dyn Bytes;
    type Rep = Rep;
    fn make_rep(&self, at: RepContext<Spread>) -> Rep {
        assert_eq!(self.0.bytes(), 5000);
        Rep(at)
    }
}

impl Root for Eager {
    type Interface = dyn Bytes;
    type Rep = EagerRep;
    const EAGER: bool = true;
    const REP_MEMORY: RepMemory = RepMemory::Program;
    fn make_rep(&self, at: RepContext<Eager>) -> EagerRep {
        EagerRep(at, [7; EAGER_BYTES])
    }
}

struct Plain;

impl Wrap for Plain {
    fn around<R>(&self, _: &'static Invoked, f: impl FnOnce() -> R) -> Result<R, Refusal> {
        Ok(f())
    }
}

/// Makes the tests run one at a time: the first one needs a process without objects.
static TURN: Mutex<()> = Mutex::new(());

/// Makes the process's first objects, without memory for the tables at first. Returns the permission to run
/// alone.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    let turn = TURN.lock().unwrap_or_else(|poison| poison.into_inner());
    static FIRST: std::sync::Once = std::sync::Once::new();
    FIRST.call_once(|| {
        // The machine is read once in a process, and a thread gets its record once. Both may end the program.
        let _ = squall::machine();
        squall::rcu::register().unwrap();
        let made = without_memory(1, || squall::try_shared::<dyn Bytes, _>(large()));
        assert!(matches!(made, Err(CreateError::OutOfMemory(_))), "{made:?}");
        drop(squall::try_shared::<dyn Bytes, _>(large()).unwrap());
        drop(counter::try_adaptive().unwrap());
    });
    squall::rcu::register().unwrap();
    turn
}

#[test]
fn constructors_of_objects_return_an_error_without_memory() {
    static NUMBER: WellKnown<dyn Bytes> = WellKnown::new(40);
    static OTHER: WellKnown<dyn Bytes> = WellKnown::new(41);
    let _alone = alone();
    fails_without_memory("try_shared", || squall::try_shared::<dyn Bytes, _>(large()));
    fails_without_memory("try_shared, two interfaces", || squall::try_shared::<dyn More, _>(large()));
    fails_without_memory("shared_with", || squall::shared_with::<dyn Bytes, _>(|_| large()));
    fails_without_memory("swappable_with", || squall::swappable_with::<dyn Bytes, _>(|_| large()));
    fails_without_memory("wrapped", || wrapped::<dyn Bytes, _, _>(|_| Around::new(Plain, large())));
    fails_without_memory("Root::try_create", || Spread(large()).try_create(ClusterSize::Cpu));
    fails_without_memory("Replacement::shared", || Replacement::<dyn Bytes>::shared(large()).create());
    fails_without_memory("Replacement::root", || {
        Replacement::root(Spread(large()), ClusterSize::Cpu).create()
    });
    fails_without_memory("WellKnown::install_shared", || NUMBER.install_shared(large()));
    fails_without_memory("WellKnown::install", || OTHER.install(Spread(large()), ClusterSize::Cpu));
    fails_without_memory("try_adaptive", counter::try_adaptive);
}

#[test]
fn a_factory_returns_an_error_without_memory() {
    let _alone = alone();
    let factory: Factory<dyn Bytes> = Factory::new(|| Replacement::shared(large()));
    fails_without_memory("Factory::try_create", || factory.try_create());
}

#[test]
fn an_eager_class_returns_an_error_without_memory_for_its_representatives() {
    let _alone = alone();
    let create = || Eager.try_create(ClusterSize::Cpu);
    // Enough memory for the object and for its end.
    let made = without_memory(EAGER_BYTES, create);
    assert!(matches!(made, Err(CreateError::OutOfMemory(_))), "{made:?}");
    assert_eq!(create().unwrap().bytes(), EAGER_BYTES);
}

#[test]
fn a_value_is_dropped_if_there_is_no_memory_for_its_object() {
    let _alone = alone();
    let dropped = Arc::new(AtomicUsize::new(0));
    let value = Large([0; 5000], Counted(Some(dropped.clone())));
    let made: Result<Owned<dyn Bytes>, _> = without_memory(1, || squall::try_shared(value));
    assert!(made.is_err());
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
}

#[test]
fn a_swap_to_an_object_without_memory_fails() {
    let _alone = alone();
    let old = squall::shared::<dyn Bytes, _>(large());
    let new = without_memory(1, || Replacement::shared(large()));
    let error = swap(old.handle(), new).unwrap_err();
    assert_eq!(error.failure(), SwapFailure::OutOfMemory);
    assert_eq!(old.bytes(), 5000);
}

#[test]
fn data_per_processor_returns_an_error_without_memory() {
    let _alone = alone();
    let name = [0_u8; 100];
    let make = || PerVp::try_new(move |_| name.len());
    assert!(without_memory(1, make).is_err());
    assert_eq!(*make().unwrap().here(), 100);
}
