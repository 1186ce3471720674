//! EX-H7: the cost of contention and of communication, by the cluster size (Hurricane, figure 4).

use crate::lab::Loop;
use crate::{Axis, Experiment, Found, Lab, Means, Missing, Paper, Plot, Series, Verdict};

pub(super) static EX_H7: Experiment = Experiment {
    id: "EX-H7",
    title: "The best cluster size",
    question: "Is there a cluster size between one processor and all of them that costs least?",
    paper: Paper {
        source: "R. Unrau et al., Hierarchical Clustering, J. Supercomputing, 1995, figure 4 and §4.",
        found: "Yes, in a sketch. The cost of contention and distance grows with the cluster size, the cost of messages between \
                clusters falls with it, and the sum has a minimum inside.",
    },
    here: "The paper draws the curves. Here they are counted on a directory with a part of each of 16 keys per cluster: 16 \
           processors, 4 in each of 4 stations. Contention is the cost of uses, which lock the part of the cluster. \
           Communication is what questions add: one operation in 16 locks the parts of all clusters. Misses are \
           expected from the counts in a random order, and cost 40 ns within a station and 120 ns between stations. \
           Neither the places of memory nor waiting is counted. The part of questions is chosen so that both \
           costs matter: with fewer of them the smallest clusters cost least, with more the largest.",
    agrees_if: "as clusters grow, the cost of uses does not fall and that of questions does not rise (by more than 2 ns), and \
                the sum is least at a size between 1 and 16.",
    command: "squall report EX-H7",
    seconds: (15, 30),
    run,
    verdict,
    alike: || found([0.0, 30.0, 60.0, 150.0, 200.0], [250.0, 125.0, 60.0, 30.0, 15.0]),
    opposite: || found([200.0, 150.0, 60.0, 30.0, 0.0], [200.0, 150.0, 90.0, 60.0, 30.0]),
};

const STATIONS: &str = "nodes:4,cores:4";
const THREADS: usize = 16;
const SIZES: [&str; 5] = ["1", "2", "4", "8", "16"];
/// Nanoseconds of a miss: those of the profiler's model `server`.
const NEAR_NS: f64 = 40.0;
const FAR_NS: f64 = 120.0;

const CONTENTION: &str = "contention";
const COMMUNICATION: &str = "communication";
const SUM: &str = "sum";

fn run(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    let ops = if lab.quick { 320 } else { 3200 };
    let (mut uses, mut mixed) = ([f64::NAN; 5], [f64::NAN; 5]);
    for (at, variant) in SIZES.into_iter().enumerate() {
        for (subject, ns) in [("squall-uses", &mut uses[at]), ("squall-mixed", &mut mixed[at])] {
            let one = Loop { case: "cluster-size", subject, variant, threads: THREADS, ops };
            let counts = lab.count_on(STATIONS, one)?;
            *ns = counts.near_misses * NEAR_NS + counts.far_misses * FAR_NS;
        }
    }
    let communication = std::array::from_fn(|at| mixed[at] - uses[at]);
    Ok(found(uses, communication))
}

fn found(contention: [f64; 5], communication: [f64; 5]) -> Found {
    let sizes = SIZES.map(|size| size.parse().unwrap_or(f64::NAN));
    let sum = std::array::from_fn(|at| contention[at] + communication[at]);
    let series = [(CONTENTION, contention), (COMMUNICATION, communication), (SUM, sum)];
    let series = series
        .map(|(name, ys)| Series { name: name.to_owned(), points: sizes.into_iter().zip(ys).collect() });
    let plot = Plot {
        name: "ex-h7",
        title: "Cost of misses by the cluster size",
        x: Axis::log("processors in a cluster"),
        y: Axis::linear("ns per operation"),
        means: Means::Modelled,
        series: series.to_vec(),
    };
    Found { plots: vec![plot], ..Found::default() }
}

fn verdict(found: &Found) -> Verdict {
    let [contention, communication, sum] =
        [CONTENTION, COMMUNICATION, SUM].map(|name| found.series("ex-h7", name));
    let steps = |series: &Series, holds: fn(f64) -> bool| {
        series.points.len() > 1 && series.points.windows(2).all(|pair| holds(pair[1].1 - pair[0].1))
    };
    let least = least(&sum);
    let inside = sum.at(least) < sum.first() && sum.at(least) < sum.last();
    let holds = steps(&contention, |by| by > -2.0) && steps(&communication, |by| by < 2.0) && inside;
    let why = format!(
        "by the model, from clusters of 1 to clusters of 16, the misses of uses cost {:.0} to {:.0} ns, and those of questions {:.0} to \
         {:.0} ns; the sum is {:.0} ns at 1, {:.0} ns at 16, and least at {least:.0} with {:.0} ns",
        contention.first(),
        contention.last(),
        communication.first(),
        communication.last(),
        sum.first(),
        sum.last(),
        sum.at(least)
    );
    Verdict::of(holds, why)
}

/// Returns the x of the least point, or NaN without points.
pub(super) fn least(series: &Series) -> f64 {
    let least = series.points.iter().min_by(|one, other| one.1.total_cmp(&other.1));
    least.map_or(f64::NAN, |point| point.0)
}
