//! Arbiters: a user's function around every call of an object, or of one method.

use crate::common::misses_are_counted;
use crate::common::swaps::{
    Caller, Hits, Inside, Life, Planned, Running, Step, both_kinds, end, gate, info, new_many, new_one, one,
    patient, payload_of, text_of,
};
use squall::swap::{Arbiter, Call, Replacement, Swap, SwapFailure, arbitrate, arbitrate_method};
use squall::{CallErrorKind, ClusterSize, Handle, ObjectState, Owned, RepContext, Root};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

/// Attaches an arbiter that counts the calls it sees.
fn counting(handle: Handle<dyn Hits>) -> (Arbiter, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    (arbitrate(handle, move |_| _ = counted.fetch_add(1, Relaxed)).unwrap(), count)
}

/// Calls each method once, and some within others. Returns the number of calls.
fn every_kind(handle: Handle<dyn Hits>) -> usize {
    handle.add(1);
    assert!(handle.try_total().is_ok() && handle.carried().is_ok());
    handle.within(&mut || _ = handle.name());
    handle.holding(&mut || _ = handle.local());
    assert!(payload_of(|| handle.panics()).is::<Planned>());
    8
}

#[test]
fn co_17_every_call_goes_by_way_of_the_function_and_none_after() {
    for (hits, old) in both_kinds() {
        let handle = hits.handle();
        every_kind(handle);
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let sees = seen.clone();
        let arbiter = arbitrate(handle, move |call| {
            assert_eq!((call.interface(), call.id()), ("Hits", Handle::id(handle)));
            assert_eq!(format!("{call:?}"), format!("Call({handle}.{}())", call.method()));
            sees.lock().unwrap().push(call.method().to_owned());
        })
        .unwrap();
        assert_eq!((info(handle).state, arbiter.id()), (ObjectState::Arbitrated, Handle::id(handle)));
        let calls = every_kind(handle);
        let methods = ["add", "total", "carried", "within", "name", "holding", "local", "panics"];
        assert_eq!(*seen.lock().unwrap(), methods);
        assert_eq!(methods.len(), calls);
        // A new thread is seen too.
        thread::spawn(move || every_kind(handle)).join().unwrap();
        assert_eq!(seen.lock().unwrap().len(), 16);
        arbiter.detach();
        every_kind(handle);
        assert_eq!((seen.lock().unwrap().len(), info(handle).state), (16, ObjectState::Live));
        assert_eq!(handle.total(), 4);
        // The function is dropped once no call can be in it.
        squall::rcu::barrier().unwrap();
        assert_eq!(Arc::strong_count(&seen), 1);
        end(hits);
        old.assert_over(0);
    }
}

#[test]
fn co_17_a_function_may_be_for_one_method_alone() {
    for (hits, _) in both_kinds() {
        let handle = hits.handle();
        let count = Arc::new(AtomicUsize::new(0));
        for method in ["add", "holding"] {
            let counted = count.clone();
            let arbiter = arbitrate_method(handle, method, move |call| {
                assert_eq!(call.method(), method);
                counted.fetch_add(1, Relaxed);
            });
            every_kind(handle);
            drop(arbiter.unwrap());
            every_kind(handle);
            assert_eq!(count.swap(0, Relaxed), 1, "{method}");
        }
        let error = arbitrate_method(handle, "substract", |_| {}).unwrap_err();
        assert_eq!(error.failure(), SwapFailure::NoSuchMethod);
        let text = format!(
            "arbitration of {handle}: the interface has no such method: `substract`; its methods are "
        );
        assert!(error.to_string().starts_with(&text), "{error}");
        assert_eq!(info(handle).state, ObjectState::Live);
        end(hits);
    }
}

