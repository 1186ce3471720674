//! The hit ratios of the variants `trace-*`, of one thread.
//!
//! A key is looked up, and inserted if it is absent. Capacities are 1 % and 10 % of the million keys of a
//! trace. The requests are equal in each run. Squall draws victims at random, and `moka` and `mini-moka` also
//! work by the clock, so their figures vary a little.
//!
//! | metric | meaning |
//! |---|---|
//! | `SUBJECT_hit_ratio_1pct`, `_10pct` | hits for each request after the first million of five |
//! | `SUBJECT_just_after_hit_ratio_…` | `trace-shift`: likewise, of the first 500,000 after the shift |
//! | `SUBJECT_long_after_hit_ratio_…` | `trace-shift`: likewise, of the last million |
//! | `hit_ratio_loss_…` | the best rival's less that of `squall` |
//! | `SUBJECT_mean_hit_ratio` | `trace-mean`: the mean of the sixteen figures of all traces |
//! | `mean_hit_ratio_loss` | `trace-mean`: that of the best single rival, less that of `squall` |
//!
//! - I1. Each lookup is followed by the insertion of an absent key, and each found value is checked.

use std::ops::Range;
use std::sync::Mutex;

use super::trace::{KEYS, Trace};
use super::{each, value_of};
use crate::cases::map::Key;
use crate::rivals::caches::BoundedCache;

/// The parts of the keys that fit, in percent.
const PARTS: [usize; 2] = [1, 10];

/// The figures of one trace.
type Ratios = Vec<Figure>;

