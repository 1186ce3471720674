//! `ship`: an update of data that another processor wrote last: moved to the caller, or done where it lies.
//!
//! The data is a number of cache lines with a word in each. Before each operation, outside the measured time,
//! the other processor writes all of them. The operation then adds one to each word. For `moved-lines` the
//! caller does that, and each line moves to it. For the others the caller ships a closure to the other
//! processor and waits for its result. In `squall-ship` a thread there serves by itself, so it runs all the
//! time. In `squall-asleep` the thread that serves was made on demand and sleeps before each operation. In
//! the variant `own` the target is the caller's own cluster, and the data one word.
//!
//! The break-even is the number of lines from which `squall-ship` is faster than `moved-lines`. Loads of
//! different lines overlap, so it is higher than the ratio of a call to a single move.
//!
//! Source: Gamsa et al. 1999, §6 (TO-04): remote execution pays off from a few tens of cache misses.

use crate::case::{Case, PLAIN, Scale, Spec, Variant};
use crate::ours_ship;

const fn lines(name: &'static str, about: &'static str) -> Variant {
    Variant { name, about, background: |_| 1, threads: Some(1), ..PLAIN }
}

pub(super) static CASE: Case = Case {
    name: "ship",
    about: "one update of lines that another processor wrote",
    variants: &[
        Variant { name: ours_ship::OWN, about: "a call to the caller's own cluster", ..PLAIN },
        lines("lines-1", "one line"),
        lines("lines-4", "four lines"),
        lines("lines-16", "16 lines"),
        lines("lines-64", "64 lines"),
        lines("lines-256", "256 lines"),
    ],
    subjects: &[
        Spec::ours("squall-ship", ours_ship::served),
        Spec::ours("squall-asleep", ours_ship::asleep),
        Spec::rival("moved-lines", ours_ship::moved),
    ],
    scale: Scale::Latency,
    slice_ms: (40, 10),
    thread_range: false,
    metrics: None,
    default_threads: &[],
};
