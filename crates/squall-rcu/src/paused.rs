//! Tests that stop a thread at a pause point of this crate (`squall_sys::pause`).

use crate::thread::DOMAIN;
use crate::{
    ReclaimerState, WaitError, barrier, defer, pin, reclaim, reclaimer_state, retire, set_reclaimer, stats,
    wait, wait_until,
};
use squall_sys::pause::{self, Hooked};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// Waits until no other test of this module runs. The reclaimer is off, so only the tests' threads run
/// deferred calls.
fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    let alone = LOCK.lock().unwrap_or_else(|poison| poison.into_inner());
    set_reclaimer(false);
    assert_eq!(reclaimer_state(), ReclaimerState::Off);
    while stats().pending_calls > 0 {
        barrier().unwrap();
    }
    alone
}

/// Two ends of a meeting: a thread says that it has stopped, and waits until it may go on.
fn meeting() -> (impl Fn() + Send + Sync + 'static, Receiver<()>, Sender<()>) {
    let (stopped, has_stopped) = channel();
    let (go_on, may_go_on) = channel();
    let may_go_on = Mutex::new(may_go_on);
    let stop = move || {
        stopped.send(()).unwrap();
        // An error says that the other thread has failed; then this one goes on too.
        let _ = may_go_on.lock().unwrap().recv();
    };
    (stop, has_stopped, go_on)
}

/// Starts a thread that stays inside an operation until it gets a message.
fn reader() -> (JoinHandle<()>, Sender<()>) {
    let (stop, has_stopped, go_on) = meeting();
    let reader = thread::spawn(move || pin(|_| stop()));
    has_stopped.recv().unwrap();
    (reader, go_on)
}

/// Defers a call that sets the result.
fn defer_flag() -> Arc<AtomicBool> {
    let ran = Arc::new(AtomicBool::new(false));
    let sets = ran.clone();
    defer(move || sets.store(true, Ordering::SeqCst));
    ran
}

/// Defers a call that sets the result. The call runs no users' code, as far as the library knows.
fn defer_memory_flag() -> Arc<AtomicBool> {
    unsafe fn set(data: *mut (), _bytes: u32) {
        // SAFETY: runs once, with the pointer from `Arc::into_raw` below.
        unsafe { Arc::from_raw(data.cast::<AtomicBool>().cast_const()) }.store(true, Ordering::SeqCst);
    }
    let ran = Arc::new(AtomicBool::new(false));
    let data = Arc::into_raw(ran.clone()).cast_mut().cast();
    // SAFETY: `set` may run once, on any thread and at any time. No operation reads the flag.
    unsafe { crate::__defer_memory(set, data, 0) };
    ran
}

/// Calls `barrier` while another thread has stopped with calls that are in no list. Lets that thread go on
/// once the barrier waits for it, or has returned. Returns whether the other thread's call has run when the
/// barrier returns.
fn barrier_beside(has_stopped: &Receiver<()>, go_on: Sender<()>, ran: &AtomicBool) -> bool {
    has_stopped.recv().unwrap();
    let go_on_now = go_on.clone();
    let _hooked = pause::hook(move |name| {
        if name == "wait for a run" {
            let _ = go_on_now.send(());
        }
    });
    barrier().unwrap();
    let has_run = ran.load(Ordering::SeqCst);
    let _ = go_on.send(());
    has_run
}

/// Stops this thread when it moves calls to the orphans.
fn stop_at_adopt(stop: impl Fn() + Send + Sync + 'static) -> Hooked {
    pause::hook(move |name| {
        if name == "adopt" {
            stop();
        }
    })
}

#[test]
fn a_barrier_waits_for_calls_that_an_ending_thread_hands_over() {
    let _alone = alone();
    let (stop, has_stopped, go_on) = meeting();
    let (gives, ran) = channel();
    let ending = thread::spawn(move || {
        gives.send(defer_flag()).unwrap();
        // Lasts until the thread has ended: its exit hook hands the call over.
        std::mem::forget(stop_at_adopt(stop));
    });
    let ran = ran.recv().unwrap();
    assert!(barrier_beside(&has_stopped, go_on, &ran), "the barrier missed a call of an ending thread");
    ending.join().unwrap();
}

