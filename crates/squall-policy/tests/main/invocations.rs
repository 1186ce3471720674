//! Invocation modes, and pending calls that are waited for, polled, awaited, or dropped at any moment.

use squall_core::{CallError, Handle, Owned, shared};
use squall_policy::attribute::{Attribute, receive, with};
use squall_policy::invoke::{
    self, Event, InvokeError, PendingCall, Work, asynchronous, asynchronous_by, asynchronous_on,
    event_dependent, synchronous, synchronous_by,
};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

/// Serialises the tests that change the process-wide pool or count its threads.
static POOL: Mutex<()> = Mutex::new(());

pub(crate) fn alone() -> MutexGuard<'static, ()> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Payload that counts its living instances.
struct Live(Arc<AtomicU64>);

impl Live {
    fn new(count: &Arc<AtomicU64>) -> Live {
        count.fetch_add(1, Relaxed);
        Live(count.clone())
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[squall_macros::interface(crate = squall_core)]
trait Desk: Send + Sync {
    fn add(&self, n: u64) -> u64;
    fn checked(&self) -> Result<u64, CallError>;
    fn pass(&self, payload: Live) -> Live;
    fn fail(&self);
    fn inside(&self, f: &mut dyn FnMut());
    #[blocking]
    fn wait(&self, begun: Sender<()>, over: Receiver<()>) -> thread::ThreadId;
}

#[derive(Default)]
struct Clerk(AtomicU64);

impl Desk for Clerk {
    fn add(&self, n: u64) -> u64 {
        self.0.fetch_add(n, Relaxed) + n
    }
    fn checked(&self) -> Result<u64, CallError> {
        Ok(1)
    }
    fn pass(&self, payload: Live) -> Live {
        payload
    }
    fn fail(&self) {
        panic!("the clerk failed")
    }
    fn inside(&self, f: &mut dyn FnMut()) {
        f();
    }
    fn wait(&self, begun: Sender<()>, over: Receiver<()>) -> thread::ThreadId {
        let _ = begun.send(());
        let _ = over.recv();
        thread::current().id()
    }
}

fn desk() -> Owned<dyn Desk> {
    shared(Clerk::default())
}

fn wait_for(mut happened: impl FnMut() -> bool) {
    while !happened() {
        thread::sleep(Duration::from_millis(1));
    }
}

/// A call that lasts until it is told to end.
struct Busy {
    over: Sender<()>,
    handle: PendingCall<thread::ThreadId>,
}

impl Busy {
    fn new(desk: &Owned<dyn Desk>) -> Busy {
        let ((begin, begun), (over, end)) = (channel(), channel());
        let handle = asynchronous(desk.handle(), move |desk| desk.wait(begin, end));
        begun.recv().unwrap();
        Busy { over, handle }
    }

    fn end(self) -> thread::ThreadId {
        self.over.send(()).unwrap();
        self.handle.wait().unwrap()
    }
}

#[test]
fn kt_09_a_synchronous_call_has_its_result_or_an_error() {
    let desk = desk();
    assert_eq!(synchronous(desk.handle(), |desk| desk.add(2)).unwrap(), 2);
    let failed = synchronous(desk.handle(), |desk| desk.fail()).unwrap_err();
    assert_eq!(failed.to_string(), "the method panicked: the clerk failed");
    let co = desk.handle();
    drop(desk);
    let gone = synchronous(co, |desk| desk.add(2)).unwrap_err();
    assert!(matches!(&gone, InvokeError::Call(error) if error.method() == "add"), "{gone}");
    // A method with an error in its result returns the error there.
    assert!(synchronous(co, |desk| desk.checked()).unwrap().is_err());
    // Outside of `synchronous`, such a call panics with the text of the error.
    let payload = catch_unwind(|| co.add(1)).unwrap_err();
    assert_eq!(*payload.downcast_ref::<String>().unwrap(), gone.to_string());
}

#[test]
fn kt_09_an_asynchronous_call_runs_elsewhere_and_its_result_is_waited_for() {
    let _alone = alone();
    let before = invoke::pool_size();
    // One thread for the call that lasts, and one for the other calls.
    invoke::set_pool_size(2);
    let desk = desk();
    let busy = Busy::new(&desk);
    let mut waited = asynchronous(desk.handle(), |desk| desk.add(5));
    assert_eq!(waited.wait_timeout(Duration::from_secs(60)).unwrap().unwrap(), 5);
    assert!(catch_unwind(AssertUnwindSafe(|| waited.try_take())).is_err(), "it was taken");
    let mut busy = busy;
    assert!(!busy.handle.is_finished());
    assert!(busy.handle.try_take().is_none());
    assert!(busy.handle.wait_timeout(Duration::from_millis(1)).is_none());
    assert_ne!(busy.end(), thread::current().id());
    assert!(invoke::threads().iter().any(|name| name == "squall-invoke"));
    invoke::set_pool_size(before);
}

#[test]
fn a_panic_comes_back_from_the_handle_and_the_pool_goes_on() {
    let _alone = alone();
    let desk = desk();
    for _ in 0..3 {
        let Err(InvokeError::Panicked(payload)) = asynchronous(desk.handle(), |desk| desk.fail()).wait()
        else {
            panic!("it panicked")
        };
        assert_eq!(payload.message(), "the clerk failed");
        assert!(catch_unwind(AssertUnwindSafe(|| payload.resume())).is_err());
    }
    assert_eq!(asynchronous(desk.handle(), |desk| desk.add(1)).wait().unwrap(), 1);
}

#[test]
fn an_object_destroyed_before_the_call_ran_is_an_error_of_the_call() {
    let _alone = alone();
    let desk = desk();
    let event = Event::new();
    let handle = event_dependent(&event, desk.handle(), |desk| desk.add(1));
    Owned::destroy(desk).wait().unwrap();
    event.signal();
    let error = handle.wait().unwrap_err();
    assert!(
        matches!(&error, InvokeError::Call(call) if call.reason() == squall_core::CallErrorKind::Destroyed),
        "{error}"
    );
}

/// Waker that counts its wake-ups.
#[derive(Default)]
struct Noted(AtomicU64);

impl Wake for Noted {
    fn wake(self: Arc<Noted>) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[test]
fn a_handle_is_a_future_of_any_runtime() {
    let _alone = alone();
    let desk = desk();
    let noted = Arc::new(Noted::default());
    let waker = Waker::from(noted.clone());
    let mut context = Context::from_waker(&waker);
    let Busy { over, handle } = Busy::new(&desk);
    let mut handle = pin!(handle);
    assert!(handle.as_mut().poll(&mut context).is_pending());
    assert!(handle.as_mut().poll(&mut context).is_pending());
    assert_eq!(noted.0.load(Relaxed), 0);
    over.send(()).unwrap();
    wait_for(|| noted.0.load(Relaxed) == 1);
    assert!(matches!(handle.as_mut().poll(&mut context), Poll::Ready(Ok(_))));
}

#[test]
fn handles_dropped_at_any_moment_leak_nothing() {
    let _alone = alone();
    let desk = desk();
    let live = Arc::new(AtomicU64::new(0));
    let call = || {
        let payload = Live::new(&live);
        asynchronous(desk.handle(), move |desk| desk.pass(payload))
    };
    let rounds = if cfg!(miri) { 3 } else { 200 };
    for round in 0..rounds {
        let mut handle = call();
        match round % 5 {
            0 => drop(handle),
            1 => drop(handle.wait().unwrap()),
            2 => drop(handle.try_take()),
            3 => {
                // Polled once, with a waker that counts as alive.
                let noted = Arc::new(Noted::default());
                let waker = Waker::from(noted);
                let _ = pin!(handle).poll(&mut Context::from_waker(&waker));
            }
            _ => {
                wait_for(|| handle.is_finished());
                drop(handle);
            }
        }
    }
    // Dropped before it began, by an executor that never runs it.
    let lost = asynchronous_on(&|work: Work| drop(work), desk.handle(), {
        let payload = Live::new(&live);
        move |desk| desk.pass(payload)
    });
    assert!(matches!(lost.wait(), Err(InvokeError::Dropped)));
    // Dropped while it waits for an event that is dropped.
    let event = Event::new();
    let payload = Live::new(&live);
    let waiting = event_dependent(&event, desk.handle(), move |desk| desk.pass(payload));
    drop(event);
    assert!(matches!(waiting.wait(), Err(InvokeError::Dropped)));
    wait_for(|| live.load(Relaxed) == 0);
}

#[test]
fn waiting_inside_an_operation_is_an_error_not_a_deadlock() {
    let _alone = alone();
    let desk = desk();
    let Busy { over, handle } = Busy::new(&desk);
    let mut handle = Some(handle);
    let mut result = None;
    desk.inside(&mut || result = handle.take().map(PendingCall::wait));
    assert!(matches!(result, Some(Err(InvokeError::InOperation))));
    over.send(()).unwrap();
    // A result that is there is taken.
    let done = asynchronous(desk.handle(), |desk| desk.add(3));
    wait_for(|| done.is_finished());
    let mut done = Some(done);
    let mut result = None;
    desk.inside(&mut || result = done.take().map(PendingCall::wait));
    assert_eq!(result.unwrap().unwrap(), 3);
}

#[test]
fn invocations_that_wait_for_each_other_do_not_use_the_pool_up() {
    let _alone = alone();
    let before = invoke::pool_size();
    invoke::set_pool_size(1);
    let desk = desk();
    // Each invocation waits, on the only thread of the pool, for one that is submitted after it.
    let nested = asynchronous(desk.handle(), |desk| {
        let inner = asynchronous(desk, |desk| asynchronous(desk, |desk| desk.add(1)).wait().unwrap() + 1);
        inner.wait().unwrap() + 1
    });
    assert_eq!(nested.wait().unwrap(), 3);
    invoke::set_pool_size(before);
}

#[test]
fn a_waiter_of_the_pool_leaves_a_call_to_the_event_that_keeps_it() {
    let _alone = alone();
    let desk = desk();
    let event = Event::new();
    let kept = event_dependent(&event, desk.handle(), |desk| desk.add(5));
    let (tell, told) = channel();
    let waiter = asynchronous(desk.handle(), move |_| {
        tell.send(()).unwrap();
        kept.wait()
    });
    told.recv().unwrap();
    assert_eq!(event.cancel(), 1);
    assert!(matches!(waiter.wait().unwrap(), Err(InvokeError::Cancelled)));
    assert_eq!(desk.add(0), 0, "it did not run");
}

#[test]
fn a_thread_that_helps_a_call_gives_it_no_attributes_of_its_own() {
    static DEPTH: Attribute<u64> = Attribute::new("depth", 1);
    let _alone = alone();
    let before = invoke::pool_size();
    invoke::set_pool_size(1);
    let desk = desk();
    let outer = asynchronous(desk.handle(), |desk| {
        let seen = |desk: Handle<dyn Desk>| receive(desk, |call| call.get(&DEPTH));
        // The only thread of the pool is this one. So it runs the call while it waits.
        let inner = asynchronous(desk, seen);
        with(desk, (&DEPTH, 7), |desk| (inner.wait().unwrap(), seen(desk))).unwrap()
    });
    assert_eq!(outer.wait().unwrap(), (None, Some(7)));
    invoke::set_pool_size(before);
}

#[test]
fn a_pool_that_is_switched_off_has_no_threads_and_its_callers_run_the_work() {
    let _alone = alone();
    let before = invoke::pool_size();
    invoke::set_pool_size(0);
    let desk = desk();
    let handle = asynchronous(desk.handle(), |_| thread::current().id());
    assert!(handle.is_finished());
    assert_eq!(handle.wait().unwrap(), thread::current().id());
    wait_for(|| !invoke::threads().iter().any(|name| name == "squall-invoke"));
    invoke::set_pool_size(2);
    assert_ne!(
        asynchronous(desk.handle(), |_| thread::current().id()).wait().unwrap(),
        thread::current().id()
    );
    invoke::set_pool_size(before);
}

#[test]
fn the_programs_executor_runs_what_it_is_given() {
    let _alone = alone();
    let desk = desk();
    let (give, given) = channel::<Work>();
    let give = Mutex::new(give);
    invoke::set_executor(Some(Arc::new(move |work: Work| give.lock().unwrap().send(work).unwrap())));
    let handle = asynchronous(desk.handle(), |_| thread::current().id());
    assert!(!handle.is_finished());
    given.recv().unwrap()();
    assert_eq!(handle.wait().unwrap(), thread::current().id());
    invoke::set_executor(None);
    assert_eq!(asynchronous(desk.handle(), |desk| desk.add(1)).wait().unwrap(), 1);
}

#[test]
fn kt_10_a_deadline_refuses_what_has_not_begun_and_reports_what_is_late() {
    let _alone = alone();
    let desk = desk();
    let past = Instant::now();
    assert!(matches!(synchronous_by(desk.handle(), past, |desk| desk.add(1)), Err(InvokeError::TooLate)));
    assert!(matches!(
        asynchronous_by(desk.handle(), past, |desk| desk.add(1)).wait(),
        Err(InvokeError::TooLate)
    ));
    let far = Instant::now() + Duration::from_secs(3600);
    let done = synchronous_by(desk.handle(), far, |desk| desk.add(1)).unwrap();
    assert_eq!((done.value, done.late), (1, None));
    // Running when the deadline passes: it goes on and is late. The call does not begin if this thread stands
    // still until the deadline, so the next try has a later one.
    let late = (0..)
        .find_map(|tries| {
            let soon = Instant::now() + Duration::from_millis(5 << tries);
            let late = synchronous_by(desk.handle(), soon, |desk| {
                let added = desk.add(1);
                wait_for(|| Instant::now() > soon + Duration::from_millis(1));
                added
            });
            match late {
                Err(InvokeError::TooLate) => None,
                late => Some(late.unwrap()),
            }
        })
        .unwrap();
    assert!(late.value == 2 && late.late.is_some_and(|late| late >= Duration::from_millis(1)));
}

#[test]
fn kt_10_others_decide_by_an_event_whether_calls_run() {
    let _alone = alone();
    let desk = desk();
    let event = Event::new();
    let call = |n| event_dependent(&event, desk.handle(), move |desk| desk.add(n));
    let (one, two, three) = (call(1), call(10), call(100));
    assert_eq!((event.waiting(), desk.add(0)), (3, 0));
    assert!(event.signal());
    assert_eq!(one.wait().unwrap(), 1, "the first that came");
    assert_eq!(event.signal_many(1), 1);
    assert_eq!(two.wait().unwrap(), 11);
    assert_eq!(event.cancel(), 1);
    assert!(matches!(three.wait(), Err(InvokeError::Cancelled)));
    assert!(matches!(call(1).wait(), Err(InvokeError::Cancelled)));
    assert_eq!(event.open(), 0);
    assert_eq!(call(1000).wait().unwrap(), 1011);
    event.close();
    assert!(!event.signal(), "nobody waits, and nothing is remembered");
    let waits = call(1);
    assert_eq!(event.waiting(), 1);
    assert_eq!(event.open(), 1);
    assert_eq!(waits.wait().unwrap(), 1012);
}

#[test]
fn an_event_in_the_hands_of_many_lets_each_call_run_once() {
    let _alone = alone();
    let desk = desk();
    let event = Event::new();
    let (threads, calls) = if cfg!(miri) { (2, 4) } else { (4, 200) };
    let all: Vec<_> = (0..threads)
        .map(|_| {
            let (event, co) = (event.clone(), desk.handle());
            thread::spawn(move || {
                let handles: Vec<_> =
                    (0..calls).map(|_| event_dependent(&event, co, |desk| desk.add(1))).collect();
                event.signal_many(calls / 2);
                event.open();
                event.close();
                handles
            })
        })
        .collect();
    let handles: Vec<_> = all.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    event.open();
    let mut results: Vec<_> = handles.into_iter().map(|handle| handle.wait().unwrap()).collect();
    results.sort_unstable();
    assert_eq!(results, (1..=threads * calls as u64).collect::<Vec<_>>());
}
