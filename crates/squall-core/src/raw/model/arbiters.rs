//! Models of arbitrations against calls, destruction and swaps; the steps are those of `swap/arbiter.rs`.

use squall_sync::atomic::{AtomicBool, Ordering};
use squall_sync::thread;

use super::swaps::{Met, Swap, call, mediator};
use super::world::{ThingRef, beside, ignore_met, lend, take_back};
use super::{models, twins};
use crate::raw::kill::{Killed, kill};
use crate::raw::mediator::{Phase, attach, install, relieve, settle};
use crate::raw::sites;

/// An arbitration comes and goes while calls are made and the object is destroyed.
fn arbitration(destroy: bool) {
    Swap::run(false, |swap| {
        let Swap { world, name, old, .. } = swap;
        let arbiter = mediator(name, old, None);
        let caller = thread::spawn(move || {
            // Once where there is a third thread.
            for _ in 0..if destroy { 1 } else { 2 } {
                let met = call(world, name);
                assert!(destroy || met.serial() == 1);
            }
        });
        // SAFETY: nothing is freed before all is over.
        let detach = move || unsafe {
            if attach(world, arbiter.get()) {
                install(world, arbiter.get(), old.object());
            }
        };
        let end = move || {
            // SAFETY: as above.
            let killed = unsafe { kill(world, name.id) };
            if let Killed::Mediated(mediator) = killed {
                // As `end_arbitrated`.
                // SAFETY: as above.
                swap.kill(unsafe { ThingRef::of(mediator.as_ref().old) }, None);
            }
            world.go_on(killed);
            assert!(matches!(call(world, name), Met::Erred), "after the object was destroyed");
        };
        if destroy {
            beside(true, detach, end);
        } else {
            detach();
        }
        caller.join().unwrap();
        // SAFETY: nobody has called it.
        let _ = unsafe { swap.new.object().as_ref() }.gate.move_away();
        world.end(swap.new);
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

/// An object that is arbitrated is swapped, and arbitrated afterwards, while it is called, or destroyed.
fn swap_of_an_arbitrated(destroy: bool) {
    Swap::run(false, |swap| {
        let Swap { world, name, old, new, .. } = swap;
        let (before, after) = (mediator(name, old, None), mediator(name, new, None));
        let back = mediator(name, old, None);
        // SAFETY: nothing is freed before all is over.
        assert!(unsafe { attach(world, before.get()) });
        let (moved, lent) = lend(AtomicBool::new(false));
        let go = move || {
            // SAFETY: as above.
            if !unsafe { relieve(world, before.get(), swap.mediator.get()) } {
                // SAFETY: nobody has called it.
                let _ = unsafe { new.object().as_ref() }.gate.move_away();
                return world.end(new);
            }
            // Calls that the first mediator let pass are in no operation here: there are none when the other thread
            // destroys.
            let done = destroy && swap.block_and_transfer();
            let phase = if done { Phase::Complete } else { Phase::RolledBack };
            let next = if done { after } else { back };
            // SAFETY: as above.
            let there = unsafe { settle(world, swap.mediator.get(), phase, Some(next.get())) };
            let _ = swap.clear_up(done, there, None);
            if !done {
                // SAFETY: as above; from `Box::leak`.
                unsafe {
                    if there {
                        assert!(install(world, next.get(), old.object()) || destroy);
                    }
                }
            }
            moved.store(done, Ordering::Relaxed);
        };
        let other = move || {
            if !destroy {
                return ignore_met(call(world, name));
            }
            // SAFETY: as above.
            let killed = unsafe { kill(world, name.id) };
            if let Killed::Mediated(found) = killed {
                // SAFETY: as above.
                let found = unsafe { found.as_ref() };
                if found.phase() == Phase::Arbitrate {
                    // SAFETY: as above.
                    swap.kill(unsafe { ThingRef::of(found.old) }, None);
                }
            }
            world.go_on(killed);
            assert!(matches!(call(world, name), Met::Erred), "after the object was destroyed");
        };
        beside(true, go, other);
        let moved = moved.load(Ordering::Relaxed);
        if destroy {
            assert!(matches!(call(world, name), Met::Erred));
            swap.over(moved);
        } else {
            swap.conclude(false);
        }
        // SAFETY: all threads are joined; from `Box::leak`.
        unsafe {
            [before, after, back].map(|mediator| drop(Box::from_raw(mediator.get().as_ptr())));
            take_back(lent);
        }
    });
}

fn swap_of_an_arbitrated_against_calls() {
    swap_of_an_arbitrated(false);
}

fn swap_of_an_arbitrated_against_destroy() {
    swap_of_an_arbitrated(true);
}

models!(
    arbitration_against_calls,
    arbitration_against_destroy,
    swap_of_an_arbitrated_against_calls,
    swap_of_an_arbitrated_against_destroy,
);

twins! {
    twin_ask_before_resume: sites::ASK_BEFORE_RESUME, breaks arbiters::arbitration_against_destroy,
}
