//! `gather`: the sum over the representatives of a distributed object, by their number.
//!
//! The object is a counter with a representative on each of the first 1, 2, 8, 32 or 64 processors. Each of
//! them has counted one. `squall-flat` visits them one after the other, `squall-tree` along the machine's
//! tree of clusters. `padded` is an array of as many words, each on a line of its own: the floor of any
//! gather. No thread adds meanwhile, so the lines stay in the reader's cache, and the figure is the cost of
//! the walk. In a program that counts, each line written since the last sum costs a transfer in addition, for
//! all three alike.
//!
//! More representatives than processors need a virtual topology; without one, a variant is reported on stderr
//! as missing: `SQUALL_TOPOLOGY=nodes:4,caches:2,cores:4,threads:2 squall bench gather`.

use std::hint::black_box;

use crate::case::{Case, Make, Missing, PLAIN, Scale, Setting, Spec, Subject, Variant, Worker};
use crate::ours_core;
use crate::ours_machine::processors_count;
use crate::rivals::counters::{Count, Padded};

const fn reps(name: &'static str, about: &'static str) -> Variant {
    Variant { name, about, ..PLAIN }
}

pub(super) static CASE: Case = Case {
    name: "gather",
    about: "the sum over all representatives of a distributed counter",
    variants: &[
        reps("reps-1", "one representative"),
        reps("reps-2", "two"),
        reps("reps-8", "eight"),
        reps("reps-32", "thirty-two"),
        reps("reps-64", "sixty-four"),
    ],
    subjects: &[
        Spec::ours("squall-flat", ours_core::GATHER_FLAT),
        Spec::ours("squall-tree", ours_core::GATHER_TREE),
        Spec::rival("padded", gathering::<Padded>()),
    ],
    scale: Scale::Work,
    slice_ms: (20, 5),
    thread_range: false,
    metrics: None,
    default_threads: &[1],
};

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
        let parts = name.strip_prefix("reps-").and_then(|count| count.parse().ok()).unwrap_or(1);
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

impl Gather for Padded {
    fn new(parts: usize) -> Result<Padded, Missing> {
        let padded = <Padded as Count>::new(parts);
        (0..parts).for_each(|part| padded.add(part, 1, || ()));
        Ok(padded)
    }

    #[inline(always)]
    fn total(&self) -> u64 {
        self.sum()
    }
}
