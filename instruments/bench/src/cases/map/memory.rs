//! `map-memory`: bytes of a map per entry, its keys and values included.
//!
//! A thread inserts one key after the other into an empty map. For each subject:
//!
//! - `SUBJECT_bytes_per_entry`: at the number of entries named by the variant.
//! - `SUBJECT_bytes_before_growth`, `SUBJECT_bytes_after_growth`: the least and the most bytes per entry on
//!   the way from half as many entries. A table that doubles does so once on that way. It is fullest just
//!   before, and emptiest just after; some maps have two tables meanwhile.
//! - `SUBJECT_over_leanest`, for ours: bytes per entry divided by the least of any rival.
//!
//! - I1. The memory of one subject's map is given back before the next map is made.

use super::keys::Key;
use super::shape::{SIZES, Shape};
use crate::case::{Case, Missing, Scale, Setting};
use crate::ours_map::Constituent;
use crate::rivals::heap;
use crate::rivals::maps::{Dash, Family, Job, Locked, Mapping, Papaya, SccHashIndex, SccHashMap, with_map};

pub(in crate::cases) static CASE: Case = Case {
    name: "map-memory",
    about: "bytes of a map per entry, by the allocator's account; metrics only",
    variants: SIZES,
    subjects: &[],
    scale: Scale::Latency,
    slice_ms: (0, 0),
    thread_range: false,
    metrics: Some(measure),
    default_threads: &[1],
};

type Weigh = fn(&Shape) -> Result<Weight, String>;

const OURS: &[(&str, Weigh)] = &[("squall-table", weigh::<Constituent>)];

const RIVALS: &[(&str, Weigh)] = &[
    ("dashmap", weigh::<Dash>),
    ("papaya", weigh::<Papaya>),
    ("scc-hashmap", weigh::<SccHashMap>),
    ("scc-hashindex", weigh::<SccHashIndex>),
    #[cfg(feature = "rivals")]
    ("flurry", weigh::<crate::rivals::maps::Flurry>),
    ("std-rwlock", weigh::<Locked>),
];

/// Number of samples on the way.
const SAMPLES: usize = 1024;

/// Bytes per entry.
struct Weight {
    at_end: f64,
    least: f64,
    most: f64,
}

fn measure(setting: &Setting, _: bool) -> Result<Vec<(String, f64)>, String> {
    let shape = Shape::of(setting.variant);
    let mut metrics = Vec::new();
    let mut weigh = |name: &str, weigh: Weigh| -> Result<f64, String> {
        let Weight { at_end, least, most } = weigh(&shape)?;
        for (what, value) in [("per_entry", at_end), ("before_growth", least), ("after_growth", most)] {
            metrics.push((format!("{name}_bytes_{what}"), value));
        }
        Ok(at_end)
    };
    let mut leanest = f64::MAX;
    for (name, of) in RIVALS {
        leanest = leanest.min(weigh(name, *of)?);
    }
    let mut ratios = Vec::new();
    for (name, of) in OURS {
        ratios.push((format!("{name}_over_leanest"), weigh(name, *of)? / leanest));
    }
    metrics.extend(ratios);
    Ok(metrics)
}

fn weigh<F: Family>(shape: &Shape) -> Result<Weight, String> {
    with_map::<F, _>(shape, Weighing { entries: shape.entries }).map_err(|Missing(why)| why)
}

struct Weighing {
    entries: usize,
}

impl Job for Weighing {
    type Result = Result<Weight, Missing>;

    fn run<K: Key, M: Mapping<K>>(self) -> Self::Result {
        let told = || {
            heap::bytes().ok_or_else(|| Missing("the C library has no account of its allocations".to_owned()))
        };
        // I1.
        M::settle();
        let before = told()?;
        let map = M::new();
        let half = self.entries / 2;
        let each = (half / SAMPLES).max(1);
        let (mut least, mut most) = (f64::MAX, 0.0f64);
        for entries in 1..=self.entries {
            map.insert(K::of(entries as u64), 1);
            if entries > half && (entries - half).is_multiple_of(each) {
                let bytes = told()?.saturating_sub(before) as f64 / entries as f64;
                (least, most) = (least.min(bytes), most.max(bytes));
            }
        }
        M::settle();
        let at_end = told()?.saturating_sub(before) as f64 / self.entries as f64;
        drop(map);
        M::settle();
        Ok(Weight { at_end, least: least.min(at_end), most: most.max(at_end) })
    }
}
