//! Runs experiments, one after the other.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::load::Watch;
use crate::{Done, Experiment, Found, Lab, Missing, Verdict};

/// Progress of a run.
#[derive(Clone, Debug)]
pub struct Progress<'a> {
    /// The running experiment.
    pub experiment: &'static Experiment,
    /// Its number, from 1.
    pub number: usize,
    /// Number of all experiments of the run.
    pub of: usize,
    /// The running step, in words.
    pub step: &'a str,
    /// Estimated time until the end of the run.
    pub left: Duration,
}

/// Runs these experiments with the binary `squall` at this path. `done` is told each finished experiment.
pub fn run(
    experiments: &[&'static Experiment],
    squall: &Path,
    quick: bool,
    progress: &mut dyn FnMut(Progress<'_>),
    done: &mut dyn FnMut(&Done),
) -> Vec<Done> {
    let seconds = |it: &Experiment| f64::from(if quick { it.seconds.0 } else { it.seconds.1 });
    let all: f64 = experiments.iter().map(|it| seconds(it)).sum();
    let (began, mut expected) = (Instant::now(), 0.0);
    let mut finished = Vec::with_capacity(experiments.len());
    for (index, &experiment) in experiments.iter().enumerate() {
        let watch = Watch::new();
        let start = Instant::now();
        let mut step = |step: &str| {
            let within = start.elapsed().as_secs_f64().min(seconds(experiment));
            let left = time_left(began.elapsed(), expected + within, all);
            progress(Progress { experiment, number: index + 1, of: experiments.len(), step, left });
        };
        step("start");
        let outcome = (experiment.run)(&mut Lab::new(squall, quick, &mut step));
        let (found, verdict) = judge(experiment, outcome);
        let it = Done { experiment, found, verdict, took: start.elapsed(), foreign: watch.foreign() };
        done(&it);
        finished.push(it);
        expected += seconds(experiment);
    }
    finished
}

/// The verdict on an outcome. If something is missing it is `part`, since a predicate also fails without its
/// figures.
fn judge(experiment: &Experiment, outcome: Result<Found, Missing>) -> (Found, Verdict) {
    let mut found = match outcome {
        Ok(found) => found,
        Err(Missing(why)) => return (Found::default(), Verdict::Part(why)),
    };
    let mut verdict = (experiment.verdict)(&found);
    found.missing.extend(found.without_value());
    if !found.missing.is_empty() {
        verdict = Verdict::Part(format!("{}; missing: {}", verdict.why(), found.missing.join("; ")));
    }
    (found, verdict)
}

/// Time until the end, if the rest takes as much longer than expected as the run did so far.
fn time_left(elapsed: Duration, expected_so_far: f64, expected_all: f64) -> Duration {
    let rest = (expected_all - expected_so_far).max(0.0);
    // Without a part of the run, its pace is unknown.
    let pace = if expected_so_far < 1.0 { 1.0 } else { elapsed.as_secs_f64() / expected_so_far };
    Duration::from_secs_f64(rest * pace.clamp(0.1, 10.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ALL;

    #[test]
    fn the_time_left_follows_the_pace() {
        assert_eq!(time_left(Duration::ZERO, 0.0, 60.0), Duration::from_secs(60));
        assert_eq!(time_left(Duration::from_secs(40), 20.0, 60.0), Duration::from_secs(80));
        assert_eq!(time_left(Duration::from_secs(90), 60.0, 60.0), Duration::ZERO);
    }

    #[test]
    fn a_missing_instrument_gives_part() {
        let experiment = ALL[0];
        let (found, verdict) = judge(experiment, Err(Missing("no emulator".to_owned())));
        assert_eq!((found, verdict), (Found::default(), Verdict::Part("no emulator".to_owned())));
        let mut found = (experiment.alike)();
        found.missing.push("the times".to_owned());
        let (_, verdict) = judge(experiment, Ok(found));
        assert!(verdict.word() == "part" && verdict.why().ends_with("; missing: the times"));
        let mut found = (experiment.alike)();
        found.plots[0].series[0].points[0].1 = f64::NAN;
        let (_, verdict) = judge(experiment, Ok(found));
        assert!(verdict.word() == "part" && verdict.why().ends_with("; missing: ex-k1, under a lock at 1"));
    }
}
