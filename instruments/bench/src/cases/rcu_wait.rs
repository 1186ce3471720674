//! `rcu-wait`: time until unlinked memory may be freed.
//!
//! For Squall and liburcu it is one grace period, awaited by each thread. The other libraries have no such
//! call. For them it is the time from retiring an object until its destructor has run, with the library
//! pushed as its docs allow. A hazard pointer protects one object, so `haphazard` waits only for the readers
//! of that object. `--threads` is the number of waiters; the readers of a variant are added.

use crate::case::{Case, PLAIN, Reading, Scale, Spec, Variant};
use crate::ours_rcu;
use crate::rivals::{epoch, hazard, seize, urcu};

pub(super) static CASE: Case = Case {
    name: "rcu-wait",
    about: "one wait until all memory that readers could have seen may be freed",
    variants: &[
        Variant {
            name: "busy-reader",
            about: "one more thread reads without a pause, on its own processor if there is one",
            background: |_| 1,
            ..PLAIN
        },
        Variant {
            name: "idle",
            about: "one more thread has read once and sleeps",
            background: |_| 1,
            reading: Reading::Once,
            ..PLAIN
        },
        Variant {
            name: "oversubscribed",
            about: "twice as many readers as processors, a millisecond between waits; the scheduler sets the time",
            background: |processors| 2 * processors,
            spaced: true,
            ..PLAIN
        },
    ],
    subjects: &[
        Spec::ours("squall", ours_rcu::wait),
        Spec::ours("squall-expedited", ours_rcu::wait_expedited),
        Spec::rival("crossbeam-epoch", epoch::wait),
        Spec::rival("seize", seize::wait),
        Spec::rival("haphazard", hazard::wait),
        Spec::rival("liburcu-memb", urcu::memb_wait),
        Spec::rival("liburcu-qsbr", urcu::qsbr_wait),
    ],
    scale: Scale::Latency,
    // Long enough for the scheduler to act when readers outnumber processors.
    slice_ms: (80, 40),
    thread_range: false,
    metrics: None,
    default_threads: &[],
};
