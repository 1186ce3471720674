//! Hot-swap, phase by phase: another implementation takes the place of a live object. Failures lead back.

use crate::common::drops_panic;
use crate::common::swaps::{
    Caller, Hits, Inside, LONG, Life, Many, One, Planned, Running, Step, both_kinds, end, gate, info, many,
    new_many, new_one, one, patient, payload_of, text_of, wait_until, wait_until_parked,
};
use squall::rcu;
use squall::swap::{Cancel, Replacement, Swap, SwapFailure, SwapOutcome, SwapPhase, arbitrate};
use squall::{CallError, CallErrorKind, ClusterSize, Handle, ObjectState, Owned, Root, WellKnown};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

type Make = fn(&'static str, &Life) -> Replacement<dyn Hits>;

/// Makes a replacement of each kind.
const NEW: [Make; 2] = [new_one, new_many];

#[test]
fn co_33_an_object_is_replaced_with_its_state_and_its_clients_see_no_difference() {
    let (first, second, third) = (Life::default(), Life::default(), Life::default());
    let hits: Owned<dyn Hits> = squall::swappable(one("first", &first));
    let handle = hits.handle();
    handle.add(5);
    let report = squall::swap::swap(handle, new_many("second", &second)).unwrap();
    assert_eq!((report.parts, report.bytes, report.format), (1, 8, Some("u64")));
    assert_eq!((handle.name(), handle.total()), ("second", 5));
    handle.add(1);
    assert_eq!(handle.total(), 6);
    assert_eq!(info(handle).class, std::any::type_name::<Many>());
    squall::swap::swap(handle, new_one("third", &third)).unwrap();
    assert_eq!((handle.name(), handle.total(), handle.carried().unwrap()), ("third", 6, 6));
    assert_eq!(info(handle).class, std::any::type_name::<One>());
    end(hits);
    assert_eq!(handle.try_total().unwrap_err().reason(), CallErrorKind::Destroyed);
    for (life, moved) in [(first, 1), (second, 1), (third, 0)] {
        life.wait_for_drops(life.count(Step::Make));
        life.assert_over(moved);
    }
}

#[test]
fn co_33_an_unused_replacement_is_dropped_once() {
    for new in NEW {
        let life = Life::default();
        drop(new("new", &life));
        life.assert_over(0);
    }
    let life = Life::default();
    let hits = new_one("old", &life).create().unwrap();
    hits.add(3);
    assert_eq!((hits.total(), hits.name()), (3, "old"));
    squall::swap::swap(hits.handle(), new_many("new", &Life::default())).unwrap();
    assert_eq!((hits.total(), hits.name()), (3, "new"));
    end(hits);
    life.assert_over(1);
}

// --- the phases ---

#[test]
fn co_36_in_forward_calls_pass_to_the_old_object_and_are_counted() {
    for new in NEW {
        for (hits, old) in both_kinds() {
            let (handle, life) = (hits.handle(), Life::default());
            handle.add(1);
            // The call began before the swap, and the swap waits for it.
            let inside = Inside::operation(handle);
            let swap = Running::start(handle, patient(handle), new("new", &life));
            (0..5).for_each(|_| assert_eq!(handle.name(), "old"));
            handle.add(2);
            // Nested calls are counted. A call that panics is counted, and has left the object afterwards.
            handle.within(&mut || handle.add(3));
            handle.holding(&mut || assert_eq!(handle.name(), "old"));
            assert!(payload_of(|| handle.panics()).is::<Planned>());
            assert_eq!(handle.carried().unwrap(), 6);
            assert!(!swap.is_over());
            inside.leave();
            let report = swap.end().unwrap();
            assert_eq!((report.forwarded, report.blocked), (5 + 1 + 2 + 2 + 1 + 1, 0));
            assert_eq!((handle.name(), handle.total()), ("new", 6));
            end(hits);
            old.assert_over(1);
            life.assert_over(0);
        }
    }
}

/// Keeps a swap in `Block` by a thread in the old object. The thread makes one more call before it leaves,
/// while another thread waits.
fn blocks(hits: Owned<dyn Hits>, new: Replacement<dyn Hits>) {
    let handle = hits.handle();
    handle.add(1);
    let (tell, told) = mpsc::channel();
    let inside = Inside::start(move |gate| {
        handle.holding(&mut || {
            gate.stop();
            // The swap waits for this thread, so its calls pass.
            handle.add(1);
            handle.holding(&mut || tell.send(handle.name()).unwrap());
        });
    });
    let swap = Running::start(handle, patient(handle), new);
    let caller = Caller::of(handle);
    wait_until_parked(handle, 1);
    assert!(!swap.is_over());
    inside.leave();
    assert_eq!(told.recv().unwrap(), "old");
    let report = swap.end().unwrap();
    assert_eq!(caller.answer().unwrap(), "new");
    assert_eq!((handle.name(), handle.total()), ("new", 2));
    assert_eq!(report.pauses.len() as u64, report.blocked);
    assert_eq!(report.pauses.iter().max().copied().unwrap_or_default(), report.longest_pause);
    assert!(report.longest_pause <= report.total());
    assert_eq!(report.blocked, 1);
    end(hits);
}

#[test]
fn co_38_in_block_new_calls_wait_and_who_is_in_the_object_finishes_there() {
    for new in NEW {
        for (hits, old) in both_kinds() {
            let life = Life::default();
            blocks(hits, new("new", &life));
            old.assert_over(1);
            life.assert_over(0);
        }
    }
}

#[test]
fn co_37_who_is_in_a_call_that_another_swap_waits_for_passes_in_block() {
    let ([(hits, _), _], [_, (other, _)]) = (both_kinds(), both_kinds());
    let (handle, other_co) = (hits.handle(), other.handle());
    [handle, other_co].iter().for_each(|handle| handle.add(1));
    // One thread keeps the first object in `Block`. A second thread is in the second object, which is
    // swapped too. It calls the first object, and keeps it in `Block` when the first thread is gone.
    let held = Inside::hold(handle);
    let (counted, tell_gate) = (gate(), gate());
    let (stops, goes) = (counted.clone(), tell_gate.clone());
    let (tell, told) = mpsc::channel();
    let through = Inside::start(move |gate| {
        other_co.holding(&mut || {
            gate.stop();
            handle.within(&mut || {
                stops.stop();
                goes.stop();
                // The thread is still inside its call.
                tell.send(handle.name()).unwrap();
            });
        });
    });
    let swap = Running::start(handle, patient(handle), new_many("new", &Life::default()));
    let other_swap = Running::start(other_co, patient(other_co), new_one("new", &Life::default()));
    let caller = Caller::of(handle);
    wait_until_parked(handle, 1);
    through.gate().open();
    counted.wait();
    counted.open();
    held.leave();
    assert!(!swap.is_over() && !other_swap.is_over());
    tell_gate.open();
    assert_eq!(told.recv().unwrap(), "old");
    through.leave();
    other_swap.end().unwrap();
    let report = swap.end().unwrap();
    assert_eq!(caller.answer().unwrap(), "new");
    [hits, other].into_iter().for_each(end);
    // The two calls that passed are counted.
    assert!(report.forwarded >= 2);
    assert_eq!(report.blocked, 1);
}

#[test]
fn co_39_in_transfer_everybody_waits_and_goes_on_in_the_new_object() {
    for new in NEW {
        for (hits, old) in both_kinds() {
            let handle = hits.handle();
            handle.add(4);
            // A thread inside another swapped object waits here too.
            let other: Owned<dyn Hits> = squall::swappable(one("old", &Life::default()));
            let other_co = other.handle();
            let (tell, told) = mpsc::channel();
            let through = Inside::start(move |gate| {
                other_co.holding(&mut || {
                    gate.stop();
                    handle.add(1);
                    tell.send(handle.name()).unwrap();
                });
            });
            let other_swap = Running::start(other_co, patient(other_co), new_one("new", &Life::default()));
            let exports = gate();
            old.on(Step::Export, exports.stops());
            let life = Life::default();
            let swap = Running::start(handle, patient(handle), new("new", &life));
            exports.wait();
            let callers: Vec<_> = (0..3).map(|_| Caller::of(handle)).collect();
            through.gate().open();
            wait_until_parked(handle, 4);
            assert_eq!(info(handle).state, ObjectState::Swapping);
            exports.open();
            let report = swap.end().unwrap();
            assert!(callers.into_iter().all(|caller| caller.answer().unwrap() == "new"));
            assert_eq!(told.recv().unwrap(), "new");
            through.leave();
            other_swap.end().unwrap();
            assert_eq!((handle.total(), report.forwarded, report.blocked), (5, 0, 4));
            [hits, other].into_iter().for_each(end);
            old.assert_over(1);
            life.assert_over(0);
        }
    }
}

#[test]
fn co_40_a_call_from_a_transfer_fails_instead_of_waiting() {
    for ignored in [false, true] {
        for (hits, old) in both_kinds() {
            let handle = hits.handle();
            handle.add(4);
            // The object itself, and one that another swap keeps in its transfer.
            let kept = Life::default();
            let exports = gate();
            kept.on(Step::Export, exports.stops());
            let other: Owned<dyn Hits> = squall::swappable(one("old", &kept));
            let other_co = other.handle();
            let other_swap = Running::start(other_co, patient(other_co), new_one("new", &Life::default()));
            exports.wait();
            for called in [handle, other_co] {
                let life = Life::default();
                life.on(Step::Import, move || {
                    let error = called.carried().unwrap_err();
                    assert_eq!((error.reason(), error.id()), (CallErrorKind::InTransfer, Handle::id(called)));
                    if ignored { Ok(()) } else { Err(error.into()) }
                });
                let error = patient(handle).run(new_one("new", &life)).unwrap_err();
                assert_eq!(error.failure(), SwapFailure::TransferFailed);
                assert!(error.to_string().ends_with("would have waited for a swap"), "{error}");
                life.assert_over(0);
                assert_eq!((handle.name(), handle.total()), ("old", 4));
            }
            // Objects without a swap may be called, created and destroyed during a transfer.
            let life = Life::default();
            life.on(Step::Import, || {
                let third: Owned<dyn Hits> = many("third", &Life::default()).create(ClusterSize::Machine);
                third.add(1);
                assert_eq!(third.total(), 1);
                Ok(())
            });
            patient(handle).run(new_many("new", &life)).unwrap();
            exports.open();
            other_swap.end().unwrap();
            [hits, other].into_iter().for_each(end);
            old.assert_over(1);
        }
    }
}

// --- the ways back ---

/// Asserts that a failed swap left the old object serving with state `total`, and dropped the new one. Then
/// swaps again.
#[track_caller]
fn assert_serves_on(hits: Owned<dyn Hits>, old: &Life, new: &Life, total: u64) {
    let handle = hits.handle();
    assert_eq!((handle.name(), handle.total(), info(handle).state), ("old", total, ObjectState::Live));
    assert_eq!((old.count(Step::Drop), old.count(Step::Moved)), (0, 0));
    new.wait_for_drops(new.count(Step::Make));
    new.assert_over(0);
    let next = Life::default();
    patient(handle).run(new_one("next", &next)).unwrap();
    assert_eq!((handle.name(), handle.total()), ("next", total));
    end(hits);
    old.wait_for_drops(old.count(Step::Make));
    old.assert_over(1);
    next.assert_over(0);
}

#[test]
fn co_39_a_failed_transfer_leaves_the_old_object_in_place() {
    /// The failing step, and true if it is a step of the old object.
    const FAILS: [(bool, Step); 3] = [(true, Step::Export), (false, Step::Import), (false, Step::Make)];
    for (of_old, step) in FAILS {
        for panics in [false, true] {
            // Only roots make representatives during a transfer, and `make_rep` can fail only by a panic.
            let kinds = if step == Step::Make { &NEW[1..] } else { &NEW[..] };
            for new in kinds.iter().filter(|_| panics || step != Step::Make) {
                for (hits, old) in both_kinds() {
                    let handle = hits.handle();
                    handle.add(4);
                    let (life, there) = (Life::default(), gate());
                    let stops = there.clone();
                    let failing = if of_old { &old } else { &life };
                    failing.on(step, move || {
                        stops.stop();
                        if panics { std::panic::panic_any("cracked") } else { Err("bent".into()) }
                    });
                    let swap = Running::start(handle, patient(handle), new("new", &life));
                    there.wait();
                    let caller = Caller::of(handle);
                    wait_until_parked(handle, 1);
                    there.open();
                    let error = swap.end().unwrap_err();
                    assert_eq!(caller.end().unwrap(), "old");
                    let (failure, why) = match panics {
                        true => (SwapFailure::TransferPanicked, "moving the state panicked: cracked"),
                        false => (SwapFailure::TransferFailed, "the state could not be moved: bent"),
                    };
                    assert_eq!(error.failure(), failure);
                    let report = error.report().unwrap();
                    let text = format!(
                        "swap of Hits#{} from {} to {}: {why}",
                        co_id(handle),
                        report.from,
                        report.to
                    );
                    assert_eq!(error.to_string(), text);
                    assert_eq!(report.outcome, SwapOutcome::RolledBack(failure));
                    if of_old {
                        old.forget_hooks();
                    }
                    assert_serves_on(hits, &old, &life, 4);
                }
            }
        }
    }
}

fn co_id(handle: Handle<dyn Hits>) -> squall::Id {
    Handle::id(handle)
}

/// The event that ends a swap early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// A deadline, this long after the start.
    Deadline(Duration),
    Cancel,
}

