//! `percpu`: one addition to a counter that every thread of the machine adds to.
//!
//! The rivals range from one shared word to words of a single thread. So the case shows the cost of sharing
//! and the cost of avoiding it. `percpu-paced` is the experiment of Tornado's figure 1. The threads pause
//! between additions, so the counter is not contended. Even so, shared counters are slow, because another
//! processor has taken the line during the pause.
//!
//! Source: Gamsa, Krieger, Appavoo, Stumm, "Tornado", OSDI 1999, figure 1.

use crate::case::{Case, PLAIN, Scale, Spec};
use crate::ours_machine::PerVp;
use crate::rivals::counters::{LockedAdd, Paced, PauseOnly, ThreadLocal, Tight, counting};

/// Lists the subjects of a counting case: first `$first`, then the rivals that all such cases share. `$plain`
/// are further rivals, listed after the shared plain counters. The type `$pace` says whether threads pause
/// between additions.
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
