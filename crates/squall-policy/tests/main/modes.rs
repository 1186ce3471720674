//! Modes that policies add, and the attribute that selects synchronous or asynchronous calls.

use squall_core::swap::Swap;
use squall_core::{CallErrorKind, Handle, Owned, shared};
use squall_policy::attribute::{self, Attribute, ClassValues, InstanceValues, Schema, receive, with};
use squall_policy::invoke::{
    self, ASYNCHRONOUS, Dispatch, INVOCATION, Invocation, InvokeError, Invoker, Mode, PendingCall, TRY, Work,
    asynchronous, call, in_mode, in_mode_named, synchronous_by,
};
use squall_policy::{Adt, Binding, Block, Monitor, Policy, Task, ThreadedAdt, governed};
use std::future::Future;
use std::panic::panic_any;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use crate::invocations::alone;

#[squall_macros::interface(crate = squall_core)]
trait Named: Send + Sync {
    #[blocking]
    fn name(&self) -> u64;
}

#[squall_macros::interface(crate = squall_core)]
trait Crew: Named {
    /// Returns the weight that the policy saw.
    #[blocking]
    fn weigh(&self) -> u64;
    #[blocking]
    fn thread(&self) -> ThreadId;
    #[blocking]
    fn fail(&self);
    /// Tells that it has begun, and ends when it is told to.
    #[blocking]
    fn last(&self, begun: Sender<()>, over: Receiver<()>);
    /// Calls the object from inside.
    #[blocking]
    fn nest(&self, own: Handle<dyn Crew>) -> u64;
}

/// Records the weight that its policy saw, as its first field, and its own name.
struct Worker(Arc<AtomicU64>, u64);

impl Named for Worker {
    fn name(&self) -> u64 {
        self.1
    }
}

impl Crew for Worker {
    fn weigh(&self) -> u64 {
        self.0.load(Relaxed)
    }
    fn thread(&self) -> ThreadId {
        thread::current().id()
    }
    fn fail(&self) {
        panic!("it failed")
    }
    fn last(&self, begun: Sender<()>, over: Receiver<()>) {
        let _ = begun.send(());
        let _ = over.recv();
    }
    fn nest(&self, own: Handle<dyn Crew>) -> u64 {
        own.name()
    }
}

static WEIGHT: Attribute<u64> = Attribute::<u64>::new("weight", 1).between(0, 100);
static SCHEMA: Schema =
    Schema::new("worker", &[&WEIGHT, &INVOCATION]).with_operations(&["weigh", "thread", "name"]);

static NOW: Mode = Mode::new("now").about("runs at once");
static LATER: Mode = Mode::new("later").about("waits until the policy is told to go on");
static POOL: Mode = Mode::new("pool").about("runs on the program's executor");
static OWN: Mode = Mode::new("own").about("runs on an executor of the policy");
static NEVER: Mode = Mode::new("never").about("is refused");
static LOST: Mode = Mode::new("lost").about("is dropped");
static PANIC: Mode = Mode::new("panic").about("panics before the call runs");
static LATE_PANIC: Mode = Mode::new("late-panic").about("panics after the call has run");
static KEPT_PANIC: Mode = Mode::new("kept-panic").about("keeps the call and panics");
static UNHANDLED: Mode = Mode::new("unhandled");

/// A policy with a mode for each thing that it can do with a call.
struct All {
    class: &'static ClassValues,
    kept: Mutex<Vec<Dispatch>>,
    weight: Arc<AtomicU64>,
    /// Mode and deadline of the latest call.
    seen: Mutex<Option<(Option<&'static str>, Option<Instant>)>>,
}

impl All {
    fn new(class: &'static ClassValues) -> All {
        All { class, kept: Mutex::default(), weight: Arc::default(), seen: Mutex::default() }
    }

    fn go_on(&self) -> usize {
        let calls = std::mem::take(&mut *self.kept.lock().unwrap());
        let count = calls.len();
        calls.into_iter().for_each(Dispatch::run);
        count
    }

    fn seen(&self) -> (Option<&'static str>, Option<Instant>) {
        self.seen.lock().unwrap().take().unwrap()
    }
}

impl Policy for All {
    const MODES: &'static [&'static Mode] =
        &[&NOW, &LATER, &POOL, &OWN, &NEVER, &LOST, &PANIC, &LATE_PANIC, &KEPT_PANIC];