/// Ends a swap early, in this phase. Returns the phase in which it ended: an earlier one if the deadline
/// passed too soon.
fn ends_in(phase: SwapPhase, by: By, kind: usize) -> SwapPhase {
    let (hits, old) = both_kinds().into_iter().nth(kind).unwrap();
    let (handle, life, cancel) = (hits.handle(), Life::default(), Cancel::new());
    handle.add(4);
    let inside = match phase {
        SwapPhase::Forward => Some(Inside::operation(handle)),
        SwapPhase::Block => Some(Inside::hold(handle)),
        _ => None,
    };
    let (swap, deadline) = match by {
        By::Deadline(limit) => {
            let deadline = Instant::now() + limit;
            (patient(handle).deadline(deadline), Some(deadline))
        }
        By::Cancel => (patient(handle).cancel_on(&cancel), None),
    };
    let exports = gate();
    if phase == SwapPhase::Transfer {
        let stops = exports.clone();
        old.on(Step::Export, move || {
            match deadline {
                Some(deadline) => wait_until(|| Instant::now() >= deadline),
                None => stops.stop(),
            }
            Ok(())
        });
    }
    let new = Replacement::root(many("new", &life), ClusterSize::Core);
    // A swap with a deadline may end at once.
    let swap = thread::spawn(move || swap.run(new));
    let caller = Caller::of(handle);
    if by == By::Cancel {
        // In `Forward` calls pass. Later they wait.
        wait_until_parked(handle, usize::from(phase != SwapPhase::Forward));
        if phase == SwapPhase::Transfer {
            exports.wait();
        }
        cancel.cancel();
        exports.open();
    }
    // The swap rolls back although the thread is still inside.
    let error = swap.join().unwrap().unwrap_err();
    assert_eq!(caller.end().unwrap(), "old");
    drop(inside);
    let (SwapFailure::TimedOut(ended) | SwapFailure::Cancelled(ended)) = error.failure() else {
        panic!("{error}");
    };
    assert_eq!(matches!(error.failure(), SwapFailure::Cancelled(_)), by == By::Cancel);
    assert!(error.to_string().contains(&format!("in phase {ended}")), "{error}");
    assert_eq!(error.report().unwrap().outcome, SwapOutcome::RolledBack(error.failure()));
    old.forget_hooks();
    assert_serves_on(hits, &old, &life, 4);
    ended
}

