//! Shared by the test programs.
//!
//! The interface has calls that run a closure. The objects log their lives. Threads wait at a place. Tests
//! run again in processes of their own.
#![allow(dead_code, reason = "each test program uses a part")]

pub(crate) mod swaps;

use squall::{Cleanup, Cluster, ClusterSize, Destruction, Handle, Owned, RepContext, Root, Vp};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, mpsc};

/// The interface of the test objects.
#[squall::interface]
pub(crate) trait Hits: Send + Sync {
    fn add(&self, n: u64);
    /// The sum over all representatives.
    fn total(&self) -> u64;
    /// The part of the sum in the serving representative.
    fn local(&self) -> u64;
    /// The cluster of the serving representative, and the VP that made it.
    fn who(&self) -> (Cluster, Vp);
    /// Runs `f` within the call.
    fn within(&self, f: &mut dyn FnMut());
    /// Runs `f` within the call, outside every operation.
    #[blocking]
    fn holding(&self, f: &mut dyn FnMut());
    /// Sleeps until the sum is at least `n`; returns `None` if the object is destroyed first.
    #[blocking]
    fn wait_for(&self, n: u64) -> Option<u64>;
    /// Freezes membership and passes the number of representatives to `f`.
    fn frozen(&self, f: &mut dyn FnMut(usize));
}

/// An event in the life of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// `make_rep` ran for this cluster.
    Made(Cluster),
    /// A representative was dropped: its cluster, the VP that made it, the VP that dropped it.
    RepDropped(Cluster, Vp, Vp),
    RootDropped,
}

/// The events of an object, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<Event>>>);

impl Log {
    pub(crate) fn push(&self, event: Event) {
        self.events().push(event);
    }

    pub(crate) fn events(&self) -> MutexGuard<'_, Vec<Event>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn made(&self) -> usize {
        self.events().iter().filter(|event| matches!(event, Event::Made(_))).count()
    }

    pub(crate) fn reps_dropped(&self) -> usize {
        self.events().iter().filter(|event| matches!(event, Event::RepDropped(..))).count()
    }

    pub(crate) fn roots_dropped(&self) -> usize {
        self.events().iter().filter(|event| matches!(event, Event::RootDropped)).count()
    }

    /// Asserts that each representative was dropped once, and the root once and last.
    pub(crate) fn assert_over(&self) {
        assert_eq!(
            (self.reps_dropped(), self.roots_dropped()),
            (self.made(), 1),
            "representatives and roots dropped"
        );
        assert_eq!(self.events().last(), Some(&Event::RootDropped), "the root is dropped last");
    }
}

type Hook = Box<dyn Fn(&RepContext<Spread>) + Send + Sync>;

/// The root of a distributed object. A test chooses its hooks.
pub(crate) struct Spread {
    pub(crate) log: Log,
    pub(crate) on_make: Option<Hook>,
    pub(crate) on_drop: Option<Hook>,
}

impl Spread {
    pub(crate) fn new(log: &Log) -> Spread {
        Spread { log: log.clone(), on_make: None, on_drop: None }
    }

    pub(crate) fn on_make(mut self, hook: impl Fn(&RepContext<Spread>) + Send + Sync + 'static) -> Spread {
        self.on_make = Some(Box::new(hook));
        self
    }

    pub(crate) fn on_drop(mut self, hook: impl Fn(&RepContext<Spread>) + Send + Sync + 'static) -> Spread {
        self.on_drop = Some(Box::new(hook));
        self
    }
}

/// The representative of [`Spread`].
pub(crate) struct Local {
    n: AtomicU64,
    at: RepContext<Spread>,
}

impl Root for Spread {
    type Interface = dyn Hits;
    type Rep = Local;
    const CLEANUP: Cleanup = Cleanup::WhereMade;

