//! Models of arbitrations against calls, destruction and swaps; the steps are those of `swap/arbiter.rs`.

use squall_sys::sync::atomic::{AtomicBool, Ordering};
use squall_sys::sync::thread;
use std::ptr::NonNull;

use super::swaps::{Outcome, Swap, call, mediator};
use super::world::{Name, Sent, ThingRef, free_leaked, ignore_outcome, leak, run_both};
use super::{models, twins};
use crate::protocol::mediation::{Attach, Settled, attach, detach, relieve, settle};
use crate::protocol::mediator::{Mediator, Phase};
#[cfg(loom)]
use crate::protocol::sites;
use crate::protocol::teardown::kill;

/// An arbitration comes and goes while calls are made and the object is destroyed.
fn arbitration(destroy: bool) {
    Swap::run(false, |swap| {
        let Swap { world, name, old, .. } = swap;
        let arbiter = mediator(name, old, None);
        let come = move || {
            assert!(swap.enter_as_owner());
            // SAFETY: nothing is freed before all is over.
            assert_eq!(unsafe { attach(world, arbiter.get()) }, Attach::Attached);
            swap.leave_as_owner(None);
        };
        // SAFETY: as above.
        let go = move || _ = unsafe { detach(world, arbiter.get()) };
        let end = move || {
            // SAFETY: as above.
            let killed = unsafe { kill(world, name.id) };
            world.continue_kill(killed);
            assert!(matches!(call(world, name), Outcome::Erred), "after the object was destroyed");
        };
        // Before there are three threads.
        if destroy {
            come();
        }
        let caller = thread::spawn(move || {
            // Once where there is a third thread.
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

/// An object that is arbitrated is swapped, and arbitrated afterwards, while it is called, destroyed, or its arbitration taken
/// away.
fn swap_of_an_arbitrated(destroy: bool) {
    Swap::run(false, |swap| {
        let Swap { world, name, old, new, .. } = swap;
        let (before, after) = (mediator(name, old, None), arbitrating(name, new));
        let back = arbitrating(name, old);
        // SAFETY: nothing is freed before all is over.
        assert_eq!(unsafe { attach(world, before.get()) }, Attach::Attached);
        let (moved, leaked) = leak(AtomicBool::new(false));
        let go = move || {
            let relieved = swap.enter_as_owner() && {
                // SAFETY: as above.
                let put = unsafe { relieve(world, before.get(), swap.mediator.get()) };
                if put != Attach::Attached {
                    swap.leave_as_owner(None);
                }
                put == Attach::Attached
            };
            if !relieved {
                return swap.discard();
            }
            // Calls that the first mediator let pass are in no operation here: there are none where the other thread
            // destroys.
            let done = destroy && swap.block_and_transfer();
            let phase = if done { Phase::Complete } else { Phase::RolledBack };
            let next = if done { after } else { back };
            // SAFETY: as above.
            let settled = unsafe { settle(world, swap.mediator.get(), phase, Some(next.get())) };
            moved.store(swap.clear_up(done, settled, None), Ordering::Relaxed);
            if !done && settled != Settled::Doomed {
                // SAFETY: as above.
                let detached = unsafe { detach(world, next.get()) };
                assert!(detached || destroy);
            }
        };
        let other = move || {
            if !destroy {
                return ignore_outcome(call(world, name));
            }
            // SAFETY: as above.
            world.continue_kill(unsafe { kill(world, name.id) });
            assert!(matches!(call(world, name), Outcome::Erred), "after the object was destroyed");
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

/// An arbitration is taken away while a swap of its object begins: one of the two has it.
fn relieve_against_detach() {
    Swap::run(false, |swap| {
        let Swap { world, name, old, .. } = swap;
        let arbiter = mediator(name, old, None);
        ignore_outcome(call(world, name));
        // SAFETY: nothing is freed before all is over.
        assert_eq!(unsafe { attach(world, arbiter.get()) }, Attach::Attached);
        // SAFETY: as above.
        let take_away = thread::spawn(move || unsafe { detach(world, arbiter.get()) });
        // SAFETY: as above.
        let relieved = swap.enter_as_owner()
            && unsafe { relieve(world, arbiter.get(), swap.mediator.get()) } == Attach::Attached;
        let taken_away = take_away.join().unwrap();
        assert!(relieved != taken_away, "two owners of one mediator, or none");
        if relieved {
            assert!(!call(world, name).is_hit(), "a representative answers behind a mediator's back");
            assert!(swap.block_and_transfer());
            // SAFETY: as above.
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

/// A mediator that stands in its last phase from the start, as a swap puts it before what serves then.
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
