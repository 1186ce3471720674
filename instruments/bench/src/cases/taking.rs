//! `id-pool`: an id taken from a pool and given back. `page-pool`: a page of 4 KiB taken, written once, and
//! given back.
//!
//! `squall-*` are the objects of `squall::objects::ids` and `pages`, called through their handles; `squall`
//! is the adaptive form. A pool has 65,536 ids or at most 4096 pages. Ids of Squall return in rounds, so that
//! each is reused late. `sharded-slab` gives keys that are not dense. `glibc` allocates and frees a page: the
//! floor.

use crate::case::{Case, PLAIN, Scale, Spec};
use crate::ours_bag::{AdaptiveIds, AdaptivePages, DistributedIds, DistributedPages, SharedIds, SharedPages};
use crate::rivals::taking::{Allocated, LockedIds, LockedPages, Slab};
use crate::work::taking::taking;

pub(super) static IDS: Case = Case {
    name: "id-pool",
    about: "an id taken from a pool that all threads use, and given back",
    variants: &[PLAIN],
    subjects: &[
        Spec::ours("squall", taking::<AdaptiveIds>()),
        Spec::ours("squall-shared", taking::<SharedIds>()),
        Spec::ours("squall-distributed", taking::<DistributedIds>()),
        Spec::rival("sharded-slab", taking::<Slab>()),
        Spec::rival("locked-vec", taking::<LockedIds>()),
    ],
    scale: Scale::Work,
    slice_ms: (20, 5),
    thread_range: false,
    metrics: None,
    default_threads: &[1, 2, 8],
};

pub(super) static PAGES: Case = Case {
    name: "page-pool",
    about: "a page taken from a pool that all threads use, written once, and given back",
    variants: &[PLAIN],
    subjects: &[
        Spec::ours("squall", taking::<AdaptivePages>()),
        Spec::ours("squall-shared", taking::<SharedPages>()),
        Spec::ours("squall-distributed", taking::<DistributedPages>()),
        Spec::rival("locked-vec", taking::<LockedPages>()),
        Spec::rival("glibc", taking::<Allocated>()),
    ],
    scale: Scale::Work,
    slice_ms: (20, 5),
    thread_range: false,
    metrics: None,
    default_threads: &[1, 2, 8],
};