#[test]
fn co_33_a_deadline_or_a_cancellation_in_each_phase_leads_back() {
    for phase in [SwapPhase::Forward, SwapPhase::Block, SwapPhase::Transfer] {
        for kind in 0..2 {
            assert_eq!(ends_in(phase, By::Cancel, kind), phase);
            // The limit doubles until the swap reaches the phase in time.
            let mut limit = Duration::from_millis(5);
            while ends_in(phase, By::Deadline(limit), kind) != phase {
                limit *= 2;
                assert!(limit < LONG, "{phase:?}");
            }
        }
    }
}

#[test]
fn pitfall_07_block_has_a_bound_so_a_lock_that_is_held_across_calls_ends_the_swap() {
    for (hits, old) in both_kinds() {
        let handle = hits.handle();
        handle.add(4);
        let (lock, life) = (Arc::new(Mutex::new(())), Life::default());
        // A thread in the object waits for a lock. The holder of the lock waits for the object.
        let guard = lock.lock().unwrap();
        let wants = lock.clone();
        let inside = Inside::start(move |gate| {
            handle.holding(&mut || {
                gate.open();
                gate.stop();
                drop(wants.lock().unwrap());
            });
        });
        let swap = Swap::new(handle).drain_timeout(Duration::from_millis(5));
        let swap = thread::spawn(move || swap.run(new_many("new", &life)).map_err(|error| (error, life)));
        // This thread keeps the lock while it waits. In the end the old object answers.
        while !swap.is_finished() {
            assert_eq!(handle.name(), "old");
        }
        drop(guard);
        inside.leave();
        let (error, life) = swap.join().unwrap().unwrap_err();
        assert_eq!(error.failure(), SwapFailure::TimedOut(SwapPhase::Block));
        assert_serves_on(hits, &old, &life, 4);
    }
}

