//! Shared by the tests of hot-swap: an interface, objects that log the steps of their lives, and ways to keep
//! a swap in a phase.

use squall::swap::{Replacement, RootFormats, State, StateFormats, Swap, SwapError, SwapReport, Transferred};
use squall::{CallError, ClusterSize, Handle, ObjectInfo, ObjectState, Owned, RepContext, Root, Vp};
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A limit that no test reaches.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// The interface of the test objects.
#[squall::interface]
pub(crate) trait Hits: Send + Sync {
    fn add(&self, n: u64);
    fn total(&self) -> u64;
    /// The part of the total in the serving representative.
    fn local(&self) -> u64;
    /// The name of the serving implementation.
    fn name(&self) -> &'static str;
    fn carried(&self) -> Result<u64, CallError>;
    /// Runs `f` within the call.
    fn within(&self, f: &mut dyn FnMut());
    /// Runs `f` within the call, outside every operation.
    #[blocking]
    fn holding(&self, f: &mut dyn FnMut());
    /// Panics with the payload [`Planned`].
    fn panics(&self);
}

/// The payload of a planned panic. It owns no memory.
#[derive(Debug)]
pub(crate) struct Planned;

/// A step in the life of an object. A test watches it and may make it fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A representative is made.
    Make,
    Export,
    Import,
    /// `moved` ran: the state has left the object.
    Moved,
    /// A representative or a shared value is dropped.
    Drop,
    /// A root is dropped.
    RootDrop,
}

type Hook = Arc<dyn Fn() -> Transferred<()> + Send + Sync>;

/// The steps of one object, in order, and hooks that run at a step.
#[derive(Clone, Default)]
pub(crate) struct Life(Arc<Inner>);

#[derive(Default)]
struct Inner {
    steps: Mutex<Vec<Step>>,
    hooks: Mutex<Vec<(Step, Hook)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Life {
    /// Runs `hook` at each such step. Its result is the result of the step.
    pub(crate) fn on(&self, step: Step, hook: impl Fn() -> Transferred<()> + Send + Sync + 'static) -> &Life {
        lock(&self.0.hooks).push((step, Arc::new(hook)));
        self
    }

    /// Records that a representative was made, for roots defined in a test.
    pub(crate) fn on_made(&self) {
        self.reach(Step::Make).unwrap();
    }

    /// Records that a representative was dropped, for roots defined in a test.
    pub(crate) fn on_dropped(&self) {
        self.reach(Step::Drop).unwrap();
    }

    /// Removes all hooks.
    pub(crate) fn forget_hooks(&self) {
        lock(&self.0.hooks).clear();
    }

    fn reach(&self, step: Step) -> Transferred<()> {
        lock(&self.0.steps).push(step);
        let hooks: Vec<_> = lock(&self.0.hooks).iter().filter(|hook| hook.0 == step).cloned().collect();
        hooks.iter().try_for_each(|(_, hook)| hook())
    }

    /// Returns the number of such steps.
    pub(crate) fn count(&self, step: Step) -> usize {
        lock(&self.0.steps).iter().filter(|&&seen| seen == step).count()
    }

    pub(crate) fn steps(&self) -> Vec<Step> {
        lock(&self.0.steps).clone()
    }

    /// Asserts that each representative was dropped once, and that `moved` ran that many times, before the
    /// first drop. Waits for the drops: the end of an object does not wait for its predecessor.
    #[track_caller]
    pub(crate) fn assert_over(&self, moved: usize) {
        if self.count(Step::Drop) != self.count(Step::Make) {
            self.wait_for_drops(self.count(Step::Make));
        }
        let steps = self.steps();
        let (made, dropped) = (self.count(Step::Make), self.count(Step::Drop));
        assert_eq!((made, self.count(Step::Moved)), (dropped, moved), "{steps:?}");
        let first = |step| steps.iter().position(|&seen| seen == step);
        assert!(moved == 0 || first(Step::Moved) < first(Step::Drop).or(Some(usize::MAX)), "{steps:?}");
    }

    /// Waits until `count` representatives were dropped, since reclamation takes time.
    pub(crate) fn wait_for_drops(&self, count: usize) {
        wait_until(|| {
            squall::rcu::barrier().unwrap();
            self.count(Step::Drop) >= count
        });
        assert_eq!(self.count(Step::Drop), count, "{:?}", self.steps());
    }
}

/// A shared object: one number.
pub(crate) struct One {
    name: &'static str,
    n: AtomicU64,
    life: Life,
}

/// Makes a [`One`].
pub(crate) fn one(name: &'static str, life: &Life) -> One {
    life.reach(Step::Make).unwrap();
    One { name, n: AtomicU64::new(0), life: life.clone() }
}

pub(crate) fn new_one(name: &'static str, life: &Life) -> Replacement<dyn Hits> {
    Replacement::swappable(one(name, life))
}

impl State for One {
    fn formats(formats: &mut StateFormats<'_, One>) {
        formats.export_part(|this| this.life.reach(Step::Export).map(|()| this.n.load(Relaxed))).import_part(
            |this, n: u64| {
                this.n.fetch_add(n, Relaxed);
                this.life.reach(Step::Import)
            },
        );
    }

