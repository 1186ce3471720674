//! `invoke`: the cost of calls with attributes, through a policy, with a deadline, or in another thread.
//!
//! Variant `call`: each call is made by its caller, on the object and through the method of the case `call`;
//! only the code before the method differs. `squall-attributes-N` gives N attributes to each call of an
//! intercepted object, with a policy that reads four. `squall-monitor` takes and leaves a monitor,
//! uncontended with one thread. `std-mutex` is a lock around the object, which then can be neither replaced
//! nor destroyed. Variant `other-thread`: one call at a time, from its request until its result.
//!
//! Each metric is the median over rounds of a difference within the round, of the threads' processor time:
//!
//! - `intercepted_ns`, `synchronous_ns`, `deadline_ns`: over the plain call.
//! - `per_attribute_ns`: over a call without attributes, per attribute. The figure is the largest of those
//!   for one, two and four attributes, so it includes the fixed cost of the first.
//!   `per_further_attribute_ns`: for each of the second to the fourth.
//!
//! Source: KTK, tables 1 and 2 (invocations with 0, 1 and 2 attributes on GP1000 and KSR1).

use std::hint::black_box;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use squall::policy::attribute::{Attribute, with};
use squall::policy::invoke::{Event, asynchronous, event_dependent, synchronous, synchronous_by};
use squall::policy::{Adt, Block, Monitor, Policy, Task, ThreadedAdt, governed};
use squall::{Handle, Owned};

use crate::case::{Case, Make, Missing, PLAIN, Scale, Setting, Spec, Subject, Variant, Worker};
use crate::cases::swap::crew::crew;
use crate::gate::Gate;
use crate::harness::median;
use crate::objects::{Field, Probe, sum_of_calls};
use crate::ours_core::Called;
use crate::rivals::arcdyn;
use crate::uncounted::thread_cpu_ns;
use crate::work::call::{Reach, called};

pub(super) static CASE: Case = Case {
    name: "invoke",
    about: "one call: plain, or with attributes, policies and invocation modes",
    variants: &[
        Variant { name: CALL, about: "made on the caller's thread", ..PLAIN },
        Variant { name: OTHER_THREAD, about: "made on another thread, until its result is there", ..PLAIN },
    ],
    subjects: &[
        Spec::ours("squall", here::<Called>()),
        Spec::ours("squall-synchronous", here::<Synchronously>()),
        Spec::ours("squall-deadline", here::<ByDeadline>()),
        Spec::ours("squall-intercepted", here::<Intercepted>()),
        Spec::ours("squall-attributes-0", here::<Attributes0>()),
        Spec::ours("squall-attributes-1", here::<Attributes1>()),
        Spec::ours("squall-attributes-2", here::<Attributes2>()),
        Spec::ours("squall-attributes-4", here::<Attributes4>()),
        Spec::ours("squall-monitor", here::<Monitored>()),
        Spec::rival("arc-dyn", here::<arcdyn::Held>()),
        Spec::rival("std-mutex", here::<Locked>()),
        Spec::ours("squall-asynchronous", |setting| elsewhere(setting, || by(asynchronously()))),
        Spec::ours("squall-event-dependent", |setting| elsewhere(setting, || by(event_dependently()))),
        Spec::ours("squall-task", |setting| elsewhere(setting, || by(served(Task::new())))),
        Spec::ours("squall-threaded", |setting| elsewhere(setting, || by(served(ThreadedAdt::new())))),
        Spec::rival("std-mpsc", |setting| elsewhere(setting, || Box::new(Mailed))),
        Spec::rival("std-thread", |setting| elsewhere(setting, || by(spawned()))),
    ],
    scale: Scale::Work,
    slice_ms: (20, 5),
    thread_range: false,
    metrics: Some(measure),
    default_threads: &[1, 2],
};

const CALL: &str = "call";
const OTHER_THREAD: &str = "other-thread";

type Made = Box<dyn Subject>;

/// A subject of the variant `call` alone, which calls like the subjects of the case `call`.
const fn here<R: Reach + 'static>() -> Make {
    fn make<R: Reach + 'static>(setting: &Setting) -> Result<Made, Missing> {
        if setting.variant.name == CALL { called::<R>() } else { Err(Missing::no_part()) }
    }
    make::<R>
}

/// A subject of the variant `other-thread`.
fn elsewhere(setting: &Setting, make: fn() -> Made) -> Result<Made, Missing> {
    if setting.variant.name == OTHER_THREAD { Ok(make()) } else { Err(Missing::no_part()) }
}

/// A way to make a call: a function of its argument.
struct By<F>(F);

