//! EX-H6: the cluster size and the stations of the machine (Hurricane, figure 11).

use super::ex_h7::least;
use crate::lab::Loop;
use crate::{Axis, Experiment, Found, Lab, Means, Missing, Paper, Plot, Series, Verdict};

pub(super) static EX_H6: Experiment = Experiment {
    id: "EX-H6",
    title: "Clusters that match the machine",
    question: "Does a matrix multiplication cost least when a cluster is a station of the machine?",
    paper: Paper {
        source: "R. Unrau et al., Hierarchical Clustering, J. Supercomputing, 1995, figure 11 and §5.4.",
        found: "Yes. Eight processors multiply matrices, as four stations of two processors and as two of four. The response time \
                is least when the cluster size is that of a station. Four processors per station are generally \
                better than two, except for clusters of two, which then share a bus.",
    },
    here: "The paper times a program whose pages are copied to each cluster. Here threads multiply matrices whose right \
           factor is in a cached map, which copies each block to each cluster that reads it. The code runs on virtual \
           machines with the paper's stations, and its misses within and between stations are expected from the counts. \
           Counted misses have no bus, so the exception at clusters of two cannot show. A later reader of a copy is \
           assumed to fetch it from the station that made it.",
    agrees_if: "on both machines the misses between stations are fewest at the size of a station, and two stations of four \
                have fewer of them than four of two at each cluster size.",
    command: "squall report EX-H6",
    seconds: (12, 25),
    run,
    verdict,
    alike: || found([9.0, 4.0, 6.0, 8.0], [6.0, 3.0, 2.0, 5.0]),
    opposite: || found([4.0, 6.0, 7.0, 9.0], [6.0, 4.0, 3.0, 2.0]),
};

const THREADS: usize = 8;
const SIZES: [&str; 4] = ["1", "2", "4", "8"];
const FAR: &str = "ex-h6";
const TWO: &str = "4 stations of 2";
const FOUR: &str = "2 stations of 4";
/// Name in the report, topology, and processors of a station.
const MACHINES: [(&str, &str, f64); 2] = [(TWO, "nodes:4,cores:2", 2.0), (FOUR, "nodes:2,cores:4", 4.0)];

fn run(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    let ops = if lab.quick { 8 } else { 50 };
    let (mut far, mut near) = ([[f64::NAN; 4]; 2], [[f64::NAN; 4]; 2]);
    for (machine, (_, topology, _)) in MACHINES.into_iter().enumerate() {
        for (at, variant) in SIZES.into_iter().enumerate() {
            let one = Loop { case: "matmul", subject: "squall", variant, threads: THREADS, ops };
            let counts = lab.count_on(topology, one)?;
            (far[machine][at], near[machine][at]) = (counts.far_misses, counts.near_misses);
        }
    }
    let mut found = found(far[0], far[1]);
    found.plots.push(plot("ex-h6-near", "Misses within stations, per round of a thread", near));
    Ok(found)
}

fn plot(name: &'static str, title: &'static str, of: [[f64; 4]; 2]) -> Plot {
    let sizes = SIZES.map(|size| size.parse().unwrap_or(f64::NAN));
    let series = MACHINES.into_iter().zip(of);
    let series = series.map(|((name, _, _), ys)| Series {
        name: name.to_owned(),
        points: sizes.into_iter().zip(ys).collect(),
    });
    Plot {
        name,
        title,
        x: Axis::log("processors in a cluster"),
        y: Axis::linear("misses per round"),
        means: Means::Modelled,
        series: series.collect(),
    }
}

fn found(two: [f64; 4], four: [f64; 4]) -> Found {
    let plot = plot(FAR, "Misses between stations, per round of a thread", [two, four]);
    Found { plots: vec![plot], ..Found::default() }
}

fn verdict(found: &Found) -> Verdict {
    let [two, four] = MACHINES.map(|(name, _, _)| found.series(FAR, name));
    let matches =
        MACHINES.iter().zip([&two, &four]).all(|((_, _, station), series)| least(series) == *station);
    let fewer =
        !two.points.is_empty() && two.points.iter().zip(&four.points).all(|(two, four)| four.1 < two.1);
    let list = |series: &Series| {
        series.points.iter().map(|point| format!("{:.1}", point.1)).collect::<Vec<_>>().join(", ")
    };
    let why = format!(
        "at clusters of 1, 2, 4 and 8, a thread's round misses {} times between stations of two, and {} times between \
         stations of four; fewest at clusters of {:.0} and of {:.0}",
        list(&two),
        list(&four),
        least(&two),
        least(&four)
    );
    Verdict::of(matches && fewer, why)
}