    fn moved(&self) {
        self.life.reach(Step::Moved).unwrap();
    }
}

impl Drop for One {
    fn drop(&mut self) {
        self.life.reach(Step::Drop).unwrap();
    }
}

impl Hits for One {
    fn add(&self, n: u64) {
        self.n.fetch_add(n, Relaxed);
    }
    fn total(&self) -> u64 {
        self.n.load(Relaxed)
    }
    fn local(&self) -> u64 {
        self.total()
    }
    fn name(&self) -> &'static str {
        self.name
    }
    fn carried(&self) -> Result<u64, CallError> {
        Ok(self.total())
    }
    fn within(&self, f: &mut dyn FnMut()) {
        f();
    }
    fn holding(&self, f: &mut dyn FnMut()) {
        f();
    }
    fn panics(&self) {
        panic_any(Planned);
    }
}

/// The root of a distributed object: one number for each cluster.
pub(crate) struct Many {
    name: &'static str,
    life: Life,
}

pub(crate) struct Part {
    n: AtomicU64,
    at: RepContext<Many>,
}

pub(crate) fn many(name: &'static str, life: &Life) -> Many {
    Many { name, life: life.clone() }
}

pub(crate) fn new_many(name: &'static str, life: &Life) -> Replacement<dyn Hits> {
    Replacement::root(many(name, life), ClusterSize::Cpu)
}

impl Root for Many {
    type Interface = dyn Hits;
    type Rep = Part;

    fn make_rep(&self, at: RepContext<Many>) -> Part {
        let part = Part { n: AtomicU64::new(0), at };
        self.life.reach(Step::Make).unwrap();
        part
    }

    fn formats(formats: &mut RootFormats<'_, Many>) {
        formats
            .export_part(|this, part| this.life.reach(Step::Export).map(|()| part.n.load(Relaxed)))
            .import_part(|this, part, n: u64| {
                part.n.fetch_add(n, Relaxed);
                this.life.reach(Step::Import)
            });
    }

    fn moved(&self) {
        self.life.reach(Step::Moved).unwrap();
    }
}

impl Drop for Many {
    fn drop(&mut self) {
        self.life.reach(Step::RootDrop).unwrap();
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.at.root().life.reach(Step::Drop).unwrap();
    }
}

impl Hits for Part {
    fn add(&self, n: u64) {
        self.n.fetch_add(n, Relaxed);
    }
    fn total(&self) -> u64 {
        self.at.reps().map(|part| part.n.load(Relaxed)).sum()
    }
    fn local(&self) -> u64 {
        self.n.load(Relaxed)
    }
    fn name(&self) -> &'static str {
        self.at.root().name
    }
    fn carried(&self) -> Result<u64, CallError> {
        Ok(self.total())
    }
    fn within(&self, f: &mut dyn FnMut()) {
        f();
    }
    fn holding(&self, f: &mut dyn FnMut()) {
        f();
    }
    fn panics(&self) {
        panic_any(Planned);
    }
}

/// Makes a shared and a distributed object with the name "old", each with its life.
pub(crate) fn both_kinds() -> [(Owned<dyn Hits>, Life); 2] {
    let lives = [Life::default(), Life::default()];
    [
        (squall::swappable(one("old", &lives[0])), lives[0].clone()),
        (many("old", &lives[1]).create(ClusterSize::Cpu), lives[1].clone()),
    ]
}

