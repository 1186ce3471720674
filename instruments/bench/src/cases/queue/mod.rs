//! `queue`: an element got from a priority queue of a constant size, and put back with a random priority.
//!
//! - `strict-10k`, `strict-1m`: the order is exact. The number is that of the elements.
//! - `relaxed-10k`, `relaxed-1m`: a get may return an element behind the first one.
//! - `local-10k`: each thread gets the first element of its own heap. `squall-part` balances the heaps, and
//!   `squall-part-unbalanced` does not. `heap-per-thread` is the floor.
//! - `rank`: the quality of the order, counted and not timed ([`rank`]).
//!
//! The load is that of the papers about multi-queues: threads get and put by turns, with priorities from all
//! 64-bit numbers. `squall-part` is the part `squall::parts::queue`, wired by hand. `squall-object` is an
//! object of `squall::objects::queue`: its calls honour attributes and policies. The rivals that keep an
//! exact order take part in each variant.

mod rank;

use squall::parts::queue::Queue as Part;

use crate::case::{Case, PLAIN, Scale, Spec, Variant, variant};
use crate::ours_queue::{Object, Unbalanced};
use crate::rivals::queues::{HeapPerThread, ParkingLotHeap, SkipList, StdHeap, Tree};
use crate::work::queue::steady;

pub(super) static CASE: Case = Case {
    name: "queue",
    about: "an element got from a priority queue of a constant size, and put back with a random priority",
    variants: &[
        variant("strict-10k", "10,000 elements, and each get returns the first one"),
        Variant { thorough: true, ..variant("strict-1m", "1,000,000 elements, in an exact order") },
        variant("relaxed-10k", "10,000 elements, and each get returns one of the first"),
        Variant { thorough: true, ..variant("relaxed-1m", "1,000,000 elements, in a relaxed order") },
        variant("local-10k", "10,000 elements, and each get returns the first one of the thread's own heap"),
        Variant {
            name: rank::NAME,
            about: "elements before each one that was got: clients take turns in one thread; counted",
            threads: Some(1),
            ..PLAIN
        },
    ],
    subjects: &[
        Spec::ours("squall-part", steady::<Part<u64>>()),
        Spec::ours("squall-object", steady::<Object>()),
        Spec::ours("squall-part-unbalanced", steady::<Unbalanced>()),
        Spec::rival("std-mutex-heap", steady::<StdHeap>()),
        Spec::rival("parking-lot-heap", steady::<ParkingLotHeap>()),
        Spec::rival("crossbeam-skiplist", steady::<SkipList>()),
        Spec::rival("scc-tree", steady::<Tree>()),
        Spec::rival("heap-per-thread", steady::<HeapPerThread>()),
    ],
    scale: Scale::Work,
    slice_ms: (20, 5),
    thread_range: false,
    metrics: Some(rank::measure),
    default_threads: &[1, 2, 8],
};
