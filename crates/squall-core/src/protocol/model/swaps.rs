//! Models of mediators: swaps against calls, misses, holds, destruction and each other.
//!
//! The steps are those of `swap/run.rs` and `call/mediated.rs`, which call the same functions. A method reads
//! the value of a representative, and a transfer writes the value of each. So the checker sees whether the
//! two can run at once. The two objects of a model have different serials: 1 for the old and 2 for the new
//! one.

use squall_machine::park::Seen;
use squall_rcu::__model::Reader;
use squall_sys::sync::atomic::Ordering;
use squall_sys::sync::thread;
use std::ptr::NonNull;

use super::twins;
use super::world::{Body, Name, Sent, ThingRef, World, free_leaked, ignore_outcome, leak, run_both};
use crate::protocol::header::Header;
use crate::protocol::mediation::{Attach, Settled, ask, attach, leave, settle};
use crate::protocol::mediator::{Admission, Mediator, Phase};
use crate::protocol::miss::{InFlight, leave_as_owner, release};
use crate::protocol::object::{entry_of, header, hit};
use crate::protocol::platform::Platform;
use crate::protocol::sites;
use crate::protocol::slot::Absent;
use crate::protocol::teardown::{Killed, kill};
use squall_sys::sync::weaken::Site;

/// Not an ordering: the grace period between attaching the mediator and blocking. `swap/run.rs` waits for it.
const FORWARD: Site = Site(70);
/// Not an ordering: a call that takes a hold through a mediator is counted until it has the hold. `reach` in
/// `call/blocking.rs` ensures that.
const COUNT_HOLDS: Site = Site(73);

/// The outcome of a call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome {
    /// The call reached the object of this serial. `hit`: through its table entry.
    Reached { serial: u32, hit: bool },
    /// The call has to wait.
    Parked(Seen),
    /// There is no object.
    Erred,
}

impl Outcome {
    pub(super) fn serial(self) -> u32 {
        match self {
            Outcome::Reached { serial, .. } => serial,
            other => panic!("a call reached no object: {other:?}"),
        }
    }

    pub(super) fn is_hit(self) -> bool {
        matches!(self, Outcome::Reached { hit: true, .. })
    }

    fn is_parked(self) -> bool {
        matches!(self, Outcome::Parked(_))
    }
}

/// Like `header_of` in `call/mediated.rs`.
unsafe fn header_of(world: &World, thing: ThingRef) -> Option<NonNull<Header>> {
    // SAFETY: the caller's promise: within an operation, or in a model that frees memory only at its end.
    unsafe {
        if let Some(header) = entry_of(world.entry(0, 0), thing.object(), 0) {
            return Some(header);
        }
        let miss = InFlight::inside(world, thing.object(), 0)?;
        let found = header(world.find_or_make(thing, 0, 0), 0);
        miss.install(0, found);
        Some(found)
    }
}

/// A call on VP 0, which runs `inside` while it is in the object.
fn call_with(world: &World, name: Name, passes: bool, inside: impl FnOnce()) -> Outcome {
    // SAFETY: within an operation, or in a model that frees memory only at its end.
    unsafe {
        if let Some(header) = hit(world.entry(0, 0), name.id) {
            let serial = Body::visit(header);
            inside();
            return Outcome::Reached { serial, hit: true };
        }
        let reached = |thing, inside: &mut dyn FnMut()| match header_of(world, thing) {
            Some(header) => {
                let serial = Body::visit(header);
                inside();
                Outcome::Reached { serial, hit: false }
            }
            None => Outcome::Erred,
        };
        let mut inside = Some(inside);
        let mut inside = || {
            if let Some(inside) = inside.take() {
                inside();
            }
        };
        let mediator = match InFlight::enter(world, name.id) {
            Ok(miss) => {
                let thing = ThingRef::of(miss.block());
                let found = header(world.find_or_make(thing, 0, 0), 0);
                miss.install(0, found);
                drop(miss);
                let serial = Body::visit(found);
                inside();
                return Outcome::Reached { serial, hit: false };
            }
            Err(Absent::Mediated(mediator)) => mediator.as_ref(),
            Err(_) => return Outcome::Erred,
        };
        match ask(world, mediator, || passes) {
            Ok(Admission::Counted) => {
                let met = reached(ThingRef::of(mediator.old), &mut inside);
                leave(world, mediator);
                met
            }
            Ok(Admission::Arbitrated) => reached(ThingRef::of(mediator.old), &mut inside),
            Ok(Admission::To(object)) => reached(ThingRef::of(object), &mut inside),
            Ok(Admission::Doomed) => Outcome::Erred,
            Ok(Admission::Parked) => unreachable!("who parks has seen why"),
            Err(seen) => Outcome::Parked(seen),
        }
    }
}

