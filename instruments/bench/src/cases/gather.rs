//! `gather`: the sum over the representatives of a distributed object, by their number.
//!
//! The object is a counter with a representative on each of the first 1, 2, 8, 32 or 64 processors. Each of
//! them has counted one. `squall-flat` visits them one after the other, `squall-tree` along the machine's
//! tree of clusters. `padded` is an array of as many words, each on a line of its own: the floor of any
//! gather. No thread adds during the sum, so the lines stay in the reader's cache, and the figure is the cost
//! of the walk. In a program that counts, each line written since the last sum costs a transfer in addition,
//! for all three alike.
//!
//! More representatives than processors need a virtual topology; without one, a variant is reported on stderr
//! as missing: `SQUALL_TOPOLOGY=nodes:4,caches:2,cores:4,threads:2 squall bench gather`.

use crate::case::{Case, Missing, Scale, Spec, variant};
use crate::ours_core;
use crate::rivals::counters::{Count, Padded};
use crate::work::gather::{Gather, gathering};

pub(super) static CASE: Case = Case {
    name: "gather",
    about: "the sum over all representatives of a distributed counter",
    variants: &[
        variant("reps-1", "one representative"),
        variant("reps-2", "two representatives"),
        variant("reps-8", "eight representatives"),
        variant("reps-32", "32 representatives"),
        variant("reps-64", "64 representatives"),
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
