//! Actions inside methods: calls, creations, destructions, panics, sleeps, and requests that must be refused
//! there.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use squall::rcu::{WaitError, barrier, in_operation, wait};
use squall::{Handle, Vp, machine, tables};

use super::breaks::Break;
use super::caller::{Caller, DEPTH};
use super::classes::OnMake;
use super::counts::{Stat, count};
use super::interfaces::{AnyHandle, Reply, Request};
use super::owner::{self, NO_SLOT};
use super::rep_core::RepCore;
use super::reps::{Leaf, RootCore, StressRoot};
use super::world::World;
use crate::run::Rng;
use crate::skeleton::delay::spin;
use crate::skeleton::expected_panic::raise_expected_panic;

const SPIN_MAX: u64 = 5_000;
const SLEEP_US_MAX: u64 = 400;

thread_local! {
    /// Nesting depth of the representatives that this thread is making.
    static MAKING: Cell<u32> = const { Cell::new(0) };
}

/// The differences between shared and distributed representatives.
pub(super) trait RepMethods {
    fn core(&self) -> &RepCore;
    fn plus(&self, n: u64);
    fn sum(&self) -> u64;
    fn each(&self, tell: &mut dyn FnMut(u64));
    /// Looks at its peers in a random way.
    fn survey(&self, rng: &mut Rng);
    /// Sleeps until it is woken or the object ends. Called outside every operation.
    fn sleep(&self);
    fn wake(&self);
}

impl<R: StressRoot> Leaf<R> {
    /// Checks that a peer belongs to the same object.
    fn check_peer(&self, peer: &Leaf<R>) {
        peer.core.check("a visit by a peer");
        if peer.core.key != self.core.key {
            let (mine, other) = (self.core.key.serial, peer.core.key.serial);
            self.core.world.run_state.fail(format!("object #{mine} has a representative of object #{other}"));
        }
    }
}

impl<R: StressRoot> RepMethods for Leaf<R> {
    fn core(&self) -> &RepCore {
        &self.core
    }

    fn plus(&self, n: u64) {
        self.sum.add(n);
    }

    fn sum(&self) -> u64 {
        // One of the two ways to visit the representatives.
        if self.core.key.serial.is_multiple_of(2) {
            return self.at.reps().map(|rep| rep.sum.load()).fold(0, u64::wrapping_add);
        }
        self.at.gather(|rep| rep.sum.load(), u64::wrapping_add).unwrap_or(0)
    }

    fn each(&self, tell: &mut dyn FnMut(u64)) {
        for rep in self.at.reps() {
            self.check_peer(rep);
            tell(rep.core.key.serial);
        }
    }

    fn survey(&self, rng: &mut Rng) {
        let world = self.core.world;
        let root_core = self.at.root().root_core();
        root_core.check("a method");
        match rng.below(8) {
            0 => self.at.reps().for_each(|rep| self.check_peer(rep)),
            1 => {
                let vp = Vp::new(rng.below(machine().vp_limit() as u64) as u32);
                if let Some(rep) = self.at.find(vp) {
                    self.check_peer(rep);
                }
            }
            2 => self.check_peer(self.at.local()),
            3 => {
                let count = self.at.gather(|_| 1, |one, more| one + more);
                if count.is_none() {
                    world
                        .run_state
                        .fail("a gather by a live representative found no representative".to_owned());
                }
            }
            4 => self.at.broadcast(|rep| self.check_peer(rep)),
            5 => {
                let counts = self.at.freeze(|peers| {
                    let before = peers.count();
                    spin(SPIN_MAX / 8);
                    before
                });
                if counts == 0 {
                    world
                        .run_state
                        .fail("a freeze by a live representative found no representative".to_owned());
                }
            }
            6 => {
                let ending = self.at.is_ending();
                if ending && !world.ledger.destroy_begun(self.core.key) {
                    world.run_state.fail(format!(
                        "object #{} reports that it is ending, but no thread has begun to destroy it",
                        self.core.key.serial
                    ));
                }
            }
            _ => {
                let own = Handle::id(self.at.handle());
                let shown = world.ledger.handle(self.core.key).map(|handle| match handle {
                    AnyHandle::Probe(handle) => Handle::id(handle),
                    AnyHandle::Deep(handle) => Handle::id(handle),
                    AnyHandle::Pair(handle) => Handle::id(handle),
                });
                if shown.is_some_and(|shown| shown != own) {
                    world.run_state.fail(format!(
                        "a representative's handle names {own}, but its owner's handle names {shown:?}"
                    ));
                }
            }
        }
    }

    fn sleep(&self) {
        let root_core = self.at.root().root_core();
        if root_core.world.is_broken(Break::LoseObject) {
            // A lost object is never destroyed, so its sleepers would not be woken.
            return;
        }
        let seen = root_core.wakes.load(Ordering::Relaxed);
        let woken = self.at.sleep_until(|| (root_core.wakes.load(Ordering::Relaxed) != seen).then_some(()));
        if woken.is_err() && !root_core.world.ledger.destroy_begun(root_core.key) {
            root_core.world.run_state.fail(format!(
                "a sleeper in object #{} was told that it ends, but no thread has begun to destroy it",
                root_core.key.serial
            ));
        }
    }