#[test]
fn co_33_a_swap_that_is_cancelled_already_or_too_late_does_nothing() {
    let (hits, old) = both_kinds().into_iter().next().unwrap();
    let cancel = Cancel::new();
    assert!(!cancel.is_cancelled());
    cancel.cancel();
    assert!(cancel.is_cancelled());
    for swap in [patient(hits.handle()).cancel_on(&cancel), patient(hits.handle()).deadline(Instant::now())] {
        let life = Life::default();
        let failure = swap.run(new_one("new", &life)).unwrap_err().failure();
        let phase = SwapPhase::Forward;
        assert!(failure == SwapFailure::Cancelled(phase) || failure == SwapFailure::TimedOut(phase));
        life.assert_over(0);
    }
    assert_serves_on(hits, &old, &Life::default(), 0);
}

// --- destruction ---

/// Destroys an object while a swap is in this phase.
fn destroyed_in(phase: SwapPhase, hits: Owned<dyn Hits>, old: &Life) {
    let (handle, life) = (hits.handle(), Life::default());
    let class = info(handle).class;
    handle.add(4);
    let exports = gate();
    let inside = match phase {
        SwapPhase::Forward => Some(Inside::operation(handle)),
        SwapPhase::Block => Some(Inside::hold(handle)),
        _ => {
            old.on(Step::Export, exports.stops());
            None
        }
    };
    let swap = Running::start(handle, patient(handle), new_many("new", &life));
    if phase == SwapPhase::Transfer {
        exports.wait();
    }
    let caller = Caller::of(handle);
    if phase != SwapPhase::Forward {
        wait_until_parked(handle, 1);
    }
    let destruction = Owned::destroy(hits);
    // New calls and waiting calls fail at once, although the swap still waits.
    let error = handle.try_total().unwrap_err();
    assert_eq!(
        (error.reason(), error.id(), error.class()),
        (CallErrorKind::Destroyed, Handle::id(handle), Some(class))
    );
    assert_eq!(caller.answer().unwrap_err().reason(), CallErrorKind::Destroyed);
    assert!(inside.is_some() || !swap.is_over());
    exports.open();
    let error = swap.end().unwrap_err();
    assert_eq!(error.failure(), SwapFailure::Destroyed);
    let text = error.to_string();
    assert!(text.starts_with(&format!("swap of Hits#{}", Handle::id(handle))), "{text}");
    assert!(text.contains(": the object was destroyed;"), "{text}");
    assert!(!destruction.is_complete() || inside.is_none());
    drop(inside);
    destruction.wait().unwrap();
    life.wait_for_drops(life.count(Step::Make));
    life.assert_over(0);
    old.assert_over(0);
    assert_eq!(
        squall::swap::swap(handle, new_one("", &Life::default())).unwrap_err().failure(),
        SwapFailure::Destroyed
    );
    assert_eq!(error.report().unwrap().blocked, u64::from(phase != SwapPhase::Forward));
}

