//! Methods that sleep while their object is swapped. They leave, and their calls are repeated if the
//! arguments allow it.

use squall::swap::{Replacement, RootFormats, Swap, SwapFailure, SwapPhase, Whole};
use squall::{CallError, ClusterSize, Interrupted, Owned, RepContext, Root};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// A queue with sleeping consumers.
#[squall::interface]
trait Line: Send + Sync {
    fn put(&self, n: u64);
    /// Takes the first number, minus `n`.
    #[blocking]
    fn take(&self, n: u64) -> Result<u64, CallError>;
    /// Takes the first number, minus `used_up[0]`. The call consumes its argument, so it cannot be repeated.
    #[blocking]
    fn take_with(&self, used_up: Vec<u64>) -> Result<u64, CallError>;
    fn sleepers(&self) -> u32;
    fn version(&self) -> u32;
}

#[derive(Default)]
struct Store {
    version: u32,
    numbers: Mutex<Vec<u64>>,
    asleep: AtomicU32,
}

struct Counter(RepContext<Store>);

impl Root for Store {
    type Interface = dyn Line;
    type Rep = Counter;
    fn make_rep(&self, at: RepContext<Store>) -> Counter {
        Counter(at)
    }
    fn formats(formats: &mut RootFormats<'_, Store>) {
        formats.export(|all: Whole<'_, Store>| Ok(all.root().numbers.lock().unwrap().clone())).import(
            |all: Whole<'_, Store>, numbers: Vec<u64>| {
                *all.root().numbers.lock().unwrap() = numbers;
                Ok(())
            },
        );
    }
}

impl Counter {
    fn first(&self) -> Result<u64, Interrupted> {
        let store = self.0.root();
        self.0.sleep_until(|| {
            let mut numbers = store.numbers.lock().unwrap();
            store.asleep.fetch_add(u32::from(numbers.is_empty()), Relaxed);
            (!numbers.is_empty()).then(|| numbers.remove(0))
        })
    }
}

/// The result of a method that had to leave. The caller does not see it, since the call is repeated.
const LEFT: u64 = u64::MAX;

impl Line for Counter {
    fn put(&self, n: u64) {
        self.0.root().numbers.lock().unwrap().push(n);
        self.0.wake();
    }
    fn take(&self, n: u64) -> Result<u64, CallError> {
        Ok(self.first().map_or(LEFT, |first| first - n))
    }
    fn take_with(&self, used_up: Vec<u64>) -> Result<u64, CallError> {
        Ok(self.first().map_or(LEFT, |first| first - used_up[0]))
    }
    fn sleepers(&self) -> u32 {
        self.0.root().asleep.load(Relaxed)
    }
    fn version(&self) -> u32 {
        self.0.root().version
    }
}

fn line(version: u32, size: ClusterSize) -> Replacement<dyn Line> {
    Replacement::root(Store { version, ..Store::default() }, size)
}

fn wait_for(mut happened: impl FnMut() -> bool) {
    while !happened() {
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn pitfall_01_a_sleeping_call_is_repeated_after_a_swap() {
    let owned: Owned<dyn Line> = Store::default().create(ClusterSize::Cpu);
    let handle = owned.handle();
    let consumers: Vec<_> = (1..=3).map(|n| thread::spawn(move || handle.take(n).unwrap())).collect();
    wait_for(|| handle.sleepers() >= 3);
    let report =
        Swap::new(handle).drain_timeout(Duration::from_secs(600)).run(line(1, ClusterSize::Machine)).unwrap();
    assert!(report.blocked <= 3, "only the sleepers waited");
    assert_eq!(handle.version(), 1);
    wait_for(|| handle.sleepers() >= 3);
    (0..3).for_each(|_| handle.put(100));
    let mut taken: Vec<u64> = consumers.into_iter().map(|consumer| consumer.join().unwrap()).collect();
    taken.sort_unstable();
    assert_eq!(taken, [97, 98, 99], "each call took one number, on the new object");
    Owned::destroy(owned).wait().unwrap();
}

#[test]
fn pitfall_01_a_call_that_cannot_be_repeated_sleeps_on_and_the_swap_fails() {
    let owned: Owned<dyn Line> = Store::default().create(ClusterSize::Cpu);
    let handle = owned.handle();
    let consumer = thread::spawn(move || handle.take_with(vec![1]).unwrap());
    wait_for(|| handle.sleepers() >= 1);
    let error =
        Swap::new(handle).drain_timeout(Duration::from_millis(5)).run(line(1, ClusterSize::Cpu)).unwrap_err();
    assert_eq!(error.failure(), SwapFailure::TimedOut(SwapPhase::Block));
    assert_eq!(handle.version(), 0);
    handle.put(8);
    assert_eq!(consumer.join().unwrap(), 7);
    // Without the sleeper, the swap succeeds.
    Swap::new(handle).run(line(1, ClusterSize::Cpu)).unwrap();
    assert_eq!(handle.version(), 1);
    Owned::destroy(owned).wait().unwrap();
}

#[test]
fn pitfall_01_a_failed_swap_loses_no_sleeping_call() {
    let owned: Owned<dyn Line> = Store::default().create(ClusterSize::Cpu);
    let handle = owned.handle();
    // One call can be repeated. The other cannot, and makes the swap fail.
    let consumers = [
        thread::spawn(move || handle.take(1).unwrap()),
        thread::spawn(move || handle.take_with(vec![1]).unwrap()),
    ];
    wait_for(|| handle.sleepers() >= 2);
    let failed = Swap::new(handle).drain_timeout(Duration::from_millis(5)).run(line(1, ClusterSize::Cpu));
    assert!(failed.is_err());
    (0..2).for_each(|_| handle.put(5));
    assert_eq!(consumers.map(|consumer| consumer.join().unwrap()), [4, 4]);
    Owned::destroy(owned).wait().unwrap();
}

/// An object with a method that sleeps in another object.
#[squall::interface]
trait Outer: Send + Sync {
    #[blocking]
    fn run(&self, line: squall::Handle<dyn Line>) -> u64;
}

struct Plain;

impl Outer for Plain {
    fn run(&self, line: squall::Handle<dyn Line>) -> u64 {
        line.take(0).unwrap()
    }
}

#[test]
fn pitfall_01_a_sleeper_inside_anothers_method_leaves_too() {
    let line_owned: Owned<dyn Line> = Store::default().create(ClusterSize::Cpu);
    let outer: Owned<dyn Outer> = squall::shared(Plain);
    let (handle, run) = (line_owned.handle(), outer.handle());
    let consumer = thread::spawn(move || run.run(handle));
    wait_for(|| handle.sleepers() >= 1);
    Swap::new(handle).drain_timeout(Duration::from_secs(600)).run(line(1, ClusterSize::Cpu)).unwrap();
    handle.put(3);
    assert_eq!(consumer.join().unwrap(), 3);
    Owned::destroy(outer).wait().unwrap();
}
