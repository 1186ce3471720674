//! EX-K9: the price of reading a distributed counter (K42, §5.3.2).

use crate::{Axis, Experiment, Found, Lab, Means, Missing, Paper, Plot, Series, Verdict};

pub(super) static EX_K9: Experiment = Experiment {
    id: "EX-K9",
    title: "Reading a distributed counter",
    question: "What does it cost to read the sum of a counter that has one representative per processor?",
    paper: Paper {
        source: "J. Appavoo, Clustered Objects, 2005, §5.3.2.",
        found: "Reading the value takes time in proportion to the number of representatives, while an update costs \
                the same for any number.",
    },
    here: "A representative is the object's part that serves one processor. A read adds up all parts one after the other, or \
           first within groups of processors (clusters), then the groups' sums. The 64 processors are virtual ones, and one \
           thread reads. Updates are timed on all real processors.",
    agrees_if: "8 times as many representatives make a read 4 to 16 times as long, and an update on all processors takes \
                less than 1.5 times its time on one.",
    command: "squall report EX-K9",
    seconds: (40, 150),
    run,
    verdict,
    alike: || found([10.0, 20.0, 80.0, 320.0, 640.0], 1.05),
    opposite: || found([10.0; 5], 5.0),
};

const REPRESENTATIVES: [(usize, &str); 5] =
    [(1, "reps-1"), (2, "reps-2"), (8, "reps-8"), (32, "reps-32"), (64, "reps-64")];
/// 64 virtual processors, since each representative serves one.
const TOPOLOGY: &str = "nodes:4,caches:2,cores:4,threads:2";
const UPDATE: &str = "update on all processors, relative to one thread";

fn run(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    let (mut flat, mut tree) = (Vec::new(), Vec::new());
    for (count, variant) in REPRESENTATIVES {
        let times = lab.bench_on(TOPOLOGY, "gather", variant, &[1])?;
        flat.push((count as f64, times.ns("squall-flat", 1)));
        tree.push((count as f64, times.ns("squall-tree", 1)));
    }
    let threads = lab.threads();
    let last = threads.last().copied().unwrap_or(1);
    let times = lab.bench("counter", "", &[1, last])?;
    let update = times.ns("squall-distributed", last) / times.ns("squall-distributed", 1);
    Ok(make(flat, tree, update))
}

fn make(flat: Vec<(f64, f64)>, tree: Vec<(f64, f64)>, update: f64) -> Found {
    let plot = Plot {
        name: "ex-k9",
        title: "Reading the sum, by the number of representatives",
        x: Axis::log("representatives"),
        y: Axis::log("ns per read"),
        means: Means::Timed,
        series: vec![
            Series { name: "one after the other".to_owned(), points: flat },
            Series { name: "by the cluster tree".to_owned(), points: tree },
        ],
    };
    let mut found = Found { plots: vec![plot], ..Found::default() };
    found.figure(UPDATE, update, "times", Means::Timed);
    found
}

fn verdict(found: &Found) -> Verdict {
    let read = found.series("ex-k9", "one after the other");
    // From 8 on, the fixed part of a read no longer hides its growth.
    let grows = read.at(64.0) / read.at(8.0);
    let update = found.value(UPDATE);
    let why = format!(
        "with 8 times as many representatives, 64 for 8, a read takes {grows:.1} times as long; an update on all \
         processors at once takes {update:.2} times as long as on one"
    );
    Verdict::of((4.0..=16.0).contains(&grows) && update < 1.5, why)
}

fn found(reads: [f64; 5], update: f64) -> Found {
    let points: Vec<(f64, f64)> =
        REPRESENTATIVES.iter().zip(reads).map(|((count, _), ns)| (*count as f64, ns)).collect();
    make(points.clone(), points, update)
}
