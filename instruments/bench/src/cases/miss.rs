//! `miss`: a call that finds no entry in its processor's translation table.
//!
//! A miss happens once per object and processor, so each needs a new object. A batch of objects is made, each
//! is called once, and they are destroyed. Only the first calls are timed; the rest is `uncounted`. Ids of
//! destroyed objects are used again. So after the first batches the pages of the tables exist, as in a
//! program that has run for a while.
//!
//! The case has no rival: other libraries have no call that is slow at first. Compare it with `lifecycle`,
//! which contains a miss, and with `call`.

use crate::case::{Case, PLAIN, Scale, Spec, Variant};
use crate::ours_core;

pub(super) static CASE: Case = Case {
    name: "miss",
    about: "one call of an object without an entry in the processor's table",
    variants: &[
        Variant {
            name: "cached",
            about: "a shared object's first call here: finds its representative and installs the entry",
            ..PLAIN
        },
        Variant {
            name: "make-rep",
            about: "a distributed object's first call: makes a representative and installs the entry",
            ..PLAIN
        },
        Variant {
            name: "once",
            about: "an object that bypasses the tables: finds its representative at each call",
            ..PLAIN
        },
    ],
    subjects: &[Spec::ours("squall", ours_core::miss)],
    scale: Scale::Work,
    slice_ms: (50, 20),
    thread_range: false,
    metrics: None,
    default_threads: &[],
};