#[test]
fn co_17_a_refused_call_fails_in_each_form() {
    for (hits, _) in both_kinds() {
        let handle = hits.handle();
        let arbiter = arbitrate(handle, |call| call.refuse("not now")).unwrap();
        let error = handle.try_total().unwrap_err();
        assert_eq!((error.reason(), error.method()), (CallErrorKind::Refused("not now"), "total"));
        assert_eq!((error.interface(), error.id()), ("Hits", Handle::id(handle)));
        assert_eq!(handle.carried().unwrap_err().reason(), CallErrorKind::Refused("not now"));
        assert_eq!(text_of(|| handle.total()), handle.try_total().unwrap_err().to_string());
        let blocking = handle.try_holding(&mut || panic!("the method must not run")).unwrap_err();
        assert_eq!((blocking.reason(), blocking.method()), (CallErrorKind::Refused("not now"), "holding"));
        assert!(text_of(|| handle.holding(&mut || {})).contains("not now"));
        arbiter.detach();
        assert_eq!(handle.total(), 0, "no method ran");
        end(hits);
    }
}

#[test]
fn co_17_a_call_is_made_once_whatever_the_function_does() {
    type Function = fn(&mut Call<'_>);
    let cases: [(Function, bool); 6] = [
        (|_| {}, true),
        (|call| call.proceed(), true),
        (
            |call| {
                call.proceed();
                call.proceed();
            },
            true,
        ),
        (
            |call| {
                call.proceed();
                call.refuse("too late");
            },
            true,
        ),
        (
            |call| {
                call.refuse("first");
                call.proceed();
                call.refuse("second");
            },
            false,
        ),
        (|call| call.refuse("first"), false),
    ];
    for (function, made) in cases {
        for (hits, _) in both_kinds() {
            let handle = hits.handle();
            let arbiter = arbitrate_method(handle, "add", function).unwrap();
            let result = handle.try_add(1).map_err(|error| error.reason());
            assert_eq!(result, if made { Ok(()) } else { Err(CallErrorKind::Refused("first")) });
            assert_eq!(handle.total(), u64::from(made));
            drop(arbiter);
            end(hits);
        }
    }
}

#[test]
fn co_17_panics_of_the_function_and_of_the_method_reach_the_caller() {
    for (hits, _) in both_kinds() {
        let handle = hits.handle();
        // The function panics before the call: the method does not run.
        let arbiter = arbitrate_method(handle, "add", |_| std::panic::panic_any(Planned)).unwrap();
        assert!(payload_of(|| handle.add(1)).is::<Planned>());
        assert_eq!(handle.total(), 0);
        drop(arbiter);
        // The function panics after the call: the method has run.
        let arbiter = arbitrate_method(handle, "add", |call| {
            call.proceed();
            std::panic::panic_any(Planned)
        });
        assert!(payload_of(|| handle.add(1)).is::<Planned>());
        assert_eq!(handle.total(), 1);
        drop(arbiter.unwrap());
        // The method panics. The function passes the panic on, or catches it: then the call has no result.
        let arbiter = arbitrate_method(handle, "panics", |call| call.proceed()).unwrap();
        assert!(payload_of(|| handle.panics()).is::<Planned>());
        drop(arbiter);
        let arbiter = arbitrate_method(handle, "panics", |call| {
            assert!(catch_unwind(AssertUnwindSafe(|| call.proceed())).is_err());
        });
        let error = handle.try_panics().unwrap_err();
        assert_eq!(
            error.reason(),
            CallErrorKind::Refused("its method panicked, and the arbiter caught the panic")
        );
        drop(arbiter.unwrap());
        end(hits);
    }
}

#[test]
fn co_17_calls_that_the_function_makes_itself_are_arbitrated_too() {
    for (hits, _) in both_kinds() {
        let handle = hits.handle();
        let depth = Arc::new(AtomicUsize::new(0));
        let seen = depth.clone();
        let arbiter = arbitrate(handle, move |call| {
            if seen.fetch_add(1, Relaxed) < 4 {
                assert_eq!(call.method(), "total");
                handle.total();
            }
        });
        handle.total();
        assert_eq!(depth.load(Relaxed), 5);
        drop(arbiter.unwrap());
        end(hits);
    }
}

#[test]
fn co_17_exactly_the_calls_between_attaching_and_detaching_are_seen() {
    const THREADS: usize = 4;
    const CALLS: usize = if cfg!(miri) { 20 } else { 500 };
    for (hits, _) in both_kinds() {
        let handle = hits.handle();
        let step = Barrier::new(THREADS + 1);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..3 {
                        step.wait();
                        (0..CALLS).for_each(|n| {
                            if n % 5 == 0 { handle.holding(&mut || ()) } else { handle.add(1) }
                        });
                        step.wait();
                    }
                });
            }
            let round = || {
                step.wait();
                step.wait();
            };
            round();
            let (arbiter, count) = counting(handle);
            round();
            arbiter.detach();
            round();
            assert_eq!(count.load(Relaxed), THREADS * CALLS);
        });
        assert_eq!(handle.total() as usize, 3 * THREADS * CALLS * 4 / 5);
        end(hits);
    }
}