fn by(call: impl Fn(u64) -> u64 + Send + Sync + 'static) -> Made {
    Box::new(By(call))
}

impl<F: Fn(u64) -> u64 + Send + Sync> Subject for By<F> {
    fn worker(&self, _: usize) -> Worker<'_> {
        black_box((self.0)(0));
        Box::new(|ops| {
            let sum = (0..ops).fold(0u64, |sum, n| sum.wrapping_add((self.0)(n)));
            assert_eq!(sum, sum_of_calls(ops), "a call was lost, or ran twice");
        })
    }
}

// --- the caller's own thread ---

/// Defines a way to call, by `$call`, the object that `$make` makes of its value.
macro_rules! reach {
    ($name:ident: $interface:ty, |$object:ident| $make:expr, |$co:ident, $n:ident| $call:expr) => {
        struct $name {
            co: Handle<$interface>,
            _owner: Owned<$interface>,
        }

        impl Reach for $name {
            fn new($object: Field) -> $name {
                let owner: Owned<$interface> = $make;
                $name { co: owner.handle(), _owner: owner }
            }

            #[inline(always)]
            fn get(&self, $n: u64) -> u64 {
                let $co = self.co;
                $call
            }
        }
    };
}

/// Expectation about our objects in this case.
const LIVES: &str = "the object lives, and its policy refuses no call";

reach!(Synchronously: dyn Probe, |object| squall::shared(object), |co, n| {
    synchronous(co, |co| co.get(n)).expect(LIVES)
});
reach!(Intercepted: dyn Probe, |object| governed(Adt::new(), |_| object), |co, n| co.get(n));

/// Calls with a distant deadline.
struct ByDeadline {
    called: Called,
    deadline: Instant,
}

impl Reach for ByDeadline {
    fn new(object: Field) -> ByDeadline {
        ByDeadline { called: Called::new(object), deadline: Instant::now() + Duration::from_secs(86_400) }
    }

    #[inline(always)]
    fn get(&self, n: u64) -> u64 {
        synchronous_by(self.called.handle(), self.deadline, |co| co.get(n)).expect(LIVES).value
    }
}

static A: Attribute<u64> = Attribute::new("a", 0);
static B: Attribute<u64> = Attribute::new("b", 0);
static C: Attribute<u64> = Attribute::new("c", 0);
static D: Attribute<u64> = Attribute::new("d", 0);

/// A policy that reads four attributes of each call, given or not.
struct Reads;

impl Policy for Reads {
    fn invoke(&self, block: &mut Block<'_>) {
        let given = block.attributes();
        black_box([&A, &B, &C, &D].map(|attribute| given.get(attribute).unwrap_or(0)));
        block.proceed();
    }
}

const ACCEPTED: &str = "it has no range, so every value is in it";

reach!(Attributes0: dyn Probe, |object| governed(Reads, |_| object), |co, n| co.get(n));
reach!(Attributes1: dyn Probe, |object| governed(Reads, |_| object), |co, n| {
    with(co, ((&A, n),), |co| co.get(n)).expect(ACCEPTED)
});
reach!(Attributes2: dyn Probe, |object| governed(Reads, |_| object), |co, n| {
    with(co, ((&A, n), (&B, n)), |co| co.get(n)).expect(ACCEPTED)
});
reach!(Attributes4: dyn Probe, |object| governed(Reads, |_| object), |co, n| {
    with(co, ((&A, n), (&B, n), (&C, n), (&D, n)), |co| co.get(n)).expect(ACCEPTED)
});

/// The interface [`Probe`] for policies that make callers wait.
#[squall::interface]
trait Served: Send + Sync {
    #[blocking]
    fn serve(&self, n: u64) -> u64;
}

impl Served for Field {
    fn serve(&self, n: u64) -> u64 {
        self.get(n)
    }
}

reach!(Monitored: dyn Served, |object| governed(Monitor::new(), |_| object), |co, n| co.serve(n));

/// `std-mutex`: a lock around the object, which can be neither replaced nor destroyed.
struct Locked(Arc<Mutex<dyn Probe>>);

impl Reach for Locked {
    fn new(object: Field) -> Locked {
        Locked(Arc::new(Mutex::new(object)))
    }

    #[inline(always)]
    fn get(&self, n: u64) -> u64 {
        self.0.lock().expect("a thread panicked under the lock").get(n)
    }
}

// --- another thread ---

fn asynchronously() -> impl Fn(u64) -> u64 + Send + Sync {
    let object = Called::new(Field::new());
    move |n| asynchronous(object.handle(), move |co| co.get(n)).wait().expect(LIVES)
}

