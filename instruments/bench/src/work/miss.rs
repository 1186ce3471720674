//! The work of `miss`: first calls of a batch of objects.
//!
//! - I1. Only the function [`first_calls`] is timed. It is not inlined, so that an instrument can be told to
//!   count in it alone.

use std::iter::Copied;
use std::slice::Iter;

use squall::{Handle, Owned};

use crate::objects::{Probe, sum_of_calls};
use crate::uncounted::uncounted;

/// Objects per batch.
const BATCH: u64 = 1024;

/// Calls each object of the batch for the first time.
#[inline(never)]
pub(crate) fn first_calls(count: u64, objects: impl Iterator<Item = Handle<dyn Probe>>) {
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
    references: Vec<Handle<dyn Probe>>,
}

impl Batch {
    pub(crate) fn new(make: fn() -> Owned<dyn Probe>) -> Batch {
        let room = BATCH as usize;
        Batch { make, objects: Vec::with_capacity(room), references: Vec::with_capacity(room) }
    }

    /// Makes `ops` first calls, by `calls`, which gets a number of objects and their handles.
    pub(crate) fn run(&mut self, ops: u64, calls: impl Fn(u64, Copied<Iter<'_, Handle<dyn Probe>>>)) {
        let mut left = ops;
        while left > 0 {
            let count = left.min(BATCH);
            uncounted(|| self.refill(count));
            calls(count, self.references.iter().copied());
            left -= count;
        }
        uncounted(|| self.end());
    }

    fn refill(&mut self, count: u64) {
        self.end();
        self.objects.extend((0..count).map(|_| (self.make)()));
        self.references.extend(self.objects.iter().map(Owned::handle));
    }

    /// Destroys the objects. Also reclaims the objects destroyed earlier, outside the measured time.
    fn end(&mut self) {
        if let Some(co) = self.references.first() {
            let missed = squall::info_of(Handle::id(*co)).map_or(0, |info| info.misses);
            assert!(missed >= 1, "the first call of an object was no miss");
        }
        self.references.clear();
        self.objects.clear();
        squall::rcu::reclaim().expect("the grace period failed");
    }
}
