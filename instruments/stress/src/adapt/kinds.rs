//! Objects of the four kinds (an ADT, a threaded ADT, a monitor, a task), called by all threads while they are swapped for
//! their next implementations, destroyed, and made anew.
//!
//! - I1. A call of a thread finds that of the same thread before it, in whichever implementation: none is lost, made twice, or
//!   out of order.
//! - I2. In a monitor and in a task one call runs at a time, of all implementations together.
//! - I3. A call errs only if somebody has begun to destroy the object.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use squall::policy::{Adt, Binding, Monitor, Policy, Task, ThreadedAdt};
use squall::swap::{Format, StateFormats, State, Swap, SwapFailure};
use squall::{Handle, Owned};

use super::breaks::Break;
use super::tally::{What, count};
use super::world::World;
use crate::{Rng, lock};

/// Calls one after another, at most.
const CALLS_MAX: u64 = 6;
/// Of so many calls one is said to have been made, and was not, where the torture is broken on purpose.
const BREAK_ONE_IN: u64 = 64;

/// Something that is called by numbers.
#[squall::interface]
trait Desk: Send + Sync {
    /// The call of this number by this thread. Returns the number of the one before, and whether somebody else was in.
    #[blocking]
    fn call(&self, lane: u64, number: u64) -> (u64, bool);
}

/// The last numbers, by thread.
struct Numbers(Vec<u64>);
impl Format for Numbers {}

/// An implementation.
struct Clerk {
    numbers: Mutex<Vec<u64>>,
    /// Whether somebody is in: one for all implementations of an object.
    inside: Arc<AtomicBool>,
}

impl Desk for Clerk {
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

impl State for Clerk {
    fn formats(formats: &mut StateFormats<'_, Clerk>) {
        formats.export(|this| Ok(Numbers(lock(&this.numbers).clone()))).import(|this, numbers: Numbers| {
            *lock(&this.numbers) = numbers.0;
            Ok(())
        });
    }
}

/// Asks for the next implementation.
type Next = Box<dyn Fn(Handle<dyn Desk>) -> Result<(), SwapFailure> + Send + Sync>;

/// An object, as its callers know it.
struct Life {
    kind: &'static str,
    excludes: bool,
    co: Handle<dyn Desk>,
    next: Next,
    /// The number of the last call of each thread.
    numbers: Vec<AtomicU64>,
    ending: AtomicBool,
}

type Kept = (Owned<dyn Desk>, Arc<Life>);

#[derive(Default)]
pub(super) struct Kinds([Mutex<Option<Kept>>; 4]);

fn govern<P: Policy>(world: &World, kind: &'static str, excludes: bool, policy: P) -> Option<Kept> {
    let lanes = world.posts.len();
    let inside = Arc::new(AtomicBool::new(false));
    let clerk = move || Clerk { numbers: Mutex::new(vec![0; lanes]), inside: Arc::clone(&inside) };
    let binding = Binding::new(policy);
    let owned: Owned<dyn Desk> = match binding.govern_swappable(|_| clerk()) {
        Ok(owned) => owned,
        Err(error) => {
            world.trial.accuse(format!("a {kind} could not be made: {error}"));
            return None;
        }
    };
    let next = move |co: Handle<dyn Desk>| {
        let new = binding.next_swappable(|_: &Binding<P>| clerk());
        Swap::new(co).run(new).map(drop).map_err(|error| error.failure())
    };
    let life = Life {
        kind,
        excludes,
        co: owned.handle(),
        next: Box::new(next),
        numbers: (0..lanes).map(|_| AtomicU64::new(0)).collect(),
        ending: AtomicBool::new(false),
    };
    count(What::KindsMade);
    Some((owned, Arc::new(life)))
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
    /// A random step of a thread that calls.
    pub(super) fn step(&self, world: &World, lane: usize, rng: &mut Rng) {
        let index = rng.below(self.0.len() as u64) as usize;
        let life = {
            let mut place = lock(&self.0[index]);
            if place.is_none() {
                *place = make(world, index);
            }
            place.as_ref().map(|(_, life)| Arc::clone(life))
        };
        let Some(life) = life else { return };
        match rng.below(128) {
            0 => self.destroy(index),
            1..24 => {
                // Another swap may be under way, or a call that does not end in time.
                count(if (life.next)(life.co).is_ok() { What::KindsSwapped } else { What::KindsNotSwapped });
            }
            _ => (0..1 + rng.below(CALLS_MAX)).for_each(|_| call(world, &life, lane, rng)),
        }
    }

    fn destroy(&self, index: usize) {
        let taken = lock(&self.0[index]).take();
        if let Some((owned, life)) = taken {
            // Release: pairs with the acquire in `call`: an error that the destruction caused comes after it.
            life.ending.store(true, Ordering::Release);
            Owned::destroy(owned);
        }
    }

    /// Ends all of them.
    pub(super) fn end(&self) {
        (0..self.0.len()).for_each(|index| self.destroy(index));
    }
}

fn call(world: &World, life: &Life, lane: usize, rng: &mut Rng) {
    let last = life.numbers[lane].load(Ordering::Relaxed);
    let number = last + 1;
    if world.is_broken(Break::LoseCall) && rng.one_in(BREAK_ONE_IN) {
        return life.numbers[lane].store(number, Ordering::Relaxed);
    }
    match life.co.try_call(lane as u64, number) {
        Ok((before, other)) => {
            count(What::KindsCalls);
            life.numbers[lane].store(number, Ordering::Relaxed);
            let kind = life.kind;
            if before != last {
                let what =
                    format!("call {number} of a thread in a {kind} found {before} before it, not {last}");
                world.trial.accuse(what);
            }
            if other && life.excludes {
                world.trial.accuse(format!("two calls were in a {kind} at once"));
            }
        }
        // Acquire: pairs with the release in `destroy`.
        Err(error) if !life.ending.load(Ordering::Acquire) => {
            world.trial.accuse(format!("a call of a live {} erred: {error}", life.kind));
        }
        Err(_) => count(What::Stale),
    }
}
