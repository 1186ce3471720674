//! `call`: one call of a trivial method on an object that all threads share and that is not replaced during
//! the run.
//!
//! Every subject reaches one type through one method of one `dyn` trait. The method is not inlined; it adds
//! its argument to a field. The reference is read from memory for each call, and the compiler cannot know its
//! target. Calls are independent, as in a server's loop, so the processor may overlap them. The time of a
//! rival less that of `arc-dyn` is the price of an object that may be destroyed or replaced during calls.
//! `arc-dyn` itself allows neither. `squall-swapped` is `squall` after a hundred swaps, which must leave no
//! cost behind.

use crate::case::{Case, PLAIN, Scale, Spec};
use crate::ours_core;
use crate::rivals::{arcdyn, arcswap, epoch, hazarc, seize};

pub(super) static CASE: Case = Case {
    name: "call",
    about: "one call of a trivial method of a shared object",
    variants: &[PLAIN],
    subjects: &[
        Spec::ours("squall", ours_core::CALL),
        Spec::ours("squall-swapped", ours_core::CALL_SWAPPED),
        Spec::rival("arc-dyn", arcdyn::CALL),
        Spec::rival("crossbeam-epoch", epoch::CALL),
        Spec::rival("seize", seize::CALL),
        Spec::rival("arc-swap", arcswap::CALL),
        Spec::rival("hazarc", hazarc::CALL),
    ],
    scale: Scale::Work,
    slice_ms: (20, 5),
    thread_range: false,
    metrics: None,
    default_threads: &[],
};
