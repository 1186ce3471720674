//! EX-H3: independent messages by the size of clusters (Hurricane, figure 5 a).

use crate::lab::Loop;
use crate::{Axis, Experiment, Found, Lab, Means, Missing, Paper, Plot, Series, Verdict};

pub(super) static EX_H3: Experiment = Experiment {
    id: "EX-H3",
    title: "Messages of independent pairs, by the size of clusters",
    question: "If pairs of processes have nothing in common, how many processors should share one copy of the system's data?",
    paper: Paper {
        source: "R. Unrau et al., Hierarchical Clustering, 1995, table 1 and figure 5.",
        found: "Neighbouring processes on p of 16 processors send each other 32 bytes, in clusters of 2, 4, 8 or 16. \
                Processes fill one cluster before the next. The response time climbs until p reaches the cluster size, \
                and stays or falls after that. The smallest clusters are best.",
    },
    here: "A post office for each cluster holds the mailboxes of its threads under one lock, as a cluster of Hurricane \
           holds its processes. The second test of the figure needs page faults, and is missing. The emulator runs its \
           threads in turns, so a thread seldom waits for the lock. Its line moves all the same.",
    agrees_if: "with 16 threads, clusters of 2 cost less than all larger ones; in clusters of 4, 8 and 16, as many threads as \
                processors of a cluster cost more than 1.1 times as much as two threads; and in clusters of 4 and 8, 16 threads \
                cost at most 1.1 times as much as that.",
    command: "squall report EX-H3",
    seconds: (20, 60),
    run,
    verdict,
    alike: || {
        found([
            [100.0, 100.0, 100.0, 100.0],
            [100.0, 200.0, 200.0, 200.0],
            [100.0, 200.0, 300.0, 300.0],
            [100.0, 200.0, 300.0, 400.0],
        ])
    },
    opposite: || {
        found([
            [400.0, 400.0, 400.0, 400.0],
            [300.0, 200.0, 200.0, 200.0],
            [300.0, 200.0, 150.0, 150.0],
            [300.0, 200.0, 150.0, 100.0],
        ])
    },
};

/// The machine of the paper: four stations of four processors.
const TOPOLOGY: &str = "nodes:4,cores:4";
/// Processors per cluster, and the variant.
const SIZES: [(u32, &str); 4] = [(2, "pairs-2"), (4, "pairs-4"), (8, "pairs-8"), (16, "pairs-16")];
const THREADS: [usize; 4] = [2, 4, 8, 16];
/// Cost, relative to another one, that counts as more.
const MORE: f64 = 1.1;

fn run(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    let ops = if lab.quick { 100 } else { 400 };
    let mut costs = [[f64::NAN; 4]; 4];
    for ((_, variant), costs) in SIZES.into_iter().zip(&mut costs) {
        for (threads, cost) in THREADS.into_iter().zip(costs) {
            let one = Loop { case: "messages", subject: "squall", variant, threads, ops };
            *cost = lab.count_on(TOPOLOGY, one)?.modelled_ns;
        }
    }
    Ok(found(costs))
}

fn name(size: u32) -> String {
    format!("clusters of {size}")
}

fn verdict(found: &Found) -> Verdict {
    let curve = |size| found.series("ex-h3", &name(size));
    let least = curve(2).last();
    let (mut holds, mut told) = (true, Vec::new());
    for size in [4, 8, 16] {
        let (curve, full) = (curve(size), curve(size).at(f64::from(size)));
        let (climb, after) = (full / curve.first(), curve.last() / full);
        holds &= least < curve.last() && climb > MORE && after <= MORE;
        told.push(format!("{climb:.2} and {after:.2} in clusters of {size}"));
    }
    Verdict::of(
        holds,
        format!(
            "with 16 threads a message costs {least:.0} ns in clusters of 2; the cost of full clusters, relative to two \
             threads, and that of 16 threads, relative to a full cluster: {}",
            told.join(", ")
        ),
    )
}

fn found(costs: [[f64; 4]; 4]) -> Found {
    let series = SIZES.into_iter().zip(costs).map(|((size, _), costs)| {
        let points = THREADS.into_iter().map(|threads| threads as f64).zip(costs).collect();
        Series { name: name(size), points }
    });
    let plot = Plot {
        name: "ex-h3",
        title: "A message and its answer between neighbours",
        x: Axis::log("threads, each on its processor"),
        y: Axis::log("ns per message"),
        means: Means::Modelled,
        series: series.collect(),
    };
    Found { plots: vec![plot], ..Found::default() }
}
