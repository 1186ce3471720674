//! Subject `squall` of the cases about objects, written as an application would, through the façade.

use std::hint::black_box;

use squall::pervp::BiasedWord;
use squall::swap::{Replacement, RootFormats, Swap};
use squall::{ClusterSize, Handle, Miss, MissAnswer, Owned, RepContext, Root};

use crate::case::{Make, Missing, Setting, Subject, Worker};
use crate::objects::{Field, Hits, Mortal, Probe};
use crate::ours_machine::on_processor;
use crate::work::call::{Reach, calling};
use crate::work::gather::{Gather, gathering};
use crate::work::lifecycle::{Live, living};
use crate::work::miss::{Batch, first_calls};

// --- `call` ---

pub(crate) struct Called {
    co: Handle<dyn Probe>,
    _owner: Owned<dyn Probe>,
}

pub(crate) const CALL: Make = calling::<Called>();

impl Called {
    pub(crate) fn handle(&self) -> Handle<dyn Probe> {
        self.co
    }
}

impl Reach for Called {
    fn new(object: Field) -> Called {
        let owner: Owned<dyn Probe> = squall::shared(object);
        Called { co: owner.handle(), _owner: owner }
    }

    #[inline(always)]
    fn get(&self, n: u64) -> u64 {
        self.co.get(n)
    }
}

/// An object that was swapped before the first call.
struct Swapped(Called);

pub(crate) const CALL_SWAPPED: Make = calling::<Swapped>();

/// Swaps before the first call.
const SWAPS: usize = 100;

impl Reach for Swapped {
    fn new(object: Field) -> Swapped {
        let called = Called::new(object);
        for _ in 0..SWAPS {
            called.get(0);
            let swap = Swap::new(called.co).without_state();
            swap.run(Replacement::shared(Field::new())).expect("the swap failed");
        }
        // Drops the replaced objects now, so that the counted calls do not.
        squall::rcu::barrier().expect("the grace period failed");
        Swapped(called)
    }

    #[inline(always)]
    fn get(&self, n: u64) -> u64 {
        self.0.get(n)
    }
}

// --- `gather`, `swap` ---

/// A distributed counter: one representative for each processor that counts.
pub(crate) struct PerProcessor;

/// Aligned to a line of its own: memory neighbours belong to other processors.
#[repr(align(128))]
pub(crate) struct LocalHits {
    count: BiasedWord,
    at: RepContext<PerProcessor>,
}

impl Root for PerProcessor {
    type Interface = dyn Hits;
    type Rep = LocalHits;

    fn make_rep(&self, at: RepContext<PerProcessor>) -> LocalHits {
        LocalHits { count: BiasedWord::new(at.vp()), at }
    }

    fn formats(formats: &mut RootFormats<'_, PerProcessor>) {
        formats.export_part(|_, rep| Ok(rep.count.load())).import_part(|_, rep, count: u64| {
            rep.count.add(count);
            Ok(())
        });
    }
}

impl Hits for LocalHits {
    fn add(&self, n: u64) {
        self.count.add(n);
    }

    fn total(&self) -> u64 {
        self.at.reps().map(|rep| rep.count.load()).sum()
    }

    fn total_by_tree(&self) -> u64 {
        self.at.gather(|rep| rep.count.load(), |a, b| a + b).unwrap_or(0)
    }
}

// --- `gather` ---

struct Flat(Owned<dyn Hits>);
struct Tree(Owned<dyn Hits>);

pub(crate) const GATHER_FLAT: Make = gathering::<Flat>();
pub(crate) const GATHER_TREE: Make = gathering::<Tree>();

/// Makes a distributed counter with a representative on each of the first `reps` processors. Each of them has
/// counted one.
fn counted_on(reps: usize) -> Result<Owned<dyn Hits>, Missing> {
    let hits = PerProcessor.create(ClusterSize::Cpu);
    for index in 0..reps {
        on_processor(index, || hits.add(1))?;
    }
    let made = squall::info_of(Handle::id(hits.handle())).map_or(0, |info| info.reps.len());
    if made == reps {
        Ok(hits)
    } else {
        Err(Missing(format!("{made} representatives were made for {reps} processors")))
    }
}

