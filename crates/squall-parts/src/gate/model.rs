//! Model tests of the shipped request counters, and their twins with one weakened site.

use super::sites;
use super::{ControlFuture, Limits, Operation, RequestFuture, ShutDown, Step, Tally, TaskGate, Tasks};
use super::{GateError, GateState, LocalRequests, Rejected, SharedGate, SpreadRequests};
use squall_lock::NoSteps;
use squall_machine::asym::Unavailable;
use squall_sys::sync::Arc;
use squall_sys::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use squall_sys::sync::cell::UnsafeCell;
use squall_sys::sync::thread;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// A value that requests read, and that the control writes while no request is inside.
struct Work(UnsafeCell<u32>);

// SAFETY: the protocol under test keeps requests and the control apart, and the model checker verifies that.
unsafe impl Sync for Work {}
// SAFETY: the protocol under test keeps requests and the control apart, and the model checker verifies that.
unsafe impl Send for Work {}

impl Work {
    fn new() -> Arc<Work> {
        Arc::new(Work(UnsafeCell::new(0)))
    }

    fn read(&self) {
        // SAFETY: see `Work`.
        let value = self.0.with(|value| unsafe { *value });
        assert_ne!(value, 1, "a request was inside during a stop");
    }

    fn write(&self) {
        // SAFETY: see `Work`.
        self.0.with_mut(|value| unsafe { *value = 1 });
        thread::yield_now();
        // SAFETY: see `Work`.
        self.0.with_mut(|value| unsafe { *value = 2 });
    }
}

// --- shared ---

/// A request that waits if necessary, and a stop.
fn shared() {
    let (counter, work): (Arc<SharedGate>, _) = (Arc::new(SharedGate::new()), Work::new());
    let request = {
        let (counter, work) = (counter.clone(), work.clone());
        thread::spawn(move || {
            counter.enter().unwrap();
            work.read();
            counter.leave();
        })
    };
    counter.stop().unwrap();
    assert_eq!(counter.stop(), Err(GateError::Stopped));
    work.write();
    counter.restart().unwrap();
    request.join().unwrap();
    assert_eq!(counter.inside(), 0);
}

/// A request that is admitted or rejected while it waits for a restart that never comes, and a shutdown.
fn shared_shutdown() {
    let (counter, work): (Arc<SharedGate>, _) = (Arc::new(SharedGate::new()), Work::new());
    counter.stop().unwrap();
    let request = {
        let (counter, work) = (counter.clone(), work.clone());
        thread::spawn(move || match counter.enter() {
            Ok(()) => {
                work.read();
                counter.leave();
            }
            Err(ShutDown) => assert_eq!(counter.state(), GateState::ShutDown),
        })
    };
    counter.shutdown().unwrap();
    work.write();
    request.join().unwrap();
}

/// A stop that gives up leaves no request waiting.
fn shared_gives_up() {
    let counter: Arc<SharedGate> = Arc::new(SharedGate::new());
    counter.enter().unwrap();
    let request = {
        let counter = counter.clone();
        thread::spawn(move || {
            counter.enter().unwrap();
            counter.leave();
        })
    };
    assert_eq!(counter.stop_for(Duration::ZERO), Err(GateError::TimedOut));
    request.join().unwrap();
    counter.leave();
    assert_eq!((counter.state(), counter.inside()), (GateState::Normal, 0));
}

/// A shutdown that times out, and the wait for the requests still inside.
fn shared_drained() {
    let (counter, work): (Arc<SharedGate>, _) = (Arc::new(SharedGate::new()), Work::new());
    counter.enter().unwrap();
    let request = {
        let (counter, work) = (counter.clone(), work.clone());
        thread::spawn(move || {
            work.read();
            counter.leave();
        })
    };
    match counter.shutdown_for(Duration::ZERO) {
        Err(GateError::TimedOut) => counter.drained_within(Limits::NONE).unwrap(),
        ended => ended.unwrap(),
    }
    work.write();
    request.join().unwrap();
}

/// An interrupted shutdown leaves no thread waiting, and rejects no later request.
fn shared_interrupted() {
    let counter: Arc<SharedGate> = Arc::new(SharedGate::new());
    counter.enter().unwrap();
    let drained = {
        let counter = counter.clone();
        thread::spawn(move || counter.drained_within(Limits::NONE))
    };
    assert_eq!(counter.shutdown_within(Limits::NONE.or(&|| true)), Err(GateError::Interrupted));
    assert_eq!(drained.join().unwrap(), Err(GateError::NotShutDown));
    counter.enter().unwrap();
    assert_eq!((counter.state(), counter.inside()), (GateState::Normal, 2));
}

