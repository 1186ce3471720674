//! The subject of `id-pool` and `page-pool`: one thing taken from a pool and given back.

use std::hint::black_box;

use crossbeam_utils::CachePadded;

use crate::case::{Make, Missing, Setting, Subject, Worker};

/// Number of ids of a pool.
pub(crate) const IDS: u32 = 65_536;

/// A pool that always has more things than there are threads.
pub(crate) trait Taking: Send + Sync {
    fn new(setting: &Setting) -> Self
    where
        Self: Sized;

    /// Takes a thing and gives it back. Returns a number that depends on it.
    fn pair(&self) -> u64;
}

struct Pairs<P>(CachePadded<P>);

/// Makes the subject that takes from `P`.
pub(crate) const fn taking<P: Taking + 'static>() -> Make {
    fn make<P: Taking + 'static>(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
        Ok(Box::new(Pairs(CachePadded::new(P::new(setting)))))
    }
    make::<P>
}

impl<P: Taking> Subject for Pairs<P> {
    fn worker(&self, _: usize) -> Worker<'_> {
        // Makes everything that the thread's first use makes.
        black_box(self.0.pair());
        Box::new(|ops| {
            let sum = (0..ops).fold(0u64, |sum, _| sum.wrapping_add(black_box(&*self.0).pair()));
            black_box(sum);
        })
    }
}
