//! Request counters, from outside: the rules of CO-48, in both forms.

use squall_parts::gate::{
    ControlError, Limits, LocalRequests, Refused, RequestCounter, ShutDown, SpreadRequests, State,
};
use squall_machine::Vp;
use squall_machine::pervp::GatedWord;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(1);
/// Longer than any test; a wait that lasts so long has lost its wake-up.
const LONG: Duration = Duration::from_secs(60);

/// Both forms behind one face.
trait Counter: Sync {
    fn try_enter(&self) -> Result<(), Refused>;
    fn await_turn(&self);
    fn leave(&self);
    fn stop(&self, limits: Limits<'_>) -> Result<(), ControlError>;
    fn restart(&self) -> Result<(), ControlError>;
    fn shutdown(&self, limits: Limits<'_>) -> Result<(), ControlError>;
    fn drained(&self, limits: Limits<'_>) -> Result<(), ControlError>;
    fn wake(&self);
    fn inside(&self) -> u64;
    fn state(&self) -> State;

    fn enter(&self) -> Result<(), ShutDown> {
        loop {
            match self.try_enter() {
                Ok(()) => return Ok(()),
                Err(Refused::Stopped) => self.await_turn(),
                Err(Refused::ShutDown) => return Err(ShutDown),
            }
        }
    }
}

impl Counter for RequestCounter {
    fn try_enter(&self) -> Result<(), Refused> {
        self.try_enter()
    }
    fn await_turn(&self) {
        self.await_turn(Limits::NONE);
    }
    fn leave(&self) {
        self.leave();
    }
    fn stop(&self, limits: Limits<'_>) -> Result<(), ControlError> {
        self.stop_within(limits)
    }
    fn restart(&self) -> Result<(), ControlError> {
        self.restart()
    }
    fn shutdown(&self, limits: Limits<'_>) -> Result<(), ControlError> {
        self.shutdown_within(limits)
    }
    fn drained(&self, limits: Limits<'_>) -> Result<(), ControlError> {
        self.drained_within(limits)
    }
    fn wake(&self) {
        self.wake();
    }
    fn inside(&self) -> u64 {
        self.inside()
    }
    fn state(&self) -> State {
        self.state()
    }
}

/// Every call by another proxy: the same, one of a few, or one that is made for it.
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
    fn try_enter(&self) -> Result<(), Refused> {
        self.with(|local| local.try_enter())
    }
    fn await_turn(&self) {
        self.with(|local| local.await_turn(Limits::NONE));
    }
    fn leave(&self) {
        self.with(|local| local.leave());
    }
    fn stop(&self, limits: Limits<'_>) -> Result<(), ControlError> {
        self.requests.stop(limits)
    }
    fn restart(&self) -> Result<(), ControlError> {
        self.requests.restart()
    }
    fn shutdown(&self, limits: Limits<'_>) -> Result<(), ControlError> {
        self.requests.shutdown(limits)
    }
    fn drained(&self, limits: Limits<'_>) -> Result<(), ControlError> {
        self.requests.drained(limits)
    }
    fn wake(&self) {
        self.requests.wake();
    }
    fn inside(&self) -> u64 {
        self.requests.inside()
    }
    fn state(&self) -> State {
        self.requests.state()
    }
}

/// Runs a test with both forms.
fn both(test: impl Fn(&dyn Counter)) {
    test(&RequestCounter::new());
    test(&Spread::new());
}

/// Waits until something is so that others make so.
fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        std::thread::yield_now();
    }
}

/// Waits until requests are refused so. One that enters all the same leaves again.
fn until_refused(counter: &dyn Counter, why: Refused) {
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
                        assert_eq!(made.load(Ordering::Relaxed) % 2, 0, "inside while it is being made");
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
        assert_eq!((counter.inside(), counter.state()), (0, State::Normal));
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
            until(|| counter.state() == State::ShutDown);
            // Each proxy, as far as calls go round by it.
            (0..7).for_each(|_| until_refused(counter, Refused::ShutDown));
            assert_eq!(counter.enter(), Err(ShutDown));
            assert_eq!(counter.inside(), 2);
            counter.leave();
            assert!(!ended.load(Ordering::Relaxed), "one was inside");
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
            until(|| counter.state() == State::Stopped);
            // The first waits for who is inside.
            assert_eq!(counter.stop(Limits::NONE), Err(ControlError::Stopped));
            assert_eq!(counter.restart(), Err(ControlError::Busy));
            assert_eq!(counter.shutdown(Limits::NONE), Err(ControlError::Busy));
            counter.leave();
            assert_eq!(first.join().unwrap(), Ok(()));
        });
        assert_eq!(counter.stop(Limits::NONE), Err(ControlError::Stopped));
        counter.restart().unwrap();
        assert_eq!(counter.restart(), Err(ControlError::NotStopped));
        assert_eq!(counter.try_enter(), Ok(()));
        counter.leave();
    });
}