pub(super) fn call(world: &World, name: Name) -> Outcome {
    call_with(world, name, false, || ())
}

/// A swap of a model: the old object is published under `name`, the new one is not.
#[derive(Clone, Copy)]
pub(super) struct Swap {
    pub(super) world: &'static World,
    pub(super) name: Name,
    pub(super) old: ThingRef,
    pub(super) new: ThingRef,
    pub(super) mediator: Sent<NonNull<Mediator>>,
}

pub(super) fn mediator(name: Name, old: ThingRef, new: Option<ThingRef>) -> Sent<NonNull<Mediator>> {
    let mediator = Mediator::new(name.id, old.object(), new.map(ThingRef::object), Phase::Forward);
    Sent(NonNull::from(Box::leak(Box::new(mediator))))
}

impl Swap {
    /// Runs a model with a prepared swap, in a world of one VP.
    pub(super) fn run(in_operations: bool, model: impl FnOnce(Swap)) {
        World::run(&[0], in_operations, |world| {
            let (old, name) = world.create(1, 1);
            let new = ThingRef::replacement(Name { serial: 2, ..name });
            let swap = Swap { world, name, old, new, mediator: mediator(name, old, Some(new)) };
            model(swap);
            // SAFETY: all threads are joined; from `Box::leak`.
            drop(unsafe { Box::from_raw(swap.mediator.get().as_ptr()) });
        });
    }

    fn this(&self) -> &'static Mediator {
        // SAFETY: freed at the end of the model.
        unsafe { &*self.mediator.get().as_ptr() }
    }

    fn attach(&self, reader: Option<Reader>) -> bool {
        // SAFETY: in an operation, or in a model that frees memory only at its end.
        self.world.in_operation(reader, || unsafe {
            self.enter_as_owner() && {
                let attached = attach(self.world, self.mediator.get()) == Attach::Attached;
                if !attached {
                    self.leave_as_owner(None);
                }
                attached
            }
        })
    }

    /// Enters the old object's gate as owner, unless the object is dead.
    pub(super) fn enter_as_owner(&self) -> bool {
        // SAFETY: in an operation, or in a model that frees memory only at its end.
        unsafe { self.old.object().as_ref() }.gate.enter_as_owner()
    }

    pub(super) fn leave_as_owner(&self, reader: Option<Reader>) {
        // SAFETY: the gate was entered as owner; called once.
        self.world.in_operation(reader, || unsafe { leave_as_owner(self.world, self.old.object()) });
    }

    /// Returns whether every call that began before the mediator was attached is over. A model cannot wait.
    fn forwarded(&self) -> bool {
        FORWARD.is_weak() || self.world.grace_period()
    }

    /// Tries to find the old object without calls.
    fn try_transfer(&self) -> bool {
        // SAFETY: the old object is valid: only this thread ends it.
        unsafe { self.this().try_transfer(self.world) }
    }

    /// Moves the state. No other thread may be in either object.
    fn transfer(&self) {
        // SAFETY: both are valid: only this thread ends them.
        unsafe {
            self.old.reps().into_iter().for_each(|rep| Body::transfer(rep));
            let _ = self.world.find_or_make(self.new, 0, 0);
            self.new.reps().into_iter().for_each(|rep| Body::transfer(rep));
        }
    }

    /// Blocks, and moves the state if that is possible at once. Returns whether it was.
    pub(super) fn block_and_transfer(&self) -> bool {
        self.this().block();
        let quiet = self.try_transfer();
        if quiet {
            self.transfer();
        }
        quiet
    }

    /// Completes or rolls back, and clears up, like `Run::decide` and `Run::clear_up`. Returns whether the
    /// new object serves, or served before it was destroyed.
    fn end(&self, moved: bool, reader: Option<Reader>) -> bool {
        let phase = if moved { Phase::Complete } else { Phase::RolledBack };
        // SAFETY: in an operation, or in a model that frees memory only at its end.
        let settled = self
            .world
            .in_operation(reader, || unsafe { settle(self.world, self.mediator.get(), phase, None) });
        self.clear_up(moved, settled, reader)
    }

    pub(super) fn clear_up(&self, moved: bool, settled: Settled, reader: Option<Reader>) -> bool {
        let moved = moved && settled != Settled::Doomed;
        self.leave_as_owner(reader);
        if !moved {
            self.discard();
        }
        moved
    }

    /// Ends the new object, which was never called.
    pub(super) fn discard(&self) {
        // SAFETY: the new object is valid, and was never called.
        let _ = unsafe { self.new.object().as_ref() }.gate.move_away();
        self.world.end(self.new);
    }

    /// Blocks, moves the state if calls allow it, and ends the swap.
    fn go(&self, reader: Option<Reader>) -> bool {
        let moved = self.forwarded() && self.block_and_transfer();
        self.end(moved, reader)
    }

    /// Called when all threads are joined. Calls reach the winner, which is then destroyed, and both objects
    /// have ended once.
    pub(super) fn conclude(&self, moved: bool) {
        let (winner, serial) = if moved { (self.new, 2) } else { (self.old, 1) };
        assert_eq!(call(self.world, self.name).serial(), serial);
        assert!(
            call(self.world, self.name).is_hit(),
            "an object that was swapped is not called by its entry"
        );
        assert!(self.world.destroy(None, winner));
        assert!(matches!(call(self.world, self.name), Outcome::Erred));
        self.over(moved);
    }

    /// Called when all threads are joined and the object was destroyed: both objects have ended once.
    pub(super) fn over(&self, moved: bool) {
        if moved {
            self.world.conclude_one(self.old);
        }
        self.world.conclude(2, if moved { self.new } else { self.old });
    }
}

