//! Gates as objects, in both forms. The rules of the gate itself are tested in `squall-parts`.

use squall_core::swap::{Replacement, Swap};
use squall_core::{Handle, Owned, RepContext, Root};
use squall_machine::ClusterSize;
use squall_objects::gate::{self, Gate, GateError, GateExt, GateState, Rejected, ShutDown};
use squall_parts::gate::{Step, Tasks};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(1);
/// Longer than any test. A wait of this length has lost its wake-up.
const LONG: Duration = Duration::from_secs(60);

pub(crate) fn both(test: impl Fn(Owned<dyn Gate>)) {
    test(gate::shared());
    test(gate::distributed());
}

fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        std::thread::yield_now();
    }
}

#[test]
fn requests_enter_and_leave_on_any_thread() {
    both(|owned| {
        let handle = owned.handle();
        let requests: Vec<_> = (0..4)
            .map(|_| std::thread::spawn(move || handle.request().unwrap()))
            .map(|thread| thread.join().unwrap())
            .collect();
        assert_eq!(handle.inside(), 4);
        assert_eq!(handle.stop_for(SHORT), Err(GateError::TimedOut));
        assert_eq!((handle.inside(), handle.state()), (4, GateState::Normal));
        drop(requests);
        handle.stop().unwrap();
        assert_eq!((handle.inside(), handle.state()), (0, GateState::Stopped));
        assert_eq!(handle.request_now().unwrap_err(), Rejected::Stopped);
        assert_eq!(handle.stop(), Err(GateError::Stopped));
        handle.restart().unwrap();
        drop(handle.request_now().unwrap());
        handle.shutdown().unwrap();
        assert_eq!(handle.request().unwrap_err(), ShutDown);
        assert_eq!(handle.enter().unwrap_err(), ShutDown);
        assert_eq!(handle.restart(), Err(GateError::ShutDown));
        assert_eq!(handle.shutdown_for(SHORT), Err(GateError::ShutDown));
    });
}

#[test]
fn nothing_is_inside_while_it_is_stopped() {
    both(|owned| {
        let handle = owned.handle();
        let (odd, done) = (AtomicU32::new(0), AtomicBool::new(false));
        std::thread::scope(|threads| {
            for _ in 0..3 {
                threads.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        let _request = handle.request().unwrap();
                        assert_eq!(odd.load(Ordering::Relaxed) % 2, 0, "inside while it is stopped");
                    }
                });
            }
            for _ in 0..200 {
                handle.stop().unwrap();
                odd.fetch_add(1, Ordering::Relaxed);
                std::thread::yield_now();
                odd.fetch_add(1, Ordering::Relaxed);
                handle.restart().unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!(handle.inside(), 0);
    });
}

#[test]
fn those_that_wait_are_admitted_or_refused() {
    both(|owned| {
        let handle = owned.handle();
        for last in [false, true] {
            handle.stop().unwrap();
            let came = AtomicU32::new(0);
            std::thread::scope(|threads| {
                let waits = || {
                    came.fetch_add(1, Ordering::Relaxed);
                    handle.request().map(drop)
                };
                let waiting: Vec<_> = (0..3).map(|_| threads.spawn(waits)).collect();
                until(|| came.load(Ordering::Relaxed) == 3);
                // No event shows that a request waits. The check cannot fail on a correct gate.
                std::thread::sleep(SHORT);
                assert!(waiting.iter().all(|request| !request.is_finished()), "none is admitted");
                if last { handle.shutdown() } else { handle.restart() }.unwrap();
                let expected = if last { Err(ShutDown) } else { Ok(()) };
                assert!(waiting.into_iter().all(|request| request.join().unwrap() == expected));
            });
        }
    });
}

/// A representative is made while a stop waits for the request that needs it (CO-16, CO-51).
#[test]
fn a_miss_does_not_wait_for_a_stop() {
    let owned = gate::distributed();
    let handle: Handle<dyn Gate> = owned.handle();
    let request = handle.request().unwrap();
    std::thread::scope(|threads| {
        let stop = threads.spawn(move || handle.stop());
        until(|| handle.state() == GateState::Stopped);
        // On every VP, since most have no representative yet.
        let vps = squall_machine::machine().vp_limit();
        for vp in 0..vps {
            let call = move || {
                if squall_machine::machine().is_virtual() {
                    squall_machine::Vp::assign_current(squall_machine::Vp::new(vp as u32)).unwrap();
                } else if squall_sys::affinity::restrict_to(&[vp]).is_err() {
                    return;
                }
                // A new representative starts in the present state, or in the one that the stop is setting. A
                // request that enters it leaves again.
                let refused = || handle.request_now().map(drop).err();
                until(|| refused().is_some());
                assert_eq!(refused(), Some(Rejected::Stopped));
            };
            threads.spawn(call).join().unwrap();
        }
        threads.spawn(move || drop(request)).join().unwrap();
        assert_eq!(stop.join().unwrap(), Ok(()));
    });
    handle.restart().unwrap();
    drop(handle.request().unwrap());
}

