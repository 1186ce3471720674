//! `percpu`: one addition to a counter that every thread of the machine adds to.
//!
//! The rivals range from one shared word to words of a single thread. So the case shows the cost of sharing,
//! and the cost of its cure without sharing. `percpu-paced` is the experiment of Tornado's figure 1. The
//! threads pause between additions, so the counter is never contended. The shared forms are slow
//! nevertheless, because the line has moved away meanwhile.
//!
//! Source: Gamsa, Krieger, Appavoo, Stumm, "Tornado", OSDI 1999, figure 1.

use crate::case::{Case, PLAIN, Scale, Spec};
use crate::ours_machine::PerVp;
use crate::rivals::counters::{LockedAdd, Paced, PauseOnly, ThreadLocal, Tight, counting};

/// Lists the subjects of a case that counts at pace `$pace`: `$first`, then the rivals of every such case.
/// `$plain` follow the other plain counters.
macro_rules! counters {
    ($pace:ty, [$($first:expr),+], [$($plain:expr),*] $(,)?) => {{
        use $crate::rivals::counters::{Atomic, Contatori, FastCounter, Locked, Padded, Unpadded};
        &[
            $($first,)+
            Spec::rival("mutex", counting::<Locked, $pace>()),
            Spec::rival("atomic", counting::<Atomic, $pace>()),
            Spec::rival("unpadded", counting::<Unpadded, $pace>()),
            Spec::rival("padded", counting::<Padded, $pace>()),
            $($plain,)*
            Spec::rival("contatori", counting::<Contatori, $pace>()),
            Spec::rival("fast-counter", counting::<FastCounter, $pace>()),
        ]
    }};
}
pub(super) use counters;

pub(super) static PERCPU: Case = Case {
    name: "percpu",
    about: "one addition to a counter that all threads add to, as fast as they can",
    variants: &[PLAIN],
    subjects: counters!(
        Tight,
        [Spec::ours("squall", counting::<PerVp, Tight>())],
        [
            Spec::rival("locked-add", counting::<LockedAdd, Tight>()),
            Spec::rival("thread-local", counting::<ThreadLocal, Tight>())
        ],
    ),
    scale: Scale::Work,
    slice_ms: (20, 5),
    thread_range: false,
    metrics: None,
    default_threads: &[],
};

pub(super) static PACED: Case = Case {
    name: "percpu-paced",
    about: "one addition with a pause after it, so that threads rarely meet; the pause's time is subtracted",
    variants: &[PLAIN],
    subjects: counters!(
        Paced,
        [
            Spec::baseline("pause", counting::<PauseOnly, Paced>()),
            Spec::ours("squall", counting::<PerVp, Paced>())
        ],
        [
            Spec::rival("locked-add", counting::<LockedAdd, Paced>()),
            Spec::rival("thread-local", counting::<ThreadLocal, Paced>())
        ],
    ),
    scale: Scale::Work,
    slice_ms: (20, 5),
    thread_range: false,
    metrics: None,
    default_threads: &[],
};
