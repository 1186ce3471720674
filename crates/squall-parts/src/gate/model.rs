//! Model checks of the request counters in the form that ships, and the tests of those tests.

use super::sites;
use super::{ControlError, LocalRequests, Refused, RequestCounter, SpreadRequests, State};
use super::{Limits, ShutDown, Tally};
use squall_lock::Undisturbed;
use squall_machine::asym::Unavailable;
use squall_sys::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use squall_sys::sync::cell::UnsafeCell;
use squall_sys::sync::Arc;
use squall_sys::sync::thread;
use std::time::Duration;

/// What requests read, and the control writes while nobody is inside.
struct Work(UnsafeCell<u32>);

// SAFETY: the protocol under test is what keeps requests and the control apart; the checker watches.
unsafe impl Sync for Work {}
// SAFETY: as above.
unsafe impl Send for Work {}

impl Work {
    fn new() -> Arc<Work> {
        Arc::new(Work(UnsafeCell::new(0)))
    }

    fn read(&self) {
        // SAFETY: see `Work`.
        let value = self.0.with(|value| unsafe { *value });
        assert_ne!(value, 1, "a request was inside while it was stopped");
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

/// A request that waits if it must, and a stop.
fn shared() {
    let (counter, work): (Arc<RequestCounter>, _) = (Arc::new(RequestCounter::new()), Work::new());
    let request = {
        let (counter, work) = (counter.clone(), work.clone());
        thread::spawn(move || {
            counter.enter().unwrap();
            work.read();
            counter.leave();
        })
    };
    counter.stop().unwrap();
    assert_eq!(counter.stop(), Err(ControlError::Stopped));
    work.write();
    counter.restart().unwrap();
    request.join().unwrap();
    assert_eq!(counter.inside(), 0);
}

/// A request that may be refused, one that waits for a restart which never comes, and a shutdown.
fn shared_shutdown() {
    let (counter, work): (Arc<RequestCounter>, _) = (Arc::new(RequestCounter::new()), Work::new());
    counter.stop().unwrap();
    let request = {
        let (counter, work) = (counter.clone(), work.clone());
        thread::spawn(move || match counter.enter() {
            Ok(()) => {
                work.read();
                counter.leave();
            }
            Err(ShutDown) => assert_eq!(counter.state(), State::ShutDown),
        })
    };
    counter.shutdown().unwrap();
    work.write();
    request.join().unwrap();
}

/// A stop that gives up leaves nobody waiting.
fn shared_gives_up() {
    let counter: Arc<RequestCounter> = Arc::new(RequestCounter::new());
    counter.enter().unwrap();
    let request = {
        let counter = counter.clone();
        thread::spawn(move || {
            counter.enter().unwrap();
            counter.leave();
        })
    };
    assert_eq!(counter.stop_for(Duration::ZERO), Err(ControlError::TimedOut));
    request.join().unwrap();
    counter.leave();
    assert_eq!((counter.state(), counter.inside()), (State::Normal, 0));
}

/// A shutdown whose time is over, and the wait for who is still inside.
fn shared_drained() {
    let (counter, work): (Arc<RequestCounter>, _) = (Arc::new(RequestCounter::new()), Work::new());
    counter.enter().unwrap();
    let request = {
        let (counter, work) = (counter.clone(), work.clone());
        thread::spawn(move || {
            work.read();
            counter.leave();
        })
    };
    match counter.shutdown_for(Duration::ZERO) {
        Err(ControlError::TimedOut) => counter.drained_within(Limits::NONE).unwrap(),
        ended => ended.unwrap(),
    }
    work.write();
    request.join().unwrap();
}

/// A shutdown that is interrupted leaves nobody waiting, nor refused later.
fn shared_interrupted() {
    let counter: Arc<RequestCounter> = Arc::new(RequestCounter::new());
    counter.enter().unwrap();
    let drained = {
        let counter = counter.clone();
        thread::spawn(move || counter.drained_within(Limits::NONE))
    };
    assert_eq!(counter.shutdown_within(Limits::NONE.or(&|| true)), Err(ControlError::Interrupted));
    assert_eq!(drained.join().unwrap(), Err(ControlError::NotShutDown));
    counter.enter().unwrap();
    assert_eq!((counter.state(), counter.inside()), (State::Normal, 2));
}

// --- spread ---

/// What counts in a model.
trait Zero: Tally + 'static {
    fn zero() -> Self;
}

impl Zero for AtomicU64 {
    fn zero() -> AtomicU64 {
        AtomicU64::new(0)
    }
}

/// A count with a gate, for one thread at a time: what `GatedWord` is on the VP of its gate, where the kernel restarts a sequence
/// in whose middle it was asked to.
struct Gated {
    /// What was counted at the gate, in units of COUNT, and how often sequences were restarted.
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
        // Relaxed: by contract.
        self.elsewhere.fetch_add(1, Ordering::Relaxed);
    }

