//! Hot-swap of objects that call each other, all at once, under load. Every swap and every call ends. No call
//! is lost, run twice, or reordered within its thread.

use squall::swap::{Cancel, Replacement, RootFormats, State, StateFormats, Swap, SwapFailure, Transferred};
use squall::{ClusterSize, Handle, Owned, RepContext, Root};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// Swaps of each object: four of eight succeed. `CALLERS` threads call.
const SWAPS: u64 = if cfg!(miri) { 8 } else { 80 };
const CALLERS: usize = if cfg!(miri) { 2 } else { 4 };
/// A timeout that no test reaches.
const LONG: Duration = Duration::from_secs(600);

#[squall::interface]
trait Node: Send + Sync {
    /// Calls the next object of the ring, `depth` times.
    fn pass(&self, depth: u64);
    /// Like `pass`, but outside every operation.
    #[blocking]
    fn pass_blocking(&self, depth: u64);
    /// Like `pass`, and creates, calls and destroys other objects on the way.
    fn churn(&self, depth: u64);
    /// Receives the next number of a thread's sequence.
    fn next(&self, thread: usize, number: u64);
    /// Returns the number of calls of `pass`, `pass_blocking` and `churn`.
    fn passed(&self) -> u64;
}

/// Objects that call each other in a circle.
#[derive(Default)]
struct Ring {
    nodes: OnceLock<Vec<Handle<dyn Node>>>,
    /// Calls with a number out of sequence.
    out_of_order: AtomicUsize,
    /// Living values and representatives.
    live: AtomicUsize,
}

/// The state of both forms.
struct Common {
    ring: Arc<Ring>,
    place: usize,
    last: [AtomicU64; CALLERS],
    /// The failure of the next import.
    fails: Option<Fails>,
}

#[derive(Clone, Copy)]
enum Fails {
    Errs,
    Panics,
}

impl Common {
    fn new(ring: &Arc<Ring>, place: usize, fails: Option<Fails>) -> Common {
        Common { ring: ring.clone(), place, last: [const { AtomicU64::new(0) }; CALLERS], fails }
    }

    /// Returns the next object of the ring.
    fn after(&self) -> Handle<dyn Node> {
        let nodes = self.ring.nodes.get().expect("the ring is closed");
        nodes[(self.place + 1) % nodes.len()]
    }

    fn next(&self, thread: usize, number: u64) {
        if self.last[thread].swap(number, Relaxed) + 1 != number {
            self.ring.out_of_order.fetch_add(1, Relaxed);
        }
    }

    fn export(&self) -> Vec<u64> {
        self.last.iter().map(|last| last.load(Relaxed)).collect()
    }

    fn import(&self, all: &[u64]) -> Transferred<()> {
        match self.fails {
            Some(Fails::Errs) => return Err("planned".into()),
            Some(Fails::Panics) => std::panic::resume_unwind(Box::new(())),
            None => {}
        }
        self.last.iter().zip(all).for_each(|(last, &number)| last.store(number, Relaxed));
        Ok(())
    }

    fn churn(&self) {
        let other: Owned<dyn Node> = squall::swappable(Lone::new(Common::new(&self.ring, self.place, None)));
        other.next(0, 1);
        let wide = Wide(Common::new(&self.ring, self.place, None)).create(ClusterSize::Cpu);
        wide.next(0, 1);
        assert_eq!((other.passed(), wide.passed()), (0, 0));
    }
}

/// Counts its own life in the ring.
struct Alive(Arc<Ring>);

impl Alive {
    fn new(ring: &Arc<Ring>) -> Alive {
        ring.live.fetch_add(1, Relaxed);
        Alive(ring.clone())
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.live.fetch_sub(1, Relaxed);
    }
}

struct Lone {
    state: Common,
    passed: AtomicU64,
    _alive: Alive,
}

impl Lone {
    fn new(state: Common) -> Lone {
        let _alive = Alive::new(&state.ring);
        Lone { state, passed: AtomicU64::new(0), _alive }
    }
}

impl State for Lone {
    fn formats(formats: &mut StateFormats<'_, Lone>) {
        formats.export(|this| Ok(Whole((this.passed(), this.state.export())))).import(
            |this, Whole((passed, all))| {
                this.passed.fetch_add(passed, Relaxed);
                this.state.import(&all)
            },
        );
    }
}

/// The format of the state: calls, and the last number of each thread.
struct Whole((u64, Vec<u64>));
impl squall::swap::Format for Whole {}

struct Wide(Common);

struct Rep {
    at: RepContext<Wide>,
    passed: AtomicU64,
    _alive: Alive,
}

impl Root for Wide {
    type Interface = dyn Node;
    type Rep = Rep;
    fn make_rep(&self, at: RepContext<Wide>) -> Rep {
        Rep { at, passed: AtomicU64::new(0), _alive: Alive::new(&self.0.ring) }
    }
    fn formats(formats: &mut RootFormats<'_, Wide>) {
        formats
            .export(|whole| {
                let passed = whole.reps().map(|(_, rep)| rep.passed.load(Relaxed)).sum();
                Ok(Whole((passed, whole.root().0.export())))
            })
            .import(|whole, Whole((passed, all))| {
                whole.rep(squall::Vp::current()).passed.fetch_add(passed, Relaxed);
                whole.root().0.import(&all)
            });
    }
}

/// Access to the state of both forms.
trait Form {
    fn common(&self) -> &Common;
    fn own(&self) -> &AtomicU64;
    fn sum(&self) -> u64;
}

