//! `counter`: one addition to a counter that every thread adds to, an object behind a handle.
//!
//! The subjects of ours are the counters of `squall-objects`, called through a `Handle<dyn Counter>`.
//! `squall-shared` has one representative, at home on the first thread's processor: plain additions there,
//! atomic ones from elsewhere. `squall-distributed` has one representative per processor, which adds to its
//! own word by a restartable sequence, or atomically in the fallback. `squall-adaptive` starts shared, and is
//! distributed by its policy while the slices are calibrated. The rivals of `percpu` are plain structures
//! called directly, so only our figures contain the price of the handle.

use super::percpu::counters;
use crate::case::{Case, PLAIN, Scale, Spec};
use crate::ours_adapt;
use crate::rivals::counters::{Tight, counting};

pub(super) static CASE: Case = Case {
    name: "counter",
    about: "one addition to a counter that all threads add to: an object, shared or spread over the processors",
    variants: &[PLAIN],
    subjects: counters!(
        Tight,
        [
            Spec::ours("squall-shared", ours_adapt::SHARED),
            Spec::ours("squall-distributed", ours_adapt::DISTRIBUTED),
            Spec::ours("squall-adaptive", ours_adapt::ADAPTIVE)
        ],
        [],
    ),
    scale: Scale::Work,
    slice_ms: (20, 5),
    thread_range: false,
    metrics: None,
    default_threads: &[],
};