    fn count_at_gate(&self) -> bool {
        loop {
            // Acquire: a sequence that begins after a restart has passed the barrier of that.
            let begun = self.local.load(Ordering::Acquire);
            // Acquire: pairs with the Release of `open`.
            if !self.open.load(sites::PROXY_ENTER_ACQUIRE.order(Ordering::Acquire)) {
                return false;
            }
            let commit = |now| (now & (COUNT - 1) == begun & (COUNT - 1)).then_some(now + COUNT);
            // Relaxed: a plain store, which is made if the sequence was not restarted since it began.
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
        // AcqRel: the barrier that each processor passes, against sequences that begin later and ones that have ended.
        for gated in closed {
            gated.local.fetch_add(1, Ordering::AcqRel);
        }
        Ok(())
    }

    fn read(&self) -> u64 {
        self.local.load(Ordering::Relaxed) / COUNT + self.elsewhere.load(Ordering::Relaxed)
    }
}

type Spread<T = AtomicU64> = SpreadRequests<T, Undisturbed>;
type Local<T = AtomicU64> = LocalRequests<T, Undisturbed>;

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
            Err(Refused::ShutDown) => return false,
            Err(Refused::Stopped) => local.await_turn(Limits::NONE),
        }
    }
}

/// A request by a proxy that was there before, and a stop.
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
    assert_eq!(requests.stop(Limits::NONE), Err(ControlError::Stopped));
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

/// The same at gates. The request's count is that of nobody else.
fn gated() {
    early_proxy::<Gated>(false);
}

impl Spread<Gated> {
    /// How many came through its gates, to enter or to leave.
    fn at_gates(&self) -> u64 {
        self.counts().map(|count| count.local.load(Ordering::Relaxed) / COUNT).sum()
    }
}

/// Where requests make full fences gates are never opened.
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

/// A request by a proxy that is made meanwhile, and a stop.
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

/// Two proxies are made at once, and the state changes between.
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
    assert_eq!(mine.try_enter(), Err(Refused::Stopped));
    requests.restart().unwrap();
    assert!(mine.try_enter().is_ok());
}

/// A request that is inside leaves by a proxy which is made only then: the stop that waits for it notices.
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

/// By a gate that is born open and closed meanwhile, or born closed.
fn gated_leaves_elsewhere() {
    leaves_elsewhere_of::<Gated>();
}

/// A request leaves by another proxy than it entered by. The stop does not sleep, so that the model holds without the fences
/// that wake it, which would hide the release: loom does not stop a thread between an access and a fence behind it.
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

/// One is inside, and another is refused after it was counted: no sum takes the leaving of the second for that of the first.
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

/// A stop while another restarts: it fails, or nobody is inside until its own restart.
fn stop_during_a_restart_of<T: Zero>(by_first: bool) {
    let (requests, work) = spread_of::<T>(false);
    let here = if by_first { requests.first() } else { local(&requests) };
    requests.stop(Limits::NONE).unwrap();
    let second = {
        let (requests, work) = (requests.clone(), work.clone());
        thread::spawn(move || {
            if requests.stop(Limits::NONE).is_ok() {
                assert_eq!(here.try_enter(), Err(Refused::Stopped), "half a restart came after a stop");
                work.write();
                requests.restart().unwrap();
            }
        })
    };
    requests.restart().unwrap();
    second.join().unwrap();
    assert_eq!(requests.state(), State::Normal);
}

fn stop_during_a_restart() {
    stop_during_a_restart_of::<AtomicU64>(false);
}

/// By the gate of the first representative, which opens last.
fn gated_stop_during_a_restart() {
    stop_during_a_restart_of::<Gated>(true);
}

/// Two stops at once: one fails, and leaves nothing changed.
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
    assert_eq!(requests.state(), State::Normal);
    assert_eq!(here.try_enter(), Ok(()), "a stop that failed stopped a proxy");
}

/// A request that waits while it is stopped is refused by a shutdown.
fn shutdown() {
    let (requests, work) = spread(false);
    let here = local(&requests);
    requests.stop(Limits::NONE).unwrap();
    let request = thread::spawn(move || assert!(!enter(&here)));
    requests.shutdown(Limits::NONE).unwrap();
    work.write();
    assert_eq!(requests.shutdown(Limits::NONE), Err(ControlError::ShutDown));
    request.join().unwrap();
    assert_eq!(local(&requests).try_enter(), Err(Refused::ShutDown));
}

/// A shutdown whose time is over, and the wait for who is still inside, by another thread.
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
        // It came before the shutdown.
        why => assert_eq!(why, Err(ControlError::NotShutDown)),
    }
    let _either = shutdown.join().unwrap();
    request.join().unwrap();
}

/// A shutdown that is interrupted, and a request that comes meanwhile.
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
    assert_eq!(requests.shutdown(Limits::NONE.or(&|| true)), Err(ControlError::Interrupted));
    assert_eq!((here.try_enter(), local(&requests).try_enter()), (Ok(()), Ok(())));
    request.join().unwrap();
    assert_eq!((requests.state(), requests.inside()), (State::Normal, 3));
}

macro_rules! models {
    ($($name:ident),* $(,)?) => {$(
        mod $name {
            #[test]
            fn holds() {
                squall_sys::sync::weaken::check(super::$name);
            }
        }
    )*};
}

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
);

mod gated {
    #[test]
    fn holds() {
        // A gate has more steps than a count: with one preemption more it takes a minute.
        squall_sys::sync::weaken::check_within(3, super::gated);
    }
}

#[cfg(loom)]
#[test]
fn twins() {
    use sites as s;
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
    ] {
        squall_sys::sync::weaken::twin(site, masks, &format!("gate::model::{test}::holds"));
    }
}