/// Calls meet the mediator while the object is swapped. They are outside the object while its state moves,
/// and later calls find the state there.
fn counted(swap_on_main: bool) {
    Swap::run(false, |swap| {
        let Swap { world, name, .. } = swap;
        assert!(swap.attach(None));
        let (moved, leaked) = leak(squall_sys::sync::atomic::AtomicBool::new(false));
        let calls = move || {
            let mut last = 1;
            for _ in 0..2 {
                match call(world, name) {
                    Outcome::Reached { serial, .. } => {
                        assert!(serial >= last, "a thread's calls went back to the old object");
                        last = serial;
                    }
                    Outcome::Parked(_) => return,
                    Outcome::Erred => panic!("a call failed while the object was swapped"),
                }
            }
        };
        let go = move || {
            let done = swap.block_and_transfer();
            let _ = swap.end(done, None);
            moved.store(done, Ordering::Relaxed);
        };
        run_both(swap_on_main, go, calls);
        swap.conclude(moved.load(Ordering::Relaxed));
        // SAFETY: all threads are joined; from `Box::leak`.
        unsafe { free_leaked(leaked) };
    });
}

fn counted_swap_first() {
    counted(true);
}

fn counted_calls_first() {
    counted(false);
}

/// A thread that did not meet the mediator finds the new object in its slot.
fn found_in_the_slot() {
    Swap::run(false, |swap| {
        let Swap { world, name, .. } = swap;
        assert!(swap.attach(None));
        swap.this().block();
        assert!(swap.try_transfer());
        let caller = thread::spawn(move || {
            if let Outcome::Reached { serial, .. } = call(world, name) {
                assert_eq!(serial, 2);
            }
        });
        swap.transfer();
        assert!(swap.end(true, None));
        caller.join().unwrap();
        swap.conclude(true);
    });
}

/// The mediator is attached while calls run that it cannot count. The object that no longer serves is freed.
fn attach_against_calls(in_order: bool, cached: bool) {
    Swap::run(true, |swap| {
        let Swap { world, name, .. } = swap;
        let (caller, swapper) = (world.reader(), world.reader());
        if cached {
            world.in_operation(caller, || ignore_outcome(call(world, name)));
        }
        let (moved, leaked) = leak(squall_sys::sync::atomic::AtomicBool::new(false));
        let calls = move || {
            for _ in 0..2 {
                let met = world.in_operation(caller, || call(world, name));
                assert!(!matches!(met, Outcome::Erred));
            }
        };
        let go = move || {
            assert!(swap.attach(swapper));
            moved.store(swap.go(swapper), Ordering::Relaxed);
            let _ = world.reclaim(swap.old);
        };
        run_both(in_order, calls, go);
        let moved = moved.load(Ordering::Relaxed);
        world.in_operation(caller, || {
            assert_eq!(call(world, name).serial(), if moved { 2 } else { 1 });
        });
        let winner = if moved { swap.new } else { swap.old };
        assert!(world.destroy(swapper, winner));
        if moved && world.ended() == 0 {
            world.conclude_one(swap.old);
        }
        world.conclude(2, winner);
        // SAFETY: all threads are joined; from `Box::leak`.
        unsafe { free_leaked(leaked) };
    });
}

