//! Waits of tasks: futures that a test polls without a runtime.

use super::alone;
use squall_rcu::{
    Marker, PendingRun, RunOn, WaitError, barrier, barrier_async, defer, pin, quiescent_do, set_reclaimer,
    wait_async, without_callbacks,
};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

/// Longer than any correct wait takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A waker that counts its calls, and unparks the thread of the test.
struct Bell(AtomicU64, Thread);

impl Wake for Bell {
    fn wake(self: Arc<Bell>) {
        self.0.fetch_add(1, Ordering::Relaxed);
        self.1.unpark();
    }
}

impl Bell {
    fn new() -> Arc<Bell> {
        Arc::new(Bell(AtomicU64::new(0), thread::current()))
    }

    fn poll<F: Future + Unpin>(self: &Arc<Bell>, future: &mut F) -> Poll<F::Output> {
        pin!(future).poll(&mut Context::from_waker(&Waker::from(self.clone())))
    }

    /// Polls the future only when its waker was called.
    fn run<F: Future + Unpin>(self: &Arc<Bell>, mut future: F) -> F::Output {
        loop {
            let before = self.rings();
            if let Poll::Ready(output) = self.poll(&mut future) {
                return output;
            }
            while self.rings() == before {
                thread::park();
            }
        }
    }

    fn rings(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Waits until the waker is called. Returns whether it was.
    fn await_ring(&self) -> bool {
        let begun = Instant::now();
        while self.rings() == 0 && begun.elapsed() < PATIENCE {
            thread::yield_now();
        }
        self.rings() > 0
    }
}

/// A thread inside an operation, until the test lets it leave.
struct Reader {
    leave: Arc<Barrier>,
    thread: JoinHandle<()>,
}

impl Reader {
    fn enter() -> Reader {
        let (entered, leave) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let (inside, leaves) = (entered.clone(), leave.clone());
        let thread = thread::spawn(move || {
            pin(|_| {
                inside.wait();
                leaves.wait();
            });
        });
        entered.wait();
        Reader { leave, thread }
    }

