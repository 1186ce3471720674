//! `rcu-retire`: throughput of retiring and reclaiming, and the number of items that wait for it.
//!
//! In one operation a thread allocates an item of 64 bytes and reads the item of the next thread in a read
//! section. It then puts the new item into its own slot and retires the old one. Every thread reads another's
//! slot, so an item can never be freed at once. An operation counts as done when an item has been
//! *reclaimed*. Items still waiting when the slice ends do not count, so a delay gains no advantage. They are
//! reclaimed outside the measured time.
//!
//! Metrics: `SUBJECT_peak_items` and `SUBJECT_peak_bytes` are the most items retired and not yet dropped, and
//! their bytes. Each thread samples every few hundred operations. The bytes are the items' own, without the
//! library's bookkeeping. `SUBJECT_thread_range`: slowest less fastest thread, divided by the mean.
//!
//! Source: Gamsa et al., "Tornado", OSDI 1999, figure 8 (n threads reclaiming independently; bars are the
//! range over the threads).

use crate::case::{Case, PLAIN, Scale, Spec};
use crate::ours_rcu;
use crate::rivals::{epoch, hazard, seize, urcu};

pub(super) static CASE: Case = Case {
    name: "rcu-retire",
    about: "one item of 64 bytes allocated, published, retired and reclaimed, with a read of another thread's item",
    variants: &[PLAIN],
    subjects: &[
        Spec::ours("squall", ours_rcu::retire),
        Spec::rival("crossbeam-epoch", epoch::retire),
        Spec::rival("seize", seize::retire),
        Spec::rival("haphazard", hazard::retire),
        Spec::rival("liburcu-memb", urcu::memb_retire),
        Spec::rival("liburcu-qsbr", urcu::qsbr_retire),
    ],
    scale: Scale::Work,
    slice_ms: (50, 40),
    thread_range: true,
    metrics: None,
    default_threads: &[],
};