pub(crate) fn info(handle: Handle<dyn Hits>) -> ObjectInfo {
    squall::info_of(Handle::id(handle)).expect("the object lives")
}

/// Destroys an object and waits for its drops.
pub(crate) fn end<I: ?Sized + squall::Interface>(owned: Owned<I>) {
    Owned::destroy(owned).wait().unwrap();
}

/// Waits for a condition that other threads make true.
#[track_caller]
pub(crate) fn wait_until(condition: impl Fn() -> bool) {
    for attempt in 0..60_000 {
        if condition() {
            return;
        }
        if attempt < 100 { thread::yield_now() } else { thread::sleep(Duration::from_millis(1)) }
    }
    panic!("the condition did not become true within a minute");
}

/// Returns the payload of the panic of `call`.
pub(crate) fn payload_of<T>(call: impl FnOnce() -> T) -> Box<dyn std::any::Any + Send> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(_) => panic!("the call did not panic"),
        Err(payload) => payload,
    }
}

/// Returns the message of the panic of `call`.
pub(crate) fn text_of<T>(call: impl FnOnce() -> T) -> String {
    let payload = payload_of(call);
    let text = payload.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| payload.downcast_ref::<String>().cloned()).expect("a panic with a text")
}

// --- threads that wait at a place ---

/// A place where threads wait until it is opened.
#[derive(Clone)]
pub(crate) struct Gate(Arc<Ends>);

struct Ends {
    come: Mutex<mpsc::Sender<()>>,
    came: Mutex<mpsc::Receiver<()>>,
    open: AtomicBool,
}

pub(crate) fn gate() -> Gate {
    let (come, came) = mpsc::channel();
    Gate(Arc::new(Ends { come: Mutex::new(come), came: Mutex::new(came), open: AtomicBool::new(false) }))
}

impl Gate {
    /// Waits until the gate is open.
    pub(crate) fn stop(&self) {
        lock(&self.0.come).send(()).unwrap();
        // Acquire: pairs with the release in `open`.
        wait_until(|| self.0.open.load(Ordering::Acquire));
    }

    /// Returns a hook that waits at the gate.
    pub(crate) fn stops(&self) -> impl Fn() -> Transferred<()> + Send + Sync + 'static {
        let this = self.clone();
        move || {
            this.stop();
            Ok(())
        }
    }

    /// Waits until a thread waits at the gate.
    pub(crate) fn wait(&self) {
        lock(&self.0.came)
            .recv_timeout(Duration::from_secs(60))
            .expect("no thread came to the gate within a minute");
    }

    /// Opens the gate for waiting threads and for all later ones.
    pub(crate) fn open(&self) {
        // Release: pairs with the acquire in `stop`.
        self.0.open.store(true, Ordering::Release);
    }
}

/// A thread that stays inside a call until `leave` or the drop of this value.
pub(crate) struct Inside {
    gate: Gate,
    thread: Option<JoinHandle<()>>,
}

impl Inside {
    /// Stays in an operation.
    pub(crate) fn operation(handle: Handle<dyn Hits>) -> Inside {
        Inside::start(move |gate| handle.within(&mut || gate.stop()))
    }

    /// Stays in a blocking call: under a hold, outside every operation.
    pub(crate) fn hold(handle: Handle<dyn Hits>) -> Inside {
        Inside::start(move |gate| handle.holding(&mut || gate.stop()))
    }

    /// Stays in an operation on this VP.
    pub(crate) fn operation_on(handle: Handle<dyn Hits>, vp: u32) -> Inside {
        Inside::start(move |gate| Vp::with_vp(Vp::new(vp), || handle.within(&mut || gate.stop())).unwrap())
    }

    /// Stays in a blocking call on this VP.
    pub(crate) fn hold_on(handle: Handle<dyn Hits>, vp: u32) -> Inside {
        Inside::start(move |gate| Vp::with_vp(Vp::new(vp), || handle.holding(&mut || gate.stop())).unwrap())
    }

