//! Tests of the request counters through their public interface: the seven rules, in both forms.

use squall_machine::Vp;
use squall_machine::pervp::GatedWord;
use squall_parts::gate::{
    GateError, GateState, Limits, LocalRequests, Rejected, SharedGate, ShutDown, SpreadRequests,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Time for other threads to violate a rule. A correct counter passes in any case.
const SHORT: Duration = Duration::from_millis(1);
/// Longer than any test: a wait of this length has lost its wake-up.
const LONG: Duration = Duration::from_secs(60);

/// The common interface of both forms.
trait Counter: Sync {
    fn try_enter(&self) -> Result<(), Rejected>;
    fn await_turn(&self);
    fn leave(&self);
    fn stop(&self, limits: Limits<'_>) -> Result<(), GateError>;
    fn restart(&self) -> Result<(), GateError>;
    fn shutdown(&self, limits: Limits<'_>) -> Result<(), GateError>;
    fn drained(&self, limits: Limits<'_>) -> Result<(), GateError>;
    fn wake(&self);
    fn inside(&self) -> u64;
    fn state(&self) -> GateState;

    fn enter(&self) -> Result<(), ShutDown> {
        loop {
            match self.try_enter() {
                Ok(()) => return Ok(()),
                Err(Rejected::Stopped) => self.await_turn(),
                Err(Rejected::ShutDown) => return Err(ShutDown),
            }
        }
    }
}

impl Counter for SharedGate {
    fn try_enter(&self) -> Result<(), Rejected> {
        self.try_enter()
    }
    fn await_turn(&self) {
        self.await_turn(Limits::NONE);
    }
    fn leave(&self) {
        self.leave();
    }
    fn stop(&self, limits: Limits<'_>) -> Result<(), GateError> {
        self.stop_within(limits)
    }
    fn restart(&self) -> Result<(), GateError> {
        self.restart()
    }
    fn shutdown(&self, limits: Limits<'_>) -> Result<(), GateError> {
        self.shutdown_within(limits)
    }
    fn drained(&self, limits: Limits<'_>) -> Result<(), GateError> {
        self.drained_within(limits)
    }
    fn wake(&self) {
        self.wake();
    }
    fn inside(&self) -> u64 {
        self.inside()
    }
    fn state(&self) -> GateState {
        self.state()
    }
}

/// Each call goes through another proxy: the first, one of three, or a newly made one.
struct Spread {
    requests: SpreadRequests<GatedWord>,
    locals: Vec<LocalRequests<GatedWord>>,
    calls: AtomicU32,
}

impl Spread {
    fn new() -> Spread {
        let requests = SpreadRequests::new(|| GatedWord::new(Vp::current()));
        let locals = (0..3).map(|_| requests.local(|| GatedWord::new(Vp::current()))).collect();
        Spread { requests, locals, calls: AtomicU32::new(0) }
    }

    fn with<R>(&self, f: impl FnOnce(&LocalRequests<GatedWord>) -> R) -> R {
        match self.calls.fetch_add(1, Ordering::Relaxed) as usize % 7 {
            call @ 0..3 => f(&self.locals[call]),
            3 => f(&self.requests.local(|| GatedWord::new(Vp::current()))),
            _ => f(&self.requests.first()),
        }
    }
}

impl Counter for Spread {
    fn try_enter(&self) -> Result<(), Rejected> {
        self.with(|local| local.try_enter())
    }
    fn await_turn(&self) {
        self.with(|local| local.await_turn(Limits::NONE));
    }
    fn leave(&self) {
        self.with(|local| local.leave());
    }
    fn stop(&self, limits: Limits<'_>) -> Result<(), GateError> {
        self.requests.stop(limits)
    }
    fn restart(&self) -> Result<(), GateError> {
        self.requests.restart()
    }
    fn shutdown(&self, limits: Limits<'_>) -> Result<(), GateError> {
        self.requests.shutdown(limits)
    }
    fn drained(&self, limits: Limits<'_>) -> Result<(), GateError> {
        self.requests.drained(limits)
    }
    fn wake(&self) {
        self.requests.wake();
    }
    fn inside(&self) -> u64 {
        self.requests.inside()
    }
    fn state(&self) -> GateState {
        self.requests.state()
    }
}

/// Runs a test with both forms.
fn both(test: impl Fn(&dyn Counter)) {
    test(&SharedGate::new());
    test(&Spread::new());
}

/// Waits until other threads make `is_so` true.
fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        std::thread::yield_now();
    }
}

/// Waits until requests are rejected with `why`. A request that enters leaves again.
fn until_refused(counter: &dyn Counter, why: Rejected) {
    until(|| match counter.try_enter() {
        Ok(()) => {
            counter.leave();
            false
        }
        Err(refused) => refused == why,
    });
}

#[test]
fn rule_1_nothing_is_inside_while_it_is_stopped() {
    both(|counter| {
        let (made, done) = (AtomicU32::new(0), AtomicBool::new(false));
        std::thread::scope(|threads| {
            for _ in 0..3 {
                threads.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        counter.enter().unwrap();
                        assert_eq!(made.load(Ordering::Relaxed) % 2, 0, "a request was inside during a stop");
                        counter.leave();
                        std::thread::yield_now();
                    }
                });
            }
            for _ in 0..if cfg!(miri) { 3 } else { 200 } {
                counter.stop(Limits::NONE).unwrap();
                made.fetch_add(1, Ordering::Relaxed);
                std::thread::yield_now();
                made.fetch_add(1, Ordering::Relaxed);
                counter.restart().unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!((counter.inside(), counter.state()), (0, GateState::Normal));
    });
}

#[test]
fn rules_2_and_3_a_shutdown_waits_for_those_inside_and_refuses_others() {
    both(|counter| {
        counter.enter().unwrap();
        counter.enter().unwrap();
        let ended = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                counter.shutdown(Limits::NONE).unwrap();
                ended.store(true, Ordering::Relaxed);
            });
            until(|| counter.state() == GateState::ShutDown);
            // Seven calls reach each proxy.
            (0..7).for_each(|_| until_refused(counter, Rejected::ShutDown));
            assert_eq!(counter.enter(), Err(ShutDown));
            assert_eq!(counter.inside(), 2);
            counter.leave();
            assert!(!ended.load(Ordering::Relaxed), "a request was inside");
            counter.leave();
        });
        assert!(ended.load(Ordering::Relaxed));
    });
}

