//! EX-K1: how to count without sharing (K42, figure 3.1).

use crate::lab::Loop;
use crate::{Axis, Experiment, Found, Lab, Means, Missing, Paper, Plot, Series, Verdict};

pub(super) static EX_K1: Experiment = Experiment {
    id: "EX-K1",
    title: "A shared counter, four ways",
    question: "How much slower does an increment become when more processors do it?",
    paper: Paper {
        source: "J. Appavoo, Clustered Objects, 2005, figure 3.1.",
        found: "At 24 processors a counter under a lock is about 19 times slower than at one, an atomic addition 12 \
                times, an array of counters at most 6 times, and an array with padding not at all.",
    },
    here: "The paper's clients call a server that counts, so all its curves begin at the cost of that call. Here the \
           threads count directly, and the same steps are steeper. A line holds 8 counters of the array, where the paper's \
           held 16.",
    agrees_if: "at the most processors an increment costs most under a lock, then as an atomic addition, then in the \
                array, there more than 1.5 times its cost on one. With padding and with Squall it must slow down less \
                than 1.1 times.",
    command: "squall report EX-K1",
    seconds: (60, 300),
    run,
    verdict,
    alike: || found([1.0, 8.0, 19.0], [1.0, 5.0, 12.0], [1.0, 4.0, 6.0], [1.0; 3], [1.0; 3]),
    opposite: || found([1.0; 3], [1.0; 3], [1.0; 3], [1.0, 8.0, 19.0], [1.0, 8.0, 19.0]),
};

/// Name in the report, and subject of the case `counter`.
const SUBJECTS: [(&str, &str); 5] = [
    ("under a lock", "mutex"),
    ("atomic", "atomic"),
    ("array", "unpadded"),
    ("array with padding", "padded"),
    ("Squall, distributed", "squall-distributed"),
];
const COUNTED: [usize; 5] = [1, 4, 8, 16, 24];

fn run(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    let mut found = Found::default();
    let threads = lab.threads();
    let times = lab.bench("counter", "", &threads)?;
    let timed = SUBJECTS.map(|(name, subject)| {
        let points = threads.iter().map(|&n| (n as f64, times.ns(subject, n))).collect();
        Series { name: name.to_owned(), points }
    });
    let mut modelled = Vec::new();
    for (name, subject) in SUBJECTS {
        let mut points = Vec::new();
        for n in COUNTED {
            let ops = if lab.quick { 300 } else { 3000 };
            match lab.count(Loop { case: "counter", subject, variant: "", threads: n, ops }) {
                Ok(counts) => points.push((n as f64, counts.modelled_ns)),
                Err(Missing(why)) => {
                    found.missing.push(why);
                    found.plots.push(timed_plot(timed.to_vec()));
                    return Ok(found);
                }
            }
        }
        modelled.push(Series { name: name.to_owned(), points });
    }
    found.plots.push(modelled_plot(modelled));
    found.plots.push(timed_plot(timed.to_vec()));
    Ok(found)
}

fn modelled_plot(series: Vec<Series>) -> Plot {
    Plot {
        name: "ex-k1",
        title: "One increment, by the number of processors",
        x: Axis::linear("processors, each with one thread"),
        y: Axis::log("ns per increment"),
        means: Means::Modelled,
        series,
    }
}

fn timed_plot(series: Vec<Series>) -> Plot {
    Plot {
        name: "ex-k1-timed",
        title: "One increment on this machine",
        x: Axis::linear("threads"),
        y: Axis::log("ns per increment"),
        means: Means::Timed,
        series,
    }
}

fn verdict(found: &Found) -> Verdict {
    let series = SUBJECTS.map(|(name, _)| found.series("ex-k1", name));
    let [lock, atomic, array, padded, squall] = series.each_ref().map(Series::last);
    let [.., array_growth, padded_growth, squall_growth] = series.each_ref().map(Series::growth);
    let order = lock > atomic && atomic > array && array > padded;
    let why = format!(
        "by the model of a server, at 24 processors an increment takes {lock:.0} ns under a lock, {atomic:.0} ns as an atomic addition, \
         {array:.0} ns in an array ({array_growth:.1} times as long as at one processor), {padded:.1} ns with padding \
         ({padded_growth:.1} times), and {squall:.1} ns as a distributed counter of Squall ({squall_growth:.1} times)"
    );
    Verdict::of(order && array_growth > 1.5 && padded_growth < 1.1 && squall_growth < 1.1, why)
}

fn found(lock: [f64; 3], atomic: [f64; 3], array: [f64; 3], padded: [f64; 3], squall: [f64; 3]) -> Found {
    let at = [1.0, 8.0, 24.0];
    let series = SUBJECTS.iter().zip([lock, atomic, array, padded, squall]);
    let series = series
        .map(|((name, _), ys)| Series { name: (*name).to_owned(), points: at.into_iter().zip(ys).collect() });
    Found { plots: vec![modelled_plot(series.collect())], ..Found::default() }
}
