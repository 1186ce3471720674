//! Objects of the four kinds: an ADT, a threaded ADT, a monitor and a task. All threads call them while they
//! are swapped to their next implementations, destroyed and recreated.
//!
//! - I1. A call finds the number of the same thread's previous call, in any implementation. No call is lost,
//!   doubled or out of order.
//! - I2. In a monitor and in a task, one call runs at a time, over all implementations.
//! - I3. A call fails only after the object's destruction has begun.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use squall::policy::{Adt, Binding, Monitor, Policy, Task, ThreadedAdt};
use squall::swap::{Format, State, StateFormats, Swap, SwapFailure};
use squall::{Handle, Owned};

use super::breaks::Break;
use super::counts::{Stat, count};
use super::world::World;
use crate::run::{Rng, lock};

/// Maximum number of consecutive calls.
const CALLS_MAX: u64 = 6;
/// With the planned break, one call in this many is reported and not made.
const BREAK_ONE_IN: u64 = 64;

/// An object that is called with consecutive numbers.
#[squall::interface]
trait Sequenced: Send + Sync {
    /// Makes call `number` of a thread. Returns the number of its previous call, and whether another call was
    /// inside.
    #[blocking]
    fn call(&self, lane: u64, number: u64) -> (u64, bool);
}

/// The last number of each thread.
struct Numbers(Vec<u64>);
impl Format for Numbers {}

/// An implementation.
struct SequenceChecker {
    numbers: Mutex<Vec<u64>>,
    /// Whether a call is inside; shared by all implementations of an object.
    inside: Arc<AtomicBool>,
}

impl Sequenced for SequenceChecker {
    fn call(&self, lane: u64, number: u64) -> (u64, bool) {
        let other = self.inside.swap(true, Ordering::Relaxed);
        if number.is_multiple_of(4) {
            thread::yield_now();
        }
        let before = std::mem::replace(&mut lock(&self.numbers)[lane as usize], number);
        self.inside.store(false, Ordering::Relaxed);
        (before, other)
    }
}

impl State for SequenceChecker {
    fn formats(formats: &mut StateFormats<'_, SequenceChecker>) {
        formats.export(|this| Ok(Numbers(lock(&this.numbers).clone()))).import(|this, numbers: Numbers| {
            *lock(&this.numbers) = numbers.0;
            Ok(())
        });
    }
}

/// Swaps the object to its next implementation.
type Next = Box<dyn Fn(Handle<dyn Sequenced>) -> Result<(), SwapFailure> + Send + Sync>;

/// An object, as its callers know it.
struct KindObject {
    kind: &'static str,
    excludes: bool,
    handle: Handle<dyn Sequenced>,
    next: Next,
    /// The number of each thread's last call.
    numbers: Vec<AtomicU64>,
    ending: AtomicBool,
}

type Kept = (Owned<dyn Sequenced>, Arc<KindObject>);

#[derive(Default)]
pub(super) struct Kinds([Mutex<Option<Kept>>; 4]);

fn govern<P: Policy>(world: &World, kind: &'static str, excludes: bool, policy: P) -> Option<Kept> {
    let lanes = world.workers.len();
    let inside = Arc::new(AtomicBool::new(false));
    let checker =
        move || SequenceChecker { numbers: Mutex::new(vec![0; lanes]), inside: Arc::clone(&inside) };
    let binding = Binding::new(policy);
    let owned: Owned<dyn Sequenced> = match binding.govern_swappable(|_| checker()) {
        Ok(owned) => owned,
        Err(error) => {
            world.run_state.fail(format!("the creation of a {kind} failed: {error}"));
            return None;
        }
    };
    let next = move |handle: Handle<dyn Sequenced>| {
        let new = binding.next_swappable(|_: &Binding<P>| checker());
        Swap::new(handle).run(new).map(drop).map_err(|error| error.failure())
    };
    let object = KindObject {
        kind,
        excludes,
        handle: owned.handle(),
        next: Box::new(next),
        numbers: (0..lanes).map(|_| AtomicU64::new(0)).collect(),
        ending: AtomicBool::new(false),
    };
    count(Stat::KindsMade);
    Some((owned, Arc::new(object)))
}

fn make(world: &World, index: usize) -> Option<Kept> {
    match index {
        0 => govern(world, "ADT", false, Adt::new()),
        1 => govern(world, "threaded ADT", false, ThreadedAdt::new()),
        2 => govern(world, "monitor", true, Monitor::new()),
        _ => govern(world, "task", true, Task::new()),
    }
}

impl Kinds {
    /// Runs a random step of a calling thread.
    pub(super) fn step(&self, world: &World, lane: usize, rng: &mut Rng) {
        let index = rng.below(self.0.len() as u64) as usize;
        let object = {
            let mut place = lock(&self.0[index]);
            if place.is_none() {
                *place = make(world, index);
            }
            place.as_ref().map(|(_, object)| Arc::clone(object))
        };
        let Some(object) = object else { return };
        match rng.below(128) {
            0 => self.destroy(index),
            1..24 => {
                // Another swap may be under way, or a call may not end in time.
                count(if (object.next)(object.handle).is_ok() {
                    Stat::KindsSwapped
                } else {
                    Stat::KindsNotSwapped
                });
            }
            _ => (0..1 + rng.below(CALLS_MAX)).for_each(|_| call(world, &object, lane, rng)),
        }
    }

    fn destroy(&self, index: usize) {
        let taken = lock(&self.0[index]).take();
        if let Some((owned, object)) = taken {
            // Release: pairs with the acquire in `call`: an error that the destruction caused comes after it.
            object.ending.store(true, Ordering::Release);
            Owned::destroy(owned);
        }
    }

    /// Destroys all objects.
    pub(super) fn end(&self) {
        (0..self.0.len()).for_each(|index| self.destroy(index));
    }
}

fn call(world: &World, object: &KindObject, lane: usize, rng: &mut Rng) {
    let last = object.numbers[lane].load(Ordering::Relaxed);
    let number = last + 1;
    if world.breaks(Break::LoseCall, BREAK_ONE_IN, rng) {
        return object.numbers[lane].store(number, Ordering::Relaxed);
    }
    match object.handle.try_call(lane as u64, number) {
        Ok((before, other)) => {
            count(Stat::KindsCalls);
            object.numbers[lane].store(number, Ordering::Relaxed);
            let kind = object.kind;
            if before != last {
                let what = format!(
                    "call {number} of a thread on a {kind} found call {before} before it, not {last}"
                );
                world.run_state.fail(what);
            }
            if other && object.excludes {
                world.run_state.fail(format!("two calls were inside a {kind} at once"));
            }
        }
        // Acquire: pairs with the release in `destroy`.
        Err(error) if !object.ending.load(Ordering::Acquire) => {
            world.run_state.fail(format!("a call of a live {} failed: {error}", object.kind));
        }
        Err(_) => count(Stat::Stale),
    }
}
