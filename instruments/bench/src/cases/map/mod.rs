//! `map-get`, `map-mixed`, `map-churn`, `map-memory`, `map-adapt`: a map that all threads use.
//!
//! - `map-get`: one lookup of a present key, which reads its value.
//! - `map-mixed`: reads and writes. Half of the writes add one to a present key's value, a quarter insert an
//!   absent key, a quarter remove a present one. The size stays.
//! - `map-churn`: each thread alternately inserts a key and removes its oldest one. The whole content changes
//!   again and again.
//! - `map-memory`, `map-adapt`: see their files.
//!
//! The operations are drawn beforehand, equal for all subjects (`plan.rs`), and their results are checked
//! (`work.rs`). `shape.rs` parses the names of variants.

mod adapt;
mod keys;
mod memory;
mod plan;
mod shape;
mod work;

use crate::case::{Case, Scale, Spec};
#[cfg(not(feature = "rivals"))]
use crate::case::{Missing, Setting, Subject};
use crate::ours_map::{Adaptive, Constituent, OneLock, Replicated, Shared};
use crate::rivals::maps::{Dash, Locked, Papaya, SccHashIndex, SccHashMap};

pub(super) use adapt::CASE as ADAPT;
pub(crate) use keys::Key;
pub(super) use keys::scatter;
pub(super) use memory::CASE as MEMORY;
pub(super) use plan::{below, zipf};
pub(crate) use shape::{Hasher, Keys, Shape};

#[cfg(test)]
pub(crate) fn sizes() -> &'static [crate::case::Variant] {
    shape::SIZES
}

#[cfg(not(feature = "rivals"))]
fn flurry_is_missing(_: &Setting) -> Result<Box<dyn Subject>, Missing> {
    Err(Missing("squall was built without its feature `rivals`".to_owned()))
}

/// Long enough that a large map's hot part is cached for most of a slice: the other subjects' slices evict
/// it.
const SLICE_MS: (u64, u64) = (60, 20);

/// All maps, each as `$make` makes its subject.
macro_rules! subjects {
    ($make:path) => {{
        use $make as make;
        &[
            Spec::ours("squall-table", make::<Constituent>()),
            Spec::ours("squall-central", make::<Shared>()),
            Spec::ours("squall-locked", make::<OneLock>()),
            Spec::ours("squall-replicated", make::<Replicated>()),
            Spec::ours("squall-adaptive", make::<Adaptive>()),
            Spec::rival("dashmap", make::<Dash>()),
            Spec::rival("papaya", make::<Papaya>()),
            Spec::rival("scc-hashmap", make::<SccHashMap>()),
            Spec::rival("scc-hashindex", make::<SccHashIndex>()),
            #[cfg(feature = "rivals")]
            Spec::rival("flurry", make::<crate::rivals::maps::Flurry>()),
            #[cfg(not(feature = "rivals"))]
            Spec::rival("flurry", flurry_is_missing),
            Spec::rival("std-rwlock", make::<Locked>()),
        ]
    }};
}

pub(super) static GET: Case = Case {
    name: "map-get",
    about: "one lookup of a present key, in a map that all threads read",
    variants: shape::READING,
    subjects: subjects!(work::getting),
    scale: Scale::Work,
    slice_ms: SLICE_MS,
    thread_range: false,
    metrics: None,
    default_threads: &[1, 2, 8],
};

pub(super) static MIXED: Case = Case {
    name: "map-mixed",
    about: "one read or one write of a map that all threads read and write; its size stays",
    variants: shape::MIXED,
    subjects: subjects!(work::mixing),
    scale: Scale::Work,
    slice_ms: SLICE_MS,
    thread_range: false,
    metrics: None,
    default_threads: &[1, 2, 8],
};

pub(super) static CHURN: Case = Case {
    name: "map-churn",
    about: "a new key inserted or the oldest removed, by turns, in a map that all threads write",
    variants: shape::SIZES,
    subjects: subjects!(work::churning),
    scale: Scale::Work,
    slice_ms: SLICE_MS,
    thread_range: false,
    metrics: None,
    default_threads: &[1, 2, 8],
};