// --- spread ---

/// A count for models.
trait Zero: Tally + 'static {
    fn zero() -> Self;
}

impl Zero for AtomicU64 {
    fn zero() -> AtomicU64 {
        AtomicU64::new(0)
    }
}

/// A count with a gate, for one thread at a time. It models `GatedWord` on the VP of its gate, where the
/// kernel restarts a running sequence on request.
struct Gated {
    /// The counts at the gate, in units of COUNT, plus the number of restarts of sequences.
    local: AtomicU64,
    elsewhere: AtomicU64,
    open: AtomicBool,
}

const COUNT: u64 = 1 << 8;

impl Zero for Gated {
    fn zero() -> Gated {
        Gated { local: AtomicU64::new(0), elsewhere: AtomicU64::new(0), open: AtomicBool::new(false) }
    }
}

impl Tally for Gated {
    fn count(&self) {
        // Relaxed: the contract of `Tally` asks for no ordering.
        self.elsewhere.fetch_add(1, Ordering::Relaxed);
    }

    fn count_at_gate(&self) -> bool {
        loop {
            // Acquire: a sequence that begins after a restart has passed the barrier of that restart.
            let begun = self.local.load(Ordering::Acquire);
            // Acquire: pairs with the Release of `open`.
            if !self.open.load(sites::PROXY_ENTER_ACQUIRE.order(Ordering::Acquire)) {
                return false;
            }
            let commit = |now| (now & (COUNT - 1) == begun & (COUNT - 1)).then_some(now + COUNT);
            // Relaxed: models a plain store, which happens only if the sequence was not restarted since it
            // began.
            if self.local.fetch_update(Ordering::Relaxed, Ordering::Relaxed, commit).is_ok() {
                return true;
            }
        }
    }

    fn open(&self) {
        // Release: pairs with the Acquire of `count_at_gate`.
        self.open.store(true, sites::PASS_RELEASE.order(Ordering::Release));
    }

    fn close(&self) {
        // Relaxed: `finish_closing` orders it.
        self.open.store(false, Ordering::Relaxed);
    }

    fn finish_closing<'a>(closed: impl Iterator<Item = &'a Gated>) -> Result<(), Unavailable> {
        // AcqRel: the barrier that each processor passes. It orders sequences that ended before, and
        // sequences that begin later.
        for gated in closed {
            gated.local.fetch_add(1, Ordering::AcqRel);
        }
        Ok(())
    }

    fn read(&self) -> u64 {
        self.local.load(Ordering::Relaxed) / COUNT + self.elsewhere.load(Ordering::Relaxed)
    }
}

type Spread<T = AtomicU64> = SpreadRequests<T, NoSteps>;
type Local<T = AtomicU64> = LocalRequests<T, NoSteps>;

fn spread_of<T: Zero>(fenced: bool) -> (Arc<Spread<T>>, Arc<Work>) {
    (Arc::new(SpreadRequests::of(T::zero, fenced)), Work::new())
}

fn spread(fenced: bool) -> (Arc<Spread>, Arc<Work>) {
    spread_of(fenced)
}

fn local<T: Zero>(requests: &Spread<T>) -> Local<T> {
    requests.local(T::zero)
}

fn enter<T: Zero>(local: &Local<T>) -> bool {
    loop {
        match local.try_enter() {
            Ok(()) => return true,
            Err(Rejected::ShutDown) => return false,
            Err(Rejected::Stopped) => local.await_turn(Limits::NONE),
        }
    }
}

/// A request through an existing proxy, and a stop.
fn early_proxy<T: Zero>(fenced: bool) {
    let (requests, work) = spread_of::<T>(fenced);
    let request = {
        let (local, work) = (local(&requests), work.clone());
        thread::spawn(move || {
            assert!(enter(&local));
            work.read();
            local.leave();
        })
    };
    requests.stop(Limits::NONE).unwrap();
    assert_eq!(requests.stop(Limits::NONE), Err(GateError::Stopped));
    work.write();
    requests.restart().unwrap();
    request.join().unwrap();
    assert_eq!(requests.inside(), 0);
}

fn light() {
    early_proxy::<AtomicU64>(false);
}

fn full() {
    early_proxy::<AtomicU64>(true);
}

