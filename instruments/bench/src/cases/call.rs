//! `call`: one call of a trivial method on an object shared by all threads and never replaced meanwhile.
//!
//! Every subject reaches one type through one method of one `dyn` trait. The method is not inlined; it adds
//! its argument to a field. The reference is read from memory for each call, and the compiler cannot know its
//! target. Calls are independent, as in a server's loop, so the processor may overlap them. The cost of a
//! rival over `arc-dyn` is the price of an object that may be destroyed or replaced meanwhile; `arc-dyn`
//! itself allows neither. `squall-swapped` is `squall` after a hundred swaps, which must leave no cost
//! behind.

use std::hint::black_box;

use crossbeam_utils::CachePadded;

use crate::case::{Case, Make, Missing, PLAIN, Scale, Setting, Spec, Subject, Worker};
use crate::objects::{Field, sum_of_calls};
use crate::ours_core;
use crate::rivals::{arcdyn, arcswap, epoch, seize};

pub(super) static CASE: Case = Case {
    name: "call",
    about: "one call of a trivial method of a shared object, through a reference that outlives the object or not",
    variants: &[PLAIN],
    subjects: &[
        Spec::ours("squall", ours_core::CALL),
        Spec::ours("squall-swapped", ours_core::CALL_SWAPPED),
        Spec::rival("arc-dyn", arcdyn::CALL),
        Spec::rival("crossbeam-epoch", epoch::CALL),
        Spec::rival("seize", seize::CALL),
        Spec::rival("arc-swap", arcswap::CALL),
    ],
    scale: Scale::Work,
    slice_ms: (20, 5),
    thread_range: false,
    metrics: None,
    default_threads: &[],
};

/// A way to reach the object.
pub(crate) trait Reach: Send + Sync {
    fn new(object: Field) -> Self
    where
        Self: Sized;

    /// Calls the object.
    fn get(&self, n: u64) -> u64;
}

struct Calling<R>(CachePadded<R>);

/// Makes the subject that calls through `R`.
pub(crate) const fn calling<R: Reach + 'static>() -> Make {
    fn make<R: Reach + 'static>(_: &Setting) -> Result<Box<dyn Subject>, Missing> {
        called::<R>()
    }
    make::<R>
}

/// The subject that calls through `R`.
pub(crate) fn called<R: Reach + 'static>() -> Result<Box<dyn Subject>, Missing> {
    Ok(Box::new(Calling(CachePadded::new(R::new(Field::new())))))
}

impl<R: Reach> Subject for Calling<R> {
    fn worker(&self, _: usize) -> Worker<'_> {
        // Registers the thread, and makes everything that its first call makes.
        black_box(self.0.get(0));
        Box::new(|ops| {
            let mut sum = 0u64;
            for n in 0..ops {
                let reach: &R = black_box(&self.0);
                sum = sum.wrapping_add(reach.get(n));
            }
            assert_eq!(sum, sum_of_calls(ops), "a call was lost, or ran twice");
        })
    }
}
