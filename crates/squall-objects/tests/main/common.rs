//! The virtual machine of these tests, and helpers that several of them use.

use squall_adapt::engine::VirtualTime;
use squall_adapt::{control, settings};
use squall_core::{Handle, Id, Owned};
use squall_machine::{Machine, Vp, machine};
use squall_objects::counter::{self, Counter};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, Once};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// VPs of the machine: two nodes of two caches of four cores of two threads.
pub(crate) const VPS: u32 = 32;

/// Locks out the other tests, makes the machine if this is the first test, and resets all settings.
///
/// The tests run one at a time, since settings, freezes and statistics apply to all objects of the process.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static MADE: Once = Once::new();
    static ALONE: Mutex<()> = Mutex::new(());
    MADE.call_once(|| {
        _ = Machine::set_virtual("nodes:2,caches:2,cores:4,threads:2".parse().unwrap()).unwrap()
    });
    assert_eq!(machine().vps().len(), VPS as usize);
    let guard = ALONE.lock().unwrap_or_else(|poison| poison.into_inner());
    for info in settings::ALL.list() {
        settings::ALL.unset(info.name).unwrap();
    }
    control::freeze_all(false);
    control::dry_run_all(false);
    guard
}

/// Ends the threads of a test, even if it panics.
pub(crate) struct Stop<'a>(pub(crate) &'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(crate) fn on<T>(vp: u32, f: impl FnOnce() -> T) -> T {
    Vp::with_vp(Vp::new(vp), f).unwrap()
}

/// Waits until `is_so` returns true. Panics after five minutes, so that a test that hangs ends.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(300), "waited 300 s in vain: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Excludes other tests, and holds the engine on virtual time.
pub(crate) struct Time {
    pub(crate) engine: VirtualTime,
    // Dropped last.
    _alone: MutexGuard<'static, ()>,
}

/// Excludes other tests, resets all settings, and stops the engine's clock.
pub(crate) fn virtual_time() -> Time {
    let alone = alone();
    // Swaps take real time.
    settings::ALL.set(&settings::DEADLINE, Duration::from_secs(60)).unwrap();
    Time { engine: VirtualTime::start(), _alone: alone }
}

impl Time {
    /// Lets virtual time pass until `is_so` returns true. Panics after a minute of virtual time.
    pub(crate) fn until(&mut self, what: &str, is_so: impl FnMut() -> bool) {
        assert!(self.engine.run_until(Duration::from_secs(60), is_so), "waited in vain: {what}");
    }

    /// Lets virtual time pass.
    pub(crate) fn pass(&mut self, span: Duration) {
        self.engine.run(span);
    }

    /// Runs `f` with a crew as the load.
    pub(crate) fn with<T>(&mut self, crew: Crew, f: impl FnOnce(&mut Time) -> T) -> T {
        let mut crew = crew;
        self.engine.set_load(move |span| crew.work(span));
        let result = f(self);
        self.engine.clear_load();
        result
    }
}

/// VPs that call an object. In each step of virtual time they make their calls one after the other, so all
/// runs of a test are alike.
pub(crate) struct Crew {
    members: Vec<Member>,
    calls_per_ms: u32,
    /// Calls that are due, in parts of a million.
    due: u128,
}

/// Makes so many calls.
type Body = Arc<dyn Fn(u32) + Send + Sync>;

enum Member {
    /// A VP on which the thread of the test makes the calls.
    Vp(u32, Body),
    /// A thread of its own.
    Thread(Worker),
}

struct Worker {
    orders: Option<Sender<u32>>,
    done: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Crew {
    /// Makes a crew on these VPs. On each, `body` is called with the number of calls to make, so many in a
    /// virtual millisecond.
    pub(crate) fn new(vps: &[u32], calls_per_ms: u32, body: impl Fn(u32) + Send + Sync + 'static) -> Crew {
        let body: Body = Arc::new(body);
        let members = vps.iter().map(|vp| Member::Vp(*vp, Arc::clone(&body)));
        Crew { members: members.collect(), calls_per_ms, due: 0 }
    }

    /// Makes a crew with a thread on each of these VPs, for objects that tell threads apart.
    pub(crate) fn of_threads(
        vps: &[u32],
        calls_per_ms: u32,
        body: impl Fn(u32) + Send + Sync + 'static,
    ) -> Crew {
        let body: Body = Arc::new(body);
        let members = vps.iter().map(|vp| Member::Thread(Worker::start(*vp, Arc::clone(&body))));
        Crew { members: members.collect(), calls_per_ms, due: 0 }
    }

    /// Makes the calls of a span.
    pub(crate) fn work(&mut self, span: Duration) {
        const MS: u128 = 1_000_000;
        self.due += span.as_nanos() * u128::from(self.calls_per_ms);
        let calls = (self.due / MS) as u32;
        self.due %= MS;
        for member in &self.members {
            match member {
                Member::Vp(vp, body) => on(*vp, || body(calls)),
                Member::Thread(worker) => worker.work(calls),
            }
        }
    }
}

impl Worker {
    fn start(vp: u32, body: Body) -> Worker {
        let ((orders, ordered), (reports, done)) = (channel(), channel());
        let work = move || {
            on(vp, || {
                for calls in ordered {
                    body(calls);
                    // The test ended by a panic if there is no receiver.
                    let _ = reports.send(());
                }
            });
        };
        Worker { orders: Some(orders), done, thread: Some(thread::spawn(work)) }
    }

    fn work(&self, calls: u32) {
        self.orders.as_ref().unwrap().send(calls).expect("the thread lives");
        self.done.recv().expect("the calls did not panic");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.orders = None;
        if self.thread.take().unwrap().join().is_err() && !thread::panicking() {
            panic!("a thread of the crew panicked");
        }
    }
}

/// Makes an adaptive counter on VP 0.
pub(crate) fn made() -> (Owned<dyn Counter>, Id) {
    let counter = on(0, counter::adaptive);
    let id = Handle::id(counter.handle());
    (counter, id)
}

pub(crate) fn form(id: Id) -> &'static str {
    control::status(id).expect("an adaptive counter that lives").form
}