/// A request through a gate, and a stop. No other request counts at that gate.
fn gated() {
    early_proxy::<Gated>(false);
}

impl Spread<Gated> {
    /// Returns the number of counts made at the gates, by entering and leaving requests.
    fn at_gates(&self) -> u64 {
        self.counts().map(|count| count.local.load(Ordering::Relaxed) / COUNT).sum()
    }
}

/// While requests make full fences, gates never open.
fn gated_full() {
    let (requests, _) = spread_of::<Gated>(true);
    let here = local(&requests);
    assert!(enter(&here));
    here.leave();
    requests.stop(Limits::NONE).unwrap();
    requests.restart().unwrap();
    assert!(enter(&here) && enter(&requests.first()));
    assert_eq!(requests.at_gates(), 0, "a gate was opened that cannot be closed");
}

/// A request through a proxy that is made meanwhile, and a stop.
fn late_proxy_of<T: Zero>() {
    let (requests, work) = spread_of::<T>(false);
    let request = {
        let (requests, work) = (requests.clone(), work.clone());
        thread::spawn(move || {
            let local = local(&requests);
            if local.try_enter().is_ok() {
                work.read();
                local.leave();
            }
        })
    };
    requests.stop(Limits::NONE).unwrap();
    work.write();
    requests.restart().unwrap();
    request.join().unwrap();
    assert_eq!(local(&requests).try_enter(), Ok(()), "a proxy was left stopped");
}

fn late_proxy() {
    late_proxy_of::<AtomicU64>();
}

fn gated_late_proxy() {
    late_proxy_of::<Gated>();
}

/// Two proxies are made at once, while the state changes.
fn two_late_proxies() {
    let (requests, _) = spread(false);
    let other = {
        let requests = requests.clone();
        thread::spawn(move || drop(local(&requests)))
    };
    let third = {
        let requests = requests.clone();
        thread::spawn(move || requests.stop(Limits::NONE).unwrap())
    };
    let mine = local(&requests);
    other.join().unwrap();
    third.join().unwrap();
    assert_eq!(mine.try_enter(), Err(Rejected::Stopped));
    requests.restart().unwrap();
    assert!(mine.try_enter().is_ok());
}

/// A request inside leaves through a proxy that is made only then. The stop that waits for it must notice.
fn leaves_elsewhere_of<T: Zero>() {
    let (requests, work) = spread_of::<T>(false);
    requests.first().try_enter().unwrap();
    let request = {
        let (requests, work) = (requests.clone(), work.clone());
        thread::spawn(move || {
            work.read();
            local(&requests).leave();
        })
    };
    requests.stop(Limits::NONE).unwrap();
    work.write();
    request.join().unwrap();
}

fn leaves_elsewhere() {
    leaves_elsewhere_of::<AtomicU64>();
}

/// The gate is made open and then closed, or made closed.
fn gated_leaves_elsewhere() {
    leaves_elsewhere_of::<Gated>();
}

/// A request leaves through another proxy than it entered through. The stop does not sleep. So the model
/// holds without the fences that wake it, which would hide the release. (Loom does not stop a thread between
/// an access and a fence behind it.)
fn leaves_by_another() {
    let (requests, work) = spread(false);
    let request = {
        let (here, there, work) = (requests.first(), local(&requests), work.clone());
        thread::spawn(move || {
            if here.try_enter().is_ok() {
                work.read();
                there.leave();
            }
        })
    };
    if requests.stop(Limits::after(Duration::ZERO)).is_ok() {
        work.write();
    }
    request.join().unwrap();
}

/// One request is inside, and another is rejected after it was counted. No sum may take the second one's
/// leave for the first one's.
fn refused_meanwhile() {
    let (requests, work) = spread(false);
    let (first, other) = (requests.first(), local(&requests));
    first.try_enter().unwrap();
    let refused = thread::spawn(move || {
        if other.try_enter().is_ok() {
            other.leave();
        }
    });
    let inside = {
        let work = work.clone();
        thread::spawn(move || {
            work.read();
            first.leave();
        })
    };
    if requests.stop(Limits::after(Duration::ZERO)).is_ok() {
        work.write();
    }
    refused.join().unwrap();
    inside.join().unwrap();
}

