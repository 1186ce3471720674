//! `invoke-parts`: the parts of a call through a policy, each counted apart.
//!
//! A part is a span between marks (`squall_locality_plugin::mark`), so it is counted, not timed: run it by
//! `squall locality -- squall loop invoke-parts`. A span begins before the call. It ends in code of the case:
//!
//! | subject | the span ends | it contains |
//! |---|---|---|
//! | `squall-find` | at the wrapper around the object, where a policy would take over | finding the policy |
//! | `squall-block` | when the policy gets the block | the above, and building the block |
//! | `squall-fast` | when the caller has the result | the whole call |
//! | `squall-reserve` | when the executor gets the work | reserving memory for the call and its result |
//! | `squall-asynchronous` | when the caller has the result | the whole asynchronous call |
//!
//! The executor runs the work at once, on the caller's thread, so no queue is counted. Variant `first` makes
//! the first call of each object on this thread's processor, as the case `miss` does.
//!
//! Source: KTK, table 1.

use std::hint::black_box;
use std::marker::PhantomData;

use squall::policy::invoke::{Work, asynchronous_on};
use squall::policy::{Adt, Block, Policy, governed};
use squall::{Handle, Owned};
use squall_core::wrap::{Around, Invoked, Refusal, Wrap, wrapped};
use squall_locality_plugin::mark;

use crate::case::{Case, Make, Missing, PLAIN, Scale, Spec, Subject, Variant, Worker};
use crate::objects::{Field, Probe, sum_of_calls};
use crate::work::miss::Batch;

pub(super) static CASE: Case = Case {
    name: "invoke-parts",
    about: "one call through a policy, counted until the end of one part (not timed)",
    variants: &[
        Variant { name: "again", about: "the object was called before", ..PLAIN },
        Variant { name: FIRST, about: "the object's first call on this processor", ..PLAIN },
    ],
    subjects: &[
        Spec::ours("squall-find", counting::<Find>()),
        Spec::ours("squall-block", counting::<BuildBlock>()),
        Spec::ours("squall-fast", counting::<Fast>()),
        Spec::ours("squall-reserve", counting::<Reserve>()),
        Spec::ours("squall-asynchronous", counting::<Asynchronous>()),
    ],
    scale: Scale::Work,
    slice_ms: (20, 5),
    thread_range: false,
    metrics: None,
    default_threads: &[1],
};

const FIRST: &str = "first";

/// A span of a call.
trait Span: 'static {
    /// Creates the object.
    fn make() -> Owned<dyn Probe>;

    /// Makes the call. Ends the span that the caller has begun.
    fn call(co: Handle<dyn Probe>, n: u64) -> u64;
}

const fn counting<S: Span>() -> Make {
    |setting| {
        if !setting.counted {
            return Err(Missing("its parts are counted, not timed: use `squall loop`".to_owned()));
        }
        Ok(if setting.variant.name == FIRST {
            Box::new(First::<S>(PhantomData))
        } else {
            Box::new(Again::<S>(S::make(), PhantomData))
        })
    }
}

/// Makes the calls, and counts in the span of each.
#[inline(never)]
fn calls<S: Span>(count: u64, objects: impl Iterator<Item = Handle<dyn Probe>>) {
    // This loop is not part of a call.
    mark::end();
    let mut sum = 0u64;
    for (n, co) in (0..count).zip(objects) {
        mark::begin();
        sum = sum.wrapping_add(S::call(co, n));
    }
    mark::begin();
    assert_eq!(sum, sum_of_calls(count), "a call was lost, or ran twice");
}

/// Calls one object again and again.
struct Again<S>(Owned<dyn Probe>, PhantomData<fn() -> S>);

impl<S: Span> Subject for Again<S> {
    fn worker(&self, _: usize) -> Worker<'_> {
        black_box(S::call(self.0.handle(), 0));
        Box::new(|ops| calls::<S>(ops, std::iter::repeat_with(|| self.0.handle())))
    }
}

/// Calls each object once.
struct First<S>(PhantomData<fn() -> S>);

impl<S: Span> Subject for First<S> {
    fn worker(&self, _: usize) -> Worker<'_> {
        squall::rcu::register().expect("the thread cannot register");
        let mut batch = Batch::new(S::make);
        Box::new(move |ops| batch.run(ops, |count, objects| calls::<S>(count, objects)))
    }
}

// --- spans ---

/// Ends the span where a policy would take over.
struct Edge;

impl Wrap for Edge {
    #[inline]
    fn around<R>(&self, _: &'static Invoked, f: impl FnOnce() -> R) -> Result<R, Refusal> {
        mark::end();
        Ok(f())
    }
}

struct Find;

impl Span for Find {
    fn make() -> Owned<dyn Probe> {
        wrapped(|_| Around::new(Edge, Field::new())).expect("an object")
    }

    fn call(co: Handle<dyn Probe>, n: u64) -> u64 {
        co.get(n)
    }
}

/// Ends the span when it gets the block.
struct Ends;

impl Policy for Ends {
    fn invoke(&self, block: &mut Block<'_>) {
        mark::end();
        block.proceed();
    }
}

struct BuildBlock;

impl Span for BuildBlock {
    fn make() -> Owned<dyn Probe> {
        governed(Ends, |_| Field::new())
    }

    fn call(co: Handle<dyn Probe>, n: u64) -> u64 {
        co.get(n)
    }
}

struct Fast;

impl Span for Fast {
    fn make() -> Owned<dyn Probe> {
        governed(Adt::new(), |_| Field::new())
    }

    fn call(co: Handle<dyn Probe>, n: u64) -> u64 {
        let result = co.get(n);
        mark::end();
        result
    }
}

/// Expectation about the asynchronous calls of this case.
const RUNS: &str = "the object lives, and its executor runs the call";

struct Reserve;

impl Span for Reserve {
    fn make() -> Owned<dyn Probe> {
        Fast::make()
    }

    fn call(co: Handle<dyn Probe>, n: u64) -> u64 {
        let ends = |work: Work| {
            mark::end();
            work();
        };
        asynchronous_on(&ends, co, move |co| co.get(n)).wait().expect(RUNS)
    }
}

struct Asynchronous;

impl Span for Asynchronous {
    fn make() -> Owned<dyn Probe> {
        Fast::make()
    }

    fn call(co: Handle<dyn Probe>, n: u64) -> u64 {
        let at_once = |work: Work| work();
        let result = asynchronous_on(&at_once, co, move |co| co.get(n)).wait().expect(RUNS);
        mark::end();
        result
    }
}
