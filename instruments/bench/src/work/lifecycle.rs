//! The subject of `lifecycle`: makes, calls and destroys objects, with any library.
//!
//! - I1. A drop is counted on a line that only the dropping thread writes; each object knows the tally of its
//!   subject.
//! - I2. A thread makes its objects in groups of [`GROUP`]. The drop of the last object of a group counts for
//!   the whole group, because objects of one thread are reclaimed in about the order of their destruction.

use std::hint::black_box;

use super::retire::{SAMPLE_EVERY, Tally};
use crate::case::{Make, Missing, Setting, SliceEnd, Subject, Worker};
use crate::objects::{self, Mortal, Probe};

/// Objects per counted drop.
const GROUP: u64 = 16;

/// A way for objects to come and go.
pub(crate) trait Live: Send + Sync {
    fn new(threads: usize) -> Self
    where
        Self: Sized;

    /// Called once by each thread.
    fn register(&self);

    /// Publishes `object`, calls it once with `n` and destroys it, as thread `thread`.
    fn live(&self, thread: usize, object: Mortal, n: u64) -> u64;

    /// Pushes the library to reclaim the objects destroyed by this thread.
    fn flush(&self);
}

struct Living<L> {
    lives: L,
    tally: &'static Tally,
    /// Number of the tally, stored in the objects.
    number: u64,
}

/// Makes the subject with objects that live by `L`.
pub(crate) const fn living<L: Live + 'static>() -> Make {
    fn make<L: Live + 'static>(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
        let tally = Tally::new(setting.threads);
        let number =
            objects::number(tally).ok_or_else(|| Missing("too many runs in one process".to_owned()))?;
        Ok(Box::new(Living { lives: L::new(setting.threads), tally, number }))
    }
    make::<L>
}

impl<L: Live> Living<L> {
    /// Runs `count` objects, at most [`GROUP`]. Not inlined, so that there is one copy of the code.
    #[inline(never)]
    fn group(&self, thread: usize, count: u64) {
        let mut sum = 0u64;
        for n in 1..=count {
            // The drop of the last object counts for all (I2).
            let counts_for = if n == count { count } else { 0 };
            let object = Mortal::new(counts_for, black_box(self.number));
            sum = sum.wrapping_add(self.lives.live(thread, object, 1));
        }
        // The calls of uncounted objects return one more than their field; that of the last also adds
        // `count`.
        let expected = count * (Mortal::new(0, self.number).get(1)) + count;
        assert_eq!(sum, expected, "a call was lost, or ran twice");
    }
}

impl<L: Live> Subject for Living<L> {
    fn worker(&self, thread: usize) -> Worker<'_> {
        self.lives.register();
        let body = Body(self);
        Box::new(move |ops| {
            let living = body.0;
            let mut left = ops;
            while left > 0 {
                let chunk = left.min(SAMPLE_EVERY);
                (0..chunk / GROUP).for_each(|_| living.group(thread, GROUP));
                living.group(thread, chunk % GROUP);
                left -= chunk;
                living.tally.note(thread, chunk);
                // Only one thread samples: the case's own shared accesses are counted, and must not include
                // the sampling.
                if thread == 0 {
                    living.tally.sample();
                }
            }
        })
    }

    fn end_slice(&self, ops: u64) -> SliceEnd {
        let mut end = self.tally.end_slice(ops);
        // The objects differ too much between subjects for their bytes to be compared.
        end.metrics.retain(|(name, _)| *name == "peak_items");
        end
    }

    fn check(&self, ops: u64) -> Result<(), String> {
        self.tally.check(ops)
    }
}

/// Dropping the body reclaims the objects that the worker left.
struct Body<'a, L: Live>(&'a Living<L>);

impl<L: Live> Drop for Body<'_, L> {
    fn drop(&mut self) {
        self.0.tally.drain(|| self.0.lives.flush());
    }
}