#[test]
fn co_17_attaching_and_detaching_under_load_lose_no_call() {
    const TIMES: usize = if cfg!(miri) { 5 } else { 300 };
    for (hits, old) in both_kinds() {
        let handle = hits.handle();
        let (stop, seen) = (AtomicBool::new(false), Arc::new(AtomicU64::new(0)));
        let made: u64 = thread::scope(|scope| {
            let callers: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let mut made = 0;
                        while !stop.load(Relaxed) {
                            handle.add(1);
                            handle.holding(&mut || handle.add(1));
                            made += 2;
                        }
                        made
                    })
                })
                .collect();
            for _ in 0..TIMES {
                let sees = seen.clone();
                let arbiter =
                    arbitrate_method(handle, "add", move |_| _ = sees.fetch_add(1, Relaxed)).unwrap();
                // Sees at least this call.
                let before = seen.load(Relaxed);
                handle.add(1);
                assert!(seen.load(Relaxed) > before);
                arbiter.detach();
            }
            stop.store(true, Relaxed);
            callers.into_iter().map(|caller| caller.join().unwrap()).sum()
        });
        assert_eq!(handle.total(), made + TIMES as u64);
        assert!((TIMES as u64..=handle.total()).contains(&seen.load(Relaxed)));
        end(hits);
        old.assert_over(0);
    }
}

#[test]
fn co_17_the_function_stays_in_front_during_and_after_a_swap() {
    for back in [false, true] {
        for (hits, old) in both_kinds() {
            let (handle, life) = (hits.handle(), Life::default());
            handle.add(1);
            let (arbiter, count) = counting(handle);
            let seen = move || count.swap(0, Relaxed);
            // The arbiter sees calls in `Forward`, and calls that waited in `Transfer` when they run.
            let exports = gate();
            let stops = exports.clone();
            old.on(Step::Export, move || {
                stops.stop();
                if back { Err("back".into()) } else { Ok(()) }
            });
            let inside = Inside::operation(handle);
            assert_eq!(seen(), 1);
            let swap = Running::start(handle, patient(handle), new_many("new", &life));
            assert_eq!(every_kind(handle), seen());
            inside.leave();
            exports.wait();
            let late = thread::spawn(move || every_kind(handle));
            exports.open();
            let outcome = swap.end();
            assert_eq!(outcome.is_err(), back);
            assert_eq!(late.join().unwrap(), seen());
            assert_eq!(info(handle).state, ObjectState::Arbitrated);
            assert_eq!((handle.name(), handle.total()), (if back { "old" } else { "new" }, 3));
            assert_eq!(seen(), 2);
            arbiter.detach();
            every_kind(handle);
            assert_eq!((seen(), info(handle).state), (0, ObjectState::Live));
            // Another arbiter can be attached.
            let (arbiter, count) = counting(handle);
            assert_eq!(every_kind(handle), count.load(Relaxed));
            drop(arbiter);
            end(hits);
            old.wait_for_drops(old.count(Step::Make));
            old.assert_over(usize::from(!back));
            life.wait_for_drops(life.count(Step::Make));
            life.assert_over(0);
        }
    }
}