    fn class(&self) -> Option<&'static ClassValues> {
        Some(self.class)
    }
    fn invoke(&self, block: &mut Block<'_>) {
        self.weight.store(block.get(&WEIGHT), Relaxed);
        *self.seen.lock().unwrap() = Some((block.mode().map(Mode::name), block.deadline()));
        block.proceed();
    }
    fn invoke_mode(&self, mode: &'static Mode, call: Dispatch) {
        match mode.name() {
            "now" => call.run(),
            "later" => self.kept.lock().unwrap().push(call),
            "pool" => call.submit(),
            "own" => drop(thread::spawn(call.into_work())),
            "never" => call.refuse("never"),
            "lost" => drop(call),
            "panic" => panic!("the policy failed"),
            "late-panic" => {
                call.run();
                panic!("the policy failed late")
            }
            _ => {
                self.kept.lock().unwrap().push(call);
                panic_any(7_u32)
            }
        }
    }
}

/// Declares a class for one test, because all objects of a class see the values set for it.
macro_rules! class {
    () => {{
        static CLASS: ClassValues = ClassValues::new(&SCHEMA);
        &CLASS
    }};
}

fn worker(class: &'static ClassValues) -> (Binding<All>, Owned<dyn Crew>) {
    let binding = Binding::new(All::new(class));
    let owned = binding.govern(|binding| Worker(binding.weight.clone(), 1)).unwrap();
    (binding, owned)
}

fn reason<R: std::fmt::Debug>(result: Result<R, InvokeError>) -> CallErrorKind {
    match result {
        Err(InvokeError::Call(error)) => error.reason(),
        other => panic!("{other:?}"),
    }
}

fn message<R: std::fmt::Debug>(result: Result<R, InvokeError>) -> String {
    match result {
        Err(InvokeError::Panicked(payload)) => payload.message(),
        other => panic!("{other:?}"),
    }
}

/// A call that is inside the object until it is told to end.
struct Inside {
    over: Sender<()>,
    thread: thread::JoinHandle<()>,
}

impl Inside {
    fn new(handle: Handle<dyn Crew>) -> Inside {
        let ((begin, begun), (over, end)) = (channel(), channel());
        let thread = thread::spawn(move || handle.last(begin, end));
        begun.recv().unwrap();
        Inside { over, thread }
    }
    fn end(self) {
        self.over.send(()).unwrap();
        self.thread.join().unwrap();
    }
}

#[test]
fn kt_08_a_policy_adds_modes_and_decides_what_becomes_of_each_call() {
    let _alone = alone();
    let (binding, owned) = worker(class!());
    let work = owned.handle();
    let here = thread::current().id();
    let run = |mode| in_mode(work, mode, |work| work.thread());
    let now = run(&NOW);
    assert!(now.is_finished());
    assert_eq!(now.wait().unwrap(), here);
    assert_eq!(binding.seen(), (Some("now"), None));
    let later = run(&LATER);
    assert!(!later.is_finished());
    assert_eq!(binding.go_on(), 1);
    assert_eq!(later.wait().unwrap(), here);
    assert_ne!(run(&POOL).wait().unwrap(), here);
    assert_ne!(run(&OWN).wait().unwrap(), here);
    assert_eq!(reason(run(&NEVER).wait()), CallErrorKind::Refused("never"));
    assert!(matches!(run(&LOST).wait(), Err(InvokeError::Dropped)));
    // A plain call has no mode, and neither has a call after one in a mode.
    work.name();
    assert_eq!(binding.seen(), (None, None));
    // Calls that the method makes have no mode either.
    assert_eq!(in_mode(work, &NOW, move |handle| handle.nest(work)).wait().unwrap(), 1);
    assert_eq!(binding.seen(), (None, None));
    assert_eq!(message(in_mode(work, &NOW, |work| work.fail()).wait()), "it failed");
}