fn attach_in_operations() {
    attach_against_calls(true, true);
}

fn attach_first_in_operations() {
    attach_against_calls(false, true);
}

fn attach_against_misses_in_operations() {
    attach_against_calls(true, false);
}

/// A miss makes a representative while the mediator is attached. That representative must not be called past
/// the mediator.
fn late_maker_against_attach() {
    Swap::run(false, |swap| {
        let Swap { world, name, .. } = swap;
        let miss = thread::spawn(move || ignore_outcome(call(world, name)));
        assert!(swap.attach(None));
        miss.join().unwrap();
        assert!(!call(world, name).is_hit(), "a call reached a representative past the mediator");
        let _ = swap.end(false, None);
        swap.conclude(false);
    });
}

/// A counted call makes a representative while the swap is rolled back. That representative is active
/// afterwards.
fn late_maker_against_roll_back() {
    Swap::run(false, |swap| {
        let Swap { world, name, .. } = swap;
        assert!(swap.attach(None));
        let miss = thread::spawn(move || ignore_outcome(call(world, name)));
        let _ = swap.end(false, None);
        miss.join().unwrap();
        ignore_outcome(call(world, name));
        assert!(call(world, name).is_hit(), "a representative was never activated");
        swap.conclude(false);
    });
}

/// Takes a hold through the mediator, like `reach` in `call/blocking.rs`.
unsafe fn hold_through(swap: Swap) -> Option<NonNull<Header>> {
    let (world, this) = (swap.world, swap.this());
    // SAFETY: in a model that frees memory only at its end.
    unsafe {
        if !matches!(ask(world, this, || false), Ok(Admission::Counted)) {
            return None;
        }
        if COUNT_HOLDS.is_weak() {
            leave(world, this);
        }
        let held = header_of(world, swap.old);
        held.into_iter().for_each(|held| held.as_ref().hold());
        if !COUNT_HOLDS.is_weak() {
            leave(world, this);
        }
        held
    }
}

/// A call that may block takes its hold through the mediator, and uses it outside. The state moves when it is
/// over.
fn hold_against_transfer(before: bool) {
    Swap::run(false, |swap| {
        let world = swap.world;
        assert!(swap.attach(None));
        // SAFETY: memory is freed only at the end of the model.
        let held = if before { unsafe { hold_through(swap) } } else { None }.map(Sent);
        let caller = thread::spawn(move || {
            // SAFETY: memory is freed only at the end of the model.
            unsafe {
                if let Some(held) = held.map(Sent::get).or_else(|| hold_through(swap)) {
                    Body::visit(held);
                    release(world, held);
                }
            }
        });
        let moved = swap.block_and_transfer();
        let _ = swap.end(moved, None);
        caller.join().unwrap();
        swap.conclude(moved);
    });
}

fn hold_beside_transfer() {
    hold_against_transfer(false);
}

fn hold_before_transfer() {
    hold_against_transfer(true);
}

/// The last call with a hold wakes the swap, which sleeps.
fn last_hold_wakes() {
    Swap::run(false, |swap| {
        let world = swap.world;
        assert!(swap.attach(None));
        // SAFETY: memory is freed only at the end of the model.
        let held = unsafe { hold_through(swap) }.map(Sent);
        let caller = thread::spawn(move || {
            // SAFETY: held.
            held.into_iter().for_each(|held| unsafe { release(world, held.get()) });
        });
        swap.this().block();
        // SAFETY: memory is freed only at the end of the model.
        unsafe {
            loop {
                let seen = world.sleepers(0).prepare();
                swap.this().notify(!sites::LAST_COUNTED.is_weak());
                if swap.try_transfer() {
                    break;
                }
                world.sleepers(0).wait(seen, None);
            }
            swap.this().notify(false);
        }
        swap.transfer();
        let _ = swap.end(true, None);
        caller.join().unwrap();
        swap.conclude(true);
    });
}

