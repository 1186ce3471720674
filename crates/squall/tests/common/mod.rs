//! What the law tests share: an interface whose calls run a closure, objects that keep a log of their lives, and threads
//! that stop at a place.
#![allow(dead_code, reason = "each test program uses a part")]

pub(crate) mod swaps;

use squall::{Cleanup, Cluster, ClusterSize, Destruction, Handle, Owned, RepContext, Root, Vp};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, mpsc};

/// What the test objects can do.
#[squall::interface]
pub(crate) trait Hits: Send + Sync {
    fn add(&self, n: u64);
    /// The sum over all representatives.
    fn total(&self) -> u64;
    /// That of the representative that answers.
    fn local(&self) -> u64;
    /// The cluster that the representative serves, and the VP that made it.
    fn who(&self) -> (Cluster, Vp);
    /// Runs `f` within the call.
    fn within(&self, f: &mut dyn FnMut());
    /// Runs `f` within the call, which may block.
    #[blocking]
    fn holding(&self, f: &mut dyn FnMut());
    /// Sleeps until the sum is at least `n`; `None` if the object ends first.
    #[blocking]
    fn wait_for(&self, n: u64) -> Option<u64>;
    /// Runs `f` with membership held still and the number of representatives.
    fn frozen(&self, f: &mut dyn FnMut(usize));
}

/// Something that happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// `make_rep` ran for this cluster.
    Made(Cluster),
    /// The representative of this cluster, made on the first VP, was dropped on the second.
    RepDropped(Cluster, Vp, Vp),
    RootDropped,
}

/// What happened to an object, in order.
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

    /// Everything that was made was dropped once, the root once and last.
    pub(crate) fn assert_over(&self) {
        assert_eq!(
            (self.reps_dropped(), self.roots_dropped()),
            (self.made(), 1),
            "of each as many as were made"
        );
        assert_eq!(self.events().last(), Some(&Event::RootDropped), "the root last");
    }
}

type Hook = Box<dyn Fn(&RepContext<Spread>) + Send + Sync>;

/// A root whose hooks a test chooses.
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

/// Its representative.
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

/// The same interface with one representative for everybody.
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

/// A distributed object and a shared one, each with its log.
pub(crate) fn both_kinds() -> [(Owned<dyn Hits>, Log); 2] {
    let (spread, shared) = (Log::default(), Log::default());
    [
        (Spread::new(&spread).create(ClusterSize::Cpu), spread.clone()),
        (squall::shared(Shared::new(&shared)), shared.clone()),
    ]
}

/// Ends an object and waits until everything of it is dropped.
pub(crate) fn end(owned: Owned<dyn Hits>) {
    Owned::destroy(owned).wait().unwrap();
}

/// What a panic in `call` says.
pub(crate) fn panic_of<T>(call: impl FnOnce() -> T) -> String {
    let Err(payload) = catch_unwind(AssertUnwindSafe(call)) else { panic!("this did not panic") };
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(ToString::to_string)).expect("a panic with a text")
}

/// A place where a thread stops until it may go on: `stop` there; `wait_until_there` and `go` from elsewhere.
pub(crate) struct Stop {
    there: mpsc::Receiver<()>,
    go: mpsc::Sender<()>,
}

/// The other end of a [`Stop`].
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

/// A thread that sits in a call of `hits` until the result is dropped.
pub(crate) struct Inside {
    stop: Stop,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Inside {
    /// In an operation.
    pub(crate) fn operation(hits: Handle<dyn Hits>) -> Inside {
        Inside::start(move |f| hits.within(f))
    }

    /// Under a hold, outside every operation.
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

/// A destruction that is not complete although nothing is left to do but for what holds it up.
pub(crate) fn assert_held_up(end: Destruction) {
    // Whatever can be reclaimed is reclaimed by the end of the second.
    for _ in 0..2 {
        squall::rcu::barrier().unwrap();
    }
    assert!(!end.is_complete());
}

static DROPS_PANIC: Mutex<()> = Mutex::new(());

/// Locked by a test that counts panics in drops, and by a test whose drops panic: the count is one for the process.
pub(crate) fn drops_panic() -> MutexGuard<'static, ()> {
    DROPS_PANIC.lock().unwrap_or_else(PoisonError::into_inner)
}

static DISCARDS: RwLock<()> = RwLock::new(());

/// Taken by a test that counts misses exactly: nobody discards tables meanwhile.
pub(crate) fn misses_are_counted() -> RwLockReadGuard<'static, ()> {
    DISCARDS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Taken by a test that discards tables: nobody counts misses meanwhile.
pub(crate) fn tables_are_discarded() -> RwLockWriteGuard<'static, ()> {
    DISCARDS.write().unwrap_or_else(PoisonError::into_inner)
}

/// Whether this process was started by [`again`].
pub(crate) fn is_child() -> bool {
    std::env::var_os("SQUALL_TEST_CHILD").is_some()
}

/// Runs `test` of this test program in a process of its own, where no other test is. Returns whether this is that process,
/// so that the test should go on.
pub(crate) fn alone(test: &str) -> bool {
    if std::env::var("SQUALL_TEST_ALONE").is_ok_and(|name| name == test) {
        return true;
    }
    again(&["--exact", test, "--test-threads=1"], &[("SQUALL_TEST_ALONE", test)]);
    false
}

/// Runs this test program again: the tests that `arguments` choose, under this environment.
///
/// Under emulation the program that runs this one must be named (`SQUALL_TEST_RUNNER="qemu-aarch64 -L …"`).
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
    assert!(!text.contains("running 0 tests"), "{arguments:?} choose nothing");
    assert!(
        output.status.success(),
        "{arguments:?} under {environment:?}:\n{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    output
}