impl Form for Lone {
    fn common(&self) -> &Common {
        &self.state
    }
    fn own(&self) -> &AtomicU64 {
        &self.passed
    }
    fn sum(&self) -> u64 {
        self.passed.load(Relaxed)
    }
}

impl Form for Rep {
    fn common(&self) -> &Common {
        &self.at.root().0
    }
    fn own(&self) -> &AtomicU64 {
        &self.passed
    }
    fn sum(&self) -> u64 {
        self.at.reps().map(|rep| rep.passed.load(Relaxed)).sum()
    }
}

impl<T: Form + Send + Sync> Node for T {
    fn pass(&self, depth: u64) {
        self.own().fetch_add(1, Relaxed);
        if depth > 0 {
            self.common().after().pass(depth - 1);
        }
    }
    fn pass_blocking(&self, depth: u64) {
        self.own().fetch_add(1, Relaxed);
        if depth > 0 {
            let next = self.common().after();
            // Calls of both kinds meet in each object.
            if depth.is_multiple_of(3) { next.pass(depth - 1) } else { next.pass_blocking(depth - 1) }
        }
    }
    fn churn(&self, depth: u64) {
        self.own().fetch_add(1, Relaxed);
        self.common().churn();
        if depth > 0 {
            self.common().after().churn(depth - 1);
        }
        self.common().churn();
    }
    fn next(&self, thread: usize, number: u64) {
        self.common().next(thread, number);
    }
    fn passed(&self) -> u64 {
        self.sum()
    }
}

/// Swaps one object back and forth. Returns the number of successful swaps.
fn swap_over_and_over(ring: &Arc<Ring>, place: usize) -> u64 {
    let handle = ring.nodes.get().unwrap()[place];
    let mut done = 0;
    for n in 0..SWAPS {
        let fails = match n % 8 {
            3 => Some(Fails::Errs),
            5 => Some(Fails::Panics),
            _ => None,
        };
        let state = Common::new(ring, place, fails);
        let new: Replacement<dyn Node> = if n % 2 == 0 {
            Replacement::root(Wide(state), ClusterSize::Cpu)
        } else {
            Replacement::swappable(Lone::new(state))
        };
        let cancel = Cancel::new();
        let mut swap = Swap::new(handle).drain_timeout(LONG).cancel_on(&cancel);
        match n % 8 {
            6 => cancel.cancel(),
            7 => swap = swap.deadline(Instant::now()),
            _ => {}
        }
        match (n % 8, swap.run(new).map_err(|error| error.failure())) {
            (3, Err(SwapFailure::TransferFailed)) | (5, Err(SwapFailure::TransferPanicked)) => {}
            (6, Err(SwapFailure::Cancelled(_))) | (7, Err(SwapFailure::TimedOut(_))) => {}
            (0 | 1 | 2 | 4, Ok(_)) => done += 1,
            (_, other) => panic!("swap {n}: {other:?}"),
        }
    }
    done
}

/// Makes a ring of `count` objects and swaps all of them at once, while threads call round the ring.
fn goes_round(count: usize) {
    let ring = Arc::new(Ring::default());
    let owners: Vec<Owned<dyn Node>> =
        (0..count).map(|place| squall::swappable(Lone::new(Common::new(&ring, place, None)))).collect();
    assert!(ring.nodes.set(owners.iter().map(Owned::handle).collect()).is_ok());
    let stop = AtomicBool::new(false);
    let passed = Mutex::new(0);
    thread::scope(|scope| {
        let swaps: Vec<_> = (0..count)
            .map(|place| {
                scope.spawn({
                    let ring = &ring;
                    move || swap_over_and_over(ring, place)
                })
            })
            .collect();
        for thread in 0..CALLERS {
            let (ring, stop, passed) = (&ring, &stop, &passed);
            scope.spawn(move || {
                let nodes = ring.nodes.get().unwrap();
                let (mut number, mut sum) = (0, 0);
                while !stop.load(Relaxed) {
                    number += 1;
                    let depth = number % (2 * count as u64 + 1);
                    let first = nodes[thread % count];
                    match number % 3 {
                        0 => first.churn(depth),
                        1 => first.pass(depth),
                        _ => first.pass_blocking(depth),
                    }
                    sum += depth + 1;
                    nodes.iter().for_each(|node| node.next(thread, number));
                }
                *passed.lock().unwrap() += sum;
            });
        }
        let done: Vec<_> = swaps.into_iter().map(|swap| swap.join()).collect();
        stop.store(true, Relaxed);
        assert!(done.into_iter().all(|done| done.unwrap() == SWAPS / 2));
    });
    assert_eq!(owners.iter().map(|node| node.passed()).sum::<u64>(), *passed.lock().unwrap(), "calls");
    assert_eq!(ring.out_of_order.load(Relaxed), 0);
    for owner in owners {
        Owned::destroy(owner).wait().unwrap();
    }
    // The reclaimer drops the replaced implementations.
    for _ in 0..60_000 {
        if ring.live.load(Relaxed) == 0 {
            return;
        }
        squall::rcu::barrier().unwrap();
        thread::sleep(Duration::from_millis(1));
    }
    panic!("{} values or representatives were not dropped", ring.live.load(Relaxed));
}

#[test]
fn co_38_an_object_that_calls_itself_is_swapped_under_load() {
    goes_round(1);
}

#[test]
fn co_38_two_objects_that_call_each_other_are_swapped_at_once() {
    goes_round(2);
}

#[test]
fn co_38_so_are_chains_of_three() {
    goes_round(3);
}