#[test]
fn a_barrier_waits_for_unripe_calls_that_reclaim_hands_over() {
    let _alone = alone();
    let (reader, end_reading) = reader();
    let (stop, has_stopped, go_on) = meeting();
    let (gives, ran) = channel();
    let reclaiming = thread::spawn(move || {
        gives.send(defer_flag()).unwrap();
        let hooked = stop_at_adopt(stop);
        // The reader is inside, so the call is not ripe.
        assert_eq!(reclaim(), Ok(0));
        drop(hooked);
        end_reading.send(()).unwrap();
    });
    let ran = ran.recv().unwrap();
    assert!(barrier_beside(&has_stopped, go_on, &ran), "the barrier missed a call that reclaim handed over");
    reclaiming.join().unwrap();
    reader.join().unwrap();
}

#[test]
fn a_barrier_waits_for_calls_that_a_throttled_thread_took_from_ended_threads() {
    let _alone = alone();
    let (reader, end_reading) = reader();
    let ended = thread::spawn(|| {
        let ran = defer_memory_flag();
        // More than the bound. The reader is inside, so the calls are not ripe.
        pin(|_| (0..3000).for_each(|_| retire(Box::new(0_u64))));
        ran
    });
    let ran = ended.join().unwrap();
    end_reading.send(()).unwrap();
    reader.join().unwrap();
    assert!(stats().pending_calls > 2048, "the ended thread left too few calls");
    let (stop, has_stopped, go_on) = meeting();
    let throttled = thread::spawn(move || {
        let _hooked = pause::hook(move |name| {
            if name == "orphans taken" {
                stop();
            }
        });
        defer(|| ());
    });
    assert!(barrier_beside(&has_stopped, go_on, &ran), "the barrier missed a call that a thread had taken");
    throttled.join().unwrap();
}

#[test]
fn reclaim_runs_the_calls_of_an_ended_thread() {
    let _alone = alone();
    let ran = thread::spawn(defer_flag).join().unwrap();
    assert_eq!(reclaim(), Ok(1));
    assert!(ran.load(Ordering::SeqCst));
}

/// A thread drives a grace period and gives up at its deadline, while another one sleeps until it ends.
#[test]
fn a_waiter_goes_on_when_the_driver_gives_up() {
    let _alone = alone();
    let (reader, end_reading) = reader();
    let (stop, drives, go_on) = meeting();
    let driver = thread::spawn(move || {
        let is_first = AtomicBool::new(true);
        let _hooked = pause::hook(move |name| {
            if name == "drive" && is_first.swap(false, Ordering::SeqCst) {
                stop();
            }
        });
        let given_up = wait_until(Instant::now());
        end_reading.send(()).unwrap();
        given_up
    });
    drives.recv().unwrap();
    let waiter = thread::spawn(wait);
    while DOMAIN.grace.sleepers() == 0 {
        thread::yield_now();
    }
    go_on.send(()).unwrap();
    assert_eq!(driver.join().unwrap(), Err(WaitError::Timeout));
    assert_eq!(waiter.join().unwrap(), Ok(()));
    reader.join().unwrap();
}

/// A runner is stopped on the way to a VP. The reclaimer runs there instead, also in the next tour. When the
/// runner has arrived, the VP is served again.
#[test]
#[cfg_attr(miri, ignore = "affinity is the real machine's")]
fn co_30_the_reclaimer_takes_over_the_run_of_a_runner_that_does_not_arrive() {
    let _alone = alone();
    let vps = squall_machine::machine().vps().clone();
    if vps.len() < 2 {
        println!("SKIP: one processor");
        return;
    }
    set_reclaimer(true);
    // Runs a tour with this hook on its runners. Returns the number of runs that the reclaimer made.
    let tour = |hook: Option<Arc<dyn Fn() + Send + Sync>>| {
        let (tell, ran) = channel();
        let tell = Mutex::new(tell);
        let pending = crate::quiescent_do(&vps, crate::RunOn::Each, move |_| {
            tell.lock().unwrap().send(thread::current().name().map(str::to_owned)).unwrap();
            if let Some(hook) = hook.clone() {
                // Lasts until the runner ends.
                std::mem::forget(pause::hook(move |name| {
                    if name == "arrive" {
                        hook()
                    }
                }));
            }
        });
        let outcome = pending.unwrap().wait().unwrap();
        let ran: Vec<_> = ran.try_iter().flatten().collect();
        let made_by = |thread: &str| ran.iter().filter(|name| *name == thread).count();
        assert_eq!((outcome.placed, outcome.panicked), (made_by("squall-runner"), 0));
        assert_eq!(outcome.displaced, made_by("squall-reclaim"));
        assert_eq!(ran.len(), vps.len());
        outcome.displaced
    };
    let (stop, has_stopped, go_on) = meeting();
    let is_first = AtomicBool::new(true);
    let stop_first: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
        if is_first.swap(false, Ordering::SeqCst) {
            stop()
        }
    });
    // The first runner may need so long that a second one serves the other VP, without being stopped.
    let displaced = loop {
        let displaced = tour(Some(stop_first.clone()));
        if has_stopped.try_recv().is_ok() {
            break displaced;
        }
    };
    assert!(displaced > 0, "the reclaimer did not take over the run of the stopped runner");
    assert!(tour(None) > 0, "another runner was sent after the stopped one");
    go_on.send(()).unwrap();
    while tour(None) > 0 {
        thread::yield_now();
    }
}