/// A stop during another thread's restart. It fails, or no request is inside until its own restart.
fn stop_during_a_restart_of<T: Zero>(by_first: bool) {
    let (requests, work) = spread_of::<T>(false);
    let here = if by_first { requests.first() } else { local(&requests) };
    requests.stop(Limits::NONE).unwrap();
    let second = {
        let (requests, work) = (requests.clone(), work.clone());
        thread::spawn(move || {
            if requests.stop(Limits::NONE).is_ok() {
                assert_eq!(here.try_enter(), Err(Rejected::Stopped), "part of a restart came after a stop");
                work.write();
                requests.restart().unwrap();
            }
        })
    };
    requests.restart().unwrap();
    second.join().unwrap();
    assert_eq!(requests.state(), GateState::Normal);
}

fn stop_during_a_restart() {
    stop_during_a_restart_of::<AtomicU64>(false);
}

/// The request uses the gate of the first representative, which opens last.
fn gated_stop_during_a_restart() {
    stop_during_a_restart_of::<Gated>(true);
}

/// Two stops at once. One fails and leaves the counter unchanged.
fn two_stops() {
    let (requests, _) = spread(false);
    let here = local(&requests);
    let second = {
        let requests = requests.clone();
        thread::spawn(move || requests.stop(Limits::NONE).is_ok_and(|()| requests.restart().is_ok()))
    };
    let first = requests.stop(Limits::NONE).is_ok_and(|()| requests.restart().is_ok());
    let second = second.join().unwrap();
    assert!(first || second, "both failed");
    assert_eq!(requests.state(), GateState::Normal);
    assert_eq!(here.try_enter(), Ok(()), "a stop that failed stopped a proxy");
}

/// A shutdown rejects a request that waits during a stop.
fn shutdown() {
    let (requests, work) = spread(false);
    let here = local(&requests);
    requests.stop(Limits::NONE).unwrap();
    let request = thread::spawn(move || assert!(!enter(&here)));
    requests.shutdown(Limits::NONE).unwrap();
    work.write();
    assert_eq!(requests.shutdown(Limits::NONE), Err(GateError::ShutDown));
    request.join().unwrap();
    assert_eq!(local(&requests).try_enter(), Err(Rejected::ShutDown));
}

/// A shutdown that times out, and another thread that waits for the requests still inside.
fn drained() {
    let (requests, work) = spread(false);
    let here = local(&requests);
    here.try_enter().unwrap();
    let request = {
        let work = work.clone();
        thread::spawn(move || {
            work.read();
            here.leave();
        })
    };
    let shutdown = {
        let requests = requests.clone();
        thread::spawn(move || requests.shutdown(Limits::after(Duration::ZERO)))
    };
    match requests.drained(Limits::NONE) {
        Ok(()) => work.write(),
        // The wait came before the shutdown.
        why => assert_eq!(why, Err(GateError::NotShutDown)),
    }
    let _either = shutdown.join().unwrap();
    request.join().unwrap();
}

/// An interrupted shutdown, and a request that arrives meanwhile.
fn interrupted() {
    let (requests, _) = spread(false);
    let here = local(&requests);
    here.try_enter().unwrap();
    let request = {
        let requests = requests.clone();
        thread::spawn(move || {
            if requests.first().try_enter().is_ok() {
                requests.first().leave();
            }
        })
    };
    assert_eq!(requests.shutdown(Limits::NONE.or(&|| true)), Err(GateError::Interrupted));
    assert_eq!((here.try_enter(), local(&requests).try_enter()), (Ok(()), Ok(())));
    request.join().unwrap();
    assert_eq!((requests.state(), requests.inside()), (GateState::Normal, 3));
}

// --- tasks ---

/// A task: a future and its waker.
struct Task<F> {
    future: F,
    bell: std::sync::Arc<Bell>,
}

struct Bell(AtomicBool);

impl Wake for Bell {
    fn wake(self: std::sync::Arc<Bell>) {
        // Relaxed: the model reads it after a join.
        self.0.store(true, Ordering::Relaxed);
    }
}

impl<F: Future + Unpin> Task<F> {
    fn new(future: F) -> Task<F> {
        Task { future, bell: std::sync::Arc::new(Bell(AtomicBool::new(false))) }
    }

    fn poll(&mut self) -> Poll<F::Output> {
        self.bell.0.store(false, Ordering::Relaxed);
        Pin::new(&mut self.future).poll(&mut Context::from_waker(&Waker::from(self.bell.clone())))
    }

    /// Polls the future, waits for the event that it needs, and polls it again only if it was woken.
    fn run(&mut self, wait: impl FnOnce()) -> F::Output {
        let mut polled = self.poll();
        wait();
        if polled.is_pending() {
            assert!(self.bell.0.load(Ordering::Relaxed), "a task was not woken");
            polled = self.poll();
        }
        match polled {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("a task waits although its event has happened"),
        }
    }
}