#[test]
fn rule_4_one_control_operation_wins() {
    both(|counter| {
        counter.enter().unwrap();
        std::thread::scope(|threads| {
            let first = threads.spawn(|| counter.stop(Limits::NONE));
            until(|| counter.state() == GateState::Stopped);
            // The first stop waits for the request inside.
            assert_eq!(counter.stop(Limits::NONE), Err(GateError::Stopped));
            assert_eq!(counter.restart(), Err(GateError::Busy));
            assert_eq!(counter.shutdown(Limits::NONE), Err(GateError::Busy));
            counter.leave();
            assert_eq!(first.join().unwrap(), Ok(()));
        });
        assert_eq!(counter.stop(Limits::NONE), Err(GateError::Stopped));
        counter.restart().unwrap();
        assert_eq!(counter.restart(), Err(GateError::NotStopped));
        assert_eq!(counter.try_enter(), Ok(()));
        counter.leave();
    });
}

#[test]
fn rule_5_after_a_shutdown_nothing_goes_any_more() {
    both(|counter| {
        counter.shutdown(Limits::NONE).unwrap();
        assert_eq!(counter.enter(), Err(ShutDown));
        assert_eq!(counter.stop(Limits::NONE), Err(GateError::ShutDown));
        assert_eq!(counter.restart(), Err(GateError::ShutDown));
        assert_eq!(counter.shutdown(Limits::NONE), Err(GateError::ShutDown));
        assert_eq!((counter.inside(), counter.state()), (0, GateState::ShutDown));
    });
}

#[test]
fn rules_6_and_7_requests_wait_while_it_is_stopped() {
    both(|counter| {
        counter.stop(Limits::NONE).unwrap();
        assert_eq!(counter.try_enter(), Err(Rejected::Stopped));
        let (came, entered) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|threads| {
            for _ in 0..3 {
                threads.spawn(|| {
                    came.fetch_add(1, Ordering::Relaxed);
                    counter.enter().unwrap();
                    entered.fetch_add(1, Ordering::Relaxed);
                    counter.leave();
                });
            }
            until(|| came.load(Ordering::Relaxed) == 3);
            std::thread::sleep(SHORT);
            assert_eq!(entered.load(Ordering::Relaxed), 0);
            counter.restart().unwrap();
        });
        assert_eq!(entered.load(Ordering::Relaxed), 3);
    });
}

