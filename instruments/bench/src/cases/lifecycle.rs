//! `lifecycle`: an object is created, called once and destroyed.
//!
//! The object has one field and one interface. `squall` makes it with `shared`, calls it (a miss), and drops
//! its owner. `crossbeam-epoch` puts it behind an atomic pointer, and under one pin calls it, unlinks it and
//! defers its drop. That is the usual hand-written code for an object that may go at any time. Its objects
//! have one known type, which saves it the second allocation of a `dyn` behind a one-word pointer. `arc-dyn`
//! makes, calls and drops an `Arc`: the floor, where every reference keeps the object alive.
//!
//! An operation counts as done when the object has been *dropped* (as in `rcu-retire`). An object that still
//! waits for a grace period when the slice ends is not counted, and is reclaimed outside the measured time.
//! The first thread samples the number of waiting objects every few hundred operations: `SUBJECT_peak_items`.

use crate::case::{Case, PLAIN, Scale, Spec};
use crate::ours_core;
use crate::rivals::{arcdyn, epoch};

pub(super) static CASE: Case = Case {
    name: "lifecycle",
    about: "one object created, called once, destroyed and reclaimed",
    variants: &[PLAIN],
    subjects: &[
        Spec::ours("squall", ours_core::LIFECYCLE),
        Spec::rival("crossbeam-epoch", epoch::LIFECYCLE),
        Spec::rival("arc-dyn", arcdyn::LIFECYCLE),
    ],
    scale: Scale::Work,
    slice_ms: (50, 40),
    thread_range: true,
    metrics: Some(super::object_memory::accounted),
    default_threads: &[],
};
