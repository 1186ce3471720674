//! EX-K7: a structure tuned for re-use, under first touches (K42, figure 4.18).

use crate::lab::Loop;
use crate::{Axis, Experiment, Found, Lab, Means, Missing, Paper, Plot, Series, Verdict};

pub(super) static EX_K7: Experiment = Experiment {
    id: "EX-K7",
    title: "First touches of memory, three ways",
    question: "Does a distributed table help threads that touch each page once?",
    paper: Paper {
        source: "J. Appavoo, Clustered Objects, 2005, figure 4.18 and §4.1.4.",
        found: "No. Each thread touches 2500 pages of one region once. The distributed table (DHash) scales poorly: every first \
                touch goes to the master table, and the replica that it makes locally is not used again. A \
                table in parts, one for each processor's pages, scales better.",
    },
    here: "The paper times page faults. Here a touch makes an entry in a table, and the same code is counted under \
           emulation. A miss is an access to a line that another processor wrote since, or a write to a line that \
           others have read, as expected from the counts in a random order. The paper's shared table has one lock. \
           Squall's central map has none, so both are counted. Only the first touch is counted, not the lookups \
           after it, for which the distributed table is made.",
    agrees_if: "at 16 processors a touch in the distributed table misses more than 0.9 times as often as in the central \
                map, and makes more than 1.5 times its accesses. In parts it must miss less than a tenth as often.",
    command: "squall report EX-K7",
    seconds: (25, 45),
    run,
    verdict,
    alike: || found([4.0, 6.0], [2.0, 3.0], [4.0, 5.0], [0.1, 0.1], [60.0, 200.0]),
    opposite: || found([4.0, 6.0], [2.0, 3.0], [0.5, 0.2], [0.1, 0.1], [60.0, 50.0]),
};

const LOCKED: &str = "one table, one lock";
const CENTRAL: &str = "one table, no lock";
const DISTRIBUTED: &str = "distributed table";
const PARTS: &str = "table in parts";
/// Name in the report, and subject of the case `first-touch`.
const SUBJECTS: [(&str, &str); 4] = [
    (LOCKED, "squall-locked"),
    (CENTRAL, "squall-central"),
    (DISTRIBUTED, "squall-distributed"),
    (PARTS, "squall-partitioned"),
];
const COUNTED: [usize; 4] = [2, 4, 8, 16];

fn run(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    let ops = if lab.quick { 300 } else { 2500 };
    let (mut misses, mut accesses) = (Vec::new(), Vec::new());
    for (name, subject) in SUBJECTS {
        let (mut points, mut last) = (Vec::new(), f64::NAN);
        for threads in COUNTED {
            let counts = lab.count(Loop { case: "first-touch", subject, variant: "", threads, ops })?;
            points.push((threads as f64, counts.near_misses + counts.far_misses));
            last = counts.accesses;
        }
        misses.push(Series { name: name.to_owned(), points });
        accesses.push((name, last));
    }
    let threads = lab.threads();
    let times = lab.bench("first-touch", "", &threads)?;
    let series = SUBJECTS.map(|(name, subject)| {
        let points = threads.iter().map(|&n| (n as f64, times.ns(subject, n))).collect();
        Series { name: name.to_owned(), points }
    });
    let mut found = make(misses, &accesses);
    found.plots.push(Plot {
        name: "ex-k7-timed",
        title: "A first touch on this machine",
        x: Axis::linear("threads"),
        y: Axis::linear("ns per touch"),
        means: Means::Timed,
        series: series.to_vec(),
    });
    Ok(found)
}

fn make(misses: Vec<Series>, accesses: &[(&str, f64)]) -> Found {
    let plot = Plot {
        name: "ex-k7",
        title: "Misses on shared lines per first touch",
        x: Axis::linear("processors, each with one thread"),
        y: Axis::linear("misses per touch"),
        means: Means::Modelled,
        series: misses,
    };
    let mut found = Found { plots: vec![plot], ..Found::default() };
    for &(name, value) in accesses {
        found.figure(format!("accesses, {name}"), value, "per touch", Means::Counted);
    }
    found
}

fn verdict(found: &Found) -> Verdict {
    let misses = |name| found.series("ex-k7", name).last();
    let accesses = |name| found.value(&format!("accesses, {name}"));
    let [locked, central, distributed, parts] = [LOCKED, CENTRAL, DISTRIBUTED, PARTS].map(misses);
    let more = accesses(DISTRIBUTED) / accesses(CENTRAL);
    let holds = distributed > 0.9 * central && more > 1.5 && parts < distributed / 10.0;
    let why = format!(
        "at 16 processors a touch misses {locked:.2} times in one table under a lock, {central:.2} times without it, \
         {distributed:.2} times in the distributed table, and {parts:.2} times in parts; the distributed table makes \
         {more:.1} times the accesses of the central one"
    );
    Verdict::of(holds, why)
}

fn found(
    locked: [f64; 2],
    central: [f64; 2],
    distributed: [f64; 2],
    parts: [f64; 2],
    accesses: [f64; 2],
) -> Found {
    let series = SUBJECTS.iter().zip([locked, central, distributed, parts]);
    let points = |ys: [f64; 2]| [2.0, 16.0].into_iter().zip(ys).collect();
    let series = series.map(|((name, _), ys)| Series { name: (*name).to_owned(), points: points(ys) });
    make(series.collect(), &[(CENTRAL, accesses[0]), (DISTRIBUTED, accesses[1])])
}