#[test]
fn kt_08_an_unknown_mode_is_answered_with_those_there_are() {
    let (binding, owned) = worker(class!());
    let work = owned.handle();
    let asked = |work, name: &str| in_mode_named(work, name, |work: Handle<dyn Crew>| work.name()).wait();
    assert_eq!(asked(work, "now").unwrap(), 1);
    let error = asked(work, "latr\n").unwrap_err();
    let text = error.to_string();
    let id = Handle::id(work);
    assert!(
        text.starts_with(&format!(
            "Crew#{id} has no invocation mode `latr\\n`; its invocation modes are `now`, `later`, `pool`"
        )),
        "{text}"
    );
    let InvokeError::UnknownMode(unknown) = &error else { panic!("{error}") };
    assert_eq!((unknown.id(), unknown.name(), unknown.names().len()), (id, "latr\\n", All::MODES.len()));
    assert_eq!(Invoker::new(work).modes(), All::MODES);
    // A mode of another policy, and objects without modes or without a policy.
    assert!(matches!(in_mode(work, &TRY, |work| work.name()).wait(), Err(InvokeError::UnknownMode(_))));
    let adt: Owned<dyn Crew> = governed(Adt::new(), |_| Worker(Arc::default(), 2));
    let plain: Owned<dyn Crew> = shared(Worker(Arc::default(), 3));
    for handle in [adt.handle(), plain.handle()] {
        let text = asked(handle, "now").unwrap_err().to_string();
        assert!(text.ends_with("has no invocation mode `now`; it has none"), "{text}");
        let upcast = Handle::upcast::<dyn Named>(handle);
        let error = in_mode(upcast, &NOW, |named| named.name()).wait();
        assert!(matches!(error, Err(InvokeError::UnknownMode(_))));
    }
    drop(binding);
}

#[test]
fn kt_08_a_mode_reaches_the_policy_through_each_interface_of_the_object() {
    let (binding, owned) = worker(class!());
    let named = Handle::upcast::<dyn Named>(owned.handle());
    assert_eq!(in_mode(named, &NOW, |named| named.name()).wait().unwrap(), 1);
    assert_eq!(binding.seen().0, Some("now"));
    // Attributes that were given through the other interface.
    let pending =
        with(owned.handle(), (&WEIGHT, 9), |_| in_mode(named, &LATER, |named| named.name())).unwrap();
    assert_eq!(binding.kept.lock().unwrap()[0].get(&WEIGHT), 9);
    binding.go_on();
    pending.wait().unwrap();
    assert_eq!(binding.weight.load(Relaxed), 9);
}

#[test]
fn kt_08_a_mode_that_is_listed_and_not_handled_refuses() {
    struct Forgetful;
    impl Policy for Forgetful {
        const MODES: &'static [&'static Mode] = &[&UNHANDLED];
    }
    let owned: Owned<dyn Crew> = governed(Forgetful, |_| Worker(Arc::default(), 1));
    let refused = in_mode(owned.handle(), &UNHANDLED, |work| work.name()).wait();
    assert!(
        matches!(reason(refused), CallErrorKind::Refused(why) if why.contains("does not make calls in it"))
    );
}

#[test]
fn kt_08_attributes_and_deadlines_go_with_the_call_and_not_with_the_thread() {
    let (binding, owned) = worker(class!());
    let work = owned.handle();
    let by = Instant::now() + Duration::from_secs(3600);
    let weighed = with(work, (&WEIGHT, 5), |work| {
        synchronous_by(work, by, |work| in_mode(work, &LATER, |work| work.weigh())).unwrap().value
    });
    let weighed = weighed.unwrap();
    let plain = in_mode(work, &LATER, |work| work.weigh());
    {
        let kept = binding.kept.lock().unwrap();
        assert_eq!((kept[0].get(&WEIGHT), kept[0].deadline()), (5, Some(by)));
        assert_eq!((kept[1].get(&WEIGHT), kept[1].deadline()), (1, None));
        assert_eq!(kept[0].attributes().names().collect::<Vec<_>>(), ["weight"]);
    }
    // The thread that runs them has others of its own, for the same object.
    let own = Instant::now() + Duration::from_secs(7200);
    with(work, (&WEIGHT, 50), |work| synchronous_by(work, own, |_| binding.go_on()).unwrap().value).unwrap();
    assert_eq!(weighed.wait().unwrap(), 5);
    assert_eq!(plain.wait().unwrap(), 1);
    assert_eq!(binding.seen(), (Some("later"), None));
    // In place, the state of the policy's own code around the call does not count either.
    let now = with(work, (&WEIGHT, 6), |work| in_mode(work, &NOW, |work| work.weigh())).unwrap();
    assert_eq!(now.wait().unwrap(), 6);
    // A deadline that passes while the call is kept.
    let soon = Instant::now() + Duration::from_millis(1);
    let late = synchronous_by(work, soon, |work| in_mode(work, &LATER, |work| work.weigh()));
    while Instant::now() < soon {
        thread::yield_now();
    }
    binding.go_on();
    // This thread may have stood still until the deadline: then nothing was kept.
    let Ok(late) = late else { return };
    assert!(matches!(late.value.wait(), Err(InvokeError::TooLate)));
}