#[test]
fn co_17_a_function_may_be_detached_while_a_swap_is_under_way() {
    for back in [false, true] {
        for phase_is_forward in [false, true] {
            for (hits, old) in both_kinds() {
                let handle = hits.handle();
                handle.add(1);
                let (arbiter, count) = counting(handle);
                let exports = gate();
                let stops = exports.clone();
                old.on(Step::Export, move || {
                    stops.stop();
                    if back { Err("back".into()) } else { Ok(()) }
                });
                let inside = phase_is_forward.then(|| Inside::operation(handle));
                let swap = Running::start(handle, patient(handle), new_one("new", &Life::default()));
                if !phase_is_forward {
                    exports.wait();
                }
                let before = count.load(Relaxed);
                arbiter.detach();
                let caller = Caller::of(handle);
                if phase_is_forward {
                    every_kind(handle);
                }
                drop(inside);
                exports.open();
                assert_eq!(swap.end().is_err(), back);
                caller.end().unwrap();
                every_kind(handle);
                assert_eq!((count.load(Relaxed), info(handle).state), (before, ObjectState::Live));
                // The function was dropped.
                squall::rcu::barrier().unwrap();
                assert_eq!(Arc::strong_count(&count), 1);
                end(hits);
            }
        }
    }
}

#[test]
fn co_17_an_arbitrated_object_is_destroyed_as_any_other() {
    for detached_first in [false, true] {
        for (hits, old) in both_kinds() {
            let handle = hits.handle();
            handle.add(1);
            let (arbiter, count) = counting(handle);
            // A call holds the object.
            let held = Inside::hold(handle);
            let arbiter = Some(arbiter).filter(|_| !detached_first);
            let destruction = Owned::destroy(hits);
            assert_eq!(handle.try_total().unwrap_err().reason(), CallErrorKind::Destroyed);
            assert_eq!(arbitrate(handle, |_| {}).unwrap_err().failure(), SwapFailure::Destroyed);
            assert!(!destruction.is_complete());
            held.leave();
            destruction.wait().unwrap();
            drop(arbiter);
            old.wait_for_drops(old.count(Step::Make));
            old.assert_over(0);
            squall::rcu::barrier().unwrap();
            assert_eq!((count.load(Relaxed), Arc::strong_count(&count)), (1, 1));
        }
    }
}

#[test]
fn co_17_a_kept_function_stays_as_long_as_the_object() {
    for (hits, _) in both_kinds() {
        let handle = hits.handle();
        let (arbiter, count) = counting(handle);
        arbiter.keep();
        assert_eq!(every_kind(handle), count.swap(0, Relaxed));
        patient(handle).run(new_many("new", &Life::default())).unwrap();
        assert_eq!(every_kind(handle), count.swap(0, Relaxed));
        assert_eq!(arbitrate(handle, |_| {}).unwrap_err().failure(), SwapFailure::Arbitrated);
        end(hits);
        squall::rcu::barrier().unwrap();
        assert_eq!(Arc::strong_count(&count), 1, "the function went with the object");
    }
}

#[test]
fn co_17_a_rejected_attachment_says_why() {
    let (hits, _) = both_kinds().into_iter().next().unwrap();
    let handle = hits.handle();
    let (arbiter, _) = counting(handle);
    let error = arbitrate(handle, |_| {}).unwrap_err();
    assert_eq!(error.failure(), SwapFailure::Arbitrated);
    assert_eq!(
        error.to_string(),
        format!(
            "arbitration of {handle}: another function arbitrates the calls of the object; drop its `Arbiter` first"
        )
    );
    assert_eq!(format!("{arbiter:?}"), format!("Arbiter({})", Handle::id(handle)));
    drop(arbiter);
    // Attaching does not wait, so it may happen inside an operation.
    let arbiter = squall::rcu::pin(|_| counting(handle).0);
    handle.within(&mut || assert!(arbitrate(handle, |_| {}).is_err()));
    drop(arbiter);
    // During a swap.
    let inside = Inside::operation(handle);
    let swap = Running::start(handle, patient(handle), new_one("new", &Life::default()));
    assert_eq!(arbitrate(handle, |_| {}).unwrap_err().failure(), SwapFailure::Busy);
    inside.leave();
    swap.end().unwrap();
    end(hits);
}

