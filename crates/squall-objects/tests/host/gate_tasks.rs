//! The futures of gates as objects, in both forms.

use squall_core::swap::{Replacement, Swap, arbitrate};
use squall_core::{Handle, Owned};
use squall_machine::ClusterSize;
use squall_objects::gate::{Gate, GateError, GateExt, GateState, Request, ShutDown};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use crate::gate::{Elsewhere, both};

/// A future with a waker that counts its calls.
struct Task<T> {
    future: Pin<Box<dyn Future<Output = T> + Send>>,
    bell: Arc<Bell>,
}

#[derive(Default)]
struct Bell(AtomicU32);

impl Wake for Bell {
    fn wake(self: Arc<Bell>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl<T> Task<T> {
    fn new(future: impl Future<Output = T> + Send + 'static) -> Task<T> {
        Task { future: Box::pin(future), bell: Arc::default() }
    }

    fn poll(&mut self) -> Poll<T> {
        self.future.as_mut().poll(&mut Context::from_waker(&Waker::from(self.bell.clone())))
    }

    fn waits(&mut self) -> bool {
        self.poll().is_pending()
    }

    fn rings(&self) -> u32 {
        self.bell.0.load(Ordering::Relaxed)
    }

    fn output(&mut self) -> T {
        match self.poll() {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("the task waits"),
        }
    }
}

#[test]
fn requests_wait_for_a_restart_and_a_stop_for_requests() {
    both(|owned| {
        let handle = owned.handle();
        let mut early: Entry = Task::new(handle.request_async());
        let early = early.output().unwrap();
        let mut stop = Task::new(handle.stop_async());
        assert_eq!(handle.state(), GateState::Normal, "a future does nothing before its first poll");
        assert!(stop.waits());
        let mut late = Task::new(handle.request_async());
        assert!(late.waits());
        assert_eq!((stop.rings(), late.rings(), handle.state()), (0, 0, GateState::Stopped));
        std::thread::spawn(move || drop(early)).join().unwrap();
        assert!(stop.rings() > 0);
        assert_eq!((stop.output(), handle.inside()), (Ok(()), 0));
        handle.restart().unwrap();
        assert_eq!(late.rings(), 1);
        drop(late.output().unwrap());
        let mut shutdown = Task::new(handle.shutdown_async());
        assert_eq!(shutdown.output(), Ok(()));
        assert_eq!(Task::new(handle.request_async()).output().unwrap_err(), ShutDown);
        assert_eq!(Task::new(handle.stop_async()).output(), Err(GateError::ShutDown));
    });
}

#[test]
fn a_dropped_future_is_a_limit() {
    both(|owned| {
        let handle = owned.handle();
        let request = handle.request().unwrap();
        let mut stop = Task::new(handle.stop_async());
        assert!(stop.waits());
        let mut late = Task::new(handle.request_async());
        let mut dropped = Task::new(handle.request_async());
        assert!(late.waits() && dropped.waits());
        let bell = dropped.bell.clone();
        drop(dropped);
        assert_eq!(Arc::strong_count(&bell), 1, "the gate kept a waker");
        let bell = stop.bell.clone();
        drop(stop);
        assert_eq!((handle.state(), late.rings()), (GateState::Normal, 1));
        assert_eq!(Arc::strong_count(&bell), 1, "the gate kept a waker");
        drop(late.output().unwrap());

        assert_eq!(Task::new(handle.drained_async()).output(), Err(GateError::NotShutDown));
        let mut shutdown = Task::new(handle.shutdown_async());
        let mut drained = Task::new(handle.drained_async());
        assert!(shutdown.waits() && drained.waits());
        drop(shutdown);
        assert_eq!((handle.state(), handle.inside()), (GateState::ShutDown, 1));
        assert!(drained.waits());
        drop(request);
        assert_eq!(drained.output(), Ok(()));
    });
}

#[test]
fn an_arbiter_refuses_the_begin_of_an_operation_only() {
    both(|owned| {
        let handle = owned.handle();
        let request = handle.request().unwrap();
        let mut stop = Task::new(handle.stop_async());
        assert!(stop.waits());
        let arbiter = arbitrate(handle, |call| call.refuse("closed")).unwrap();
        assert_eq!(Task::new(handle.shutdown_async()).output(), Err(GateError::Refused));
        assert!(stop.waits(), "an arbiter ended the stop");
        drop(stop);
        arbiter.detach();
        assert_eq!(handle.state(), GateState::Normal, "the gate stays stopped");

        let mut stop = Task::new(handle.stop_async());
        assert!(stop.waits());
        let arbiter = arbitrate(handle, |_| panic!("an arbiter fails")).unwrap();
        drop(stop);
        drop(arbiter);
        assert_eq!(handle.state(), GateState::Normal);

        let mut stop = Task::new(handle.stop_async());
        assert!(stop.waits());
        drop(request);
        let arbiter = arbitrate(handle, |call| call.refuse("closed")).unwrap();
        assert_eq!(stop.output(), Ok(()));
        arbiter.detach();
        assert_eq!((handle.state(), handle.restart()), (GateState::Stopped, Ok(())));
    });
}

#[test]
fn an_arbiter_that_panics_after_the_begin_leaves_the_gate_as_it_was() {
    both(|owned| {
        let handle = owned.handle();
        let arbiter = arbitrate(handle, |call| {
            call.proceed();
            panic!("an arbiter fails");
        });
        let mut stop = Task::new(handle.stop_async());
        let mut shutdown = Task::new(handle.shutdown_async());
        assert!(catch_unwind(AssertUnwindSafe(|| stop.poll())).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| shutdown.poll())).is_err());
        drop((stop, shutdown));
        arbiter.unwrap().detach();
        assert_eq!(handle.state(), GateState::Normal);
        assert_eq!((handle.stop(), handle.restart(), handle.shutdown()), (Ok(()), Ok(()), Ok(())));
    });
}