/// A call that holds the object calls it again. The swap waits for it, so it passes, or is woken to do so.
fn holders_pass() {
    Swap::run(false, |swap| {
        let Swap { world, name, .. } = swap;
        assert!(swap.attach(None));
        let caller = thread::spawn(move || {
            // SAFETY: memory is freed only at the end of the model.
            let held = unsafe { hold_through(swap) }.map(Sent);
            if held.is_none() {
                return;
            }
            while let Outcome::Parked(seen) = call_with(world, name, true, || ()) {
                world.sleepers(0).wait(seen, None);
            }
            // SAFETY: held.
            held.into_iter().for_each(|held| unsafe { release(world, held.get()) });
        });
        swap.this().block();
        let moved = swap.try_transfer();
        if moved {
            swap.transfer();
        } else {
            // The swap has looked. The holder continues before the swap takes another step.
            caller.join().unwrap();
            let _ = swap.end(false, None);
            return swap.conclude(false);
        }
        let _ = swap.end(true, None);
        caller.join().unwrap();
        swap.conclude(true);
    });
}

/// The last counted call wakes the swap, which sleeps.
fn last_counted_wakes() {
    Swap::run(false, |swap| {
        let Swap { world, name, .. } = swap;
        assert!(swap.attach(None));
        let caller = thread::spawn(move || ignore_outcome(call(world, name)));
        swap.this().block();
        loop {
            let seen = world.sleepers(0).prepare();
            if swap.try_transfer() {
                break;
            }
            world.sleepers(0).wait(seen, None);
        }
        swap.transfer();
        let _ = swap.end(true, None);
        caller.join().unwrap();
        swap.conclude(true);
    });
}

/// A waiting call continues when the swap is decided.
fn parked_are_let_go(moved: bool) {
    Swap::run(false, |swap| {
        let Swap { world, name, .. } = swap;
        assert!(swap.attach(None));
        swap.this().block();
        assert!(swap.try_transfer());
        let caller = thread::spawn(move || {
            loop {
                match call(world, name) {
                    Outcome::Parked(seen) => world.sleepers(0).wait(seen, None),
                    other => return other.serial(),
                }
            }
        });
        if moved {
            swap.transfer();
        }
        let _ = swap.end(moved, None);
        assert_eq!(caller.join().unwrap(), if moved { 2 } else { 1 });
        swap.conclude(moved);
    });
}

fn parked_go_to_the_new_one() {
    parked_are_let_go(true);
}

fn parked_go_back() {
    parked_are_let_go(false);
}

/// A call in the object calls it again. The swap waits for it, so it does not wait.
fn nested_calls_pass() {
    Swap::run(false, |swap| {
        let Swap { world, name, .. } = swap;
        assert!(swap.attach(None));
        let caller = thread::spawn(move || {
            // A counted call passes (`passes` in `call/frames.rs`).
            ignore_outcome(call_with(world, name, false, || {
                let inner = call_with(world, name, true, || ());
                assert!(!inner.is_parked(), "a call waits for a swap that waits for it");
            }));
        });
        let moved = swap.block_and_transfer();
        let _ = swap.end(moved, None);
        caller.join().unwrap();
        swap.conclude(moved);
    });
}

/// The object is destroyed while it is swapped. Every call that begins afterwards fails, and both objects end
/// once.
fn destroy_against_swap(destroy_on_main: bool, attached: bool) {
    Swap::run(false, |swap| {
        let Swap { world, name, .. } = swap;
        if attached {
            assert!(swap.attach(None));
        }
        let (moved, leaked) = leak(squall_sys::sync::atomic::AtomicBool::new(false));
        let go = move || {
            if !attached && !swap.attach(None) {
                return swap.discard();
            }
            let done = swap.block_and_transfer();
            moved.store(swap.end(done, None), Ordering::Relaxed);
        };
        let destroy = move || {
            // SAFETY: memory is freed only at the end of the model.
            let killed = unsafe { kill(world, name.id) };
            assert_ne!(killed, Killed::Before);
            world.continue_kill(killed);
            assert!(matches!(call(world, name), Outcome::Erred), "a call reached the destroyed object");
        };
        run_both(destroy_on_main, destroy, go);
        assert!(matches!(call(world, name), Outcome::Erred), "a call reached the destroyed object");
        swap.over(moved.load(Ordering::Relaxed));
        // SAFETY: all threads are joined; from `Box::leak`.
        unsafe { free_leaked(leaked) };
    });
}

fn destroy_first() {
    destroy_against_swap(true, true);
}

fn destroy_last() {
    destroy_against_swap(false, true);
}

fn destroy_against_attach() {
    destroy_against_swap(true, false);
}

fn attach_against_destroy() {
    destroy_against_swap(false, false);
}

