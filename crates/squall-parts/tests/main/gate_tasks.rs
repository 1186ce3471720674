//! Tests of the futures of a gate. `squall-objects` tests them with both forms.

use squall_history::tasks::block_on;
use squall_parts::gate::{GateError, GateState, SharedGate, ShutDown};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

/// A waker that counts its calls.
#[derive(Default)]
struct Bell(AtomicU32);

impl Wake for Bell {
    fn wake(self: Arc<Bell>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Bell {
    fn poll<F: Future>(self: &Arc<Bell>, future: &mut Pin<&mut F>) -> Poll<F::Output> {
        future.as_mut().poll(&mut Context::from_waker(&Waker::from(self.clone())))
    }

    fn rings(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

fn bell() -> Arc<Bell> {
    Arc::default()
}

/// A waker that panics.
struct Broken;

impl Wake for Broken {
    fn wake(self: Arc<Broken>) {
        panic!("a broken waker");
    }
}

/// Polls a future whose waker panics.
fn poll_broken<F: Future>(future: &mut Pin<&mut F>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::new(Broken))))
}

#[test]
fn a_restart_wakes_a_waiting_request() {
    let (gate, bell) = (SharedGate::new(), bell());
    gate.stop().unwrap();
    let mut request = pin!(gate.request_async());
    assert!(bell.poll(&mut request).is_pending());
    assert_eq!((bell.rings(), gate.inside()), (0, 0));
    gate.restart().unwrap();
    assert_eq!(bell.rings(), 1);
    let Poll::Ready(Ok(request)) = bell.poll(&mut request) else { panic!("the gate is open") };
    assert_eq!(gate.inside(), 1);
    drop(request);
    assert_eq!(gate.inside(), 0);
}

#[test]
fn a_shutdown_rejects_a_waiting_request() {
    let (gate, bell) = (SharedGate::new(), bell());
    gate.stop().unwrap();
    let mut request = pin!(gate.request_async());
    assert!(bell.poll(&mut request).is_pending());
    gate.shutdown().unwrap();
    assert_eq!(bell.rings(), 1);
    assert!(matches!(bell.poll(&mut request), Poll::Ready(Err(ShutDown))));
}

#[test]
fn control_operations_wait_for_the_last_request() {
    for shuts_down in [false, true] {
        let (gate, bell) = (SharedGate::new(), bell());
        let (first, second) = (gate.request().unwrap(), gate.request().unwrap());
        let mut stop = pin!(gate.stop_async());
        let mut shutdown = pin!(gate.shutdown_async());
        let mut poll = || if shuts_down { bell.poll(&mut shutdown) } else { bell.poll(&mut stop) };
        assert_eq!(gate.state(), GateState::Normal, "a future does nothing before its first poll");
        assert!(poll().is_pending());
        assert_eq!(gate.state(), if shuts_down { GateState::ShutDown } else { GateState::Stopped });
        drop(first);
        assert_eq!(bell.rings(), 0, "a request is inside");
        drop(second);
        assert_eq!(bell.rings(), 1);
        assert_eq!(poll(), Poll::Ready(Ok(())));
        let again = if shuts_down { GateError::ShutDown } else { GateError::Stopped };
        assert_eq!(poll(), Poll::Ready(Err(again)));
    }
}

#[test]
fn a_dropped_request_leaves_no_count_and_no_waker() {
    let (gate, bell) = (SharedGate::new(), bell());
    drop(gate.request_async());
    gate.stop().unwrap();
    {
        let mut request = pin!(gate.request_async());
        assert!(bell.poll(&mut request).is_pending());
    }
    gate.restart().unwrap();
    assert_eq!((bell.rings(), gate.inside()), (0, 0));
    assert_eq!(Arc::strong_count(&bell), 1, "the gate kept a waker");
}

#[test]
fn a_dropped_stop_admits_requests_again() {
    let (gate, bell, requests) = (SharedGate::new(), bell(), bell());
    let inside = gate.request().unwrap();
    drop(gate.stop_async());
    assert_eq!(gate.state(), GateState::Normal);
    let mut waiting = pin!(gate.request_async());
    {
        let mut stop = pin!(gate.stop_async());
        assert!(bell.poll(&mut stop).is_pending());
        assert!(requests.poll(&mut waiting).is_pending());
        assert_eq!(gate.stop(), Err(GateError::Stopped));
    }
    assert_eq!((gate.state(), requests.rings()), (GateState::Normal, 1));
    assert!(requests.poll(&mut waiting).is_ready());
    assert_eq!(Arc::strong_count(&bell), 1, "the gate kept a waker");
    drop(inside);
    assert_eq!(bell.rings(), 0);
    gate.stop().unwrap();
}

#[test]
fn a_dropped_shutdown_stays_in_force() {
    let (gate, bell) = (SharedGate::new(), bell());
    let inside = gate.request().unwrap();
    assert_eq!(block_on(gate.drained_async()), Err(GateError::NotShutDown));
    let mut drained = pin!(gate.drained_async());
    {
        let mut shutdown = pin!(gate.shutdown_async());
        assert!(bell.poll(&mut shutdown).is_pending());
        assert!(bell.poll(&mut drained).is_pending());
        let mut dropped = pin!(gate.drained_async());
        assert!(bell.poll(&mut dropped).is_pending());
    }
    assert_eq!(gate.drained_for(Duration::ZERO), Err(GateError::TimedOut));
    assert_eq!((gate.state(), gate.inside()), (GateState::ShutDown, 1));
    assert!(bell.poll(&mut drained).is_pending());
    let before = bell.rings();
    drop(inside);
    assert_eq!(bell.rings(), before + 1);
    assert_eq!(bell.poll(&mut drained), Poll::Ready(Ok(())));
    assert_eq!(block_on(gate.drained_async()), Ok(()));
    assert_eq!(Arc::strong_count(&bell), 1, "the gate kept a waker");
}

#[test]
fn a_moved_future_rings_its_last_waker() {
    let (gate, early, late) = (SharedGate::new(), bell(), bell());
    gate.stop().unwrap();
    let mut request = pin!(gate.request_async());
    assert!(early.poll(&mut request).is_pending());
    assert!(late.poll(&mut request).is_pending());
    gate.restart().unwrap();
    assert_eq!((early.rings(), late.rings()), (0, 1));
    assert_eq!(Arc::strong_count(&early), 1);
}

#[test]
fn each_of_many_waiting_requests_is_woken_once() {
    let many = if cfg!(miri) { 10 } else { 1000 };
    let gate = SharedGate::new();
    gate.stop().unwrap();
    let mut tasks: Vec<_> = (0..many).map(|_| (Box::pin(gate.request_async()), bell())).collect();
    for (request, bell) in &mut tasks {
        assert!(bell.poll(&mut request.as_mut()).is_pending());
    }
    // Every second one is cancelled.
    let mut left = 0;
    tasks.retain(|_| {
        left += 1;
        left % 2 == 0
    });
    gate.restart().unwrap();
    let mut inside = Vec::new();
    for (request, bell) in &mut tasks {
        assert_eq!(bell.rings(), 1);
        let Poll::Ready(Ok(request)) = bell.poll(&mut request.as_mut()) else { panic!("the gate is open") };
        inside.push(request);
    }
    assert_eq!(gate.inside(), many / 2);
    let stop = bell();
    let mut stopped = pin!(gate.stop_async());
    assert!(stop.poll(&mut stopped).is_pending());
    drop(inside);
    assert!(stop.rings() > 0);
    assert_eq!(stop.poll(&mut stopped), Poll::Ready(Ok(())));
}

#[test]
fn a_request_that_panics_ends_the_wait_for_it() {
    let (gate, bell) = (SharedGate::new(), bell());
    let request = gate.request().unwrap();
    let mut stop = pin!(gate.stop_async());
    assert!(bell.poll(&mut stop).is_pending());
    let served = catch_unwind(AssertUnwindSafe(|| {
        let _request = request;
        panic!("a request fails");
    }));
    assert!(served.is_err());
    assert_eq!((bell.rings(), gate.inside()), (1, 0));
    assert_eq!(bell.poll(&mut stop), Poll::Ready(Ok(())));
}

#[test]
fn a_panic_while_a_task_waits_ends_its_operation() {
    let (gate, bell) = (SharedGate::new(), bell());
    let request = gate.request().unwrap();
    let task = catch_unwind(AssertUnwindSafe(|| {
        let mut stop = pin!(gate.stop_async());
        assert!(bell.poll(&mut stop).is_pending());
        panic!("the task fails beside its future");
    }));
    assert!(task.is_err());
    assert_eq!((gate.state(), Arc::strong_count(&bell)), (GateState::Normal, 1));
    drop(request);
    gate.stop().unwrap();
}

/// Returns a gate with a request inside, and the futures of a stop, and of two requests that wait. The wakers
/// of the first two panic.
macro_rules! with_broken_wakers {
    ($gate:ident, $bell:ident => $stop:ident, $broken:ident, $waits:ident) => {
        let ($gate, $bell) = (SharedGate::new(), bell());
        $gate.enter().unwrap();
        let mut $stop = pin!($gate.stop_async());
        let (mut $broken, mut $waits) = (pin!($gate.request_async()), pin!($gate.request_async()));
        assert!(poll_broken(&mut $stop).is_pending() && poll_broken(&mut $broken).is_pending());
        assert!($bell.poll(&mut $waits).is_pending());
    };
}

#[test]
fn a_panicking_waker_harms_no_request_that_leaves() {
    with_broken_wakers!(gate, bell => stop, broken, waits);
    gate.leave();
    assert_eq!((gate.inside(), poll_broken(&mut stop)), (0, Poll::Ready(Ok(()))));
    gate.restart().unwrap();
    assert_eq!(bell.rings(), 1);
    assert!(bell.poll(&mut waits).is_ready() && poll_broken(&mut broken).is_ready());
}

#[test]
fn a_panicking_waker_harms_no_control_operation() {
    with_broken_wakers!(gate, bell => stop, broken, waits);
    // A future that is dropped admits requests again.
    stop.set(gate.stop_async());
    assert_eq!((gate.state(), bell.rings()), (GateState::Normal, 1));
    assert!(bell.poll(&mut waits).is_ready() && poll_broken(&mut broken).is_ready());
    gate.leave();

    let mut broken = pin!(gate.request_async());
    gate.stop().unwrap();
    assert!(poll_broken(&mut broken).is_pending());
    // The first step of a shutdown wakes the waiting requests.
    let mut shutdown = pin!(gate.shutdown_async());
    assert_eq!(bell.poll(&mut shutdown), Poll::Ready(Ok(())));
    assert_eq!(block_on(gate.drained_async()), Ok(()));
}

#[test]
fn a_panicking_waker_of_a_request_hides_no_wake_up_of_the_control() {
    let (gate, bell) = (SharedGate::new(), bell());
    gate.enter().unwrap();
    let mut stop = pin!(gate.stop_async());
    let mut broken = pin!(gate.request_async());
    assert!(bell.poll(&mut stop).is_pending() && poll_broken(&mut broken).is_pending());
    gate.wake();
    assert_eq!(bell.rings(), 1, "the second list was skipped");
}

#[test]
fn tasks_and_threads_share_a_gate() {
    let rounds = if cfg!(miri) { 3 } else { 200 };
    let (gate, odd) = (SharedGate::new(), AtomicU32::new(0));
    thread::scope(|threads| {
        for blocks in [false, true, false] {
            let (gate, odd) = (&gate, &odd);
            threads.spawn(move || {
                loop {
                    let request = if blocks { gate.request() } else { block_on(gate.request_async()) };
                    let Ok(_request) = request else { break };
                    assert_eq!(odd.load(Ordering::Relaxed) % 2, 0, "inside while it is stopped");
                    thread::yield_now();
                }
            });
        }
        for round in 0..rounds {
            if round % 4 == 3 { gate.stop() } else { block_on(gate.stop_async()) }.unwrap();
            odd.fetch_add(1, Ordering::Relaxed);
            thread::yield_now();
            odd.fetch_add(1, Ordering::Relaxed);
            gate.restart().unwrap();
        }
        block_on(gate.shutdown_async()).unwrap();
    });
    assert_eq!((gate.state(), gate.inside()), (GateState::ShutDown, 0));
}