#[test]
fn a_shutdown_refuses_those_that_wait() {
    both(|counter| {
        counter.stop(Limits::NONE).unwrap();
        let came = AtomicU32::new(0);
        std::thread::scope(|threads| {
            let waits = || {
                came.fetch_add(1, Ordering::Relaxed);
                counter.enter()
            };
            let waiting: Vec<_> = (0..3).map(|_| threads.spawn(waits)).collect();
            until(|| came.load(Ordering::Relaxed) == 3);
            std::thread::sleep(SHORT);
            assert!(
                waiting.iter().all(|request| !request.is_finished()),
                "a request was admitted during a stop"
            );
            counter.shutdown(Limits::NONE).unwrap();
            assert!(waiting.into_iter().all(|request| request.join().unwrap() == Err(ShutDown)));
        });
    });
}

#[test]
fn a_stop_that_gives_up_has_changed_nothing() {
    both(|counter| {
        counter.enter().unwrap();
        assert_eq!(counter.stop(Limits::after(SHORT)), Err(GateError::TimedOut));
        assert_eq!((counter.inside(), counter.state()), (1, GateState::Normal));
        counter.enter().unwrap();
        counter.leave();
        let stopping = AtomicBool::new(true);
        std::thread::scope(|threads| {
            // A request that waits meanwhile is admitted when the stop gives up.
            threads.spawn(|| {
                until(|| counter.state() == GateState::Stopped || !stopping.load(Ordering::Relaxed));
                counter.enter().unwrap();
                counter.leave();
            });
            assert_eq!(counter.stop(Limits::after(20 * SHORT)), Err(GateError::TimedOut));
            stopping.store(false, Ordering::Relaxed);
        });
        counter.leave();
        counter.stop(Limits::NONE).unwrap();
        counter.restart().unwrap();
    });
}

#[test]
fn a_timed_out_shutdown_stays_in_force() {
    both(|counter| {
        counter.enter().unwrap();
        assert_eq!(counter.shutdown(Limits::after(SHORT)), Err(GateError::TimedOut));
        assert_eq!(counter.enter(), Err(ShutDown));
        assert_eq!(counter.inside(), 1);
        assert_eq!(counter.drained(Limits::after(SHORT)), Err(GateError::TimedOut));
        assert_eq!(counter.drained(Limits::NONE.or(&|| true)), Err(GateError::Interrupted));
        std::thread::scope(|threads| {
            let drained = threads.spawn(|| counter.drained(Limits::after(LONG)));
            std::thread::sleep(SHORT);
            assert!(!drained.is_finished(), "a request is inside");
            counter.leave();
            assert_eq!(drained.join().unwrap(), Ok(()), "the last request did not wake the control");
        });
        assert_eq!((counter.inside(), counter.state()), (0, GateState::ShutDown));
        assert_eq!(counter.drained(Limits::NONE), Ok(()), "the wait ends at once");
    });
}

#[test]
fn drained_waits_only_for_a_shutdown() {
    both(|counter| {
        assert_eq!(counter.drained(Limits::NONE), Err(GateError::NotShutDown));
        counter.stop(Limits::NONE).unwrap();
        assert_eq!(counter.drained(Limits::NONE), Err(GateError::NotShutDown));
        counter.restart().unwrap();
        // A shutdown that gives up, and a thread that waits for its end.
        counter.enter().unwrap();
        let leaves = AtomicBool::new(false);
        std::thread::scope(|threads| {
            let shutdown = threads.spawn(|| {
                let interrupt = || leaves.load(Ordering::Relaxed);
                counter.shutdown(Limits::NONE.or(&interrupt))
            });
            until(|| counter.state() == GateState::ShutDown);
            let drained = threads.spawn(|| counter.drained(Limits::after(LONG)));
            std::thread::sleep(SHORT);
            leaves.store(true, Ordering::Relaxed);
            until(|| {
                counter.wake();
                shutdown.is_finished()
            });
            assert_eq!(shutdown.join().unwrap(), Err(GateError::Interrupted));
            assert_eq!(drained.join().unwrap(), Err(GateError::NotShutDown));
        });
        assert_eq!((counter.inside(), counter.state()), (1, GateState::Normal));
        counter.leave();
    });
}

#[test]
fn who_was_refused_is_not_counted() {
    both(|counter| {
        counter.stop(Limits::NONE).unwrap();
        (0..100).for_each(|_| assert_eq!(counter.try_enter(), Err(Rejected::Stopped)));
        assert_eq!(counter.inside(), 0);
        counter.restart().unwrap();
        counter.stop(Limits::NONE).unwrap();
    });
}

