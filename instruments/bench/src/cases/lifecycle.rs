//! `lifecycle`: an object is created, called once and destroyed.
//!
//! The object has one field and one interface. `squall` makes it with `shared`, calls it, which is a miss, and drops
//! its owner. `crossbeam-epoch` puts it behind an atomic pointer, and pins once to call it, to take it out and to defer its
//! drop: what one writes by hand to let others call an object that may go at any time. Its objects are of one known type,
//! which spares it the second allocation that a `dyn` behind a one-word pointer takes. `arc-dyn` makes, calls and drops
//! an `Arc`: the floor, where nobody may hold a reference without keeping the object alive.
//!
//! An operation counts as done when the object has been *dropped* (as in `rcu-retire`): what is destroyed and still waits
//! for a grace period when the slice ends is not counted, and is reclaimed outside the measured time. The first thread
//! samples the number of those every few hundred operations: `SUBJECT_peak_items`.
//!
//! - I1. A drop is counted on a line that only the dropping thread writes; each object knows the tally of its subject.
//! - I2. Of each [`GROUP`] objects that a thread makes in a row, the drop of the last counts, for all of them: objects
//!   of one thread are reclaimed in about the order in which they ended.

use std::hint::black_box;

use crate::case::{Case, Make, Missing, PLAIN, Scale, Setting, SliceEnd, Spec, Subject, Worker};
use crate::cases::rcu_retire::{SAMPLE_EVERY, Tally};
use crate::objects::{self, Mortal, Probe};
use crate::ours_core;
use crate::rivals::{arcdyn, epoch};

pub(super) static CASE: Case = Case {
    name: "lifecycle",
    about: "one object created, called once, destroyed and reclaimed",
    variants: &[PLAIN],
    subjects: &[
        Spec::ours("squall", ours_core::LIFECYCLE),
        Spec::rival("crossbeam-epoch", epoch::LIFECYCLE),
        Spec::rival("arc-dyn", arcdyn::LIFECYCLE),
    ],
    scale: Scale::Work,
    slice_ms: (50, 40),
    thread_range: true,
    metrics: Some(super::object_memory::accounted),
    default_threads: &[],
};

/// Objects of which the drop of one is counted.
const GROUP: u64 = 16;

/// A way for objects to come and go.
pub(crate) trait Live: Send + Sync {
    fn new(threads: usize) -> Self
    where
        Self: Sized;

    /// To be called once by each thread.
    fn register(&self);

    /// Makes `object` known, calls it once with `n` and ends it, as thread `thread`.
    fn live(&self, thread: usize, object: Mortal, n: u64) -> u64;

    /// Pushes the library to reclaim what this thread has ended.
    fn flush(&self);
}

struct Living<L> {
    lives: L,
    tally: &'static Tally,
    /// Its number, by which the objects know it.
    number: u64,
}

/// Makes the subject whose objects live by `L`.
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
    /// So many objects, at most [`GROUP`]. Not inlined, so that it is there once.
    #[inline(never)]
    fn group(&self, thread: usize, count: u64) {
        let mut sum = 0u64;
        for n in 1..=count {
            // The last one's drop counts for all (I2).
            let counts_for = if n == count { count } else { 0 };
            let object = Mortal::new(counts_for, black_box(self.number));
            sum = sum.wrapping_add(self.lives.live(thread, object, 1));
        }
        // The calls of those that count for nobody return one more than their field; that of the last also `count`.
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
                // By one thread only: the sharing of this case is counted, and should be its own.
                if thread == 0 {
                    living.tally.sample();
                }
            }
        })
    }

    fn end_slice(&self, ops: u64) -> SliceEnd {
        let mut end = self.tally.end_slice(ops);
        // What the objects are made of differs too much from subject to subject for their bytes to mean anything.
        end.metrics.retain(|(name, _)| *name == "peak_items");
        end
    }

    fn check(&self, ops: u64) -> Result<(), String> {
        self.tally.check(ops)
    }
}

/// What a worker leaves is reclaimed when it goes.
struct Body<'a, L: Live>(&'a Living<L>);

impl<L: Live> Drop for Body<'_, L> {
    fn drop(&mut self) {
        self.0.tally.drain(|| self.0.lives.flush());
    }
}