/// A swap is settled while another swap of the same object begins. No representative is called past the
/// second mediator.
fn attach_against_settle() {
    Swap::run(false, |swap| {
        let Swap { world, name, old, .. } = swap;
        assert!(swap.attach(None));
        ignore_outcome(call(world, name));
        let second = Swap { mediator: mediator(name, old, Some(swap.new)), ..swap };
        let first = thread::spawn(move || {
            // SAFETY: memory is freed only at the end of the model.
            let settled = unsafe { settle(world, swap.mediator.get(), Phase::RolledBack, None) };
            assert_eq!(settled, Settled::Decided { attached: true });
            swap.leave_as_owner(None);
        });
        let attached = second.attach(None);
        first.join().unwrap();
        if attached {
            assert!(!call(world, name).is_hit(), "a call reached a representative past the mediator");
            let moved = second.block_and_transfer();
            assert!(second.end(moved, None));
            swap.conclude(true);
        } else {
            swap.discard();
            swap.conclude(false);
        }
        // SAFETY: all threads are joined; from `Box::leak`.
        drop(unsafe { Box::from_raw(second.mediator.get().as_ptr()) });
    });
}

/// Two swaps of one object run: one of them finds the other's mediator, and changes no slot.
fn two_swaps() {
    Swap::run(false, |swap| {
        let second = Swap { mediator: mediator(swap.name, swap.old, Some(swap.new)), ..swap };
        let other = thread::spawn(move || second.attach(None));
        let mine = swap.attach(None);
        let others = other.join().unwrap();
        assert!(mine != others, "two mediators were attached to one object");
        let winner = if mine { swap } else { second };
        assert!(winner.block_and_transfer());
        let _ = winner.end(true, None);
        swap.conclude(true);
        // SAFETY: all threads are joined; from `Box::leak`.
        drop(unsafe { Box::from_raw(second.mediator.get().as_ptr()) });
    });
}

use squall_sys::models;
models!(
    counted_swap_first,
    counted_calls_first,
    found_in_the_slot,
    attach_in_operations,
    attach_first_in_operations,
    attach_against_misses_in_operations,
    late_maker_against_attach,
    late_maker_against_roll_back,
    hold_beside_transfer,
    hold_before_transfer,
    last_hold_wakes,
    holders_pass,
    last_counted_wakes,
    parked_go_to_the_new_one,
    parked_go_back,
    nested_calls_pass,
    destroy_first,
    destroy_last,
    destroy_against_attach,
    attach_against_destroy,
    two_swaps,
    attach_against_settle,
);

twins! {
    twin_uncount: sites::UNCOUNT, breaks swaps::counted_swap_first,
    twin_transfer: sites::TRANSFER, breaks swaps::counted_swap_first,
    twin_decide: sites::DECIDE, breaks swaps::counted_calls_first,
    twin_admit: sites::ADMIT, breaks swaps::counted_calls_first,
    twin_forward: FORWARD, breaks swaps::attach_in_operations,
    twin_suspend_headers: sites::SUSPEND_HEADERS, breaks swaps::attach_in_operations,
    twin_move_away: sites::MOVE_AWAY, breaks swaps::attach_in_operations,
    twin_suspend: sites::SUSPEND, breaks swaps::late_maker_against_attach,
    twin_confirm_suspended: sites::CONFIRM, breaks swaps::late_maker_against_attach,
    twin_resume: sites::RESUME, breaks swaps::late_maker_against_roll_back,
    twin_confirm_resumed: sites::CONFIRM, breaks swaps::late_maker_against_roll_back,
    twin_holds_of_swap: sites::HOLDS_OF_SWAP, breaks swaps::hold_beside_transfer,
    twin_count_holds: COUNT_HOLDS, breaks swaps::hold_beside_transfer,
    twin_look_holds_of_swap: sites::LOOK_HOLDS, breaks swaps::hold_before_transfer,
    twin_release_of_swap: sites::RELEASE, breaks swaps::hold_before_transfer,
    twin_last_hold: sites::LAST_COUNTED, breaks swaps::last_hold_wakes,
    twin_back_to_block: sites::BACK_TO_BLOCK, breaks swaps::holders_pass,
    twin_last_counted: sites::LAST_COUNTED, breaks swaps::last_counted_wakes,
    twin_release_parked: sites::RELEASE_PARKED, breaks swaps::parked_go_to_the_new_one,
    twin_release_parked_back: sites::RELEASE_PARKED, breaks swaps::parked_go_back,
    twin_first_slot_last: sites::FIRST_SLOT_LAST, breaks swaps::attach_against_settle,
    twin_pass: sites::PASS, breaks swaps::nested_calls_pass,
}
