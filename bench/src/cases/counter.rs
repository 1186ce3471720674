//! `counter`: one addition to a counter that every thread adds to, as an object behind a reference.
//!
//! `squall-shared` is an object with one representative, an atomic word. `squall-distributed` is an object with a
//! representative for each processor, which adds to its own word by a restartable sequence, or atomically where there
//! are none. Both are called through the same `CoRef<dyn Hits>`. The rivals, those of `percpu`, are plain structures
//! called directly, so that the price of the reference is in our figures and not in theirs.

use super::percpu::counters;
use crate::case::{Case, PLAIN, Scale, Spec};
use crate::ours_core::{Distributed, Shared};
use crate::rivals::counters::{Tight, counting};

pub(super) static CASE: Case = Case {
    name: "counter",
    about: "one addition to a counter that all threads add to: an object, shared or spread over the processors",
    variants: &[PLAIN],
    subjects: counters!(
        Tight,
        [
            Spec::ours("squall-shared", counting::<Shared, Tight>()),
            Spec::ours("squall-distributed", counting::<Distributed, Tight>())
        ],
        [],
    ),
    scale: Scale::Work,
    slice_ms: (20, 5),
    thread_range: false,
    metrics: None,
    default_threads: &[],
};