impl Gather for Flat {
    fn new(reps: usize) -> Result<Flat, Missing> {
        counted_on(reps).map(Flat)
    }

    #[inline(always)]
    fn total(&self) -> u64 {
        self.0.total()
    }
}

impl Gather for Tree {
    fn new(reps: usize) -> Result<Tree, Missing> {
        counted_on(reps).map(Tree)
    }

    #[inline(always)]
    fn total(&self) -> u64 {
        self.0.total_by_tree()
    }
}

// --- `miss` ---

/// A representative that only answers.
pub(crate) struct Answering {
    field: Field,
    _at: RepContext<PerProcessorField>,
}

/// The root with the measured misses. By variant, its representative is kept in the tables or bypasses them.
pub(crate) struct PerProcessorField {
    redirects: bool,
}

impl Root for PerProcessorField {
    type Interface = dyn Probe;
    type Rep = Answering;

    fn make_rep(&self, at: RepContext<PerProcessorField>) -> Answering {
        Answering { field: Field::new(), _at: at }
    }

    fn handle_miss<'a>(&'a self, miss: Miss<'a, PerProcessorField>) -> MissAnswer<'a, PerProcessorField> {
        if self.redirects { miss.local().once() } else { miss.local().cached() }
    }
}

impl Probe for Answering {
    #[inline(never)]
    fn get(&self, n: u64) -> u64 {
        self.field.get(n)
    }
}

/// Objects that no thread has called yet. Each batch of first calls gets new ones.
struct Fresh {
    make: fn() -> Owned<dyn Probe>,
}

impl Subject for Fresh {
    fn worker(&self, _: usize) -> Worker<'_> {
        squall::rcu::register().expect("the thread cannot register");
        let mut batch = Batch::new(self.make);
        Box::new(move |ops| batch.run(ops, |count, objects| first_calls(count, objects)))
    }
}

/// One object that misses on each call.
struct Redirecting(Owned<dyn Probe>);

impl Subject for Redirecting {
    fn worker(&self, _: usize) -> Worker<'_> {
        black_box(self.0.get(0));
        Box::new(|ops| first_calls(ops, std::iter::repeat_with(|| self.0.handle())))
    }

    fn check(&self, ops: u64) -> Result<(), String> {
        // The count wraps at 2^32.
        let info = squall::info_of(Handle::id(self.0.handle())).ok_or("the object is gone")?;
        let missed = info.misses;
        if (missed as u32).wrapping_sub(ops as u32) < u32::MAX / 2 {
            return Ok(());
        }
        Err(format!("{ops} calls missed only {missed} times"))
    }
}

pub(crate) fn miss(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
    Ok(match setting.variant.name {
        "make-rep" => {
            Box::new(Fresh { make: || PerProcessorField { redirects: false }.create(ClusterSize::Cpu) })
        }
        "once" => Box::new(Redirecting(PerProcessorField { redirects: true }.create(ClusterSize::Cpu))),
        _ => Box::new(Fresh { make: || squall::shared(Field::new()) }),
    })
}

// --- `lifecycle` ---

struct Lives;

pub(crate) const LIFECYCLE: Make = living::<Lives>();

impl Live for Lives {
    fn new(_: usize) -> Lives {
        Lives
    }

    fn register(&self) {
        squall::rcu::register().expect("the thread cannot register");
    }

    #[inline(always)]
    fn live(&self, _: usize, object: Mortal, n: u64) -> u64 {
        let object: Owned<dyn Probe> = squall::shared(object);
        object.get(n)
    }

    fn flush(&self) {
        squall::rcu::reclaim().expect("the grace period failed");
    }
}

// --- `object-memory` ---

/// Makes a counter like [`counted_on`], called on the first `vps` processors, or on all if there are fewer.
pub(crate) fn counted_on_at_most(vps: usize) -> Result<Owned<dyn Hits>, String> {
    counted_on(vps.min(crate::ours_machine::processors_count())).map_err(|Missing(why)| why)
}
