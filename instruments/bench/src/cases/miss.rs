//! `miss`: a call that finds no entry in its processor's translation table.
//!
//! A miss happens once per object and processor, so each needs a new object. A batch of objects is made, each
//! is called once, and they are destroyed. Only the first calls are timed; the rest is `uncounted`. Ids of
//! destroyed objects are used again. So after the first batches the pages of the tables exist, as in a
//! program that has run for a while.
//!
//! The case has no rival: other libraries have no call that is slow at first. Compare it with `lifecycle`,
//! which contains a miss, and with `call`.
//!
//! - I1. Only the function [`first_calls`] is timed. It is not inlined, so that an instrument can be told to
//!   count in it alone.

use squall::{CoRef, Owned};

use crate::case::{Case, PLAIN, Scale, Spec, Variant};
use crate::objects::{Probe, sum_of_calls};
use crate::ours_core;
use crate::uncounted::uncounted;

pub(super) static CASE: Case = Case {
    name: "miss",
    about: "one call of an object that has no entry in the table of the processor",
    variants: &[
        Variant {
            name: "cached",
            about: "a shared object's first call here: its representative is found, and its entry stored",
            ..PLAIN
        },
        Variant {
            name: "make-rep",
            about: "a distributed object's first call: a representative is made, and its entry stored",
            ..PLAIN
        },
        Variant {
            name: "once",
            about: "an object whose root lets no table keep its answer: the representative is found, at each call",
            ..PLAIN
        },
    ],
    subjects: &[Spec::ours("squall", ours_core::miss)],
    scale: Scale::Work,
    slice_ms: (50, 20),
    thread_range: false,
    metrics: None,
    default_threads: &[],
};

/// Objects per batch.
const BATCH: u64 = 1024;

/// Calls each object of the batch for the first time.
#[inline(never)]
pub(crate) fn first_calls(count: u64, objects: impl Iterator<Item = CoRef<dyn Probe>>) {
    let mut sum = 0u64;
    for (n, co) in (0..count).zip(objects) {
        sum = sum.wrapping_add(co.get(n));
    }
    assert_eq!(sum, sum_of_calls(count), "a call was lost, or ran twice");
}

/// Objects that are made, called once, and destroyed.
pub(crate) struct Batch {
    make: fn() -> Owned<dyn Probe>,
    objects: Vec<Owned<dyn Probe>>,
    references: Vec<CoRef<dyn Probe>>,
}

impl Batch {
    pub(crate) fn new(make: fn() -> Owned<dyn Probe>) -> Batch {
        let room = BATCH as usize;
        Batch { make, objects: Vec::with_capacity(room), references: Vec::with_capacity(room) }
    }

    pub(crate) fn run(&mut self, ops: u64) {
        let mut left = ops;
        while left > 0 {
            let count = left.min(BATCH);
            uncounted(|| self.refill(count));
            first_calls(count, self.references.iter().copied());
            left -= count;
        }
        uncounted(|| self.end());
    }

    fn refill(&mut self, count: u64) {
        self.end();
        self.objects.extend((0..count).map(|_| (self.make)()));
        self.references.extend(self.objects.iter().map(Owned::co));
    }

    /// Destroys the objects. Reclaims the objects destroyed earlier here, off the clock.
    fn end(&mut self) {
        if let Some(co) = self.references.first() {
            let missed = squall::info_of(CoRef::id(*co)).map_or(0, |info| info.misses);
            assert!(missed >= 1, "the first call of an object was no miss");
        }
        self.references.clear();
        self.objects.clear();
        squall::rcu::reclaim().expect("outside every operation");
    }
}