    fn wake(&self) {
        self.at.root().root_core().wakes.fetch_add(1, Ordering::Relaxed);
        self.at.wake();
    }
}

/// Runs the side action of making a representative, inside the operation of the call that missed.
pub(super) fn make_busy(root_core: &RootCore) {
    let mut rng = root_core.rng();
    match root_core.behavior.on_make {
        OnMake::Nothing => {}
        OnMake::Panics if rng.one_in(4) => raise_expected_panic(),
        OnMake::Panics => {}
        OnMake::Dawdles => spin(rng.below(SPIN_MAX)),
        // Another representative may be made in turn, but the nesting is limited, and this object is not
        // called.
        OnMake::Calls if MAKING.get() == 0 => {
            MAKING.set(1);
            let world = root_core.world;
            if let Some(other) = world.board.any(&mut rng).filter(|other| other.key != root_core.key) {
                Caller { world, rng: &mut rng, depth: 0 }.glance(&other);
            }
            MAKING.set(0);
        }
        OnMake::Calls => {}
    }
}

/// Runs any action of a method.
pub(super) fn touch(rep: &impl RepMethods, request: &Request<'_>) -> Reply {
    let core = rep.core();
    let _inside = core.enter();
    let mut rng = Rng::new(request.seed, core.key.serial);
    let choice = rng.below(64);
    act(rep, request, choice, &mut rng);
    core.reply()
}

/// Stays for a while, and then runs any action of a method.
pub(super) fn linger(rep: &impl RepMethods, request: &Request<'_>) -> Reply {
    let core = rep.core();
    let inside = core.enter();
    let mut rng = Rng::new(request.seed, core.key.serial);
    let in_operation = in_operation();
    match rng.below(8) {
        0..2 => thread::sleep(Duration::from_micros(rng.below(SLEEP_US_MAX))),
        2..4 => expect_wait(core.world, in_operation, "a wait", wait()),
        4 => expect_wait(core.world, in_operation, "a barrier", barrier().map(|_| ())),
        // Only if other threads can wake or destroy it and no thread waits for this one. A thread may wait
        // for a lingering drop or an ending thread.
        5 if !in_operation && request.entry.slot != NO_SLOT && request.depth == DEPTH => rep.sleep(),
        6 => {
            owner::destroy(core.world, &mut rng, request.entry);
            thread::yield_now();
        }
        _ => {}
    }
    core.check("the end of a long stay");
    let choice = rng.below(64);
    act(rep, request, choice, &mut rng);
    drop(inside);
    core.reply()
}

/// Checks that waiting fails inside an operation, and succeeds elsewhere.
fn expect_wait(world: &World, inside: bool, what: &str, outcome: Result<(), WaitError>) {
    match outcome {
        Ok(()) if !inside => {}
        Err(WaitError::InOperation | WaitError::InDeferredCall) if inside => {}
        // A drop called by the reclaimer may linger too.
        Err(WaitError::InDeferredCall) => {}
        outcome => world
            .run_state
            .fail(format!("{what} in a method returned {outcome:?} (inside an operation: {inside})")),
    }
}

/// Runs one random action in a method of `rep`.
fn act(rep: &impl RepMethods, request: &Request<'_>, choice: u64, rng: &mut Rng) {
    let world = rep.core().world;
    let depth = request.depth.saturating_sub(1);
    match choice {
        0..14 => spin(rng.below(SPIN_MAX)),
        14..24 => rep.survey(rng),
        24..28 => raise_expected_panic(),
        28..30 => discard(rng, request.entry.handle),
        30..32 => rep.wake(),
        32..34 if in_operation() => expect_wait(world, true, "a wait", wait()),
        // The remaining actions make nested calls.
        _ if request.depth == 0 => {}
        34..44 => Caller { world, rng, depth }.call(request.entry),
        44..54 => Caller { world, rng, depth }.call_any(),
        54..58 => owner::publish(world, rng),
        58..60 => owner::destroy(world, rng, request.entry),
        60..62 => owner::destroy_any(world, rng),
        _ => rep.plus(0),
    }
}

/// Discards tables: all, one VP's, or one page.
pub(super) fn discard(rng: &mut Rng, handle: AnyHandle) {
    let vp = Vp::new(rng.below(machine().vp_limit() as u64) as u32);
    let vp = if machine().vps().contains(vp) { vp } else { Vp::current() };
    let id = match handle {
        AnyHandle::Probe(handle) => Handle::id(handle),
        AnyHandle::Deep(handle) => Handle::id(handle),
        AnyHandle::Pair(handle) => Handle::id(handle),
    };
    match rng.below(16) {
        0 => tables::discard_all(),
        1..8 => tables::discard(vp),
        8..12 => tables::discard_page_of(Vp::current(), id),
        _ => tables::discard_page_of(vp, id),
    }
    count(Stat::Discards);
}