#[test]
fn leaving_without_having_entered_panics() {
    let shared = SharedGate::new();
    let said = catch_unwind(AssertUnwindSafe(|| shared.leave())).expect_err("the counter is empty");
    assert!(said.downcast_ref::<&str>().is_some_and(|said| said.contains("an empty gate")));
    shared.enter().expect("the counter is as before");
    shared.leave();
    shared.stop().unwrap();

    let spread = Spread::new();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        spread.leave();
        spread.stop(Limits::NONE)
    }));
    let said = outcome.expect_err("more left than entered");
    assert!(said.downcast_ref::<&str>().is_some_and(|said| said.contains("more requests left")));
    if cfg!(debug_assertions) {
        for _ in 0..3 {
            spread.enter().unwrap();
            spread.leave();
        }
        assert_eq!(spread.inside(), 0, "other requests are not blamed");
        spread.stop(Limits::NONE).unwrap();
    }
}

/// Threads leave without having entered, while other threads make proper requests and stops. These must not
/// be affected.
#[test]
fn stray_leaves_do_not_delay_a_stop() {
    let rounds = if cfg!(miri) { 5 } else { 500 };
    let counter = SharedGate::new();
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let outcome = catch_unwind(AssertUnwindSafe(|| counter.leave()));
                    assert!(outcome.is_err(), "the counter is empty");
                    std::thread::yield_now();
                }
            });
        }
        for _ in 0..rounds {
            assert_eq!(counter.stop_for(LONG), Ok(()), "the stop lost its wake-up");
            assert_eq!(counter.inside(), 0);
            counter.restart().unwrap();
            assert_eq!(counter.inside(), 0, "a stray leave changed the count");
        }
        done.store(true, Ordering::Relaxed);
    });
    counter.enter().unwrap();
    assert_eq!(counter.inside(), 1);
}

#[test]
fn a_request_may_leave_on_another_thread() {
    let counter = SharedGate::new();
    let request = counter.request().unwrap();
    assert_eq!(counter.inside(), 1);
    std::thread::scope(|threads| {
        threads.spawn(move || drop(request));
    });
    assert_eq!(counter.inside(), 0);
    let request = counter.try_request().unwrap();
    assert_eq!(format!("{counter:?}"), "SharedGate { state: Normal, inside: 1 }");
    drop(request);
    counter.shutdown_for(LONG).unwrap();
    assert_eq!(counter.request().unwrap_err(), ShutDown);
    assert_eq!(counter.try_request().unwrap_err(), Rejected::ShutDown);
}

#[test]
fn an_interrupt_ends_a_wait() {
    both(|counter| {
        counter.enter().unwrap();
        let asked = AtomicU32::new(0);
        let interrupt = || {
            asked.fetch_add(1, Ordering::Relaxed);
            true
        };
        assert_eq!(counter.stop(Limits::NONE.or(&interrupt)), Err(GateError::Interrupted));
        assert!(asked.load(Ordering::Relaxed) > 0);
        assert_eq!(counter.state(), GateState::Normal);
        counter.leave();
    });
}

/// An interrupted shutdown has not taken place.
#[test]
fn an_interrupted_shutdown_changes_nothing() {
    both(|counter| {
        for _ in 0..2 {
            counter.enter().unwrap();
            assert_eq!(counter.shutdown(Limits::NONE.or(&|| true)), Err(GateError::Interrupted));
            assert_eq!((counter.inside(), counter.state()), (1, GateState::Normal));
            (0..7).for_each(|_| counter.enter().unwrap());
            (0..8).for_each(|_| counter.leave());
            // No request is inside, so the stop ends before the interrupt is asked.
            counter.stop(Limits::NONE).unwrap();
            counter.restart().unwrap();
        }
        counter.shutdown(Limits::NONE.or(&|| true)).unwrap();
        assert_eq!(counter.state(), GateState::ShutDown);
    });
}