/// A spread counter and one of its gates, for futures. Requests leave by [`Local::leave`].
struct Near {
    requests: Arc<Spread>,
    local: Arc<Local>,
}

impl TaskGate for Near {
    type Request = ();

    fn try_request(&self) -> Result<(), Rejected> {
        self.local.try_enter()
    }

    fn tasks(&self) -> Arc<Tasks> {
        self.requests.tasks().clone()
    }

    fn step(&self, _: &Arc<Tasks>, step: Step) -> Result<bool, GateError> {
        self.requests.step(step)
    }
}

fn near() -> Near {
    let (requests, _) = spread(false);
    let local = Arc::new(local(&requests));
    Near { requests, local }
}

/// A task waits for a restart by another thread.
fn task_request() {
    let counter: Arc<SharedGate> = Arc::new(SharedGate::new());
    counter.stop().unwrap();
    let restart = {
        let counter = counter.clone();
        thread::spawn(move || counter.restart().unwrap())
    };
    let entered = Task::new(RequestFuture::new(&*counter)).run(|| restart.join().unwrap());
    assert_eq!((entered.is_ok(), counter.inside()), (true, 1));
}

fn task_spread_request() {
    let near = near();
    near.requests.stop(Limits::NONE).unwrap();
    let restart = {
        let requests = near.requests.clone();
        thread::spawn(move || requests.restart().unwrap())
    };
    let requests = near.requests.clone();
    let entered = Task::new(RequestFuture::new(near)).run(|| restart.join().unwrap());
    assert_eq!((entered.is_ok(), requests.inside()), (true, 1));
}

/// A task stops a gate with a request inside.
fn task_stop() {
    let counter: Arc<SharedGate> = Arc::new(SharedGate::new());
    counter.enter().unwrap();
    let request = {
        let counter = counter.clone();
        thread::spawn(move || counter.leave())
    };
    let stop = ControlFuture::new(&*counter, Operation::Stop);
    Task::new(stop).run(|| request.join().unwrap()).unwrap();
    assert_eq!((counter.state(), counter.inside()), (GateState::Stopped, 0));
}

fn task_spread_stop() {
    let near = near();
    near.local.try_enter().unwrap();
    let request = {
        let local = near.local.clone();
        thread::spawn(move || local.leave())
    };
    let requests = near.requests.clone();
    let stop = ControlFuture::new(near, Operation::Stop);
    Task::new(stop).run(|| request.join().unwrap()).unwrap();
    assert_eq!((requests.state(), requests.inside()), (GateState::Stopped, 0));
}

/// A stop is ready at its first poll only after the effects of the request.
fn task_stops_alone() {
    let (counter, work): (Arc<SharedGate>, _) = (Arc::new(SharedGate::new()), Work::new());
    let request = {
        let (counter, work) = (counter.clone(), work.clone());
        thread::spawn(move || {
            if counter.try_enter().is_ok() {
                work.read();
                counter.leave();
            }
        })
    };
    let mut stop = Task::new(ControlFuture::new(&*counter, Operation::Stop));
    if stop.poll().is_ready() {
        work.write();
        counter.restart().unwrap();
    }
    // A stop that is not ready admits requests again.
    drop(stop);
    request.join().unwrap();
    assert_eq!((counter.state(), counter.inside()), (GateState::Normal, 0));
}

/// The future of a stop is dropped while a thread waits for its turn.
fn task_gives_up() {
    let counter: Arc<SharedGate> = Arc::new(SharedGate::new());
    counter.enter().unwrap();
    let request = {
        let counter = counter.clone();
        thread::spawn(move || {
            counter.enter().unwrap();
            counter.leave();
        })
    };
    let mut stop = Task::new(ControlFuture::new(&*counter, Operation::Stop));
    assert!(stop.poll().is_pending());
    drop(stop);
    request.join().unwrap();
    assert_eq!((counter.state(), counter.inside()), (GateState::Normal, 1));
}

