//! EX-H6-pager: clusters and stations, with pages (Hurricane, figure 11).

use super::clusters::Machine;
use super::programs::Program;
use crate::experiments::ex_h7::least;
use crate::{Axis, Experiment, Found, Lab, Means, Missing, Paper, Plot, Series, Verdict};

pub(in super::super) static EX_H6: Experiment = Experiment {
    id: "EX-H6-pager",
    title: "Clusters of pages that match the machine",
    question: "Does a matrix multiplication on pages cost least when a cluster is a station of the machine?",
    paper: Paper {
        source: "R. Unrau et al., Hierarchical Clustering, J. Supercomputing, 1995, figure 11 and §5.4.",
        found: "Yes. Eight processors multiply matrices, as four stations of two processors and as two of four. The response time \
                is least when the cluster size is that of a station. Four processors per station are generally \
                better than two, except for clusters of two, which then share a bus.",
    },
    here: "The program and its pages are those of EX-H5-pager, on 8 processors. The verdict is about the passes over pages in \
           the memory of another station, which are counted. The response time by the model is plotted too. It has no bus and no \
           ring, which are the difference between stations: so its minimum need not lie at the size of a station.",
    agrees_if: "on both machines the passes between stations are fewest at the size of a station, and two stations of four \
                have fewer of them than four of two at each cluster size.",
    command: "squall report EX-H6-pager",
    seconds: (5, 5),
    run,
    verdict,
    alike: || found([900.0, 400.0, 600.0, 800.0], [600.0, 300.0, 200.0, 500.0]),
    opposite: || found([400.0, 600.0, 700.0, 900.0], [600.0, 400.0, 300.0, 200.0]),
};

const SIZES: [usize; 4] = [1, 2, 4, 8];
const PROGRAM: Program = Program::Multiply { rows: 32 };
const FAR: &str = "ex-h6-pager";
/// Name in the report, and processors of a station.
const MACHINES: [(&str, usize); 2] = [("4 stations of 2", 2), ("2 stations of 4", 4)];

fn run(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    let (mut far, mut time) = ([[f64::NAN; 4]; 2], [[f64::NAN; 4]; 2]);
    for (machine, (name, station)) in MACHINES.into_iter().enumerate() {
        for (at, size) in SIZES.into_iter().enumerate() {
            lab.tell(&format!("{name}, clusters of {size}"));
            let tally = PROGRAM.run(Machine::new(8, station, size)).map_err(Missing)?;
            (far[machine][at], time[machine][at]) = (tally.far_passes as f64, tally.modelled_us / 1000.0);
        }
    }
    let mut found = found(far[0], far[1]);
    let y = Axis::linear("ms, by the model");
    found.plots.push(plot("ex-h6-pager-times", "Response time", y, Means::Modelled, time));
    Ok(found)
}

fn plot(name: &'static str, title: &'static str, y: Axis, means: Means, of: [[f64; 4]; 2]) -> Plot {
    let sizes = SIZES.map(|size| size as f64);
    let series = MACHINES
        .into_iter()
        .zip(of)
        .map(|((name, _), ys)| Series { name: name.to_owned(), points: sizes.into_iter().zip(ys).collect() });
    Plot { name, title, x: Axis::log("processors in a cluster"), y, means, series: series.collect() }
}

fn found(two: [f64; 4], four: [f64; 4]) -> Found {
    let y = Axis::linear("passes over a page");
    let plot = plot(FAR, "Passes between stations", y, Means::Stepped, [two, four]);
    Found { plots: vec![plot], ..Found::default() }
}

fn verdict(found: &Found) -> Verdict {
    let [two, four] = MACHINES.map(|(name, _)| found.series(FAR, name));
    let matches = MACHINES.iter().zip([&two, &four]).all(|((_, size), series)| least(series) == *size as f64);
    let fewer =
        !two.points.is_empty() && two.points.iter().zip(&four.points).all(|(two, four)| four.1 < two.1);
    let list = |series: &Series| {
        series.points.iter().map(|point| format!("{:.0}", point.1)).collect::<Vec<_>>().join(", ")
    };
    let [time_two, time_four] = MACHINES.map(|(name, _)| least(&found.series("ex-h6-pager-times", name)));
    let why = format!(
        "at clusters of 1, 2, 4 and 8, there are {} passes between stations of two, and {} between stations of four; fewest at \
         clusters of {:.0} and of {:.0}; the response time by the model is least at {time_two:.0} and {time_four:.0}",
        list(&two),
        list(&four),
        least(&two),
        least(&four)
    );
    Verdict::of(matches && fewer, why)
}