/// Tells a test that its thread has ended.
#[cfg(not(miri))]
struct EndFlag(Arc<AtomicBool>);

#[cfg(not(miri))]
impl Drop for EndFlag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[cfg(not(miri))]
thread_local! {
    static END_FLAG: std::cell::OnceCell<EndFlag> = const { std::cell::OnceCell::new() };
}

/// Runs a tour on the calling thread, which acts as the reclaimer. The first runner stops on its way to the
/// second VP, and no other runner may start. Returns the number of displaced runs, and the end of the
/// meeting at which the runner waits. Returns nothing if the runner came so late that it did not stop.
#[cfg(not(miri))]
fn tour_with_a_late_runner(vps: &[squall_machine::Vp], capture: Arc<()>) -> Option<(usize, Sender<()>)> {
    use crate::runners::{NAME, PERMITTED, run_on_each};
    let (stop, has_stopped, go_on) = meeting();
    let stop = Arc::new(stop);
    let (ran, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (runs, ends) = (ran.clone(), ended.clone());
    let function: crate::runners::Function = Arc::new(move |_| {
        let _captured = &capture;
        if thread::current().name() == Some(NAME) && !runs.swap(true, Ordering::SeqCst) {
            END_FLAG.with(|flag| _ = flag.set(EndFlag(ends.clone())));
            let stop = stop.clone();
            // Lasts until the runner ends.
            std::mem::forget(pause::hook(move |name| {
                if matches!(name, "arrive" | "arrived") {
                    stop();
                }
            }));
        }
    });
    PERMITTED.store(1, Ordering::SeqCst);
    let (released, has_stopped) = (go_on.clone(), Mutex::new(has_stopped));
    let stopped = Arc::new(AtomicBool::new(false));
    let stops = stopped.clone();
    let hooked = pause::hook(move |name| {
        if name == "tour over" {
            let has_stopped = has_stopped.lock().unwrap();
            // All runs are over. A runner that made one stops, or has found no other VP and ends.
            while has_stopped.try_recv().is_err() {
                if !ran.load(Ordering::SeqCst) || ended.load(Ordering::SeqCst) {
                    return;
                }
                thread::yield_now();
            }
            released.send(()).unwrap();
            // The runner has looked for the tour.
            has_stopped.recv().unwrap();
            stops.store(true, Ordering::SeqCst);
        }
    });
    let outcome = run_on_each(vps, &function);
    drop(hooked);
    PERMITTED.store(usize::MAX, Ordering::SeqCst);
    if !stopped.load(Ordering::SeqCst) {
        return None;
    }
    let outcome = outcome.unwrap();
    assert_eq!((outcome.placed, outcome.panicked), (1, 0));
    Some((outcome.displaced, go_on))
}

#[cfg(not(miri))]
#[test]
fn a_late_runner_alone_holds_up_no_run_and_keeps_no_capture() {
    let _alone = alone();
    let vps: Vec<_> = squall_machine::machine().vps().iter().collect();
    let &[first, second, ..] = &vps[..] else {
        println!("SKIP: one processor");
        return;
    };
    let (tell, told) = channel();
    let tour = thread::spawn(move || {
        loop {
            let capture = Arc::new(());
            let captured = Arc::downgrade(&capture);
            // The last run has no runner.
            let late = tour_with_a_late_runner(&[first, second, first], capture);
            let Some((displaced, go_on)) = late else { continue };
            tell.send((displaced, captured.strong_count())).unwrap();
            go_on.send(()).unwrap();
            return;
        }
    });
    let outcome = told.recv_timeout(std::time::Duration::from_secs(60));
    assert_eq!(outcome, Ok((2, 0)), "runs on the guide, and captures kept by the late runner");
    tour.join().unwrap();
}

/// Signals that arrive between a store and the load that follows it.
#[cfg(all(target_os = "linux", not(miri)))]
mod signals {
    use super::alone;
    use crate::raw::defer::BATCH_CALLS;
    use crate::{Marker, MarkerState, PinError, barrier, defer, pin, stats, try_pin};
    use squall_sys::pause::{self, Hooked};
    use std::cell::Cell;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    /// Calls in the handler.
    type Action = fn();

    thread_local! {
        static ACTION: Cell<Option<Action>> = const { Cell::new(None) };
    }

    extern "C" fn on_signal(_: libc::c_int) {
        ACTION.get().into_iter().for_each(|action| action());
    }

    /// Runs `action` in a signal handler when this thread first reaches the point.
    fn signal_at(point: &'static str, action: Action) -> Hooked {
        ACTION.set(Some(action));
        let handler: extern "C" fn(libc::c_int) = on_signal;
        // SAFETY: the handler reads a thread-local without destructor and calls code made for handlers.
        unsafe { libc::signal(libc::SIGUSR1, handler as *const () as libc::sighandler_t) };
        let sent = AtomicBool::new(false);
        pause::hook(move |name| {
            if name == point && !sent.swap(true, Ordering::Relaxed) {
                // SAFETY: the handler is set. It runs on this thread, before `raise` returns.
                unsafe { libc::raise(libc::SIGUSR1) };
            }
        })
    }

    #[test]
    fn a_handler_inside_a_registration_is_rejected() {
        static REJECTED: AtomicU64 = AtomicU64::new(0);
        let _alone = alone();
        let thread = std::thread::spawn(|| {
            let count = || {
                let rejected = try_pin(|_| ()) == Err(PinError::Reentrant);
                REJECTED.fetch_add(u64::from(rejected), Ordering::Relaxed);
            };
            let hooked = signal_at("cold", count);
            assert_eq!(try_pin(|_| ()), Ok(()));
            drop(hooked);
            // The second signal arrives when the thread gives its record back.
            std::mem::forget(signal_at("cold", count));
        });
        thread.join().unwrap();
        assert_eq!(REJECTED.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_handler_inside_an_entry_does_not_end_the_operation() {
        let _alone = alone();
        crate::register().unwrap();
        static INNER: AtomicU64 = AtomicU64::new(0);
        let hooked = signal_at("entered", || pin(|_| _ = INNER.fetch_add(1, Ordering::Relaxed)));
        let marker = pin(|_| {
            let marker = Marker::set();
            assert_eq!(marker.update_and_check(), Ok(MarkerState::Active));
            marker
        });
        drop(hooked);
        assert_eq!(INNER.load(Ordering::Relaxed), 1);
        assert_eq!(marker.wait(), Ok(()));
    }

    #[test]
    fn a_handler_inside_a_leave_does_not_run_the_calls_of_that_operation() {
        // The largest number of batches that wait for each other.
        const CALLS: usize = 8 * BATCH_CALLS;
        static IS_INSIDE: AtomicBool = AtomicBool::new(false);
        static RAN: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
        let _alone = alone();
        let hooked = signal_at("left", || {
            IS_INSIDE.store(true, Ordering::Relaxed);
            pin(|_| ());
            IS_INSIDE.store(false, Ordering::Relaxed);
        });
        let call = || _ = RAN[usize::from(IS_INSIDE.load(Ordering::Relaxed))].fetch_add(1, Ordering::Relaxed);
        pin(|_| (0..CALLS).for_each(|_| defer(call)));
        drop(hooked);
        barrier().unwrap();
        let ran = RAN.each_ref().map(|ran| ran.load(Ordering::Relaxed));
        assert_eq!(ran, [CALLS as u64, 0], "calls run outside the handler, and in it");
    }

    #[test]
    fn a_handler_inside_a_list_may_not_add_to_it() {
        static RAN: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
        let _alone = alone();
        crate::register().unwrap();
        for pending in 0..2 {
            // The first call of a list takes another path than the second.
            let before = stats().leaked;
            let hooked = signal_at("busy", || defer(|| _ = RAN[1].fetch_add(1, Ordering::Relaxed)));
            defer(|| _ = RAN[0].fetch_add(1, Ordering::Relaxed));
            drop(hooked);
            assert_eq!(stats().leaked, before + 1, "with {pending} calls pending");
        }
        barrier().unwrap();
        assert_eq!(RAN.each_ref().map(|ran| ran.load(Ordering::Relaxed)), [2, 0]);
    }
}
