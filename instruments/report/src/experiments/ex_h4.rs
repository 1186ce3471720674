//! EX-H4: shared data by the size of clusters (Hurricane, figures 7 and 8, with the configurations of table
//! 1).

use crate::lab::Loop;
use crate::{Axis, Experiment, Found, Lab, Means, Missing, Paper, Plot, Series, Verdict};

pub(super) static EX_H4: Experiment = Experiment {
    id: "EX-H4",
    title: "Shared data, by the size of clusters",
    question: "If processes change the same data, how many processors should share one copy of it?",
    paper: Paper {
        source: "R. Unrau et al., Hierarchical Clustering, 1995, table 1 and figures 7 and 8.",
        found: "16 processors form clusters of 1, 2, 4, 8 or 16, with one copy of the kernel's data for each. A master \
                maps a few pages, and p processes write them together; or p processes send messages to one. The \
                response time is least in clusters of p processors: smaller clusters pay for messages, larger ones for distance and contention. With 16 \
                processes, clusters of 8 are best.",
    },
    here: "In the plot of messages, the mailboxes of a cluster have one lock, and a message to another cluster is a call \
           that is shipped there. Waiting callers and threads that serve make its costs vary by up to a half. In the other \
           plot, four keys of a cached map stand for the pages. In each round all threads read the keys, and then change them, \
           which invalidates the copies of the other clusters. Squall makes a copy only in a cluster that uses it, in \
           the memory of its first user. So clusters larger than p have no distant data, and their cost should not \
           rise. Threads of a round meet in another order in each run, which changes a cost by up to a quarter.",
    agrees_if: "clusters of 1 cost more than 1.1 times as much as clusters of p, for 2, 4, 8 and 16 threads; clusters of 16 do, \
                too, for 2, 4 and 8 threads; and for 16 threads clusters of 8 or 16 cost least. Messages cost more than 1.1 times as much in \
                clusters of 1 as in clusters of as many processors as there are threads.",
    command: "squall report EX-H4",
    seconds: (60, 180),
    run,
    verdict,
    alike: || {
        let costs = [
            [12.0, 10.0, 11.0, 12.0, 13.0],
            [20.0, 14.0, 11.0, 12.0, 13.0],
            [30.0, 20.0, 15.0, 12.0, 14.0],
            [60.0, 40.0, 25.0, 20.0, 30.0],
        ];
        found(costs, costs)
    },
    opposite: || {
        let costs = [[10.0, 12.0, 14.0, 16.0, 18.0]; 4];
        found(costs, costs)
    },
};

/// The machine of the paper: four stations of four processors.
const TOPOLOGY: &str = "nodes:4,cores:4";
/// The configurations of table 1: processors per cluster, and the variants for keys and for messages.
const SIZES: [(u32, &str, &str); 5] = [
    (1, "clusters-of-1", "parent-1"),
    (2, "clusters-of-2", "parent-2"),
    (4, "clusters-of-4", "parent-4"),
    (8, "clusters-of-8", "parent-8"),
    (16, "clusters-of-16", "parent-16"),
];
const THREADS: [usize; 4] = [2, 4, 8, 16];
/// Cost, relative to that of clusters of p, that counts as more.
const MORE: f64 = 1.1;

fn run(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    let ops = if lab.quick { 50 } else { 200 };
    let (mut keys, mut messages) = ([[f64::NAN; 5]; 4], [[f64::NAN; 5]; 4]);
    for (at, threads) in THREADS.into_iter().enumerate() {
        for (size, (_, of_keys, of_messages)) in SIZES.into_iter().enumerate() {
            let mut cost = |case, subject, variant| {
                lab.count_on(TOPOLOGY, Loop { case, subject, variant, threads, ops }).map(|it| it.modelled_ns)
            };
            keys[at][size] = cost("shared-keys", "squall-invalidated", of_keys)?;
            messages[at][size] = cost("messages", "squall", of_messages)?;
        }
    }
    Ok(found(keys, messages))
}

fn name(threads: usize) -> String {
    format!("{threads} threads")
}

fn verdict(found: &Found) -> Verdict {
    let (mut holds, mut told) = (true, Vec::new());
    for threads in THREADS {
        let curve = found.series("ex-h4", &name(threads));
        let fitting = curve.at(threads as f64);
        let (smallest, largest) = (curve.first() / fitting, curve.last() / fitting);
        holds &= smallest > MORE;
        if threads < 16 {
            holds &= largest > MORE;
            told.push(format!("{smallest:.2} and {largest:.2} times with {threads} threads"));
        } else {
            let best = curve.at(8.0).min(curve.at(16.0));
            holds &= curve.points.iter().all(|point| point.1 >= best);
            told.push(format!("{smallest:.2} times with {threads}, for clusters of 1"));
        }
    }
    let messages = THREADS.map(|threads| {
        let curve = found.series("ex-h4-messages", &name(threads));
        curve.first() / curve.at(threads as f64)
    });
    holds &= messages.iter().all(|more| *more > MORE);
    let messages = messages.map(|more| format!("{more:.2}")).join(", ");
    Verdict::of(
        holds,
        format!(
            "clusters of 1 and of 16 cost, relative to those of the number of threads: {}; messages in clusters of 1, \
             with 2, 4, 8 and 16 threads: {messages} times",
            told.join(", ")
        ),
    )
}

fn found(keys: [[f64; 5]; 4], messages: [[f64; 5]; 4]) -> Found {
    let plot = |name, title, y, costs: [[f64; 5]; 4]| {
        let series = THREADS.into_iter().zip(costs).map(|(threads, costs)| {
            let points = SIZES.into_iter().map(|(size, ..)| f64::from(size)).zip(costs).collect();
            Series { name: self::name(threads), points }
        });
        Plot {
            name,
            title,
            x: Axis::log("processors per cluster"),
            y: Axis::log(y),
            means: Means::Modelled,
            series: series.collect(),
        }
    };
    let keys = plot("ex-h4", "A round of reads and changes, by cluster size", "ns per round", keys);
    let title = "A message of each thread to the first one, by cluster size";
    let messages = plot("ex-h4-messages", title, "ns per message", messages);
    Found { plots: vec![keys, messages], ..Found::default() }
}