// --- more than one interface ---

#[squall::interface]
trait Base: Send + Sync {
    fn base(&self) -> u64;
    #[blocking]
    fn slow(&self) -> u64;
}

#[squall::interface]
trait Derived: Base {
    fn derived(&self) -> u64;
}

struct PerCpu;
struct Rep(RepContext<PerCpu>);

impl Root for PerCpu {
    type Interface = dyn Derived;
    type Rep = Rep;
    fn make_rep(&self, at: RepContext<PerCpu>) -> Rep {
        Rep(at)
    }
}
impl Base for Rep {
    fn base(&self) -> u64 {
        self.0.reps().count() as u64
    }
    fn slow(&self) -> u64 {
        1
    }
}
impl Derived for Rep {
    fn derived(&self) -> u64 {
        2
    }
}

struct Same;
impl Base for Same {
    fn base(&self) -> u64 {
        1
    }
    fn slow(&self) -> u64 {
        1
    }
}
impl Derived for Same {
    fn derived(&self) -> u64 {
        3
    }
}

#[test]
fn pitfall_04_calls_by_handles_of_extended_interfaces_are_seen() {
    let shared: Owned<dyn Derived> = squall::shared(Same);
    for owner in [PerCpu.create(ClusterSize::Cpu), shared] {
        let (handle, base) = (owner.handle(), Handle::upcast::<dyn Base>(owner.handle()));
        let seen: Arc<Mutex<Vec<(String, String)>>> = Arc::default();
        let sees = seen.clone();
        let note = move |call: &mut Call<'_>| {
            sees.lock().unwrap().push((call.interface().to_owned(), call.method().to_owned()));
        };
        let other = note.clone();
        assert_eq!(arbitrate(base, |_| {}).unwrap_err().failure(), SwapFailure::WrongInterface);
        let all = || {
            assert!(handle.derived() > 1 && base.base() > 0 && handle.base() > 0 && base.slow() == 1);
            std::mem::take(&mut *seen.lock().unwrap())
        };
        assert_eq!(all(), []);
        let arbiter = arbitrate(handle, note).unwrap();
        let expected = [("Derived", "derived"), ("Base", "base"), ("Derived", "base"), ("Base", "slow")];
        assert_eq!(all(), expected.map(|(interface, method)| (interface.to_owned(), method.to_owned())));
        arbiter.detach();
        // A method of an extended interface, by its name.
        let arbiter = arbitrate_method(handle, "base", other).unwrap();
        Swap::new(handle).without_state().run(Replacement::shared(Same)).unwrap();
        assert_eq!(all().len(), 2);
        drop(arbiter);
        assert_eq!(all(), []);
        assert_eq!(handle.derived(), 3);
        Owned::destroy(owner).wait().unwrap();
        assert_eq!(base.try_base().unwrap_err().reason(), CallErrorKind::Destroyed);
    }
}

#[test]
fn pr_17_a_mediator_costs_no_misses_and_what_was_detached_costs_nothing() {
    let _guard = misses_are_counted();
    // If each call missed, there would be a hundred misses. The first call on each VP misses. So may a call
    // during which the thread migrates.
    const EACH: u64 = 100;
    let few = |misses: u64, vps: usize| misses < vps as u64 + EACH / 2;
    let hits: Owned<dyn Hits> = squall::swappable(one("old", &Life::default()));
    let handle = hits.handle();
    let (arbiter, _) = counting(handle);
    (0..EACH).for_each(|_| handle.add(1));
    let attached = info(handle);
    assert!(few(attached.misses, attached.translations.len()), "{attached:?}");
    drop(arbiter);
    (0..EACH).for_each(|_| handle.add(1));
    let detached = info(handle);
    assert!(few(detached.misses, detached.translations.len()), "{detached:?}");
    end(hits);
}