    /// Runs `call`, which waits at the gate it gets.
    pub(crate) fn start(call: impl FnOnce(&Gate) + Send + 'static) -> Inside {
        let gate = gate();
        let inner = gate.clone();
        let thread = thread::spawn(move || call(&inner));
        gate.wait();
        Inside { gate, thread: Some(thread) }
    }

    /// Returns the gate of the thread.
    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Opens the gate and waits for the thread.
    pub(crate) fn leave(mut self) {
        self.gate.open();
        self.thread.take().map(JoinHandle::join).expect("left once").unwrap();
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.gate.open();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || thread::panicking());
        }
    }
}

// --- swaps in progress ---

/// A swap in a thread of its own.
pub(crate) struct Running(JoinHandle<Result<SwapReport, SwapError>>);

impl Running {
    /// Starts the swap and waits until each new call meets its mediator. The caller must keep the swap from
    /// ending.
    pub(crate) fn start(
        handle: Handle<dyn Hits>,
        swap: Swap<dyn Hits>,
        new: Replacement<dyn Hits>,
    ) -> Running {
        let thread = thread::spawn(move || swap.run(new));
        wait_until(|| {
            assert!(!thread.is_finished(), "the swap ended early");
            squall_core::__calls_parked(Handle::id(handle)).is_some()
        });
        assert_eq!(info(handle).state, ObjectState::Swapping);
        Running(thread)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.is_finished()
    }

    pub(crate) fn end(self) -> Result<SwapReport, SwapError> {
        self.0.join().unwrap()
    }
}

/// Waits until this many calls have had to wait for the current swap of the object. Zero calls: until each
/// new call meets the swap's mediator.
#[track_caller]
pub(crate) fn wait_until_parked<I: ?Sized + squall::Interface>(handle: Handle<I>, calls: usize) {
    wait_until(|| squall_core::__calls_parked(Handle::id(handle)) >= Some(calls));
}

/// Makes a swap with a drain timeout that no test reaches.
pub(crate) fn patient(handle: Handle<dyn Hits>) -> Swap<dyn Hits> {
    Swap::new(handle).drain_timeout(LONG)
}

/// A thread that calls an object until it is stopped, the object answers with a new name, or the call fails.
pub(crate) struct Caller {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Answer>,
}

type Answer = Result<&'static str, CallError>;

impl Caller {
    pub(crate) fn of(handle: Handle<dyn Hits>) -> Caller {
        Caller::start(handle, |calls| calls())
    }

    /// Starts the thread on this VP.
    pub(crate) fn of_on(handle: Handle<dyn Hits>, vp: u32) -> Caller {
        Caller::start(handle, move |calls| Vp::with_vp(Vp::new(vp), calls).unwrap())
    }

    fn start(
        handle: Handle<dyn Hits>,
        place: impl FnOnce(&mut dyn FnMut() -> Answer) -> Answer + Send + 'static,
    ) -> Caller {
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let mut calls_on = move || {
            loop {
                let name = handle.try_name()?;
                if name != "old" || told.load(Relaxed) {
                    return Ok(name);
                }
                thread::yield_now();
            }
        };
        let thread = thread::spawn(move || place(&mut calls_on));
        Caller { stop, thread }
    }

    /// Waits for the answer that ends the thread: a new name, or an error.
    pub(crate) fn answer(self) -> Answer {
        self.thread.join().unwrap()
    }

    /// Stops the thread and returns its last answer.
    pub(crate) fn end(self) -> Answer {
        self.stop.store(true, Relaxed);
        self.thread.join().unwrap()
    }
}

/// Counts the threads inside a step, and all that entered it.
#[derive(Default)]
pub(crate) struct Crowd {
    entered: AtomicUsize,
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Crowd {
    /// Enters, and returns the number of entries so far.
    pub(crate) fn enter(&self) -> usize {
        self.most.fetch_max(self.now.fetch_add(1, Relaxed) + 1, Relaxed);
        self.entered.fetch_add(1, Relaxed) + 1
    }
    pub(crate) fn leave(&self) {
        self.now.fetch_sub(1, Relaxed);
    }
    pub(crate) fn entered(&self) -> usize {
        self.entered.load(Relaxed)
    }
    pub(crate) fn most(&self) -> usize {
        self.most.load(Relaxed)
    }
}
