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
use crate::rivals::counters::{
    Atomic, Contatori, FastCounter, Locked, LockedAdd, Paced, Padded, PauseOnly, ThreadLocal, Tight,
    Unpadded, counting,
};

pub(super) static PERCPU: Case = Case {
    name: "percpu",
    about: "one addition to a counter that all threads add to, as fast as they can",
    variants: &[PLAIN],
    subjects: &[
        Spec::ours("squall", counting::<PerVp, Tight>()),
        Spec::rival("mutex", counting::<Locked, Tight>()),
        Spec::rival("atomic", counting::<Atomic, Tight>()),
        Spec::rival("unpadded", counting::<Unpadded, Tight>()),
        Spec::rival("padded", counting::<Padded, Tight>()),
        Spec::rival("locked-add", counting::<LockedAdd, Tight>()),
        Spec::rival("thread-local", counting::<ThreadLocal, Tight>()),
        Spec::rival("contatori", counting::<Contatori, Tight>()),
        Spec::rival("fast-counter", counting::<FastCounter, Tight>()),
    ],
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
    subjects: &[
        Spec::baseline("pause", counting::<PauseOnly, Paced>()),
        Spec::ours("squall", counting::<PerVp, Paced>()),
        Spec::rival("mutex", counting::<Locked, Paced>()),
        Spec::rival("atomic", counting::<Atomic, Paced>()),
        Spec::rival("unpadded", counting::<Unpadded, Paced>()),
        Spec::rival("padded", counting::<Padded, Paced>()),
        Spec::rival("locked-add", counting::<LockedAdd, Paced>()),
        Spec::rival("thread-local", counting::<ThreadLocal, Paced>()),
        Spec::rival("contatori", counting::<Contatori, Paced>()),
        Spec::rival("fast-counter", counting::<FastCounter, Paced>()),
    ],
    scale: Scale::Work,
    slice_ms: (20, 5),
    thread_range: false,
    metrics: None,
    default_threads: &[],
};
