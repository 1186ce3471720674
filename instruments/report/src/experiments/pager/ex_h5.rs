//! EX-H5-pager: programs on pages, by the size of clusters (Hurricane, figures 9 and 10).

use super::clusters::{Machine, Tally};
use super::programs::Program;
use crate::{Axis, Experiment, Found, Lab, Means, Missing, Paper, Plot, Series, Verdict};

pub(in super::super) static EX_H5: Experiment = Experiment {
    id: "EX-H5-pager",
    title: "Programs whose pages are copied to clusters",
    question: "Which size of clusters is best for SOR and for a matrix multiplication?",
    paper: Paper {
        source: "R. Unrau et al., Hierarchical Clustering, J. Supercomputing, 1995, §5.3, figures 9 and 10.",
        found: "Clusters of 4, on 16 processors in stations of 4. In clusters of 1, SOR is slightly slower. Matrix Multiply is \
                much slower, since 15 copies of the matrix B are made. In clusters of 16 it suffers from contention. The paper's third \
                program, 2D-FFT, is left out here.",
    },
    here: "The programs run on regions and caches of the library, one cache per cluster. Its source fetches an absent page from \
           the cache of the cluster that touched it first. A directory of the experiment decides between a copy and a use in \
           the other cluster: a page that was written after it was copied is not copied again. One thread steps all workers, and \
           compares the results with plain computations. Faults, copies and remote uses are counted. The response time is computed \
           from them, with the paper's costs of loads, faults, calls and messages. Each memory module, and the structures of each \
           cluster, serve one request at a time. The paper does not tell how long a fault holds these structures, and how long \
           the programs compute: 32 µs are assumed, and 12 and 36 cycles for a number. With 16 µs, SOR is fastest in clusters of \
           16. The data of the verdict were chosen so that both costs matter. On fewer rows, 32 and 256, both programs are \
           fastest in clusters of 16, and a multiplication of 128 rows is fastest in clusters of 2: a full run plots them.",
    agrees_if: "by the model, both programs take least time in clusters of 2, 4 or 8. In clusters of 1, the multiplication of \
                matrices of 64 rows takes more than 1.1 times as long as in its best ones, and SOR on 1024 rows 1.001 to 1.1 times. In clusters of 16, \
                the multiplication takes more than 1.02 times as long. In clusters of 1 it makes 15 copies of each page of B.",
    command: "squall report EX-H5-pager",
    seconds: (10, 30),
    run,
    verdict,
    alike: || {
        let copies = [(15.0, 30.0), (7.0, 14.0), (3.0, 6.0), (1.0, 2.0), (0.0, 0.0)];
        planted([1.2, 1.05, 1.0, 1.03, 1.1], [1.04, 1.02, 1.0, 1.0, 1.02], copies)
    },
    opposite: || planted([1.0; 5], [0.8, 0.9, 1.0, 1.2, 1.3], [(0.0, 0.0); 5]),
};

const SIZES: [usize; 5] = [1, 2, 4, 8, 16];
const MULTIPLY: &str = "matrix multiply, 64 rows";
const SOR: &str = "SOR, 1024 rows";
/// The programs of the verdict.
const TOLD: [(&str, Program); 2] =
    [(MULTIPLY, Program::Multiply { rows: 64 }), (SOR, Program::Sor { rows: 1024, rounds: 2 })];
/// Further ones, of a full run.
const OTHERS: [(&str, Program); 4] = [
    ("matrix multiply, 32 rows", Program::Multiply { rows: 32 }),
    ("matrix multiply, 128 rows", Program::Multiply { rows: 128 }),
    ("SOR, 256 rows", Program::Sor { rows: 256, rounds: 2 }),
    ("SOR, 2048 rows", Program::Sor { rows: 2048, rounds: 2 }),
];
/// Pages of each cluster in the run with a bound: those of a strip, and half of B.
const BOUND: usize = 3 * 64 / 16 + 64 / 2;
const COPIES_PER_PAGE: &str = "copies of a page of B, in clusters of 1";

fn run(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    let mut found = Found::default();
    let (mut times, mut events) = (Vec::new(), Vec::new());
    let others: &[_] = if lab.quick { &[] } else { &OTHERS };
    for &(name, program) in TOLD.iter().chain(others) {
        let mut tallies = Vec::new();
        for size in SIZES {
            lab.tell(&format!("{name}, clusters of {size}"));
            tallies.push(program.run(Machine::new(16, 4, size)).map_err(Missing)?);
        }
        times.push((name, [0, 1, 2, 3, 4].map(|at| tallies[at].modelled_us / tallies[2].modelled_us)));
        if TOLD.iter().any(|told| told.0 == name) {
            events.extend(counts(name, &tallies));
        }
        if name == MULTIPLY {
            copies(&mut found, &tallies)?;
        }
    }
    found.plots = vec![times_plot(times), counts_plot(events)];
    Ok(found)
}