#[test]
fn kt_08_a_waiter_of_the_pool_leaves_a_call_to_the_policy_that_keeps_it() {
    let _alone = alone();
    let (binding, owned) = worker(class!());
    let kept = in_mode(owned.handle(), &LATER, |work| work.name());
    let (tell, told) = channel();
    let waiter = asynchronous(owned.handle(), move |_| {
        tell.send(()).unwrap();
        kept.wait()
    });
    told.recv().unwrap();
    binding.kept.lock().unwrap().pop().unwrap().refuse("not now");
    assert_eq!(reason(waiter.wait().unwrap()), CallErrorKind::Refused("not now"));
}

#[test]
fn kt_08_a_panic_of_the_policy_is_an_error_of_its_call_alone() {
    let (binding, owned) = worker(class!());
    let work = owned.handle();
    let before = in_mode(work, &LATER, |work| work.name());
    let run = |mode| in_mode(work, mode, |work| work.name()).wait();
    assert_eq!(message(run(&PANIC)), "the policy failed");
    assert_eq!(message(run(&LATE_PANIC)), "the policy failed late");
    assert_eq!(message(run(&KEPT_PANIC)), "no message");
    // The call that was kept before the panic has ended and does not run.
    binding.weight.store(99, Relaxed);
    assert_eq!(binding.kept.lock().unwrap().len(), 2);
    let (first, second) = {
        let mut kept = binding.kept.lock().unwrap();
        let second = kept.pop().unwrap();
        (kept.pop().unwrap(), second)
    };
    second.run();
    assert_eq!(binding.weight.load(Relaxed), 99);
    first.run();
    assert_eq!(before.wait().unwrap(), 1);
    assert_eq!(run(&NOW).unwrap(), 1);
}

/// A value with a drop that panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a bomb");
    }
}

/// A waker that panics.
struct Alarm;

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        panic!("an alarm");
    }
}

#[test]
fn kt_08_a_panic_of_one_caller_harms_no_call_of_another() {
    let (binding, owned) = worker(class!());
    let work = owned.handle();
    let next = || in_mode(work, &LATER, |work| work.name());
    // A result without a receiver.
    drop(in_mode(work, &LATER, |_| Bomb));
    let first = next();
    // A waker.
    let mut awaited = next();
    let waker = Waker::from(Arc::new(Alarm));
    assert!(Pin::new(&mut awaited).poll(&mut Context::from_waker(&waker)).is_pending());
    let second = next();
    // A function that comes too late to be called.
    let (soon, late) = loop {
        let soon = Instant::now() + Duration::from_millis(1);
        let kept = synchronous_by(work, soon, |work| {
            let bomb = Bomb;
            in_mode(work, &LATER, move |work| (work.name(), drop(bomb)).0)
        });
        if let Ok(kept) = kept {
            break (soon, kept.value);
        }
    };
    let third = next();
    while Instant::now() < soon {
        thread::yield_now();
    }
    binding.go_on();
    assert_eq!([first, awaited, second, third].map(|call| call.wait().unwrap()), [1; 4]);
    assert_eq!(message(late.wait()), "a bomb");
}

#[test]
fn kt_08_a_destroyed_object_is_an_error_in_each_mode() {
    let _alone = alone();
    let (binding, owned) = worker(class!());
    let work = owned.handle();
    let invoker = Invoker::new(work);
    let kept = in_mode(work, &LATER, |work| work.name());
    let lost = in_mode(work, &LATER, |work| work.name());
    Owned::destroy(owned).wait().unwrap();
    let destroyed = CallErrorKind::Destroyed;
    for mode in All::MODES {
        assert_eq!(reason(in_mode(work, mode, |work| work.name()).wait()), destroyed, "{mode:?}");
        assert_eq!(reason(invoker.in_mode(mode, |work| work.name()).wait()), destroyed, "{mode:?}");
    }
    assert_eq!(reason(in_mode_named(work, "latr", |work| work.name()).wait()), destroyed);
    assert_eq!(reason(call(work, |work| work.name()).wait()), destroyed);
    // Calls that the policy kept: run, and dropped.
    drop(binding.kept.lock().unwrap().pop());
    assert_eq!(reason(lost.wait()), destroyed);
    binding.go_on();
    assert_eq!(reason(kept.wait()), destroyed);
}