/// Proxies are made and given up all the time, while the counter is stopped and restarted. Requests leave
/// through other proxies than they entered through.
#[test]
fn it_drains_while_proxies_are_being_made() {
    let spread = Spread::new();
    let (inside, done) = (AtomicU32::new(0), AtomicBool::new(false));
    std::thread::scope(|threads| {
        for _ in 0..3 {
            threads.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let entry = spread.requests.local(|| GatedWord::new(Vp::current()));
                    if entry.try_enter().is_ok() {
                        inside.fetch_add(1, Ordering::Relaxed);
                        drop(entry);
                        let exit = spread.requests.local(|| GatedWord::new(Vp::current()));
                        inside.fetch_sub(1, Ordering::Relaxed);
                        exit.leave();
                    }
                    std::thread::yield_now();
                }
            });
        }
        for _ in 0..if cfg!(miri) { 3 } else { 300 } {
            spread.stop(Limits::NONE).unwrap();
            assert_eq!(inside.load(Ordering::Relaxed), 0);
            spread.restart().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(spread.requests.proxies() < 16, "given-up proxies must be reused: {}", spread.requests.proxies());
}

/// Requests that are rejected at full speed must not keep a stop from ending.
#[test]
fn refused_requests_do_not_hold_up_a_stop() {
    both(|counter| {
        let done = AtomicBool::new(false);
        std::thread::scope(|threads| {
            for _ in 0..3 {
                threads.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        if counter.try_enter().is_ok() {
                            counter.leave();
                        }
                    }
                });
            }
            for _ in 0..if cfg!(miri) { 2 } else { 50 } {
                counter.stop(Limits::NONE).unwrap();
                counter.restart().unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
    });
}

/// A rejected request does not touch the count, not even for a moment.
#[test]
fn rejected_requests_do_not_touch_the_count() {
    let counter = SharedGate::new();
    counter.stop().unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for _ in 0..if cfg!(miri) { 50 } else { 100_000 } {
                assert_eq!(counter.try_enter(), Err(Rejected::Stopped));
            }
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            assert_eq!(counter.inside(), 0);
        }
    });
}

#[test]
#[cfg(debug_assertions)]
fn a_wait_inside_an_operation_panics() {
    let gate = SharedGate::new();
    gate.stop().unwrap();
    let wait = || squall_rcu::pin(|_| gate.enter());
    let panic = catch_unwind(AssertUnwindSafe(wait)).unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(text.contains("a gate was waited for inside an operation"), "{text}");
    // Without a wait, a gate may be used in an operation.
    gate.restart().unwrap();
    squall_rcu::pin(|_| gate.enter()).unwrap();
    gate.leave();
}

#[test]
#[cfg(debug_assertions)]
fn a_control_refused_inside_an_operation_leaves_the_gate_unchanged() {
    both(|gate| {
        let refused = |control: &dyn Fn() -> Result<(), GateError>| {
            let panic = catch_unwind(AssertUnwindSafe(|| squall_rcu::pin(|_| control()))).unwrap_err();
            let text = panic.downcast_ref::<String>().unwrap();
            assert!(text.contains("a gate was waited for inside an operation"), "{text}");
        };
        gate.enter().unwrap();
        refused(&|| gate.stop(Limits::NONE));
        refused(&|| gate.shutdown(Limits::NONE));
        refused(&|| gate.drained(Limits::NONE));
        assert_eq!((gate.state(), gate.inside()), (GateState::Normal, 1));
        gate.leave();
        // Whether a request is inside makes no difference.
        refused(&|| gate.stop(Limits::NONE));
        gate.stop(Limits::NONE).unwrap();
        refused(&|| gate.shutdown(Limits::NONE));
        assert_eq!(gate.state(), GateState::Stopped);
        squall_rcu::pin(|_| gate.restart()).unwrap();
        gate.enter().unwrap();
    });
}

#[test]
fn a_panic_of_the_interrupt_leaves_the_gate_unchanged() {
    both(|gate| {
        let panics = |control: &dyn Fn(Limits<'_>) -> Result<(), GateError>| {
            let limits = Limits::NONE.or(&|| panic!("the interrupt"));
            let panic = catch_unwind(AssertUnwindSafe(|| control(limits))).unwrap_err();
            assert_eq!(panic.downcast_ref::<&str>(), Some(&"the interrupt"));
        };
        gate.enter().unwrap();
        for _ in 0..2 {
            panics(&|limits| gate.stop(limits));
            panics(&|limits| gate.shutdown(limits));
            assert_eq!((gate.state(), gate.inside()), (GateState::Normal, 1));
        }
        gate.enter().unwrap();
        gate.leave();
        gate.leave();
        gate.stop(Limits::NONE).unwrap();
        gate.restart().unwrap();
        gate.shutdown(Limits::NONE).unwrap();
        // There is no wait, so the interrupt is not called.
        gate.drained(Limits::NONE.or(&|| panic!("the interrupt"))).unwrap();
    });
}