#[test]
fn co_33_a_destruction_in_each_phase_refuses_calls_at_once_and_ends_both() {
    for phase in [SwapPhase::Forward, SwapPhase::Block, SwapPhase::Transfer] {
        for (hits, old) in both_kinds() {
            destroyed_in(phase, hits, &old);
        }
    }
}

#[test]
fn co_33_a_transfer_may_destroy_the_object() {
    for step in [Step::Export, Step::Import] {
        for new in NEW {
            for (hits, old) in both_kinds() {
                let (handle, life) = (hits.handle(), Life::default());
                handle.add(1);
                let owner = Mutex::new(Some(hits));
                let of = if step == Step::Export { &old } else { &life };
                of.on(step, move || {
                    drop(owner.lock().unwrap().take());
                    Ok(())
                });
                let error = patient(handle).run(new("new", &life)).unwrap_err();
                assert_eq!(error.failure(), SwapFailure::Destroyed);
                for life in [&old, &life] {
                    life.wait_for_drops(life.count(Step::Make));
                    life.assert_over(0);
                }
            }
        }
    }
}

// --- distinct errors ---

#[test]
fn co_33_a_rejected_swap_says_why() {
    static PLACE: WellKnown<dyn Hits> = WellKnown::new(11);
    let (hits, old) = both_kinds().into_iter().nth(1).unwrap();
    let handle = hits.handle();
    let attempt = move || {
        let life = Life::default();
        let error = patient(handle).run(new_one("new", &life)).unwrap_err();
        // A replacement rejected inside an operation is dropped later.
        if !rcu::in_operation() {
            life.assert_over(0);
        }
        assert!(error.report().is_none());
        let text = error.to_string();
        assert!(text.starts_with(&format!("swap of Hits#{}: ", Handle::id(handle))), "{text}");
        (error.failure(), text)
    };
    let refused = |(failure, text): (SwapFailure, String), expected: SwapFailure| {
        assert_eq!(failure, expected);
        assert!(text.ends_with(&expected.to_string()), "{text}");
    };
    // Inside operations: of the object, and of this thread.
    handle.within(&mut || refused(attempt(), SwapFailure::InOperation));
    rcu::pin(|_| refused(attempt(), SwapFailure::InOperation));
    // Inside a blocking method of the object, also below a blocking method of another object.
    handle.holding(&mut || refused(attempt(), SwapFailure::InMethod));
    let other: Owned<dyn Hits> = squall::swappable(one("old", &Life::default()));
    other.holding(&mut || handle.holding(&mut || refused(attempt(), SwapFailure::InMethod)));
    // During a swap.
    let inside = Inside::operation(handle);
    let cancel = Cancel::new();
    let swap = Running::start(handle, patient(handle).cancel_on(&cancel), new_one("new", &Life::default()));
    refused(attempt(), SwapFailure::Busy);
    assert_eq!(arbitrate(handle, |_| {}).unwrap_err().failure(), SwapFailure::Busy);
    cancel.cancel();
    assert_eq!(swap.end().unwrap_err().failure(), SwapFailure::Cancelled(SwapPhase::Forward));
    inside.leave();
    // In a transfer.
    let life = Life::default();
    life.on(Step::Import, move || {
        refused(attempt(), SwapFailure::InTransfer);
        Ok(())
    });
    patient(other.handle()).run(new_one("new", &life)).unwrap();
    // In a deferred call, and in a drop.
    let (tell, told) = mpsc::channel();
    let tell_too = tell.clone();
    rcu::defer(move || tell.send(attempt()).unwrap());
    rcu::barrier().unwrap();
    refused(told.recv().unwrap(), SwapFailure::InDeferredCall);
    life.on(Step::Drop, move || {
        tell_too.send(attempt()).unwrap();
        Ok(())
    });
    end(other);
    refused(told.recv().unwrap(), SwapFailure::InDeferredCall);
    // Before the first installation, and after destruction.
    let place = PLACE.handle();
    let error = patient(place).run(new_one("new", &Life::default())).unwrap_err();
    assert_eq!((error.failure(), error.id()), (SwapFailure::NotThere, Handle::id(place)));
    assert_serves_on(hits, &old, &Life::default(), 0);
    refused(attempt(), SwapFailure::Destroyed);
}