#[test]
fn kt_08_a_kept_call_ends_with_its_policy() {
    let (binding, owned) = worker(class!());
    let kept = in_mode(owned.handle(), &LATER, |work| work.name());
    Owned::destroy(owned).wait().unwrap();
    squall_rcu::barrier().unwrap();
    assert!(!kept.is_finished());
    drop(binding);
    assert_eq!(reason(kept.wait()), CallErrorKind::Destroyed);
}

#[test]
fn kt_08_a_kept_call_does_not_delay_a_swap_and_runs_on_what_serves() {
    let (binding, owned) = worker(class!());
    let work = owned.handle();
    let kept = in_mode(work, &LATER, |work| work.name());
    let invoker = Invoker::new(work);
    let next = binding.next(|binding| Worker(binding.weight.clone(), 2));
    Swap::new(work).without_state().run(next).unwrap();
    assert_eq!(binding.go_on(), 1);
    assert_eq!(kept.wait().unwrap(), 2);
    assert_eq!(invoker.in_mode(&NOW, |work| work.name()).wait().unwrap(), 2);
}

#[test]
fn kt_08_calls_of_many_threads_in_a_mode_run_once_each() {
    let (binding, owned) = worker(class!());
    let work = owned.handle();
    let (threads, calls) = if cfg!(miri) { (2, 3) } else { (4, 100) };
    let ran = Arc::new(AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..threads {
            let (binding, ran) = (&binding, &ran);
            scope.spawn(move || {
                let pending: Vec<PendingCall<u64>> = (0..calls)
                    .map(|n| {
                        let ran = ran.clone();
                        let f = move |work: Handle<dyn Crew>| {
                            ran.fetch_add(1, Relaxed);
                            work.name() + n
                        };
                        if n % 3 == 0 {
                            binding.go_on();
                        }
                        in_mode(work, &LATER, f)
                    })
                    .collect();
                binding.go_on();
                // Another thread may have taken the last ones, and runs them.
                for (n, pending) in (0..).zip(pending) {
                    assert_eq!(pending.wait().unwrap(), 1 + n);
                }
            });
        }
    });
    assert_eq!(ran.load(Relaxed), threads * calls);
}

#[test]
fn kt_08_a_monitor_refuses_in_the_mode_try_where_it_would_wait() {
    let binding = Binding::new(Monitor::new());
    let owned: Owned<dyn Crew> = binding.govern(|_| Worker(Arc::default(), 1)).unwrap();
    let work = owned.handle();
    let tried = || in_mode(work, &TRY, |work| work.name()).wait();
    assert_eq!(tried().unwrap(), 1);
    let inside = Inside::new(work);
    assert!(matches!(reason(tried()), CallErrorKind::Refused(why) if why.contains("does not wait")));
    assert_eq!(binding.entering(), 0);
    inside.end();
    assert_eq!(tried().unwrap(), 1);
    assert!(!binding.is_entered());
}

#[test]
fn kt_09_an_attribute_selects_synchronous_or_asynchronous() {
    let _alone = alone();
    let class = class!();
    let (binding, owned) = worker(class);
    let work = owned.handle();
    let here = thread::current().id();
    let thread = |operation: &str| {
        let invoker = Invoker::new(work).operation(operation).unwrap();
        invoker.call(|work| work.thread()).wait().unwrap()
    };
    let given = |how, operation: &str| with(work, (&INVOCATION, how), |_| thread(operation)).unwrap();
    let sync = call(work, |work| work.thread());
    assert!(sync.is_finished());
    assert_eq!(sync.wait().unwrap(), here);
    // The innermost scope counts: class, object, operation, call.
    class.set(&INVOCATION, Invocation::Asynchronous).unwrap();
    assert_ne!(thread("thread"), here);
    assert_ne!(call(work, |work| work.thread()).wait().unwrap(), here);
    let values = binding.values().unwrap();
    values.set_text("invocation", "synchronous").unwrap();
    assert_eq!(thread("thread"), here);
    values.set_for("thread", &INVOCATION, Invocation::Asynchronous).unwrap();
    assert_ne!(thread("thread"), here);
    assert_eq!(thread("weigh"), here, "the attribute of another operation");
    assert_eq!(given(Invocation::Synchronous, "thread"), here);
    assert_ne!(given(Invocation::Asynchronous, "weigh"), here);
    // A panic and an error come back from both.
    for how in [Invocation::Synchronous, Invocation::Asynchronous] {
        let failed = with(work, (&INVOCATION, how), |work| call(work, |work| work.fail())).unwrap();
        assert_eq!(message(failed.wait()), "it failed");
    }
}