/// The future of a shutdown is dropped, while another task waits for the last request.
fn task_drained() {
    let counter: Arc<SharedGate> = Arc::new(SharedGate::new());
    counter.enter().unwrap();
    let mut shutdown = Task::new(ControlFuture::new(&*counter, Operation::Shutdown));
    assert!(shutdown.poll().is_pending());
    let request = {
        let counter = counter.clone();
        thread::spawn(move || counter.leave())
    };
    let mut drained = Task::new(ControlFuture::new(&*counter, Operation::Drain));
    assert!(drained.poll().is_pending(), "the shutdown is under way");
    drop(shutdown);
    drained.run(|| request.join().unwrap()).unwrap();
}

use squall_sys::models;
models!(
    shared,
    shared_shutdown,
    shared_gives_up,
    shared_drained,
    shared_interrupted,
    light,
    full,
    late_proxy,
    two_late_proxies,
    leaves_elsewhere,
    leaves_by_another,
    refused_meanwhile,
    stop_during_a_restart,
    two_stops,
    shutdown,
    drained,
    interrupted,
    gated_full,
    gated_late_proxy,
    gated_leaves_elsewhere,
    gated_stop_during_a_restart,
    task_request,
    task_spread_request,
    task_stop,
    task_spread_stop,
    task_stops_alone,
    task_gives_up,
    task_drained,
);

mod gated {
    #[test]
    fn holds() {
        // A gate has more steps than a count. One more preemption would take a minute.
        squall_sys::sync::weaken::check_within(3, super::gated);
    }
}

#[cfg(loom)]
#[test]
fn twins() {
    use crate::replica::sites::{WAKE, WATCH};
    use sites as s;
    use squall_machine::park::sites::SIGNAL_FENCE;
    for (site, masks, test) in [
        (s::ENTER_ACQUIRE, &[][..], "shared"),
        (s::RESTART_RELEASE, &[], "shared"),
        (s::LEAVE_RELEASE, &[], "shared"),
        (s::DRAIN_ACQUIRE, &[], "shared"),
        (s::PROXY_ENTER_LIGHT, &[], "light"),
        (s::HEAVY, &[], "light"),
        (s::PROXY_ENTER_ACQUIRE, &[], "light"),
        (s::PASS_RELEASE, &[], "light"),
        (s::PROXY_LEAVE_RELEASE, &[s::PROXY_LEAVE_LIGHT, s::PROXY_LEAVE_FULL], "leaves_by_another"),
        (s::SUM_ACQUIRE, &[s::PROXY_LEAVE_LIGHT, s::PROXY_LEAVE_FULL], "leaves_by_another"),
        (s::PROXY_LEAVE_LIGHT, &[s::PROXY_LEAVE_FULL], "light"),
        (s::PROXY_ENTER_FULL, &[s::PROXY_ENTER_LIGHT], "full"),
        (s::PROXY_LEAVE_FULL, &[s::PROXY_LEAVE_LIGHT], "full"),
        (s::WORD_BEFORE_PROXIES, &[], "late_proxy"),
        (s::LEFT_BEFORE_ENTERED, &[], "refused_meanwhile"),
        (s::FIRST_RESTARTS_LAST, &[], "stop_during_a_restart"),
        (s::FIRST_STOPS_FIRST, &[], "two_stops"),
        (s::FINISH_CLOSING, &[], "gated"),
        (s::PROXY_ENTER_ACQUIRE, &[], "gated"),
        (s::PASS_RELEASE, &[], "gated"),
        (s::PROXY_LEAVE_LIGHT, &[s::PROXY_LEAVE_FULL], "gated"),
        (s::WORD_BEFORE_PROXIES, &[], "gated_late_proxy"),
        (s::NEW_GATE, &[], "gated_late_proxy"),
        (s::GATE_BEFORE_STATE, &[], "gated_stop_during_a_restart"),
        (s::LOOK_AGAIN, &[], "task_request"),
        (s::LOOK_AGAIN, &[], "task_spread_request"),
        (s::LOOK_AGAIN, &[], "task_stop"),
        (s::LOOK_AGAIN, &[], "task_spread_stop"),
        (WATCH, &[], "task_request"),
        (WATCH, &[], "task_stop"),
        (SIGNAL_FENCE, &[], "task_request"),
        (SIGNAL_FENCE, &[], "task_stop"),
        (s::TASKS_ACQUIRE, &[WAKE], "task_request"),
        (s::TASKS_RELEASE, &[WAKE], "task_request"),
        (s::LEAVE_RELEASE, &[], "task_stops_alone"),
        (s::DRAIN_ACQUIRE, &[], "task_stops_alone"),
    ] {
        squall_sys::sync::weaken::twin(site, masks, &format!("gate::model::{test}::holds"));
    }
}
