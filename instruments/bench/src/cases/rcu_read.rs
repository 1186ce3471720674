//! `rcu-read`: enter, load a shared pointer, read one word through it, leave.
//!
//! These four steps are the smallest useful read section. No pointer is replaced during the run, so every
//! line stays in the reader's cache, and the figure is the cost of the protection itself.

use crate::case::{Case, PLAIN, Scale, Spec};
use crate::ours_rcu;
use crate::rivals::{arcswap, epoch, hazard, seize, urcu};

pub(super) static CASE: Case = Case {
    name: "rcu-read",
    about: "one read section with one dependent load: enter, load a shared pointer, read a word through it, leave",
    variants: &[PLAIN],
    subjects: &[
        Spec::ours("squall", ours_rcu::read),
        Spec::rival("crossbeam-epoch", epoch::read),
        Spec::rival("seize", seize::read),
        Spec::rival("haphazard", hazard::read),
        Spec::rival("arc-swap", arcswap::read),
        Spec::rival("liburcu-memb", urcu::memb_read),
        Spec::rival("liburcu-qsbr", urcu::qsbr_read),
    ],
    scale: Scale::Work,
    slice_ms: (20, 5),
    thread_range: false,
    metrics: None,
    default_threads: &[],
};
