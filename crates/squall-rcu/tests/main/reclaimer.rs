//! The calls that the reclaimer takes, and those it leaves to their owners.

use super::{alone, reclaimer_rests};
use squall_rcu::{
    PendingRun, ReclaimerState, RunOn, barrier, defer, pin, quiescent_do, reclaimer_state, retire,
    set_reclaimer, stats, without_callbacks,
};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any correct run takes; a broken one would take forever.
const PATIENCE: Duration = Duration::from_secs(60);

/// Defers a call. Returns a flag that the call sets.
fn deferred() -> Arc<AtomicBool> {
    let ran = Arc::new(AtomicBool::new(false));
    let says = ran.clone();
    defer(move || says.store(true, Ordering::Relaxed));
    ran
}

/// Does `work` until the call has run.
fn until_run(ran: &AtomicBool, mut work: impl FnMut()) {
    let begun = Instant::now();
    while !ran.load(Ordering::Relaxed) {
        work();
        assert!(begun.elapsed() < PATIENCE, "a deferred call is not run");
    }
}

#[test]
fn a_call_does_not_wait_for_its_kind_to_fill_a_batch() {
    let _alone = alone();
    let ran = deferred();
    // This thread keeps retiring and reclaiming for itself, but plain memory only.
    until_run(&ran, || (0..1000).for_each(|n: u64| retire(Box::new(n))));
    barrier().unwrap();
}

#[test]
fn a_call_of_a_thread_that_does_something_else_is_run() {
    let _alone = alone();
    let ran = deferred();
    let counted = AtomicU64::new(0);
    until_run(&ran, || _ = counted.fetch_add(1, Ordering::Relaxed));
}

#[test]
fn a_call_of_a_thread_that_sleeps_is_run() {
    let _alone = alone();
    let ran = deferred();
    until_run(&ran, || thread::sleep(Duration::from_millis(1)));
}

#[test]
fn a_call_of_a_thread_that_defers_little_by_little_is_run() {
    let _alone = alone();
    let ran = deferred();
    until_run(&ran, || {
        retire(Box::new(1_u64));
        thread::sleep(Duration::from_millis(3));
    });
    barrier().unwrap();
}

#[test]
fn a_call_deferred_inside_an_operation_runs() {
    let _alone = alone();
    let ran = pin(|_| deferred());
    until_run(&ran, || pin(|_| (0..100).for_each(|n: u64| retire(Box::new(n)))));
    barrier().unwrap();
}

#[test]
fn calls_deferred_by_calls_run_round_after_round() {
    let _alone = alone();
    fn nest(depth: u32, done: mpsc::Sender<()>) {
        if depth == 0 {
            return done.send(()).unwrap();
        }
        defer(move || nest(depth - 1, done));
    }
    let (done, all_done) = mpsc::channel();
    nest(20, done);
    // This thread sleeps, so the reclaimer runs all the calls.
    all_done.recv_timeout(PATIENCE).unwrap();
}

#[test]
fn pr_12_it_rests_when_nothing_is_pending_whatever_threads_do() {
    let _alone = alone();
    let stop = Arc::new(AtomicBool::new(false));
    let (told, tell) = mpsc::channel();
    let busy = {
        let stop = stop.clone();
        thread::spawn(move || {
            (0..2000).for_each(|n: u64| retire(Box::new(n)));
            barrier().unwrap();
            told.send(()).unwrap();
            while !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        })
    };
    tell.recv().unwrap();
    // The reclaimer may have to look for up to a second until it has freed the lists of the busy thread. Then
    // it rests, also beside a busy thread.
    let begun = Instant::now();
    while reclaimer_rests() == Some(false) {
        thread::sleep(Duration::from_millis(1));
        assert!(begun.elapsed() < PATIENCE, "it never rests");
    }
    assert_eq!(stats().pending_calls, 0);
    stop.store(true, Ordering::Relaxed);
    busy.join().unwrap();
}

/// Runs `call` on the reclaimer thread, as a quiescent-do.
fn on_the_reclaimer(call: impl Fn() + Send + Sync + 'static) -> PendingRun {
    let vps = squall_machine::machine().vps();
    quiescent_do(vps, RunOn::Any, move |_| {
        assert_eq!(thread::current().name(), Some("squall-reclaim"));
        call();
    })
    .unwrap()
}

#[test]
#[cfg_attr(miri, ignore = "affinity is the real machine's")]
fn co_31_runs_that_take_long_proceed_in_parallel() {
    let _alone = alone();
    let vps = squall_machine::machine().vps();
    let begun = Arc::new(AtomicUsize::new(0));
    let (counted, two) = (begun.clone(), vps.len().min(2));
    // Each run waits for another one.
    let pending = quiescent_do(vps, RunOn::Each, move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        let since = Instant::now();
        while counted.load(Ordering::Relaxed) < two {
            assert!(since.elapsed() < PATIENCE, "the runs wait for each other");
            thread::yield_now();
        }
        let runner = thread::current().name() == Some("squall-runner");
        assert!(runner || thread::current().name() == Some("squall-reclaim"));
    })
    .unwrap();
    assert_eq!(pending.wait().unwrap().panicked, 0);
    assert_eq!(begun.load(Ordering::Relaxed), vps.len());
}

/// A call on the reclaimer thread that lasts until the test ends it.
struct Endless {
    end: Arc<Barrier>,
    ended: Arc<AtomicBool>,
    run: PendingRun,
}