#[test]
fn rule_5_after_a_shutdown_nothing_goes_any_more() {
    both(|counter| {
        counter.shutdown(Limits::NONE).unwrap();
        assert_eq!(counter.enter(), Err(ShutDown));
        assert_eq!(counter.stop(Limits::NONE), Err(ControlError::ShutDown));
        assert_eq!(counter.restart(), Err(ControlError::ShutDown));
        assert_eq!(counter.shutdown(Limits::NONE), Err(ControlError::ShutDown));
        assert_eq!((counter.inside(), counter.state()), (0, State::ShutDown));
    });
}

#[test]
fn rules_6_and_7_requests_wait_while_it_is_stopped() {
    both(|counter| {
        counter.stop(Limits::NONE).unwrap();
        assert_eq!(counter.try_enter(), Err(Refused::Stopped));
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
            assert!(waiting.iter().all(|request| !request.is_finished()), "none is admitted");
            counter.shutdown(Limits::NONE).unwrap();
            assert!(waiting.into_iter().all(|request| request.join().unwrap() == Err(ShutDown)));
        });
    });
}

#[test]
fn a_stop_that_gives_up_has_changed_nothing() {
    both(|counter| {
        counter.enter().unwrap();
        assert_eq!(counter.stop(Limits::after(SHORT)), Err(ControlError::TimedOut));
        assert_eq!((counter.inside(), counter.state()), (1, State::Normal));
        counter.enter().unwrap();
        counter.leave();
        let stopping = AtomicBool::new(true);
        std::thread::scope(|threads| {
            // Whoever waits meanwhile is admitted when it gives up.
            threads.spawn(|| {
                until(|| counter.state() == State::Stopped || !stopping.load(Ordering::Relaxed));
                counter.enter().unwrap();
                counter.leave();
            });
            assert_eq!(counter.stop(Limits::after(20 * SHORT)), Err(ControlError::TimedOut));
            stopping.store(false, Ordering::Relaxed);
        });
        counter.leave();
        counter.stop(Limits::NONE).unwrap();
        counter.restart().unwrap();
    });
}

#[test]
fn a_shutdown_whose_time_is_over_stays_in_force() {
    both(|counter| {
        counter.enter().unwrap();
        assert_eq!(counter.shutdown(Limits::after(SHORT)), Err(ControlError::TimedOut));
        assert_eq!(counter.enter(), Err(ShutDown));
        assert_eq!(counter.inside(), 1);
        assert_eq!(counter.drained(Limits::after(SHORT)), Err(ControlError::TimedOut));
        assert_eq!(counter.drained(Limits::NONE.or(&|| true)), Err(ControlError::Interrupted));
        std::thread::scope(|threads| {
            let drained = threads.spawn(|| counter.drained(Limits::after(LONG)));
            std::thread::sleep(SHORT);
            assert!(!drained.is_finished(), "one is inside");
            counter.leave();
            assert_eq!(drained.join().unwrap(), Ok(()), "the last one's leaving woke nobody");
        });
        assert_eq!((counter.inside(), counter.state()), (0, State::ShutDown));
        assert_eq!(counter.drained(Limits::NONE), Ok(()), "it ends at once");
    });
}

#[test]
fn only_a_shutdown_is_waited_for() {
    both(|counter| {
        assert_eq!(counter.drained(Limits::NONE), Err(ControlError::NotShutDown));
        counter.stop(Limits::NONE).unwrap();
        assert_eq!(counter.drained(Limits::NONE), Err(ControlError::NotShutDown));
        counter.restart().unwrap();
        // A shutdown that gives up, and one who waits for its end.
        counter.enter().unwrap();
        let leaves = AtomicBool::new(false);
        std::thread::scope(|threads| {
            let shutdown = threads.spawn(|| {
                let interrupt = || leaves.load(Ordering::Relaxed);
                counter.shutdown(Limits::NONE.or(&interrupt))
            });
            until(|| counter.state() == State::ShutDown);
            let drained = threads.spawn(|| counter.drained(Limits::after(LONG)));
            std::thread::sleep(SHORT);
            leaves.store(true, Ordering::Relaxed);
            until(|| {
                counter.wake();
                shutdown.is_finished()
            });
            assert_eq!(shutdown.join().unwrap(), Err(ControlError::Interrupted));
            assert_eq!(drained.join().unwrap(), Err(ControlError::NotShutDown));
        });
        assert_eq!((counter.inside(), counter.state()), (1, State::Normal));
        counter.leave();
    });
}

