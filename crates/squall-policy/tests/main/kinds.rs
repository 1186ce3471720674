//! KTK's kinds of objects (KT-05): the thread that runs a call, the number of calls at once, and their order.
//! Swaps, panics and the object's end do not change these.

use squall_core::swap::{Format, Replacement, State, StateFormats, Swap, SwapFailure, SwapPhase};
use squall_core::{CallError, CallErrorKind, Handle, Interrupted, Owned};
use squall_policy::invoke::{self, InvokeError, synchronous_by};
use squall_policy::{Binding, Condition, Monitor, Policy, Task, ThreadedAdt, governed};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// Returns a small count under Miri.
const fn shrunk(count: u64) -> u64 {
    if cfg!(miri) { 4 } else { count }
}

fn wait_for(mut happened: impl FnMut() -> bool) {
    while !happened() {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Interface with methods that may all block.
#[squall_macros::interface(crate = squall_core)]
trait Desk: Send + Sync {
    /// Returns the thread it runs on, and the version.
    #[blocking]
    fn place(&self) -> (ThreadId, u32);
    /// Adds slowly, so that a second call inside is noticed.
    #[blocking]
    fn add(&self, from: u64, n: u64);
    /// Returns the added numbers, in order.
    #[blocking]
    fn added(&self) -> Vec<(u64, u64)>;
    #[blocking]
    fn kept(&self, here: Rc<u8>) -> (ThreadId, Rc<u8>);
    #[blocking]
    fn lend(&self, text: &str, f: &mut (dyn FnMut(&str) + Send));
    #[blocking]
    fn fail(&self);
    /// Calls itself.
    #[blocking]
    fn again(&self, co: Handle<dyn Desk>) -> Result<(ThreadId, u32), CallError>;
    #[blocking]
    fn last(&self, begun: Sender<()>, over: Receiver<()>);
}

struct Log(Vec<(u64, u64)>);
impl Format for Log {}

struct Clerk {
    version: u32,
    inside: AtomicBool,
    log: Mutex<Vec<(u64, u64)>>,
    shared: bool,
}

impl Clerk {
    /// Creates a clerk with calls that exclude each other.
    fn alone(version: u32) -> Clerk {
        Clerk { version, inside: AtomicBool::new(false), log: Mutex::default(), shared: false }
    }
}

/// Number of calls inside, across all versions of an object.
static INSIDE: AtomicU64 = AtomicU64::new(0);

impl Desk for Clerk {
    fn place(&self) -> (ThreadId, u32) {
        (thread::current().id(), self.version)
    }
    fn add(&self, from: u64, n: u64) {
        assert!(self.shared || !self.inside.swap(true, Relaxed), "two calls at once");
        thread::yield_now();
        self.log.lock().unwrap().push((from, n));
        self.inside.store(false, Relaxed);
    }
    fn added(&self) -> Vec<(u64, u64)> {
        self.log.lock().unwrap().clone()
    }
    fn kept(&self, here: Rc<u8>) -> (ThreadId, Rc<u8>) {
        (thread::current().id(), here)
    }
    fn lend(&self, text: &str, f: &mut (dyn FnMut(&str) + Send)) {
        f(&text.to_uppercase());
    }
    fn fail(&self) {
        panic!("the clerk failed")
    }
    fn again(&self, co: Handle<dyn Desk>) -> Result<(ThreadId, u32), CallError> {
        co.try_place()
    }
    fn last(&self, begun: Sender<()>, over: Receiver<()>) {
        let _ = begun.send(());
        let _ = over.recv();
    }
}

impl State for Clerk {
    fn formats(formats: &mut StateFormats<'_, Clerk>) {
        formats.export(|this| Ok(Log(this.added()))).import(|this, log: Log| {
            *this.log.lock().unwrap() = log.0;
            Ok(())
        });
    }
}

fn swap_to<P: Policy>(desk: Handle<dyn Desk>, binding: &Binding<P>, version: u32) -> Result<(), SwapFailure> {
    let new: Replacement<dyn Desk> = binding.next_swappable(|_| Clerk::alone(version));
    let swap = Swap::new(desk).drain_timeout(Duration::from_secs(60));
    swap.run(new).map(drop).map_err(|error| error.failure())
}

/// Has many threads add while the object is swapped. All additions are there, each thread's in its order.
fn adds_across_swaps<P: Policy>(policy: P) {
    let binding = Binding::new(policy);
    let desk: Owned<dyn Desk> = binding.govern_swappable(|_| Clerk::alone(0)).unwrap();
    let co = desk.handle();
    let (threads, calls) = (shrunk(4).min(4), shrunk(400));
    let adders: Vec<_> =
        (0..threads).map(|from| thread::spawn(move || (0..calls).for_each(|n| co.add(from, n)))).collect();
    let mut version = 0;
    while !adders.iter().all(|adder| adder.is_finished()) || version < 3 {
        version += 1;
        swap_to(co, &binding, version).unwrap();
    }
    adders.into_iter().for_each(|adder| adder.join().unwrap());
    let added = desk.added();
    assert_eq!(added.len() as u64, threads * calls, "none lost, none twice");
    for from in 0..threads {
        let of_one = added.iter().filter(|(who, _)| *who == from).map(|(_, n)| *n);
        assert!(of_one.eq(0..calls), "in the order of its calls");
    }
    assert_eq!(desk.place().1, version);
    Owned::destroy(desk).wait().unwrap();
}

/// Checks the properties that all waiting kinds share.
fn common<P: Policy>(make: impl Fn() -> P) {
    let desk: Owned<dyn Desk> = governed(make(), |_| Clerk::alone(0));
    // Borrowed arguments are back before the call returns.
    let mut lent = String::new();
    desk.lend("borrowed", &mut |text| lent.push_str(text));
    assert_eq!(lent, "BORROWED");
    // Arguments that are not `Send` stay on the caller's thread.
    let here = Rc::new(7);
    let (ran_in, same) = desk.kept(here.clone());
    assert!(ran_in == thread::current().id() && Rc::ptr_eq(&here, &same));
    // A panic reaches the caller, and the object goes on.
    for _ in 0..2 {
        let payload = catch_unwind(AssertUnwindSafe(|| desk.fail())).unwrap_err();
        assert_eq!(*payload.downcast_ref::<&str>().unwrap(), "the clerk failed");
    }
    desk.add(0, 1);
    assert_eq!(desk.added(), [(0, 1)]);
    // Inside an operation the call is refused.
    let co = desk.handle();
    let refused = squall_rcu::pin(|_| co.try_place()).unwrap_err();
    assert!(
        matches!(refused.reason(), CallErrorKind::Refused(why) if why.contains("operation")),
        "{refused}"
    );
    // Destroyed while one call runs and another waits: both end normally, later calls return errors.
    let ((begin, begun), (over, end)) = (channel(), channel());
    let last = thread::spawn(move || co.last(begin, end));
    begun.recv().unwrap();
    let destruction = Owned::destroy(desk);
    assert_eq!(co.try_place().unwrap_err().reason(), CallErrorKind::Destroyed);
    assert!(!destruction.is_complete());
    over.send(()).unwrap();
    last.join().unwrap();
    destruction.wait().unwrap();
}

#[test]
fn kt_05_a_threaded_adt_has_a_thread_for_each_call() {
    common(ThreadedAdt::new);
    let desk: Owned<dyn Desk> = governed(ThreadedAdt::new(), |_| Clerk { shared: true, ..Clerk::alone(3) });
    // Two calls at once that wait for each other.
    let (one, other) = (desk.handle(), desk.handle());
    let ((begin, begun), (over, end)) = (channel(), channel());
    let first = thread::spawn(move || one.last(begin, end));
    begun.recv().unwrap();
    let (ran_in, version) = other.place();
    assert!(ran_in != thread::current().id() && version == 3);
    over.send(()).unwrap();
    first.join().unwrap();
    // It may call itself, because the call runs on another thread.
    assert_ne!(desk.again(desk.handle()).unwrap().0, ran_in);
}

#[test]
fn kt_05_a_monitor_has_one_call_at_a_time_across_swaps() {
    common(Monitor::new);
    adds_across_swaps(Monitor::new());
}

#[test]
fn kt_05_a_monitor_refuses_the_call_that_would_wait_for_itself() {
    let desk: Owned<dyn Desk> = governed(Monitor::new(), |_| Clerk::alone(0));
    let error = desk.again(desk.handle()).unwrap_err();
    assert!(
        matches!(error.reason(), CallErrorKind::Refused(why) if why.contains("in the monitor already")),
        "{error}"
    );
    assert_eq!(desk.place().0, thread::current().id());
}

#[test]
fn kt_05_calls_enter_a_monitor_in_the_order_in_which_they_came() {
    let binding = Binding::new(Monitor::new());
    let desk: Owned<dyn Desk> = binding.govern(|_| Clerk::alone(0)).unwrap();
    let co = desk.handle();
    let ((begin, begun), (over, end)) = (channel(), channel());
    let first = thread::spawn(move || co.last(begin, end));
    begun.recv().unwrap();
    let others: Vec<_> = (0..4)
        .map(|n| {
            let other = thread::spawn(move || co.add(n, n));
            wait_for(|| binding.entering() as u64 == n + 1);
            other
        })
        .collect();
    // One gives up, because its deadline passes while it waits, or before.
    let soon = Instant::now() + Duration::from_millis(20);
    assert!(matches!(synchronous_by(co, soon, |desk| desk.add(9, 9)), Err(InvokeError::TooLate)));
    assert_eq!(binding.entering(), 4);
    over.send(()).unwrap();
    first.join().unwrap();
    others.into_iter().for_each(|other| other.join().unwrap());
    assert_eq!(desk.added(), [(0, 0), (1, 1), (2, 2), (3, 3)]);
}

/// Queue with takers that wait for a condition.
#[squall_macros::interface(crate = squall_core)]
trait Line: Send + Sync {
    #[blocking]
    fn put(&self, n: u64);
    #[blocking]
    fn take(&self) -> Option<u64>;
    /// Like `take`, with an argument that the call consumes.
    #[blocking]
    fn take_with(&self, used_up: Vec<u64>) -> Option<u64>;
    #[blocking]
    fn version(&self) -> u32;
}

struct Fifo {
    version: u32,
    numbers: Mutex<Vec<u64>>,
    not_empty: Condition,
}

impl Fifo {
    fn first(&self) -> Result<u64, Interrupted> {
        assert_eq!(INSIDE.fetch_add(1, Relaxed), 0, "two are inside");
        let taken = loop {
            let first = {
                let mut numbers = self.numbers.lock().unwrap();
                (!numbers.is_empty()).then(|| numbers.remove(0))
            };
            if let Some(first) = first {
                break Ok(first);
            }
            INSIDE.fetch_sub(1, Relaxed);
            let signalled = self.not_empty.wait();
            assert_eq!(INSIDE.fetch_add(1, Relaxed), 0, "two are inside after a wait");
            if signalled.is_err() {
                break Err(Interrupted);
            }
        };
        INSIDE.fetch_sub(1, Relaxed);
        taken
    }
}

impl Line for Fifo {
    fn put(&self, n: u64) {
        assert_eq!(INSIDE.fetch_add(1, Relaxed), 0, "two are inside");
        self.numbers.lock().unwrap().push(n);
        self.not_empty.signal();
        INSIDE.fetch_sub(1, Relaxed);
    }
    fn take(&self) -> Option<u64> {
        self.first().ok()
    }
    fn take_with(&self, used_up: Vec<u64>) -> Option<u64> {
        self.first().ok().map(|first| first + used_up.len() as u64)
    }
    fn version(&self) -> u32 {
        self.version
    }
}

impl State for Fifo {
    fn formats(formats: &mut StateFormats<'_, Fifo>) {
        formats.export(|this| Ok(this.numbers.lock().unwrap().clone())).import(|this, numbers: Vec<u64>| {
            *this.numbers.lock().unwrap() = numbers;
            Ok(())
        });
    }
}

fn fifo(version: u32) -> impl Fn(&Binding<Monitor>) -> Fifo {
    move |monitor| Fifo { version, numbers: Mutex::default(), not_empty: monitor.condition("not empty") }
}

/// Serialises the tests that use `INSIDE`.
static LINES: Mutex<()> = Mutex::new(());

fn line(binding: &Binding<Monitor>) -> Owned<dyn Line> {
    binding.govern_swappable(fifo(0)).unwrap()
}

#[test]
fn kt_05_who_waits_for_a_condition_lets_others_in_and_goes_on_in_turn() {
    let _alone = LINES.lock().unwrap_or_else(|poison| poison.into_inner());
    let binding = Binding::new(Monitor::new());
    let line = line(&binding);
    let (co, not_empty) = (line.handle(), binding.condition("not empty"));
    let takers: Vec<_> = (0..3)
        .map(|n| {
            let taker = thread::spawn(move || co.take().unwrap());
            wait_for(|| not_empty.waiting() == n + 1);
            taker
        })
        .collect();
    for (n, taker) in takers.into_iter().enumerate() {
        line.put(10 + n as u64);
        assert_eq!(taker.join().unwrap(), 10 + n as u64, "who waits longest goes on first");
    }
    assert!(!not_empty.signal(), "nobody waits");
    let outside = catch_unwind(AssertUnwindSafe(|| not_empty.wait())).unwrap_err();
    assert!(outside.downcast_ref::<String>().unwrap().contains("from outside its calls"));
    Owned::destroy(line).wait().unwrap();
}

#[test]
fn kt_05_who_waits_for_a_condition_lets_a_swap_through_and_is_called_again() {
    let _alone = LINES.lock().unwrap_or_else(|poison| poison.into_inner());
    let binding = Binding::new(Monitor::new());
    let line = line(&binding);
    let (co, not_empty) = (line.handle(), binding.condition("not empty"));
    let takers: Vec<_> = (0..3).map(|_| thread::spawn(move || co.take().unwrap())).collect();
    wait_for(|| not_empty.waiting() == 3);
    Swap::new(co).drain_timeout(Duration::from_secs(60)).run(binding.next_swappable(fifo(1))).unwrap();
    assert_eq!(line.version(), 1);
    wait_for(|| not_empty.waiting() == 3);
    (0..3).for_each(|n| line.put(n));
    let mut taken: Vec<_> = takers.into_iter().map(|taker| taker.join().unwrap()).collect();
    taken.sort_unstable();
    assert_eq!(taken, [0, 1, 2], "each ran once");
    Owned::destroy(line).wait().unwrap();
}

#[test]
fn kt_05_a_waiting_call_that_cannot_be_made_again_waits_on_and_the_swap_gives_up() {
    let _alone = LINES.lock().unwrap_or_else(|poison| poison.into_inner());
    let binding = Binding::new(Monitor::new());
    let line = line(&binding);
    let (co, not_empty) = (line.handle(), binding.condition("not empty"));
    // One call can be repeated and one cannot: the swap fails, and both calls survive.
    let with = thread::spawn(move || co.take_with(vec![0; 100]).unwrap());
    wait_for(|| not_empty.waiting() == 1);
    let again = thread::spawn(move || co.take().unwrap());
    wait_for(|| not_empty.waiting() == 2);
    let swap = Swap::new(co).drain_timeout(Duration::from_millis(5));
    let failure = swap.run(binding.next_swappable(fifo(1))).unwrap_err().failure();
    assert_eq!(failure, SwapFailure::TimedOut(SwapPhase::Block));
    assert_eq!(line.version(), 0);
    line.put(1);
    line.put(1);
    assert_eq!((with.join().unwrap(), again.join().unwrap()), (101, 1));
    Owned::destroy(line).wait().unwrap();
}

#[test]
fn kt_05_who_waits_for_a_condition_learns_that_the_object_has_ended() {
    let _alone = LINES.lock().unwrap_or_else(|poison| poison.into_inner());
    let binding = Binding::new(Monitor::new());
    let line = line(&binding);
    let (co, not_empty) = (line.handle(), binding.condition("not empty"));
    let takers: Vec<_> = (0..2).map(|_| thread::spawn(move || co.take())).collect();
    wait_for(|| not_empty.waiting() == 2);
    let destruction = Owned::destroy(line);
    for taker in takers {
        assert_eq!(taker.join().unwrap(), None);
    }
    destruction.wait().unwrap();
    assert!(!binding.is_entered());
}

#[test]
fn kt_05_conditions_and_swaps_under_load_lose_no_number_and_let_no_two_in() {
    let _alone = LINES.lock().unwrap_or_else(|poison| poison.into_inner());
    let binding = Binding::new(Monitor::new());
    let line = line(&binding);
    let co = line.handle();
    let (threads, each) = (2, shrunk(300));
    let takers: Vec<_> = (0..threads)
        .map(|_| thread::spawn(move || (0..each).map(|_| co.take().unwrap()).collect::<Vec<_>>()))
        .collect();
    let putters: Vec<_> = (0..threads)
        .map(|from| thread::spawn(move || (0..each).for_each(|n| co.put(from * each + n))))
        .collect();
    let mut version = 0;
    while !takers.iter().all(|taker| taker.is_finished()) {
        version += 1;
        Swap::new(co)
            .drain_timeout(Duration::from_secs(60))
            .run(binding.next_swappable(fifo(version)))
            .unwrap();
    }
    putters.into_iter().for_each(|putter| putter.join().unwrap());
    let mut taken: Vec<_> = takers.into_iter().flat_map(|taker| taker.join().unwrap()).collect();
    taken.sort_unstable();
    assert!(taken.into_iter().eq(0..threads * each));
    Owned::destroy(line).wait().unwrap();
}

#[test]
fn kt_05_a_task_takes_calls_one_at_a_time_in_its_own_thread_across_swaps() {
    common(Task::new);
    adds_across_swaps(Task::new());
    let binding = Binding::new(Task::named("a-desk"));
    let desk: Owned<dyn Desk> = binding.govern_swappable(|_| Clerk::alone(0)).unwrap();
    assert!(!invoke::threads().iter().any(|name| name == "a-desk"), "no thread before the first call");
    let co = desk.handle();
    let (its_own, _) = desk.place();
    assert_ne!(its_own, thread::current().id());
    swap_to(co, &binding, 1).unwrap();
    assert_eq!(thread::spawn(move || co.place()).join().unwrap(), (its_own, 1), "the thread survives");
    let error = desk.again(co).unwrap_err();
    assert!(matches!(error.reason(), CallErrorKind::Refused(why) if why.contains("own thread")), "{error}");
    assert!(invoke::threads().iter().any(|name| name == "a-desk"));
    Owned::destroy(desk).wait().unwrap();
    wait_for(|| !invoke::threads().iter().any(|name| name == "a-desk"));
}

/// Results of the calls that an import made.
type Answers = Arc<Mutex<Vec<Result<(), CallErrorKind>>>>;

/// A clerk with an import that makes `other` call the object that is being swapped.
struct Successor {
    co: Handle<dyn Desk>,
    other: Handle<dyn Desk>,
    answers: Answers,
}

impl Desk for Successor {
    fn place(&self) -> (ThreadId, u32) {
        (thread::current().id(), 9)
    }
    fn add(&self, _: u64, _: u64) {}
    fn added(&self) -> Vec<(u64, u64)> {
        Vec::new()
    }
    fn kept(&self, here: Rc<u8>) -> (ThreadId, Rc<u8>) {
        (thread::current().id(), here)
    }
    fn lend(&self, _: &str, _: &mut (dyn FnMut(&str) + Send)) {}
    fn fail(&self) {}
    fn again(&self, co: Handle<dyn Desk>) -> Result<(ThreadId, u32), CallError> {
        co.try_place()
    }
    fn last(&self, _: Sender<()>, _: Receiver<()>) {}
}

impl State for Successor {
    fn formats(formats: &mut StateFormats<'_, Successor>) {
        formats.export(|_| Ok(Log(Vec::new()))).import(|this, _: Log| {
            let (sent, kept) = (this.other.try_again(this.co), this.other.try_kept(Rc::new(7)));
            let answers = [sent.map(drop), kept.map(drop)];
            this.answers.lock().unwrap().extend(answers.map(|answer| answer.map_err(|error| error.reason())));
            Ok(())
        });
    }
}

/// Swaps a plain object for one with an import that calls an object of this policy. Returns the results of
/// those calls.
fn answers_in_an_import<P: Policy>(policy: P) -> Vec<Result<(), CallErrorKind>> {
    let other: Owned<dyn Desk> = governed(policy, |_| Clerk::alone(0));
    let desk: Owned<dyn Desk> = squall_core::swappable(Clerk::alone(0));
    let answers = Answers::default();
    let new = Successor { co: desk.handle(), other: other.handle(), answers: Arc::clone(&answers) };
    Swap::new(desk.handle())
        .drain_timeout(Duration::from_secs(600))
        .run(Replacement::swappable(new))
        .unwrap();
    assert_eq!(desk.place().1, 9);
    assert_eq!(other.again(desk.handle()).unwrap().1, 9, "when the swap is over it is made");
    std::mem::take(&mut *answers.lock().unwrap())
}

fn is_refused(answer: &Result<(), CallErrorKind>) -> bool {
    matches!(answer, Err(CallErrorKind::Refused(why)) if why.contains("moves an object's state"))
}

#[test]
fn kt_05_an_import_has_no_other_thread_make_a_call_for_which_its_swap_would_wait() {
    let answers = answers_in_an_import(ThreadedAdt::new());
    assert!(is_refused(&answers[0]), "{answers:?}");
    assert_eq!(answers[1], Ok(()), "what stays in its caller's thread is made");
    let answers = answers_in_an_import(Task::new());
    // A call that stays on its thread waits for its turn all the same.
    assert!(answers.len() == 2 && answers.iter().all(is_refused), "{answers:?}");
}

#[test]
fn kt_05_an_import_does_not_wait_for_who_is_in_a_monitor() {
    let other: Owned<dyn Desk> = governed(Monitor::new(), |_| Clerk::alone(0));
    let desk: Owned<dyn Desk> = squall_core::swappable(Clerk::alone(0));
    let (answers, co) = (Answers::default(), other.handle());
    let (inside, is_inside) = channel();
    let (go, goes) = channel();
    let holder = thread::spawn(move || co.last(inside, goes));
    is_inside.recv().unwrap();
    let new = Successor { co: desk.handle(), other: other.handle(), answers: Arc::clone(&answers) };
    Swap::new(desk.handle()).run(Replacement::swappable(new)).unwrap();
    let answers = std::mem::take(&mut *answers.lock().unwrap());
    assert!(answers.len() == 2 && answers.iter().all(is_refused), "{answers:?}");
    go.send(()).unwrap();
    holder.join().unwrap();
}

#[test]
fn kt_05_a_task_keeps_the_order_of_arrival_of_what_stays_with_its_caller_too() {
    let binding = Binding::new(Task::new());
    let desk: Owned<dyn Desk> = binding.govern(|_| Clerk::alone(0)).unwrap();
    let co = desk.handle();
    let ((begin, begun), (over, end)) = (channel(), channel());
    let first = thread::spawn(move || co.last(begin, end));
    begun.recv().unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let others: Vec<_> = (0..4)
        .map(|n| {
            let noted = order.clone();
            let other = thread::spawn(move || match n % 2 {
                0 => co.lend("", &mut |_| noted.lock().unwrap().push(n)),
                _ => {
                    let (ran_in, _) = co.kept(Rc::new(0));
                    assert_eq!(ran_in, thread::current().id());
                    noted.lock().unwrap().push(n);
                }
            });
            wait_for(|| binding.waiting() == n + 1);
            other
        })
        .collect();
    over.send(()).unwrap();
    first.join().unwrap();
    others.into_iter().for_each(|other| other.join().unwrap());
    // Calls that stay on their threads note after their turn. So only the calls that the task ran are in
    // strict order.
    let order = order.lock().unwrap();
    assert!(order.iter().filter(|n| **n % 2 == 0).eq(&[0, 2]) && order.len() == 4, "{order:?}");
    assert_eq!(binding.taken(), 5);
}

#[test]
fn kt_05_a_deadline_that_passes_in_a_tasks_line_refuses_the_call() {
    let binding = Binding::new(Task::new());
    let desk: Owned<dyn Desk> = binding.govern(|_| Clerk::alone(0)).unwrap();
    let co = desk.handle();
    let ((begin, begun), (over, end)) = (channel(), channel());
    let first = thread::spawn(move || co.last(begin, end));
    begun.recv().unwrap();
    let soon = Instant::now() + Duration::from_millis(20);
    let late = thread::spawn(move || synchronous_by(co, soon, |desk| desk.add(1, 1)));
    // The call never waits there if its thread stands still until the deadline.
    wait_for(|| binding.waiting() == 1 || late.is_finished());
    wait_for(|| Instant::now() > soon);
    over.send(()).unwrap();
    first.join().unwrap();
    assert!(matches!(late.join().unwrap(), Err(InvokeError::TooLate)));
    assert!(desk.added().is_empty());
}

#[test]
fn kt_05_tasks_that_come_and_go_leave_no_thread() {
    let all = Barrier::new(2);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                all.wait();
                for n in 0..shrunk(50) {
                    let desk: Owned<dyn Desk> = governed(Task::named("comes-and-goes"), |_| Clerk::alone(0));
                    if n % 3 > 0 {
                        desk.add(0, n);
                    }
                    drop(desk);
                }
            });
        }
    });
    squall_rcu::barrier().unwrap();
    wait_for(|| {
        squall_rcu::barrier().unwrap();
        !invoke::threads().iter().any(|name| name == "comes-and-goes")
    });
}