#[test]
fn kt_09_the_other_attributes_of_a_call_stay_with_it() {
    let _alone = alone();
    let (binding, owned) = worker(class!());
    let work = owned.handle();
    for how in [Invocation::Synchronous, Invocation::Asynchronous] {
        let given = ((&INVOCATION, how), (&WEIGHT, 8), (&INVOCATION, Invocation::Synchronous));
        let weighed = with(work, given, |work| call(work, |work| work.weigh())).unwrap();
        assert_eq!(weighed.wait().unwrap(), 8);
        let by = Instant::now() + Duration::from_secs(3600);
        let given = with(work, (&INVOCATION, how), |work| {
            synchronous_by(work, by, |work| call(work, |work| work.weigh())).unwrap().value
        });
        assert_eq!(given.unwrap().wait().unwrap(), 1);
        assert_eq!(binding.seen(), (None, Some(by)));
    }
}

#[test]
fn kt_09_a_policy_without_the_attribute_does_not_see_it() {
    let _alone = alone();
    static OTHER: Schema = Schema::new("other", &[&WEIGHT]);
    static CLASS: ClassValues = ClassValues::new(&OTHER);
    let (_binding, owned) = worker(&CLASS);
    let here = thread::current().id();
    assert_eq!(call(owned.handle(), |work| work.thread()).wait().unwrap(), here);
    for how in [Invocation::Synchronous, Invocation::Asynchronous] {
        let ran = with(owned.handle(), (&INVOCATION, how), |work| call(work, |work| work.thread())).unwrap();
        assert_eq!(ran.wait().unwrap() == here, how == Invocation::Synchronous);
    }
}

#[test]
fn kt_09_an_object_without_a_policy_has_the_attribute_of_its_call_and_of_its_values() {
    let _alone = alone();
    let owned: Owned<dyn Crew> = shared(Worker(Arc::default(), 1));
    let work = owned.handle();
    let here = thread::current().id();
    let given = (&INVOCATION, Invocation::Asynchronous);
    assert_eq!(call(work, |work| work.thread()).wait().unwrap(), here);
    assert_ne!(with(work, given, |work| call(work, |work| work.thread())).unwrap().wait().unwrap(), here);
    let values = Arc::new(InstanceValues::of_class(class!()));
    attribute::attach(Handle::id(work), values.clone());
    values.set(&INVOCATION, Invocation::Asynchronous).unwrap();
    assert_ne!(call(work, |work| work.thread()).wait().unwrap(), here);
    // Without a policy, the object receives the attributes itself.
    values.set(&INVOCATION, Invocation::Synchronous).unwrap();
    let seen = |work| receive(work, |call| call.get(&WEIGHT));
    assert_eq!(with(work, (&WEIGHT, 3), |work| call(work, seen)).unwrap().wait().unwrap(), Some(3));
}

#[test]
fn kt_09_an_unknown_operation_is_answered_with_those_there_are() {
    let (_binding, owned) = worker(class!());
    let work = owned.handle();
    let error = Invoker::new(work).operation("wiegh").unwrap_err();
    let id = Handle::id(work);
    assert_eq!(
        error.to_string(),
        format!(
            "Crew#{id} has no operation `wiegh`; \
             its operations are `weigh`, `thread`, `fail`, `last`, `nest`, `name`"
        )
    );
    // The method of an interface that this one extends is known.
    let invoker = Invoker::new(work).operation("name").unwrap();
    assert_eq!(invoker.in_mode(&NOW, |work| work.name()).wait().unwrap(), 1);
    let refused = invoker.in_mode(&NEVER, |work| work.name()).wait();
    assert!(matches!(refused, Err(InvokeError::Call(error)) if error.method() == "name"));
}