type Control = Task<Result<(), GateError>>;
type Entry = Task<Result<Request, ShutDown>>;

/// Tasks that wait: a stop and a request.
fn waiting(handle: Handle<dyn Gate>) -> (Control, Entry) {
    let mut tasks = (Task::new(handle.stop_async()), Task::new(handle.request_async()));
    assert!(tasks.0.waits() && tasks.1.waits());
    tasks
}

#[test]
fn the_end_of_the_object_ends_all_waits_of_tasks() {
    both(|owned| {
        let handle = owned.handle();
        let request = handle.request().unwrap();
        let (mut stop, mut late) = waiting(handle);
        drop(owned);
        assert!(stop.rings() > 0 && late.rings() > 0);
        assert_eq!(stop.output(), Err(GateError::Interrupted));
        assert!(catch_unwind(AssertUnwindSafe(|| late.poll())).is_err(), "the object is gone");
        drop(request);
    });
}

#[test]
fn a_swap_ends_the_waits_of_tasks_only_if_it_succeeds() {
    both(|owned: Owned<dyn Gate>| {
        let handle = owned.handle();
        let request = handle.request().unwrap();
        let (mut stop, mut late) = waiting(handle);
        let other = || Replacement::root(Elsewhere, ClusterSize::Machine);
        let late_swap = Swap::new(handle).without_state().deadline(std::time::Instant::now());
        assert!(late_swap.run(other()).is_err());
        assert!(stop.waits() && late.waits());
        let rings = (stop.rings(), late.rings());
        Swap::new(handle).without_state().run(other()).unwrap();
        // The swap or the drop of the old object wakes the tasks.
        while stop.rings() == rings.0 || late.rings() == rings.1 {
            squall_rcu::barrier().unwrap();
        }
        assert_eq!(stop.output(), Err(GateError::Interrupted));
        // The new object admits every request.
        assert!(late.output().is_ok());
        drop(request);
    });
}
