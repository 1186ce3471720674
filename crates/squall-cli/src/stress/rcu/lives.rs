//! The lives of the torture's threads: each is born before or after the library's first use, registers itself or not,
//! reads and writes for a while, and ends in some way; then another takes its slot.
//!
//! - I1. A slot names its thread only while that thread is alive: whoever does something to the thread holds the slot's
//!   lock meanwhile, so that no other process's thread is hit by a number used again.
//! - I2. Each life has two destructors of thread-locals, one of which runs before the library's own exit hook and the
//!   other after it: destructors run in the opposite order of the first uses.

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use rustix::process::Pid;
use rustix::thread::gettid;
use squall_rcu::{Marker, barrier, op, register, wait};

use super::calls::{flood, panic_as_planned};
use super::places::hop;
use super::reader::{Reader, Seen};
use super::signals;
use super::world::{Removed, World, lock};
use super::writer::Writer;
use crate::stress::Rng;

/// The longest life is shorter than two to this power, in steps.
const LIFE_STEPS_LOG: u64 = 9;
/// Calls that a destructor of a thread-local defers.
const LAST_CALLS: u64 = 5;

/// What a thread does in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Reader,
    Writer,
    Mixed,
}

/// Where one thread after another lives.
#[derive(Default)]
pub(super) struct Slot {
    thread: Mutex<Option<Pid>>,
    /// Steps begun, ever.
    pub(super) beats: AtomicU64,
    /// What those that ended have seen.
    pub(super) seen: Mutex<Seen>,
}

impl Slot {
    /// Calls `f` with the thread that lives here, if one does (I1).
    pub(super) fn with_thread(&self, f: impl FnOnce(Pid)) {
        if let Some(thread) = *lock(&self.thread) {
            f(thread);
        }
    }
}

/// What a thread does when its thread-locals are destroyed (I2).
struct Farewell(Cell<Option<(&'static World, u64)>>);

thread_local! {
    static ONE: Farewell = const { Farewell(Cell::new(None)) };
    static OTHER: Farewell = const { Farewell(Cell::new(None)) };
}

impl Drop for Farewell {
    fn drop(&mut self) {
        let Some((world, number)) = self.0.get() else { return };
        let mut rng = Rng::new(number, 0);
        let mut seen = Seen::default();
        let mut reader = Reader { world, rng: &mut rng, seen: &mut seen };
        (0..3).for_each(|_| reader.step());
        let tally = flood(world, LAST_CALLS, || rng.next());
        let outcome = match number % 4 {
            0 => wait(),
            1 => Marker::set().wait(),
            200 => barrier().map(|_| {
                let ran = tally.load(Ordering::Acquire);
                if ran != LAST_CALLS {
                    world.accuse(format!(
                        "in a thread-local destructor: after a barrier {ran} calls have run of {LAST_CALLS} deferred \
                         before it"
                    ));
                }
            }),
            _ => Ok(()),
        };
        if let Err(error) = outcome {
            world.accuse(format!("waiting in a thread-local destructor failed: {error}"));
        }
    }
}

/// Starts a life in `slot`.
pub(super) fn start(
    world: &'static World,
    slot: &'static Slot,
    name: String,
    role: Role,
    rng: Rng,
) -> std::io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name).spawn(move || live(world, slot, role, rng))
}

fn live(world: &'static World, slot: &'static Slot, role: Role, mut rng: Rng) {
    // Nothing of the library is touched before all may go on: so the first lives begin before its first use.
    if !world.gate() {
        return;
    }
    *lock(&slot.thread) = Some(gettid());
    be_born(world, &mut rng);
    let (mut seen, mut hand, mut later) = (Seen::default(), Vec::new(), Vec::new());
    let longest = 1 << rng.below(LIFE_STEPS_LOG + 1);
    let steps = 1 + rng.below(longest);
    for _ in 0..steps {
        slot.beats.fetch_add(1, Ordering::Relaxed);
        if !world.gate() {
            break;
        }
        step(world, role, &mut rng, &mut seen, &mut hand, &mut later);
    }
    lock(&slot.seen).add(&seen);
    world.give(hand);
    world.give(later.into_iter().map(|(_, removed): (Marker, Removed)| removed));
    *lock(&slot.thread) = None;
    // A signal that was sent before is ignored from here on.
    signals::listen(None);
    if rng.one_in(8) {
        op(|_| op(|_| panic_as_planned()))
    }
}

/// The first use of the library by this thread, between the first uses of its thread-locals (I2).
fn be_born(world: &'static World, rng: &mut Rng) {
    ONE.with(|farewell| farewell.0.set(Some((world, rng.next()))));
    let registered = if rng.one_in(2) { register() } else { op(|_| register()) };
    if let Err(error) = registered {
        world.accuse(format!("a thread could not be registered: {error}"));
    }
    OTHER.with(|farewell| farewell.0.set(Some((world, rng.next()))));
    signals::listen(Some(world));
}

fn step(
    world: &'static World,
    role: Role,
    rng: &mut Rng,
    seen: &mut Seen,
    hand: &mut Vec<Removed>,
    later: &mut Vec<(Marker, Removed)>,
) {
    if rng.one_in(8) {
        hop(rng);
    }
    let reads = match role {
        Role::Reader => true,
        Role::Writer => false,
        Role::Mixed => rng.one_in(2),
    };
    if reads {
        Reader { world, rng, seen }.step();
    } else {
        Writer { world, rng, hand, later }.step();
    }
}

/// A short life: registers, does one or two things, and ends.
pub(super) fn visit(world: &'static World, mut rng: Rng) {
    be_born(world, &mut rng);
    let mut seen = Seen::default();
    for _ in 0..1 + rng.below(2) {
        Reader { world, rng: &mut rng, seen: &mut seen }.step();
    }
    signals::listen(None);
}
