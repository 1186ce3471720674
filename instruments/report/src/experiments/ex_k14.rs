//! EX-K14: swaps at contended points, and at random times (K42, figure 7.4).

use crate::{Axis, Experiment, Found, Lab, Means, Missing, Paper, Plot, Series, Verdict};

pub(super) static EX_K14: Experiment = Experiment {
    id: "EX-K14",
    title: "Swaps at contended points",
    question: "What does a swap cost at the worst time, when threads contend for the object?",
    paper: Paper {
        source: "J. Appavoo, Clustered Objects, 2005, figure 7.4 and §7.5.2.",
        found: "424 swaps at contended points take 27.6 µs on average (deviation 19.8, from 1.06 to 132.6), swaps at random \
                times 10.8 µs. Most of that time is the wait for a grace period, in which no thread is \
                blocked. The throughput with and without swaps is the same within the noise.",
    },
    here: "The paper swaps a file's page cache under SDET, on four processors. Here each thread computes, then changes a \
           table under a lock; for a quarter of the time it computes little, so that threads meet. The object's sensor \
           counts calls that find the lock taken. After 8 of them, the thread that notices swaps the object for one of its \
           type. Threads that wait for the lock may sleep, which the paper's do not. With one processor there is no \
           contention but that of preempted threads.",
    agrees_if: "the median swap at a contended point takes longer than one at a random time, calls wait in less than half \
                of the time of the swaps at contended points, and the throughput with them is at least 0.9 of that \
                without.",
    command: "squall report EX-K14",
    seconds: (5, 15),
    run,
    verdict,
    alike: || found([27.6, 10.8], [19.8, 6.0], 0.2, 0.99),
    opposite: || found([5.0, 10.8], [19.8, 6.0], 0.8, 0.5),
};

/// Rounds of the bench without foreign load that suffice for the throughput.
const CLEAN_MIN: f64 = 3.0;
const MODES: [&str; 2] = ["contended", "random"];
const WAITS: &str = "part of a swap's time in which calls wait";
const RATIO: &str = "throughput with swaps at contended points";

fn run(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    // Four threads, as in the paper, unless the machine has fewer processors.
    let threads = lab.threads().into_iter().filter(|threads| *threads <= 4).max().unwrap_or(1).max(2);
    let times = lab.bench("swap", "contended", &[threads])?;
    let metric = |name: String| times.metric(&name, threads);
    if !MODES.iter().all(|mode| metric(format!("{mode}_swaps")) > 0.0) {
        return Err(Missing("no thread found the lock taken often enough for a swap".to_owned()));
    }
    let series = MODES.map(|mode| {
        let all = metric(format!("{mode}_swaps"));
        let bins = (0..30).map(|bin| 1u64 << bin);
        let points =
            bins.map(|below| (below as f64, metric(format!("{mode}_hist_us_lt_{below}")) / all * 100.0));
        Series {
            name: format!("at {mode} {}", place(mode)),
            points: points.filter(|it| it.1.is_finite()).collect(),
        }
    });
    let mut found = Found::default();
    found.plots.push(Plot {
        name: "ex-k14",
        title: "Durations of swaps",
        x: Axis::log("µs, upper end of the bin"),
        y: Axis::linear("swaps (%)"),
        means: Means::Timed,
        series: series.to_vec(),
    });
    for (mode, statistic) in MODES.iter().flat_map(|mode| STATISTICS.map(|it| (mode, it))) {
        found.figure(
            name(statistic.0, mode),
            metric(format!("{mode}_{}", statistic.1)),
            statistic.2,
            Means::Timed,
        );
    }
    let rounds = if lab.quick { 5.0 } else { 15.0 };
    if metric("disturbed_rounds".to_owned()) > rounds - CLEAN_MIN {
        let why = "a throughput without foreign load: other programs used the processors in most rounds";
        found.missing.push(why.to_owned());
    }
    found.figure(WAITS, metric("contended_part_with_waits".to_owned()), "", Means::Timed);
    found.figure(RATIO, metric("throughput_ratio_contended".to_owned()), "of that without", Means::Timed);
    let random = metric("throughput_ratio_random".to_owned());
    found.figure("throughput with swaps at random times", random, "of that without", Means::Timed);
    Ok(found)
}

/// Name in the report, metric of the bench, and unit.
const STATISTICS: [(&str, &str, &str); 8] = [
    ("swaps", "swaps", ""),
    ("median", "p50_us", "µs"),
    ("mean", "mean_us", "µs"),
    ("standard deviation", "sd_us", "µs"),
    ("shortest", "min_us", "µs"),
    ("longest", "max_us", "µs"),
    ("mean wait for the grace period", "forward_mean_us", "µs"),
    ("blocked calls", "blocked_calls_per_swap", "per swap"),
];

fn place(mode: &str) -> &'static str {
    if mode == "contended" { "points" } else { "times" }
}

fn name(statistic: &str, mode: &str) -> String {
    format!("{statistic}, {mode} {}", place(mode))
}

fn verdict(found: &Found) -> Verdict {
    let [contended, random] = MODES.map(|mode| found.value(&name("median", mode)));
    let [mean, mean_random] = MODES.map(|mode| found.value(&name("mean", mode)));
    let (waits, ratio) = (found.value(WAITS), found.value(RATIO));
    let holds = contended > random && waits < 0.5 && ratio >= 0.9;
    let why = format!(
        "a swap at a contended point takes {contended:.1} µs in the median ({mean:.1} on average), at a random time \
         {random:.1} ({mean_random:.1}); calls wait in {:.0} % of the time of swaps at contended points, and the throughput \
         with them is {ratio:.2} of that without",
        waits * 100.0
    );
    Verdict::of(holds, why)
}

fn found(means: [f64; 2], medians: [f64; 2], waits: f64, ratio: f64) -> Found {
    let mut found = Found::default();
    for (mode, (mean, median)) in MODES.iter().zip(means.into_iter().zip(medians)) {
        found.figure(name("mean", mode), mean, "µs", Means::Timed);
        found.figure(name("median", mode), median, "µs", Means::Timed);
    }
    found.figure(WAITS, waits, "", Means::Timed);
    found.figure(RATIO, ratio, "of that without", Means::Timed);
    found
}
