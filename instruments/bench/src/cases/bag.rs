//! `bag`: a word put into an unordered pool, and a word got from it. `bag-asym`: one half of the threads only
//! put, the other half only get.
//!
//! - `balanced`: each thread puts a word and gets one. The pool is nearly empty.
//! - `burst-64`: each thread puts 64 words and gets 64. An operation is still one pair.
//! - `bag-asym`: threads form pairs of one that puts and one that gets. The one that puts is at most 4096
//!   words ahead. An operation is a word, and its time that of a pair of threads. A thread without a partner
//!   puts 64 words and gets 64 by turns.
//!
//! `squall-shared`, `squall-distributed` and `squall`, the adaptive one, are the objects of
//! `squall::objects::bag`, called through a handle. `squall-part` is the part that they consist of. No thread
//! calls `idle`, so elements move only on demand. `vec-per-thread` is the floor: each thread has a vector of
//! its own.

use concurrent_queue::ConcurrentQueue;
use crossbeam_queue::SegQueue;
use squall::parts::bag::Bag as Part;

use crate::case::{Case, PLAIN, Scale, Spec, Variant};
use crate::ours_bag::{AdaptiveBag, DistributedBag, SharedBag};
use crate::rivals::bags::{Deques, LockedVec, VecPerThread};
use crate::work::bag::{BURST, asymmetric, pairs};

pub(super) static BAG: Case = Case {
    name: "bag",
    about: "a word put into an unordered pool that all threads use, and a word got from it",
    variants: &[
        Variant { name: "balanced", about: "each thread puts a word and gets one", ..PLAIN },
        Variant { name: BURST, about: "each thread puts 64 words and gets 64", ..PLAIN },
    ],
    subjects: &[
        Spec::ours("squall", pairs::<AdaptiveBag>()),
        Spec::ours("squall-shared", pairs::<SharedBag>()),
        Spec::ours("squall-distributed", pairs::<DistributedBag>()),
        Spec::ours("squall-part", pairs::<Part<u64>>()),
        Spec::rival("segqueue", pairs::<SegQueue<u64>>()),
        Spec::rival("concurrent-queue", pairs::<ConcurrentQueue<u64>>()),
        Spec::rival("crossbeam-deque", pairs::<Deques>()),
        Spec::rival("locked-vec", pairs::<LockedVec>()),
        Spec::rival("vec-per-thread", pairs::<VecPerThread>()),
    ],
    scale: Scale::Work,
    slice_ms: (20, 5),
    thread_range: false,
    metrics: None,
    default_threads: &[1, 2, 8],
};

pub(super) static ASYM: Case = Case {
    name: "bag-asym",
    about: "a word that goes through an unordered pool from a thread that only puts to one that only gets",
    variants: &[PLAIN],
    subjects: &[
        Spec::ours("squall", asymmetric::<AdaptiveBag>()),
        Spec::ours("squall-shared", asymmetric::<SharedBag>()),
        Spec::ours("squall-distributed", asymmetric::<DistributedBag>()),
        Spec::ours("squall-part", asymmetric::<Part<u64>>()),
        Spec::rival("segqueue", asymmetric::<SegQueue<u64>>()),
        Spec::rival("concurrent-queue", asymmetric::<ConcurrentQueue<u64>>()),
        Spec::rival("crossbeam-deque", asymmetric::<Deques>()),
        Spec::rival("locked-vec", asymmetric::<LockedVec>()),
    ],
    scale: Scale::Work,
    slice_ms: (20, 5),
    thread_range: false,
    metrics: None,
    default_threads: &[1, 2, 8],
};