    fn make_rep(&self, at: RepContext<Spread>) -> Local {
        self.log.push(Event::Made(at.cluster()));
        if let Some(hook) = &self.on_make {
            hook(&at);
        }
        Local { n: AtomicU64::new(0), at }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        let root = self.at.root();
        root.log.push(Event::RepDropped(self.at.cluster(), self.at.vp(), Vp::current()));
        if let Some(hook) = &root.on_drop {
            hook(&self.at);
        }
    }
}

impl Drop for Spread {
    fn drop(&mut self) {
        self.log.push(Event::RootDropped);
    }
}

impl Hits for Local {
    fn add(&self, n: u64) {
        self.n.fetch_add(n, Ordering::Relaxed);
        self.at.wake();
    }
    fn total(&self) -> u64 {
        self.at.reps().map(|rep| rep.n.load(Ordering::Relaxed)).sum()
    }
    fn local(&self) -> u64 {
        self.n.load(Ordering::Relaxed)
    }
    fn who(&self) -> (Cluster, Vp) {
        (self.at.cluster(), self.at.vp())
    }
    fn within(&self, f: &mut dyn FnMut()) {
        f();
    }
    fn holding(&self, f: &mut dyn FnMut()) {
        f();
    }
    fn wait_for(&self, n: u64) -> Option<u64> {
        self.at.sleep_until(|| Some(self.total()).filter(|&total| total >= n)).ok()
    }
    fn frozen(&self, f: &mut dyn FnMut(usize)) {
        self.at.freeze(|reps| f(reps.count()));
    }
}

/// A shared object of the same interface.
#[derive(Default)]
pub(crate) struct Shared {
    n: AtomicU64,
    log: Log,
}

impl Shared {
    pub(crate) fn new(log: &Log) -> Shared {
        Shared { n: AtomicU64::new(0), log: log.clone() }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.log.push(Event::RootDropped);
    }
}

impl Hits for Shared {
    fn add(&self, n: u64) {
        self.n.fetch_add(n, Ordering::Relaxed);
    }
    fn total(&self) -> u64 {
        self.n.load(Ordering::Relaxed)
    }
    fn local(&self) -> u64 {
        self.total()
    }
    fn who(&self) -> (Cluster, Vp) {
        (Cluster::new(0), Vp::new(0))
    }
    fn within(&self, f: &mut dyn FnMut()) {
        f();
    }
    fn holding(&self, f: &mut dyn FnMut()) {
        f();
    }
    fn wait_for(&self, n: u64) -> Option<u64> {
        Some(self.total()).filter(|&total| total >= n)
    }
    fn frozen(&self, f: &mut dyn FnMut(usize)) {
        f(1);
    }
}

/// Makes a distributed object and a shared one, each with its log.
pub(crate) fn both_kinds() -> [(Owned<dyn Hits>, Log); 2] {
    let (spread, shared) = (Log::default(), Log::default());
    [
        (Spread::new(&spread).create(ClusterSize::Cpu), spread.clone()),
        (squall::shared(Shared::new(&shared)), shared.clone()),
    ]
}

/// Destroys an object and waits for its drops.
pub(crate) fn end(owned: Owned<dyn Hits>) {
    Owned::destroy(owned).wait().unwrap();
}

/// Returns the message of a panic in `call`.
pub(crate) fn panic_of<T>(call: impl FnOnce() -> T) -> String {
    let Err(payload) = catch_unwind(AssertUnwindSafe(call)) else { panic!("the call did not panic") };
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(ToString::to_string)).expect("a panic with a text")
}

/// A place where a thread waits. It calls `stop`; another thread calls `wait_until_there` and `go`.
pub(crate) struct Stop {
    there: mpsc::Receiver<()>,
    go: mpsc::Sender<()>,
}

/// The end of a [`Stop`] for the waiting thread.
pub(crate) struct Stopper {
    there: mpsc::Sender<()>,
    go: Mutex<mpsc::Receiver<()>>,
}