    fn leave(self) {
        self.leave.wait();
        self.thread.join().unwrap();
    }
}

#[test]
fn a_task_waits_for_the_operations_that_were_open() {
    let _alone = alone();
    let (reader, bell) = (Reader::enter(), Bell::new());
    let mut waits = wait_async();
    assert!(bell.poll(&mut waits).is_pending());
    assert_eq!(bell.rings(), 0, "an operation is open");
    reader.leave();
    assert_eq!(bell.run(waits), Ok(()));
    let marker = Marker::set();
    assert_eq!(bell.run(marker.wait_async()), Ok(()));
}

#[test]
fn a_dropped_wait_keeps_no_waker() {
    let _alone = alone();
    let (reader, bell) = (Reader::enter(), Bell::new());
    let vps = squall_machine::machine().vps();
    for _ in 0..3 {
        let (mut waits, mut all) = (wait_async(), barrier_async());
        let mut run = quiescent_do(vps, RunOn::Any, |_| ()).unwrap();
        assert!(bell.poll(&mut waits).is_pending());
        assert!(bell.poll(&mut all).is_pending());
        assert!(bell.poll(&mut run).is_pending());
    }
    assert_eq!(Arc::strong_count(&bell), 1, "a waker was kept");
    reader.leave();
    barrier().unwrap();
    assert_eq!(bell.rings(), 0);
}

#[test]
fn many_tasks_wait_at_once() {
    let _alone = alone();
    let reader = Reader::enter();
    let mut tasks: Vec<_> =
        (0..if cfg!(miri) { 5 } else { 200 }).map(|_| (wait_async(), Bell::new())).collect();
    for (waits, bell) in &mut tasks {
        assert!(bell.poll(waits).is_pending());
    }
    reader.leave();
    for (waits, bell) in tasks {
        assert_eq!(bell.run(waits), Ok(()));
    }
}

#[test]
fn an_asynchronous_barrier_runs_the_calls_of_all_threads() {
    let _alone = alone();
    for allowed in [true, false] {
        set_reclaimer(allowed);
        let ran = Arc::new(AtomicU64::new(0));
        let call = || {
            let ran = ran.clone();
            defer(move || _ = ran.fetch_add(1, Ordering::Relaxed));
        };
        let (deferred, end) = (Barrier::new(3), Barrier::new(3));
        thread::scope(|threads| {
            for _ in 0..2 {
                threads.spawn(|| {
                    call();
                    deferred.wait();
                    // Alive, so the call is still its own.
                    end.wait();
                });
            }
            deferred.wait();
            call();
            assert_eq!(Bell::new().run(barrier_async()), Ok(()));
            assert_eq!(ran.load(Ordering::Relaxed), 3);
            end.wait();
        });
    }
    set_reclaimer(true);
}

#[test]
fn a_poll_does_the_work_while_the_reclaimer_is_forbidden() {
    let _alone = alone();
    set_reclaimer(false);
    let bell = Bell::new();
    assert_eq!(bell.poll(&mut wait_async()), Poll::Ready(Ok(())));
    assert_eq!(bell.poll(&mut barrier_async()), Poll::Ready(Ok(())));
    let run = quiescent_do(squall_machine::machine().vps(), RunOn::Any, |_| ()).unwrap();
    assert_eq!(bell.run(run).unwrap().panicked, 0);
    // Where a wait would not end, it is refused.
    let refused = pin(|_| bell.poll(&mut wait_async()));
    assert_eq!(refused, Poll::Ready(Err(WaitError::InOperation)));
    let refused = without_callbacks(|| bell.poll(&mut barrier_async()));
    assert_eq!(refused, Poll::Ready(Err(WaitError::Quiet)));
    set_reclaimer(true);
}

#[test]
fn a_task_that_waits_takes_over_when_the_reclaimer_is_forbidden() {
    let _alone = alone();
    let (reader, bell) = (Reader::enter(), Bell::new());
    let (mut waits, mut all) = (wait_async(), barrier_async());
    assert!(bell.poll(&mut waits).is_pending());
    assert!(bell.poll(&mut all).is_pending());
    set_reclaimer(false);
    assert!(bell.rings() > 0, "a task was not woken");
    reader.leave();
    assert_eq!(bell.run(waits), Ok(()));
    assert_eq!(bell.run(all), Ok(()));
    set_reclaimer(true);
}

#[test]
fn a_wait_is_answered_before_a_run_that_takes_long() {
    let _alone = alone();
    let (reader, bell) = (Reader::enter(), Bell::new());
    let answered = Arc::new(AtomicBool::new(false));
    let (rings, says) = (bell.clone(), answered.clone());
    let vps = squall_machine::machine().vps();
    let run = quiescent_do(vps, RunOn::Any, move |_| says.store(rings.await_ring(), Ordering::Relaxed));
    let mut waits = wait_async();
    assert!(bell.poll(&mut waits).is_pending());
    reader.leave();
    run.unwrap().wait().unwrap();
    assert!(answered.load(Ordering::Relaxed), "the wait was answered after the run");
    assert_eq!(bell.poll(&mut waits), Poll::Ready(Ok(())));
}

#[test]
fn a_wait_is_answered_beside_runners_that_take_long() {
    let _alone = alone();
    // A runner may come so late that the reclaimer makes all runs itself.
    while !answers_beside_a_runner() {}
}

/// Lets the first run on a runner wait for the answer of a wait. Returns false if no run was on a runner.
fn answers_beside_a_runner() -> bool {
    let (bell, polled, (begins, begun)) = (Bell::new(), Arc::new(Barrier::new(2)), mpsc::channel());
    let answered = Arc::new(AtomicBool::new(false));
    let (rings, says, waits) = (bell.clone(), answered.clone(), polled.clone());
    let vps = squall_machine::machine().vps();
    let is_first = AtomicBool::new(true);
    let run = quiescent_do(vps, RunOn::Each, move |_| {
        let is_runner = thread::current().name() == Some("squall-runner");
        if is_runner && is_first.swap(false, Ordering::Relaxed) {
            begins.send(()).unwrap();
            waits.wait();
            says.store(rings.await_ring(), Ordering::Relaxed);
        }
    });
    // Fails when the function was dropped.
    if begun.recv().is_err() {
        return false;
    }
    let reader = Reader::enter();
    let mut waits = wait_async();
    assert!(bell.poll(&mut waits).is_pending());
    reader.leave();
    polled.wait();
    run.unwrap().wait().unwrap();
    assert!(answered.load(Ordering::Relaxed), "the wait was answered after the runs");
    assert_eq!(bell.poll(&mut waits), Poll::Ready(Ok(())));
    true
}

#[test]
fn a_wait_is_answered_between_deferred_calls() {
    let _alone = alone();
    let (bell, begun, polled) = (Bell::new(), Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (inside, waits) = (begun.clone(), polled.clone());
    defer(move || {
        inside.wait();
        waits.wait();
    });
    let answered = Arc::new(AtomicBool::new(false));
    let (rings, says) = (bell.clone(), answered.clone());
    defer(move || says.store(rings.await_ring(), Ordering::Relaxed));
    // This thread sleeps, so the reclaimer runs the calls.
    begun.wait();
    let reader = Reader::enter();
    let mut waits = wait_async();
    assert!(bell.poll(&mut waits).is_pending());
    reader.leave();
    polled.wait();
    barrier().unwrap();
    assert!(answered.load(Ordering::Relaxed), "the wait was answered after the last call");
    assert_eq!(bell.poll(&mut waits), Poll::Ready(Ok(())));
}

/// A quiescent-do on the reclaimer thread that lasts until the test ends it.
fn endless_run() -> (PendingRun, Arc<Barrier>, Arc<AtomicBool>) {
    let (begun, end) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let ended = Arc::new(AtomicBool::new(false));
    let (inside, leave, ends) = (begun.clone(), end.clone(), ended.clone());
    let run = quiescent_do(squall_machine::machine().vps(), RunOn::Any, move |_| {
        inside.wait();
        leave.wait();
        ends.store(true, Ordering::Relaxed);
    });
    begun.wait();
    (run.unwrap(), end, ended)
}

#[test]
fn a_barrier_waits_for_a_run_that_a_forbidden_reclaimer_still_makes() {
    let _alone = alone();
    let (run, end, ended) = endless_run();
    // Inside an operation, this cannot wait for the run.
    pin(|_| set_reclaimer(false));
    let (bell, gone) = (Bell::new(), Bell::new());
    let (mut all, mut dropped) = (barrier_async(), barrier_async());
    assert!(bell.poll(&mut all).is_pending(), "the barrier ended before the run");
    assert!(gone.poll(&mut dropped).is_pending());
    drop(dropped);
    assert_eq!(Arc::strong_count(&gone), 1, "a waker was kept");
    end.wait();
    assert_eq!(bell.run(all), Ok(()));
    assert!(ended.load(Ordering::Relaxed));
    run.wait().unwrap();
    set_reclaimer(true);
}

#[test]
fn a_barrier_waits_for_a_run_of_another_thread() {
    let _alone = alone();
    set_reclaimer(false);
    let (tell, told) = mpsc::channel();
    let helper = thread::spawn(move || {
        let (inside, end) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let (enters, leaves) = (inside.clone(), end.clone());
        let run = quiescent_do(squall_machine::machine().vps(), RunOn::Any, move |_| {
            enters.wait();
            leaves.wait();
        });
        tell.send((inside, end)).unwrap();
        run.unwrap().wait().unwrap();
    });
    let (inside, end) = told.recv().unwrap();
    inside.wait();
    set_reclaimer(true);
    let bell = Bell::new();
    let mut all = barrier_async();
    assert!(bell.poll(&mut all).is_pending());
    // The reclaimer makes one job after the other, so the barrier's turn comes before the second one.
    for _ in 0..2 {
        let later = quiescent_do(squall_machine::machine().vps(), RunOn::Any, |_| ()).unwrap();
        later.wait().unwrap();
    }
    assert_eq!(bell.rings(), 0, "the barrier ended before the run");
    end.wait();
    assert_eq!(bell.run(all), Ok(()));
    helper.join().unwrap();
}

struct Broken;

impl Wake for Broken {
    fn wake(self: Arc<Broken>) {
        panic!("a broken waker");
    }
}

#[test]
#[cfg_attr(squall_asan, ignore = "the payload of the panic is leaked, since its drop could panic")]
fn a_panicking_waker_ends_no_other_wait() {
    let _alone = alone();
    let (reader, bell) = (Reader::enter(), Bell::new());
    let (mut broken, mut waits) = (wait_async(), wait_async());
    let waker = Waker::from(Arc::new(Broken));
    assert!(pin!(&mut broken).poll(&mut Context::from_waker(&waker)).is_pending());
    assert!(bell.poll(&mut waits).is_pending());
    reader.leave();
    assert_eq!(bell.run(waits), Ok(()));
    assert_eq!(bell.run(broken), Ok(()));
}