#[test]
fn kt_09_a_task_makes_asynchronous_calls_in_its_thread_in_order() {
    let binding = Binding::new(Task::new());
    let owned: Owned<dyn Crew> = binding.govern(|_| Worker(Arc::default(), 1)).unwrap();
    let work = owned.handle();
    let thread = work.thread();
    let inside = Inside::new(work);
    let order = Arc::new(Mutex::new(Vec::new()));
    let given = (&INVOCATION, Invocation::Asynchronous);
    let sent: Vec<_> = (0..3)
        .map(|n| {
            let order = order.clone();
            let sent = move |work: Handle<dyn Crew>| {
                order.lock().unwrap().push(n);
                work.thread()
            };
            with(work, given, |work| call(work, sent)).unwrap()
        })
        .collect();
    assert_eq!(binding.waiting(), 3);
    assert!(sent.iter().all(|sent| !sent.is_finished()));
    inside.end();
    assert!(sent.into_iter().all(|sent| sent.wait().unwrap() == thread));
    assert_eq!(*order.lock().unwrap(), [0, 1, 2]);
    // A panic ends its call alone.
    let failed = in_mode(work, &ASYNCHRONOUS, |work| work.fail());
    let after = in_mode(work, &ASYNCHRONOUS, |work| work.name());
    assert_eq!(message(failed.wait()), "it failed");
    assert_eq!(after.wait().unwrap(), 1);
    // A call on the task's thread enqueues another one.
    let nested = in_mode(work, &ASYNCHRONOUS, |work| in_mode(work, &ASYNCHRONOUS, |work| work.name()));
    assert_eq!(nested.wait().unwrap().wait().unwrap(), 1);
}

#[test]
fn kt_09_a_task_that_ends_leaves_no_call_waiting() {
    let binding = Binding::new(Task::new());
    let owned: Owned<dyn Crew> = binding.govern(|_| Worker(Arc::default(), 1)).unwrap();
    let work = owned.handle();
    let inside = Inside::new(work);
    let sent = in_mode(work, &ASYNCHRONOUS, |work| work.name());
    let destroyed = thread::spawn(move || Owned::destroy(owned).wait());
    inside.over.send(()).unwrap();
    inside.thread.join().unwrap();
    // It ran before the end of the object, or found that the object had ended.
    match sent.wait() {
        Ok(name) => assert_eq!(name, 1),
        error => assert_eq!(reason(error), CallErrorKind::Destroyed),
    }
    destroyed.join().unwrap().unwrap();
    assert_eq!(reason(in_mode(work, &ASYNCHRONOUS, |work| work.name()).wait()), CallErrorKind::Destroyed);
}

#[test]
fn kt_09_a_threaded_adt_makes_asynchronous_calls_in_threads_of_their_own() {
    let owned: Owned<dyn Crew> = governed(ThreadedAdt::new(), |_| Worker(Arc::default(), 1));
    let work = owned.handle();
    let asynchronous =
        |work| in_mode(work, &ASYNCHRONOUS, |work: Handle<dyn Crew>| (thread::current().id(), work.thread()));
    let (one, other) = (asynchronous(work), asynchronous(work));
    let (one, other) = (one.wait().unwrap(), other.wait().unwrap());
    assert!(one.0 == one.1 && other.0 == other.1, "the call's own thread makes it");
    assert!(one.0 != other.0 && one.0 != thread::current().id());
    assert_ne!(work.thread(), thread::current().id());
}

#[test]
fn kt_09_the_executor_of_the_program_makes_asynchronous_calls() {
    let _alone = alone();
    let owned: Owned<dyn Crew> = shared(Worker(Arc::default(), 1));
    let (give, given) = channel::<Work>();
    let give = Mutex::new(give);
    invoke::set_executor(Some(Arc::new(move |work: Work| give.lock().unwrap().send(work).unwrap())));
    let asynchronous = (&INVOCATION, Invocation::Asynchronous);
    let pending = with(owned.handle(), asynchronous, |work| call(work, |work| work.name())).unwrap();
    assert!(!pending.is_finished());
    given.recv().unwrap()();
    invoke::set_executor(None);
    assert_eq!(pending.wait().unwrap(), 1);
}