/// The hit ratios of all subjects at one capacity in one window.
#[derive(Clone, Debug)]
struct Figure {
    /// The window, as a prefix of names.
    window: &'static str,
    percent: usize,
    ratios: Vec<(&'static str, f64)>,
}

/// The traces that were measured, for the mean.
static MEASURED: Mutex<Vec<(&'static str, Ratios)>> = Mutex::new(Vec::new());

/// The metrics of a variant; an empty list if it is not about traces.
pub(super) fn measure(variant: &str) -> Result<Vec<(String, f64)>, String> {
    if variant == "trace-mean" {
        let all = Trace::ALL.iter().map(|(name, trace)| measured(name, *trace));
        return Ok(means(&all.collect::<Result<Vec<Ratios>, String>>()?.concat()));
    }
    match Trace::ALL.iter().find(|(name, _)| *name == variant) {
        Some((name, trace)) => Ok(metrics(&measured(name, *trace)?)),
        None => Ok(Vec::new()),
    }
}

/// The figures of a trace, measured once in a process.
fn measured(name: &'static str, trace: Trace) -> Result<Ratios, String> {
    let mut known = MEASURED.lock().expect("a thread panicked under the lock");
    if let Some((_, ratios)) = known.iter().find(|(known, _)| *known == name) {
        return Ok(ratios.clone());
    }
    let ratios = play(trace).map_err(|why| format!("{name}: {why}"))?;
    known.push((name, ratios.clone()));
    Ok(ratios)
}

fn play(trace: Trace) -> Result<Ratios, String> {
    let mut figures = Vec::new();
    for percent in PARTS {
        let capacity = KEYS as usize * percent / 100;
        let (requests, windows) = (trace.requests(capacity), trace.windows());
        let ranges: Vec<Range<usize>> = windows.iter().map(|(_, range)| range.clone()).collect();
        let load = &Replay { capacity, requests, ranges };
        let replayed = each!(replay, load);
        for (at, (window, _)) in windows.iter().enumerate() {
            let ratios = replayed.iter().map(|(name, ratios)| match ratios {
                Ok(ratios) => Ok((*name, ratios[at])),
                Err(why) => Err(format!("{name}: {why}")),
            });
            figures.push(Figure { window, percent, ratios: ratios.collect::<Result<_, _>>()? });
        }
    }
    Ok(figures)
}

/// A trace for a capacity, and the parts of it that count.
struct Replay {
    capacity: usize,
    requests: Vec<u32>,
    ranges: Vec<Range<usize>>,
}

/// Returns the hit ratio in each range.
fn replay<C: BoundedCache>(load: &Replay) -> Result<Vec<f64>, String> {
    let cache = C::new(load.capacity);
    let mut hits = vec![0u32; load.ranges.len()];
    for (at, number) in load.requests.iter().enumerate() {
        let key = u64::of(u64::from(*number));
        match cache.get(key) {
            // I1.
            None => cache.insert(key, value_of(key)),
            Some(value) if value != value_of(key) => return Err(format!("key {key} has value {value}")),
            Some(_) => {
                let ranges = load.ranges.iter().zip(&mut hits);
                ranges.filter(|(range, _)| range.contains(&at)).for_each(|(_, hits)| *hits += 1);
            }
        }
    }
    let ratio = |(hits, range): (&u32, &Range<usize>)| f64::from(*hits) / range.len() as f64;
    Ok(hits.iter().zip(&load.ranges).map(ratio).collect())
}

fn is_ours(name: &str) -> bool {
    name.starts_with("squall")
}

/// The best rival's ratio less that of `squall`.
fn loss(ratios: &[(&str, f64)]) -> f64 {
    let rivals = ratios.iter().filter(|(name, _)| !is_ours(name)).map(|(_, ratio)| *ratio);
    let ours = ratios.iter().find(|(name, _)| *name == "squall").map_or(0.0, |(_, ratio)| *ratio);
    rivals.fold(0.0, f64::max) - ours
}

fn metrics(figures: &Ratios) -> Vec<(String, f64)> {
    let mut metrics = Vec::new();
    for Figure { window, percent, ratios } in figures {
        for (name, ratio) in ratios {
            metrics.push((format!("{name}_{window}hit_ratio_{percent}pct"), *ratio));
        }
        metrics.push((format!("{window}hit_ratio_loss_{percent}pct"), loss(ratios)));
    }
    metrics
}

/// The mean of each subject over all figures, and the loss of `squall`.
fn means(figures: &Ratios) -> Vec<(String, f64)> {
    let mut sums: Vec<(&str, f64)> = Vec::new();
    for (name, ratio) in figures.iter().flat_map(|figure| &figure.ratios) {
        match sums.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum += ratio,
            None => sums.push((name, *ratio)),
        }
    }
    let means: Vec<(&str, f64)> =
        sums.into_iter().map(|(name, sum)| (name, sum / figures.len() as f64)).collect();
    let mut metrics: Vec<(String, f64)> =
        means.iter().map(|(name, mean)| (format!("{name}_mean_hit_ratio"), *mean)).collect();
    metrics.push(("mean_hit_ratio_loss".to_owned(), loss(&means)));
    metrics
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rivals::caches::LockedLru;

    /// A loop over more keys than fit has no hit with an exact LRU, and only hits if all fit.
    #[test]
    fn hits_are_counted_in_their_ranges() {
        let replay_of = |capacity, ranges: Vec<Range<usize>>| {
            let requests = (0..110).cycle().take(1_100).collect();
            replay::<LockedLru>(&Replay { capacity, requests, ranges }).expect("the values are right")
        };
        assert_eq!(replay_of(100, vec![110..1_100, 0..110]), [0.0, 0.0]);
        assert_eq!(replay_of(110, vec![0..220, 110..1_100, 0..110]), [0.5, 1.0, 0.0]);
    }

    #[test]
    fn every_trace_has_figures_of_every_cache() {
        for (name, trace) in Trace::ALL {
            let figures = play(trace).expect("the values are right");
            assert_eq!(figures.len(), PARTS.len() * trace.windows().len(), "{name}");
            let metrics = metrics(&figures);
            for (metric, value) in metrics.iter().filter(|(metric, _)| !metric.contains("loss")) {
                assert!((0.0..=1.0).contains(value), "{name}: {metric} is {value}");
            }
            let has = |wanted: &str| metrics.iter().any(|(metric, _)| metric.contains(wanted));
            let subjects = ["squall_", "squall-lru_", "quick-cache_", "moka_", "mini-moka_", "lru-mutex_"];
            assert!(subjects.iter().all(|subject| has(subject)), "{metrics:?}");
        }
    }

    #[test]
    fn the_loss_is_that_of_the_default_policy_against_the_best_rival() {
        let ratios = vec![("squall", 0.5), ("squall-lru", 0.9), ("moka", 0.4), ("lru-mutex", 0.7)];
        let other = vec![("squall", 0.7), ("squall-lru", 0.9), ("moka", 0.8), ("lru-mutex", 0.1)];
        assert!((loss(&ratios) - 0.2).abs() < 1e-9);
        let figure = |percent, ratios| Figure { window: "", percent, ratios };
        let means = means(&vec![figure(1, ratios), figure(10, other)]);
        let value = |name: &str| means.iter().find(|(known, _)| known == name).expect("it is there").1;
        assert!((value("moka_mean_hit_ratio") - 0.6).abs() < 1e-9);
        assert!(value("mean_hit_ratio_loss").abs() < 1e-9);
    }
}