pub(crate) fn stop() -> (Stop, Stopper) {
    let (there, is_there) = mpsc::channel();
    let (go, may_go) = mpsc::channel();
    (Stop { there: is_there, go }, Stopper { there, go: Mutex::new(may_go) })
}

impl Stopper {
    pub(crate) fn stop(&self) {
        self.there.send(()).unwrap();
        self.go.lock().unwrap().recv().unwrap();
    }
}

impl Stop {
    pub(crate) fn wait_until_there(&self) {
        self.there.recv().unwrap();
    }
    pub(crate) fn go(&self) {
        self.go.send(()).unwrap();
    }
}

/// A thread that stays inside a call of `hits` until this value is dropped.
pub(crate) struct Inside {
    stop: Stop,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Inside {
    /// Stays in an operation.
    pub(crate) fn operation(hits: Handle<dyn Hits>) -> Inside {
        Inside::start(move |f| hits.within(f))
    }

    /// Stays in a blocking call: under a hold, outside every operation.
    pub(crate) fn hold(hits: Handle<dyn Hits>) -> Inside {
        Inside::start(move |f| hits.holding(f))
    }

    fn start(call: impl FnOnce(&mut dyn FnMut()) + Send + 'static) -> Inside {
        let (stop, stopper) = stop();
        let thread = std::thread::spawn(move || call(&mut || stopper.stop()));
        stop.wait_until_there();
        Inside { stop, thread: Some(thread) }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.stop.go();
        let ended = self.thread.take().map(std::thread::JoinHandle::join);
        if !std::thread::panicking() {
            ended.unwrap().unwrap();
        }
    }
}

/// Asserts that a hold keeps the destruction from completing.
pub(crate) fn assert_held_up(end: Destruction) {
    // After two barriers, all reclaimable memory is reclaimed.
    for _ in 0..2 {
        squall::rcu::barrier().unwrap();
    }
    assert!(!end.is_complete());
}

static DROPS_PANIC: Mutex<()> = Mutex::new(());

/// Locked by a test that counts panics in drops or causes them. The process has one count.
pub(crate) fn drops_panic() -> MutexGuard<'static, ()> {
    DROPS_PANIC.lock().unwrap_or_else(PoisonError::into_inner)
}

static DISCARDS: RwLock<()> = RwLock::new(());

/// Locked by a test that counts misses exactly. Keeps other tests from discarding tables.
pub(crate) fn misses_are_counted() -> RwLockReadGuard<'static, ()> {
    DISCARDS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Locked by a test that discards tables. Keeps other tests from counting misses.
pub(crate) fn tables_are_discarded() -> RwLockWriteGuard<'static, ()> {
    DISCARDS.write().unwrap_or_else(PoisonError::into_inner)
}

/// Returns true in a process that [`again`] started.
pub(crate) fn is_child() -> bool {
    std::env::var_os("SQUALL_TEST_CHILD").is_some()
}

/// Runs the test with this path in a process of its own. Returns true in that process: the test then goes on.
pub(crate) fn alone(test: &str) -> bool {
    if std::env::var("SQUALL_TEST_ALONE").is_ok_and(|name| name == test) {
        return true;
    }
    again(&["--exact", test, "--test-threads=1"], &[("SQUALL_TEST_ALONE", test)]);
    false
}

/// Runs this test program again, with these arguments and environment variables.
///
/// Under emulation, `SQUALL_TEST_RUNNER="qemu-aarch64 -L …"` names the emulator.
pub(crate) fn again(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let runner = std::env::var("SQUALL_TEST_RUNNER").unwrap_or_default();
    let program = std::env::current_exe().unwrap().into_os_string();
    let mut words = runner.split_whitespace().map(std::ffi::OsString::from).chain([program]);
    let output = Command::new(words.next().unwrap())
        .args(words)
        .args(arguments)
        .env("SQUALL_TEST_CHILD", "1")
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!text.contains("running 0 tests"), "{arguments:?} select no test");
    assert!(
        output.status.success(),
        "{arguments:?} under {environment:?}:\n{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    output
}