/// A count of a run.
type Count = fn(&Tally) -> u64;

/// Curves of the counts of a program.
fn counts(program: &str, tallies: &[Tally]) -> Vec<Series> {
    let kinds: [(&str, Count); 4] = [
        ("faults", |it| it.faults),
        ("faults across clusters", |it| it.far_faults),
        ("copies", |it| it.copies),
        ("remote uses", |it| it.remote),
    ];
    let series = kinds.map(|(kind, count)| Series {
        name: format!("{program}: {kind}"),
        points: SIZES.iter().zip(tallies).map(|(size, it)| (*size as f64, count(it) as f64)).collect(),
    });
    series.to_vec()
}

/// Adds the figures of the copies of B.
fn copies(found: &mut Found, tallies: &[Tally]) -> Result<(), Missing> {
    let bounded = Machine { max_pages: BOUND, ..Machine::new(16, 4, 1) };
    let bounded = TOLD[0].1.run(bounded).map_err(Missing)?;
    let mut figure = |name: &str, value: f64, unit| found.figure(name, value, unit, Means::Stepped);
    figure(COPIES_PER_PAGE, tallies[0].copies as f64 / 64.0, "copies");
    figure("memory of copies in clusters of 1", tallies[0].copied_pages as f64, "pages");
    figure("memory of copies in clusters of 4", tallies[2].copied_pages as f64, "pages");
    figure("memory of copies in clusters of 1 with 44 pages each", bounded.copied_pages as f64, "pages");
    figure("copies in clusters of 1 with 44 pages each", bounded.copies as f64, "copies");
    Ok(())
}

fn plot(name: &'static str, title: &'static str, y: Axis, means: Means, series: Vec<Series>) -> Plot {
    Plot { name, title, x: Axis::log("processors per cluster"), y, means, series }
}

fn times_plot(times: Vec<(&str, [f64; 5])>) -> Plot {
    let sizes = SIZES.map(|size| size as f64);
    let series = times
        .into_iter()
        .map(|(name, ys)| Series { name: name.to_owned(), points: sizes.into_iter().zip(ys).collect() });
    let y = Axis::linear("time, relative to clusters of 4");
    plot("ex-h5-pager", "Response time by the cluster size", y, Means::Modelled, series.collect())
}

fn counts_plot(series: Vec<Series>) -> Plot {
    let title = "Faults, copies and remote uses by the cluster size";
    plot("ex-h5-pager-counts", title, Axis::linear("events of a run"), Means::Stepped, series)
}

fn verdict(found: &Found) -> Verdict {
    let [multiply, sor] = [MULTIPLY, SOR].map(|name| found.series("ex-h5-pager", name));
    let best = |series: &Series| series.points.iter().map(|point| point.1).fold(f64::INFINITY, f64::min);
    let is_inside = |series: &Series| best(series) < series.first() && best(series) < series.last();
    let more = |series: &Series, size| series.at(size) / best(series);
    let copies = found.value(COPIES_PER_PAGE);
    let small = [more(&multiply, 1.0), more(&sor, 1.0)];
    let large = [more(&multiply, 16.0), more(&sor, 16.0)];
    let holds = is_inside(&multiply)
        && is_inside(&sor)
        && small[0] > 1.1
        && (1.001..1.1).contains(&small[1])
        && large[0] > 1.02
        && copies == 15.0;
    let least = |series: &Series| {
        series.points.iter().find(|point| point.1 == best(series)).map_or(f64::NAN, |point| point.0)
    };
    let why = format!(
        "by the model, the multiplication is fastest in clusters of {:.0}, and takes {:.2} times as long in clusters of 1 and \
         {:.2} times in clusters of 16; SOR is fastest in clusters of {:.0}, with {:.3} and {:.3} times; in clusters of 1 there \
         are {copies:.0} copies of each page of B",
        least(&multiply),
        small[0],
        large[0],
        least(&sor),
        small[1],
        large[1]
    );
    Verdict::of(holds, why)
}

/// Planted data: relative times, and the copies of both programs.
fn planted(multiply: [f64; 5], sor: [f64; 5], copies: [(f64, f64); 5]) -> Found {
    let points = |of: fn(&(f64, f64)) -> f64| {
        SIZES.iter().zip(&copies).map(|(size, copies)| (*size as f64, of(copies))).collect()
    };
    let series = vec![
        Series { name: format!("{MULTIPLY}: copies"), points: points(|it| 64.0 * it.0) },
        Series { name: format!("{SOR}: copies"), points: points(|it| it.1) },
    ];
    let plots = vec![times_plot(vec![(MULTIPLY, multiply), (SOR, sor)]), counts_plot(series)];
    let mut found = Found { plots, ..Found::default() };
    found.figure(COPIES_PER_PAGE, copies[0].0, "copies", Means::Stepped);
    found
}