#[test]
fn co_33_a_blocking_method_of_another_object_may_swap() {
    let [(hits, _), (other, old)] = both_kinds();
    other.add(2);
    hits.holding(&mut || {
        patient(other.handle()).run(new_one("new", &Life::default())).unwrap();
        assert_eq!((other.name(), other.total()), ("new", 2));
    });
    [hits, other].into_iter().for_each(end);
    old.assert_over(1);
}

#[test]
fn co_38_no_swap_keeps_a_grace_period_waiting_and_parked_calls_leave_theirs() {
    for (hits, old) in both_kinds() {
        let handle = hits.handle();
        let exports = gate();
        old.on(Step::Export, exports.stops());
        handle.add(1);
        let swap = Running::start(handle, patient(handle), new_one("new", &Life::default()));
        exports.wait();
        let callers: Vec<_> = (0..4).map(|_| Caller::of(handle)).collect();
        wait_until_parked(handle, 4);
        // Each grace period ends, so the waiting callers have left their operations.
        for _ in 0..20 {
            rcu::wait_until(Instant::now() + LONG).unwrap();
        }
        exports.open();
        swap.end().unwrap();
        assert!(callers.into_iter().all(|caller| caller.answer().unwrap() == "new"));
        end(hits);
    }
}

/// Nested calls of one thread. Each level swaps its object before it goes down.
#[test]
fn co_33_swaps_nest_as_deep_as_blocking_calls_do() {
    let objects: Vec<_> = (0..4).flat_map(|_| both_kinds()).collect();
    fn down(objects: &[(Owned<dyn Hits>, Life)]) {
        let Some(((hits, _), rest)) = objects.split_first() else { return };
        patient(hits.handle()).run(new_many("new", &Life::default())).unwrap();
        hits.holding(&mut || down(rest));
        hits.add(1);
    }
    down(&objects);
    assert!(objects.iter().all(|(hits, _)| hits.total() == 1 && hits.name() == "new"));
    for (hits, old) in objects {
        end(hits);
        old.wait_for_drops(old.count(Step::Make));
        old.assert_over(1);
    }
}

