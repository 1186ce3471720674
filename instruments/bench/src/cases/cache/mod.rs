//! `cache`: bounded caches of words, with their default settings and one hasher.
//!
//! | variant | an operation |
//! |---|---|
//! | `hit-10k`, `hit-1m` | a lookup of a present key; the capacity is twice the keys |
//! | `mixed-95` | likewise, and one in twenty replaces the value of a present key |
//! | `churn` | a lookup of one of a million keys by Zipf's law, and an insertion if it is absent |
//! | `load` | likewise, by the cache's single flight; caches without one take no part |
//! | `memory`, `trace-*` | metrics only: see `memory.rs` and `ratio.rs` |
//!
//! The keys are drawn beforehand, equal for all subjects (`plan.rs`). `work.rs` does the operations.
//!
//! - I1. The value of each key is [`value_of`] it. Each value that an operation reads is checked.

mod draw;
mod memory;
mod plan;
mod ratio;
mod trace;
mod work;

use crate::case::{Case, PLAIN, Scale, Setting, Spec, Variant, variant};
#[cfg(not(feature = "rivals"))]
use crate::case::{Missing, Subject};
use crate::ours_cache::{Frequency, SampledLru};
use crate::rivals::caches::{LockedLru, MiniMoka, Moka, QuickCache};

/// A variant with metrics alone.
const fn counted(name: &'static str, about: &'static str) -> Variant {
    Variant { name, about, threads: Some(1), thorough: true, ..PLAIN }
}

pub(super) static CASE: Case = Case {
    name: "cache",
    about: "one lookup in a bounded cache that all threads use, and an insertion if the key is absent",
    variants: &[
        variant("hit-10k", "10,000 present keys"),
        variant("hit-1m", "1,000,000 present keys"),
        variant("mixed-95", "10,000 present keys, and 5 in 100 operations replace a value"),
        variant("churn", "1,000,000 keys by Zipf's law, of which a tenth fits"),
        variant("load", "like `churn`, by a function that loads an absent key once"),
        counted("memory", "bytes for each entry of a full cache"),
        counted("trace-zipf08", "hit ratios: 1,000,000 keys by Zipf's law with exponent 0.8"),
        counted("trace-zipf09", "hit ratios: likewise, 0.9"),
        counted("trace-zipf10", "hit ratios: likewise, 1.0"),
        counted("trace-zipf11", "hit ratios: likewise, 1.1"),
        counted("trace-scan", "hit ratios: likewise, 0.9, and one request in ten is for a new key"),
        counted("trace-loop", "hit ratios: requests for a tenth more keys than fit, in turn"),
        counted("trace-shift", "hit ratios: 0.9, and all keys change their frequency at half-time"),
        counted("trace-mean", "the mean of the hit ratios of all traces"),
    ],
    subjects: &[
        Spec::ours("squall", work::with_loads::<Frequency>()),
        Spec::ours("squall-lru", work::with_loads::<SampledLru>()),
        Spec::rival("quick-cache", work::with_loads::<QuickCache>()),
        Spec::rival("moka", work::with_loads::<Moka>()),
        Spec::rival("mini-moka", work::without_loads::<MiniMoka>()),
        #[cfg(feature = "rivals")]
        Spec::rival("foyer-s3fifo", work::without_loads::<crate::rivals::caches::Foyer>()),
        #[cfg(not(feature = "rivals"))]
        Spec::rival("foyer-s3fifo", foyer_is_missing),
        Spec::rival("lru-mutex", work::without_loads::<LockedLru>()),
    ],
    scale: Scale::Work,
    slice_ms: (60, 20),
    thread_range: false,
    metrics: Some(metrics),
    default_threads: &[1, 2],
};

/// Calls a generic function for each cache that is built in. Returns the names and the results.
macro_rules! each {
    ($call:ident, $argument:expr) => {{
        use crate::ours_cache::{Frequency, SampledLru};
        use crate::rivals::caches::{LockedLru, MiniMoka, Moka, QuickCache};
        vec![
            ("squall", $call::<Frequency>($argument)),
            ("squall-lru", $call::<SampledLru>($argument)),
            ("quick-cache", $call::<QuickCache>($argument)),
            ("moka", $call::<Moka>($argument)),
            ("mini-moka", $call::<MiniMoka>($argument)),
            #[cfg(feature = "rivals")]
            ("foyer-s3fifo", $call::<crate::rivals::caches::Foyer>($argument)),
            ("lru-mutex", $call::<LockedLru>($argument)),
        ]
    }};
}
use each;

#[cfg(not(feature = "rivals"))]
fn foyer_is_missing(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
    if !plan::is_timed(setting.variant) || setting.variant.name == "load" {
        return Err(Missing::no_part());
    }
    Err(Missing("squall was built without its feature `rivals`".to_owned()))
}

/// The metrics of a variant; a timed one has only those of its subjects.
fn metrics(setting: &Setting, _: bool) -> Result<Vec<(String, f64)>, String> {
    match setting.variant.name {
        "memory" => memory::measure(),
        name => ratio::measure(name),
    }
}

/// The value of a key.
#[inline(always)]
fn value_of(key: u64) -> u64 {
    !key
}
