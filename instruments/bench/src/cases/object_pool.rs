//! `object-pool`: a buffer of 1 KiB taken from a pool, used once, and given back.
//!
//! The pool has 16 buffers, or as many as there are threads. No thread waits.
//!
//! - `sync`: a thread takes and gives back, one buffer after the other.
//! - `async`: a task does, 256 times per task. Each thread has a runtime of its own.
//!
//! `squall` is the adaptive `squall::objects::pool::ObjectPool`, with that maximum size in `async`, and
//! `squall-distributed` the one of that form. They make buffers when they need them, and each thread begins
//! with one.

use squall::objects::pool::ObjectPool;

use crate::case::{Case, PLAIN, Scale, Spec, Variant};
use crate::ours_bag::{Bounded, DistributedPool};
use crate::rivals::object_pools::{Deadpool, LockedVec, LockfreeObjectPool, ObjectPoolCrate, Opool};
use crate::work::object_pool::{ASYNC, Buffer, lending, lending_async, lending_both};

pub(super) static CASE: Case = Case {
    name: "object-pool",
    about: "an object taken from a pool, used once, and given back, without waiting",
    variants: &[
        Variant { name: "sync", about: "by threads", ..PLAIN },
        Variant { name: ASYNC, about: "by tasks", ..PLAIN },
    ],
    subjects: &[
        Spec::ours("squall", lending_both::<ObjectPool<Buffer>, Bounded>()),
        Spec::ours("squall-distributed", lending::<DistributedPool>()),
        Spec::rival("object-pool-crate", lending::<ObjectPoolCrate>()),
        Spec::rival("lockfree-object-pool", lending::<LockfreeObjectPool>()),
        Spec::rival("opool", lending::<Opool>()),
        Spec::rival("locked-vec", lending::<LockedVec>()),
        Spec::rival("deadpool", lending_async::<Deadpool>()),
    ],
    scale: Scale::Work,
    slice_ms: (20, 5),
    thread_range: false,
    metrics: None,
    default_threads: &[1, 2, 8],
};