fn event_dependently() -> impl Fn(u64) -> u64 + Send + Sync {
    let event = Event::new();
    event.open();
    let object = Called::new(Field::new());
    move |n| event_dependent(&event, object.handle(), move |co| co.get(n)).wait().expect(LIVES)
}

fn served<P: Policy>(policy: P) -> impl Fn(u64) -> u64 + Send + Sync {
    let object: Owned<dyn Served> = governed(policy, |_| Field::new());
    move |n| object.serve(n)
}

fn spawned() -> impl Fn(u64) -> u64 + Send + Sync {
    let object: Arc<dyn Probe> = Arc::new(Field::new());
    move |n| {
        let object = Arc::clone(&object);
        std::thread::spawn(move || object.get(n)).join().expect("the called method panicked")
    }
}

/// `std-mpsc`: each caller has a server thread, and two std channels to it and back.
struct Mailed;

impl Subject for Mailed {
    fn worker(&self, _: usize) -> Worker<'_> {
        let ((ask, asked), (answer, answered)) = (channel::<u64>(), channel());
        // The thread ends with the worker, which drops the channel.
        std::thread::spawn(move || {
            let object: Arc<dyn Probe> = Arc::new(Field::new());
            asked.iter().map(|n| object.get(n)).try_for_each(|result| answer.send(result))
        });
        Box::new(move |ops| {
            let call = |n| {
                ask.send(n).ok().and_then(|()| answered.recv().ok()).expect("the server thread has ended")
            };
            let sum = (0..ops).fold(0u64, |sum, n| sum.wrapping_add(call(n)));
            assert_eq!(sum, sum_of_calls(ops), "a call was lost, or ran twice");
        })
    }
}

// --- metrics ---

/// Rounds, in a full and in a quick run; calls of each thread in one slice.
const ROUNDS: (usize, usize) = (31, 11);
const CALLS: u64 = 400_000;

fn measure(setting: &Setting, quick: bool) -> Result<Vec<(String, f64)>, String> {
    if setting.variant.name != CALL {
        return Ok(Vec::new());
    }
    let threads = setting.threads;
    let calls: [Box<dyn Slice>; 8] = [
        slice::<Called>(),
        slice::<Intercepted>(),
        slice::<Synchronously>(),
        slice::<ByDeadline>(),
        slice::<Attributes0>(),
        slice::<Attributes1>(),
        slice::<Attributes2>(),
        slice::<Attributes4>(),
    ];
    let rounds: Vec<[f64; 8]> = (0..if quick { ROUNDS.1 } else { ROUNDS.0 })
        .map(|round| {
            let mut ns = [0.0; 8];
            for place in 0..calls.len() {
                let which = (place + round) % calls.len();
                ns[which] = calls[which].ns(threads);
            }
            ns
        })
        .collect();
    let over = |which: usize, base: usize, per: f64| {
        median(&rounds.iter().map(|ns| (ns[which] - ns[base]) / per).collect::<Vec<f64>>())
    };
    let (one, two, four) = (over(5, 4, 1.0), over(6, 4, 2.0), over(7, 4, 4.0));
    let metrics = [
        ("intercepted_ns", over(1, 0, 1.0)),
        ("synchronous_ns", over(2, 0, 1.0)),
        ("deadline_ns", over(3, 0, 1.0)),
        ("per_attribute_ns", one.max(two).max(four)),
        ("per_further_attribute_ns", over(7, 5, 3.0)),
    ];
    Ok(metrics.map(|(name, value)| (name.to_owned(), value)).into())
}

/// A way to call that can be timed.
trait Slice {
    /// Nanoseconds of the thread's processor time per call.
    fn ns(&self, threads: usize) -> f64;
}

fn slice<R: Reach + 'static>() -> Box<dyn Slice> {
    Box::new(CachePadded::new(R::new(Field::new())))
}

impl<R: Reach> Slice for CachePadded<R> {
    fn ns(&self, threads: usize) -> f64 {
        let calls = |calls| {
            let mut sum = 0u64;
            for n in 0..calls {
                let reach: &R = black_box(self);
                sum = sum.wrapping_add(reach.get(n));
            }
            assert_eq!(sum, sum_of_calls(calls), "a call was lost, or ran twice");
        };
        let body = |_: usize, gate: &Gate| {
            calls(CALLS / 16);
            gate.wait();
            let began_ns = thread_cpu_ns();
            calls(CALLS);
            (thread_cpu_ns() - began_ns) as f64
        };
        let (cpu_ns, ()) = crew(threads, body, || ());
        cpu_ns.iter().sum::<f64>() / (CALLS as f64 * threads as f64)
    }
}