#[test]
fn who_was_refused_is_not_counted() {
    both(|counter| {
        counter.stop(Limits::NONE).unwrap();
        (0..100).for_each(|_| assert_eq!(counter.try_enter(), Err(Refused::Stopped)));
        assert_eq!(counter.inside(), 0);
        counter.restart().unwrap();
        counter.stop(Limits::NONE).unwrap();
    });
}

#[test]
fn leaving_without_having_entered_panics() {
    let shared = RequestCounter::new();
    let said = catch_unwind(AssertUnwindSafe(|| shared.leave())).expect_err("nobody is inside");
    assert!(said.downcast_ref::<&str>().is_some_and(|said| said.contains("in which nobody is")));
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
        assert_eq!(spread.inside(), 0, "the others are not blamed for it");
        spread.stop(Limits::NONE).unwrap();
    }
}

/// Threads that leave without having entered, beside requests that did and stops: nothing that these see is changed.
#[test]
fn leaves_of_none_hold_up_no_stop() {
    let rounds = if cfg!(miri) { 5 } else { 500 };
    let counter = RequestCounter::new();
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let outcome = catch_unwind(AssertUnwindSafe(|| counter.leave()));
                    assert!(outcome.is_err(), "nobody enters");
                    std::thread::yield_now();
                }
            });
        }
        for _ in 0..rounds {
            assert_eq!(counter.stop_for(LONG), Ok(()), "a stop missed its signal, or there was none");
            assert_eq!(counter.inside(), 0);
            counter.restart().unwrap();
            assert_eq!(counter.inside(), 0, "one more would let a request in beside a stop");
        }
        done.store(true, Ordering::Relaxed);
    });
    counter.enter().unwrap();
    assert_eq!(counter.inside(), 1);
}

#[test]
fn a_request_may_leave_on_another_thread() {
    let counter = RequestCounter::new();
    let request = counter.request().unwrap();
    assert_eq!(counter.inside(), 1);
    std::thread::scope(|threads| {
        threads.spawn(move || drop(request));
    });
    assert_eq!(counter.inside(), 0);
    let request = counter.try_request().unwrap();
    assert_eq!(format!("{counter:?}"), "RequestCounter { state: Normal, inside: 1 }");
    drop(request);
    counter.shutdown_for(SHORT).unwrap();
    assert_eq!(counter.request().unwrap_err(), ShutDown);
    assert_eq!(counter.try_request().unwrap_err(), Refused::ShutDown);
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
        assert_eq!(counter.stop(Limits::NONE.or(&interrupt)), Err(ControlError::Interrupted));
        assert!(asked.load(Ordering::Relaxed) > 0);
        assert_eq!(counter.state(), State::Normal);
        counter.leave();
    });
}

/// A shutdown that is interrupted has not taken place, whatever it was before.
#[test]
fn an_interrupted_shutdown_changes_nothing() {
    both(|counter| {
        for _ in 0..2 {
            counter.enter().unwrap();
            assert_eq!(counter.shutdown(Limits::NONE.or(&|| true)), Err(ControlError::Interrupted));
            assert_eq!((counter.inside(), counter.state()), (1, State::Normal));
            (0..7).for_each(|_| counter.enter().unwrap());
            (0..8).for_each(|_| counter.leave());
            // Nobody is inside: it ends before anybody asks.
            counter.stop(Limits::NONE).unwrap();
            counter.restart().unwrap();
        }
        counter.shutdown(Limits::NONE.or(&|| true)).unwrap();
        assert_eq!(counter.state(), State::ShutDown);
    });
}

/// Proxies are made and given up all the time, and requests leave by others than they entered by, while it is stopped and
/// restarted.
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
    assert!(spread.requests.proxies() < 16, "given-up proxies are used again: {}", spread.requests.proxies());
}

/// Requests that are refused as fast as they can come do not keep a stop from ending.
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

/// Who is refused does not touch the count, not even for a moment.
#[test]
fn a_stop_sees_nothing_of_those_it_refuses() {
    let counter = RequestCounter::new();
    counter.stop().unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for _ in 0..if cfg!(miri) { 50 } else { 100_000 } {
                assert_eq!(counter.try_enter(), Err(Refused::Stopped));
            }
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            assert_eq!(counter.inside(), 0);
        }
    });
}