impl Endless {
    /// Begins the call, and returns when the reclaimer is inside.
    fn begin() -> Endless {
        let (begun, end) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let ended = Arc::new(AtomicBool::new(false));
        let (inside, leave, ends) = (begun.clone(), end.clone(), ended.clone());
        let run = on_the_reclaimer(move || {
            inside.wait();
            leave.wait();
            // Gives a caller that wrongly does not wait the chance to be seen.
            (0..1000).for_each(|_| thread::yield_now());
            ends.store(true, Ordering::Relaxed);
        });
        begun.wait();
        Endless { end, ended, run }
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    fn end(self) {
        self.end.wait();
        assert_eq!(self.run.wait().unwrap().panicked, 0);
    }
}

#[test]
fn a_run_on_any_vp_moves_the_reclaimer_only_if_it_must() {
    let _alone = alone();
    let machine = squall_machine::machine();
    let vps = machine.vps();
    let Some(last) = vps.iter().last().filter(|_| vps.len() > 1 && !machine.is_virtual()) else {
        println!("SKIP: one processor, or a virtual topology");
        return;
    };
    // The number of processors that the reclaimer may run on, inside a run on any of these VPs.
    let within = |vps: &squall_machine::VpSet| {
        let (tell, told) = mpsc::channel();
        let run = quiescent_do(vps, RunOn::Any, move |vp| {
            tell.send((vp, squall_sys::affinity::allowed().unwrap().len())).unwrap();
        });
        assert_eq!(run.unwrap().wait().unwrap().placed, 1);
        told.recv().unwrap()
    };
    let one = [last].into_iter().collect();
    assert_eq!(within(vps).1, vps.len());
    assert_eq!(within(&one), (last, 1));
    assert_eq!(within(vps).1, vps.len(), "the reclaimer has not moved back");
}

/// Begins a slow quiescent-do in a deferred call. Returns a flag that its end sets.
fn slow_run_of_a_call() -> Arc<AtomicBool> {
    let ended = Arc::new(AtomicBool::new(false));
    let sets = ended.clone();
    defer(move || {
        let slow = move |_| {
            thread::sleep(Duration::from_millis(20));
            sets.store(true, Ordering::Relaxed);
        };
        drop(quiescent_do(squall_machine::machine().vps(), RunOn::Each, slow).unwrap());
    });
    ended
}

#[test]
fn a_barrier_waits_for_the_quiescent_dos_that_the_calls_began() {
    let _alone = alone();
    for allowed in [true, false] {
        set_reclaimer(allowed);
        let ended = slow_run_of_a_call();
        barrier().unwrap();
        assert!(ended.load(Ordering::Relaxed), "the reclaimer is allowed: {allowed}");
    }
    set_reclaimer(true);
}

#[test]
fn switching_off_waits_for_the_call_that_the_reclaimer_runs() {
    let _alone = alone();
    let call = Endless::begin();
    thread::scope(|scope| {
        scope.spawn(|| {
            set_reclaimer(false);
            assert!(call.has_ended(), "the reclaimer still runs a call");
            assert_eq!(reclaimer_state(), ReclaimerState::Off);
        });
        while reclaimer_state() != ReclaimerState::Stopping {
            thread::yield_now();
        }
        call.end.wait();
    });
    assert_eq!(call.run.wait().unwrap().panicked, 0);
    set_reclaimer(true);
}

#[test]
fn switching_off_does_not_wait_where_that_could_be_a_deadlock() {
    let _alone = alone();
    let call = Endless::begin();
    // Each of these would wait for ever: only this thread ends the call.
    pin(|_| set_reclaimer(false));
    without_callbacks(|| set_reclaimer(false));
    assert_eq!((reclaimer_state(), call.has_ended()), (ReclaimerState::Stopping, false));
    set_reclaimer(true);
    assert_eq!(reclaimer_state(), ReclaimerState::Running);
    call.end();
}

#[test]
fn the_reclaimer_can_switch_itself_off() {
    let _alone = alone();
    let outcome = on_the_reclaimer(|| {
        set_reclaimer(false);
        assert_eq!(reclaimer_state(), ReclaimerState::Stopping);
    });
    assert_eq!(outcome.wait().unwrap().panicked, 0);
    set_reclaimer(false);
    assert_eq!(reclaimer_state(), ReclaimerState::Off);
    set_reclaimer(true);
}

#[test]
fn after_switching_off_the_reclaimer_runs_nothing_and_does_not_wait_for_readers() {
    let _alone = alone();
    let (begun, end) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let reader = {
        let (begun, end) = (begun.clone(), end.clone());
        thread::spawn(move || {
            pin(|_| {
                begun.wait();
                end.wait();
            });
        })
    };
    begun.wait();
    // The reclaimer waits for the reader before it runs this.
    let (run_on, runs_on) = mpsc::channel();
    let vps = squall_machine::machine().vps();
    let pending =
        quiescent_do(vps, RunOn::Any, move |_| run_on.send(thread::current().id()).unwrap()).unwrap();
    set_reclaimer(false);
    assert_eq!(reclaimer_state(), ReclaimerState::Off);
    end.wait();
    reader.join().unwrap();
    assert_eq!(pending.wait().unwrap().panicked, 0);
    assert_eq!(runs_on.recv().unwrap(), thread::current().id());
    set_reclaimer(true);
}