#[test]
fn a_shutdown_whose_time_was_over_is_waited_for() {
    both(|owned| {
        let handle = owned.handle();
        assert_eq!(handle.drained_for(LONG), Err(GateError::NotShutDown));
        let request = handle.request().unwrap();
        assert_eq!(handle.shutdown_for(SHORT), Err(GateError::TimedOut));
        assert_eq!(handle.drained_for(SHORT), Err(GateError::TimedOut));
        std::thread::scope(|threads| {
            let drained = threads.spawn(move || handle.drained_for(LONG));
            // The check cannot fail on a correct gate.
            std::thread::sleep(SHORT);
            assert!(!drained.is_finished(), "one is inside");
            drop(request);
            assert_eq!(drained.join().unwrap(), Ok(()));
        });
    });
}

/// A replacement for a gate, for a swap that may succeed.
pub(crate) struct Elsewhere;
pub(crate) struct ElsewhereRep;

impl Root for Elsewhere {
    type Interface = dyn Gate;
    type Rep = ElsewhereRep;

    fn make_rep(&self, _: RepContext<Elsewhere>) -> ElsewhereRep {
        ElsewhereRep
    }
}

/// Admits every request, and keeps no count.
impl Gate for ElsewhereRep {
    fn enter_now(&self) -> Result<(), Rejected> {
        Ok(())
    }
    fn leave(&self) {}
    fn await_turn(&self) {}
    fn stop(&self) -> Result<(), GateError> {
        Ok(())
    }
    fn stop_for(&self, _: Duration) -> Result<(), GateError> {
        Ok(())
    }
    fn restart(&self) -> Result<(), GateError> {
        Ok(())
    }
    fn shutdown(&self) -> Result<(), GateError> {
        Ok(())
    }
    fn shutdown_for(&self, _: Duration) -> Result<(), GateError> {
        Ok(())
    }
    fn drained_for(&self, _: Duration) -> Result<(), GateError> {
        Ok(())
    }
    fn inside(&self) -> u64 {
        0
    }
    fn state(&self) -> GateState {
        GateState::Normal
    }
    fn tasks_unarbitrated(&self) -> Arc<Tasks> {
        Arc::default()
    }
    fn step_unarbitrated(&self, _: Arc<Tasks>, _: Step) -> Result<bool, GateError> {
        Err(GateError::Interrupted)
    }
}

/// A swap interrupts a shutdown too late, and is undone. The shutdown starts again and waits for the request
/// inside.
#[test]
fn a_swap_that_is_undone_does_not_end_a_shutdown() {
    both(|owned| {
        let handle = owned.handle();
        let request = handle.request().unwrap();
        std::thread::scope(|threads| {
            let shutdown = threads.spawn(move || (handle.shutdown(), handle.inside()));
            until(|| handle.state() == GateState::ShutDown);
            for round in 0..200 {
                let other = Replacement::root(Elsewhere, ClusterSize::Machine);
                let limit = Duration::from_micros(round % 40);
                if Swap::new(handle).without_state().timeout(limit).run(other).is_ok() {
                    // The stop left in time, so the shutdown of the other thread has succeeded.
                    break;
                }
                until(|| shutdown.is_finished() || handle.state() == GateState::ShutDown);
                assert!(!shutdown.is_finished(), "a request is inside");
            }
            drop(request);
            assert_eq!(shutdown.join().unwrap(), (Ok(()), 0));
        });
    });
}

#[test]
fn the_end_of_the_object_ends_all_waits() {
    both(|owned| {
        let handle = owned.handle();
        let request = handle.request().unwrap();
        let stop = std::thread::spawn(move || handle.try_stop());
        until(|| handle.state() == GateState::Stopped);
        let (told, came) = mpsc::channel();
        let waits = std::thread::spawn(move || {
            told.send(()).unwrap();
            handle.try_await_turn()
        });
        came.recv().unwrap();
        // Mostly, the thread waits by then.
        std::thread::sleep(SHORT);
        drop(owned);
        // Both calls return. Their results depend on the order.
        let stopped = stop.join().unwrap();
        assert!(!matches!(stopped, Ok(Ok(()))), "a request was inside: {stopped:?}");
        let _ended = waits.join().unwrap();
        // The request outlives the object, so its drop has no effect.
        drop(request);
        assert!(handle.try_enter_now().is_err(), "the object is gone");
    });
}
