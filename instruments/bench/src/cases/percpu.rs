//! `percpu`: one addition to a counter that every thread of the machine adds to.
//!
//! The rivals run from one shared word to words that no two threads share, so the case shows both what sharing costs
//! and what the cure costs where there is nothing to share. `percpu-paced` is the experiment of Tornado's figure 1:
//! the threads pause between additions, so that the counter is never contended, and still the shared forms are slow,
//! because the line has moved away meanwhile.
//!
//! Source: Gamsa, Krieger, Appavoo, Stumm, "Tornado", OSDI 1999, figure 1.

use crate::case::{Case, PLAIN, Scale, Spec};
use crate::ours_machine::PerVp;
use crate::rivals::counters::{LockedAdd, Paced, PauseOnly, ThreadLocal, Tight, counting};

/// The subjects of a case that counts at pace `$pace`: `$first`, and the rivals of every such case, in which `$plain`
/// follow the other plain ways to count.
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
    about: "the same with a pause after each addition, so that threads hardly meet; the pause's own time is subtracted",
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
