//! The subject of `call`: calls an object through any way to reach it.

use std::hint::black_box;

use crossbeam_utils::CachePadded;

use crate::case::{Make, Missing, Setting, Subject, Worker};
use crate::objects::{Field, sum_of_calls};

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
