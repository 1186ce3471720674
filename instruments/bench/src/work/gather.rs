//! The subject of `gather`: sums up any structure with parts.

use std::hint::black_box;

use crate::case::{Make, Missing, Setting, Subject, Worker};
use crate::ours_machine::processors_count;

/// A structure with parts that can be summed up.
pub(crate) trait Gather: Send + Sync {
    /// Makes a structure of `parts` parts, each holding one.
    fn new(parts: usize) -> Result<Self, Missing>
    where
        Self: Sized;

    fn total(&self) -> u64;
}

struct Gathering<G> {
    parts: u64,
    gather: G,
}

/// Makes the subject that gathers from `G`.
pub(crate) const fn gathering<G: Gather + 'static>() -> Make {
    fn make<G: Gather + 'static>(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
        let name = setting.variant.name;
        let parts = setting.variant.number() as usize;
        let there = processors_count();
        if parts > there {
            return Err(Missing(format!(
                "{name} needs {parts} processors and there are {there}: \
                 SQUALL_TOPOLOGY=nodes:4,caches:2,cores:4,threads:2 has 64"
            )));
        }
        Ok(Box::new(Gathering { parts: parts as u64, gather: G::new(parts)? }))
    }
    make::<G>
}

impl<G: Gather> Subject for Gathering<G> {
    fn worker(&self, _: usize) -> Worker<'_> {
        black_box(self.gather.total());
        Box::new(|ops| {
            let mut sum = 0u64;
            for _ in 0..ops {
                sum = sum.wrapping_add(black_box(&self.gather).total());
            }
            assert_eq!(sum, ops * self.parts, "a part was left out, or counted twice");
        })
    }
}
