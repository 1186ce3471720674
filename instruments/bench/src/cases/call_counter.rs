//! `call-counter`: an addition to a counter in another process. All clients call one counter.
//!
//! The server runs on the caller's processor, as in the variant `same-core` of `call-process`. There are four
//! counters: a word under a lock, an atomic word, an array with a word for each processor, and such an array
//! with padding. Source: Appavoo 2005, figure 3.1.

use crate::case::{Case, PLAIN, Scale, Spec};
use crate::cases::call_process::calling;
use crate::ours_call::{ARRAY, ATOMIC, LOCKED, PADDED};

pub(super) static CASE: Case = Case {
    name: "call-counter",
    about: "an addition to a counter in another process, which all clients call",
    variants: &[PLAIN],
    subjects: &[
        Spec::ours(LOCKED.name, |setting| calling(&LOCKED, setting)),
        Spec::ours(ATOMIC.name, |setting| calling(&ATOMIC, setting)),
        Spec::ours(ARRAY.name, |setting| calling(&ARRAY, setting)),
        Spec::ours(PADDED.name, |setting| calling(&PADDED, setting)),
    ],
    scale: Scale::Latency,
    slice_ms: (40, 10),
    thread_range: false,
    metrics: None,
    default_threads: &[1],
};