/// A panic in `moved` of the old object is counted, and the swap goes on.
#[test]
fn pitfall_09_a_panic_of_the_old_object_does_not_stop_the_swap() {
    let _guard = drops_panic();
    let panicked = Arc::new(AtomicUsize::new(0));
    let (old, counted) = (Life::default(), panicked.clone());
    old.on(Step::Moved, move || {
        counted.fetch_add(1, Relaxed);
        std::panic::panic_any(Planned)
    });
    let hits: Owned<dyn Hits> = squall::swappable(one("old", &old));
    hits.add(1);
    patient(hits.handle()).run(new_many("new", &Life::default())).unwrap();
    assert_eq!((hits.name(), hits.total(), panicked.load(Relaxed)), ("new", 1, 1));
    end(hits);
    old.wait_for_drops(1);
}

/// Calls wait for a swap, and the object is destroyed: each form of call returns its error.
#[test]
fn co_38_a_call_that_waited_for_a_destroyed_object_fails_in_each_form() {
    let (hits, old) = both_kinds().into_iter().next().unwrap();
    let handle = hits.handle();
    let exports = gate();
    old.on(Step::Export, exports.stops());
    let swap = Running::start(handle, patient(handle), new_one("new", &Life::default()));
    exports.wait();
    let carried = thread::spawn(move || -> Result<u64, CallError> { handle.carried() });
    let plain = thread::spawn(move || text_of(|| handle.total()));
    let blocking =
        thread::spawn(move || handle.try_holding(&mut || panic!("the method must not run")).unwrap_err());
    wait_until_parked(handle, 3);
    drop(hits);
    assert_eq!(carried.join().unwrap().unwrap_err().reason(), CallErrorKind::Destroyed);
    assert!(plain.join().unwrap().contains("the object was destroyed;"));
    assert_eq!(blocking.join().unwrap().method(), "holding");
    exports.open();
    assert_eq!(swap.end().unwrap_err().failure(), SwapFailure::Destroyed);
}
