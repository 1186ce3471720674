//! Models of arbitrations against calls, destruction and swaps. The steps are those of `swap/arbiter.rs`.

use squall_sys::sync::atomic::{AtomicBool, Ordering};
use squall_sys::sync::thread;
use std::ptr::NonNull;

use super::swaps::{Outcome, Swap, call, mediator};
use super::twins;
use super::world::{Name, Sent, ThingRef, free_leaked, ignore_outcome, leak, run_both};
use crate::protocol::mediation::{Attach, Settled, attach, detach, relieve, settle};
use crate::protocol::mediator::{Mediator, Phase};
#[cfg(loom)]
use crate::protocol::sites;
use crate::protocol::teardown::kill;

/// An arbitration is attached and detached while calls run and the object is destroyed.
fn arbitration(destroy: bool) {
    Swap::run(false, |swap| {
        let Swap { world, name, old, .. } = swap;
        let arbiter = mediator(name, old, None);
        let come = move || {
            assert!(swap.enter_as_owner());
            // SAFETY: memory is freed only at the end of the model.
            assert_eq!(unsafe { attach(world, arbiter.get()) }, Attach::Attached);
            swap.leave_as_owner(None);
        };
        // SAFETY: memory is freed only at the end of the model.
        let go = move || _ = unsafe { detach(world, arbiter.get()) };
        let end = move || {
            // SAFETY: memory is freed only at the end of the model.
            let killed = unsafe { kill(world, name.id) };
            world.continue_kill(killed);
            assert!(matches!(call(world, name), Outcome::Erred), "a call reached the destroyed object");
        };
        // Attach before there are three threads.
        if destroy {
            come();
        }
        let caller = thread::spawn(move || {
            // One call if there is a third thread.
            for _ in 0..if destroy { 1 } else { 2 } {
                let met = call(world, name);
                assert!(destroy || met.serial() == 1);
            }
        });
        if destroy {
            run_both(true, go, end);
        } else {
            come();
            go();
        }
        caller.join().unwrap();
        swap.discard();
        if destroy {
            swap.over(false);
        } else {
            swap.conclude(false);
        }
        // SAFETY: all threads are joined; from `Box::leak`.
        drop(unsafe { Box::from_raw(arbiter.get().as_ptr()) });
    });
}

fn arbitration_against_calls() {
    arbitration(false);
}

fn arbitration_against_destroy() {
    arbitration(true);
}

/// An arbitrated object is swapped, and arbitrated afterwards. Meanwhile it is called, or destroyed, or its
/// arbitration is detached.
fn swap_of_an_arbitrated(destroy: bool) {
    Swap::run(false, |swap| {
        let Swap { world, name, old, new, .. } = swap;
        let (before, after) = (mediator(name, old, None), arbitrating(name, new));
        let back = arbitrating(name, old);
        // SAFETY: memory is freed only at the end of the model.
        assert_eq!(unsafe { attach(world, before.get()) }, Attach::Attached);
        let (moved, leaked) = leak(AtomicBool::new(false));
        let go = move || {
            let relieved = swap.enter_as_owner() && {
                // SAFETY: memory is freed only at the end of the model.
                let put = unsafe { relieve(world, before.get(), swap.mediator.get()) };
                if put != Attach::Attached {
                    swap.leave_as_owner(None);
                }
                put == Attach::Attached
            };
            if !relieved {
                return swap.discard();
            }
            // Calls that the first mediator admitted are in no operation here. There are no such calls if the
            // other thread destroys.
            let done = destroy && swap.block_and_transfer();
            let phase = if done { Phase::Complete } else { Phase::RolledBack };
            let next = if done { after } else { back };
            // SAFETY: memory is freed only at the end of the model.
            let settled = unsafe { settle(world, swap.mediator.get(), phase, Some(next.get())) };
            moved.store(swap.clear_up(done, settled, None), Ordering::Relaxed);
            if !done && settled != Settled::Doomed {
                // SAFETY: memory is freed only at the end of the model.
                let detached = unsafe { detach(world, next.get()) };
                assert!(detached || destroy);
            }
        };
        let other = move || {
            if !destroy {
                return ignore_outcome(call(world, name));
            }
            // SAFETY: memory is freed only at the end of the model.
            world.continue_kill(unsafe { kill(world, name.id) });
            assert!(matches!(call(world, name), Outcome::Erred), "a call reached the destroyed object");
        };
        run_both(true, go, other);
        if destroy {
            assert!(matches!(call(world, name), Outcome::Erred));
            swap.over(moved.load(Ordering::Relaxed));
        } else {
            swap.conclude(false);
        }
        // SAFETY: all threads are joined; from `Box::leak`.
        unsafe {
            [before, after, back]
                .into_iter()
                .for_each(|mediator| drop(Box::from_raw(mediator.get().as_ptr())));
            free_leaked(leaked);
        }
    });
}

/// An arbitration is detached while a swap of its object begins: one of the two threads gets the mediator.
fn relieve_against_detach() {
    Swap::run(false, |swap| {
        let Swap { world, name, old, .. } = swap;
        let arbiter = mediator(name, old, None);
        ignore_outcome(call(world, name));
        // SAFETY: memory is freed only at the end of the model.
        assert_eq!(unsafe { attach(world, arbiter.get()) }, Attach::Attached);
        // SAFETY: memory is freed only at the end of the model.
        let take_away = thread::spawn(move || unsafe { detach(world, arbiter.get()) });
        // SAFETY: memory is freed only at the end of the model.
        let relieved = swap.enter_as_owner()
            && unsafe { relieve(world, arbiter.get(), swap.mediator.get()) } == Attach::Attached;
        let taken_away = take_away.join().unwrap();
        assert!(relieved != taken_away, "a mediator must have exactly one owner");
        if relieved {
            assert!(!call(world, name).is_hit(), "a call reached a representative past the mediator");
            assert!(swap.block_and_transfer());
            // SAFETY: memory is freed only at the end of the model.
            let settled = unsafe { settle(world, swap.mediator.get(), Phase::Complete, None) };
            assert!(swap.clear_up(true, settled, None));
        } else {
            swap.leave_as_owner(None);
            swap.discard();
        }
        swap.conclude(relieved);
        // SAFETY: all threads are joined; from `Box::leak`.
        drop(unsafe { Box::from_raw(arbiter.get().as_ptr()) });
    });
}

/// Creates a mediator in the phase `Arbitrate`, as a swap puts it in front of the winner.
fn arbitrating(name: Name, thing: ThingRef) -> Sent<NonNull<Mediator>> {
    let mediator = Mediator::new(name.id, thing.object(), None, Phase::Arbitrate);
    Sent(NonNull::from(Box::leak(Box::new(mediator))))
}

fn swap_of_an_arbitrated_against_calls() {
    swap_of_an_arbitrated(false);
}

fn swap_of_an_arbitrated_against_destroy() {
    swap_of_an_arbitrated(true);
}

use squall_sys::models;
models!(
    arbitration_against_calls,
    arbitration_against_destroy,
    swap_of_an_arbitrated_against_calls,
    swap_of_an_arbitrated_against_destroy,
    relieve_against_detach,
);

twins! {
    twin_ask_before_resume: sites::ASK_BEFORE_RESUME, breaks arbiters::arbitration_against_destroy,
}
