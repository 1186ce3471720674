//! EX-K1-process: how to count in a server without sharing (K42, figure 3.1).

use crate::lab::Loop;
use crate::{Axis, Experiment, Found, Lab, Means, Missing, Paper, Plot, Series, Verdict};

pub(super) static EX_K1_PROCESS: Experiment = Experiment {
    id: "EX-K1-process",
    title: "A counter in a server, four ways",
    question: "How much slower does a call of a server that counts become when more processors make it?",
    paper: Paper {
        source: "J. Appavoo, Clustered Objects, 2005, figure 3.1.",
        found: "At 24 processors a counter under a lock is about 19 times slower than at one, an atomic addition 12 \
                times, an array of counters at most 6 times, and an array with padding not at all.",
    },
    here: "Each client calls the server on its own processor. The times are those of calls to a server in another process. \
           The kernel's part of a call, two switches, hides most of the counter there. The counts are of a server \
           in the same process, without the kernel.",
    agrees_if: "at 24 processors a call of the counter with padding takes less than 1.1 times as long as at one, and \
                makes no access to a line that others write. By the model, the other three must slow down more than \
                1.1 times, and the lock most of all.",
    command: "squall report EX-K1-process",
    seconds: (75, 200),
    run,
    verdict,
    alike: || found([19.0, 12.0, 6.0, 1.0], [4.0, 2.0, 1.0, 0.0]),
    opposite: || found([1.0, 1.0, 1.0, 19.0], [0.0, 0.0, 0.0, 4.0]),
};

/// Name in the report, and subject of the case `call-counter`.
const SUBJECTS: [(&str, &str); 4] = [
    ("under a lock", "squall-locked"),
    ("atomic", "squall-atomic"),
    ("array", "squall-array"),
    ("array with padding", "squall-padded"),
];
const COUNTED: [usize; 4] = [1, 4, 12, 24];

fn run(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    let (mut modelled, mut shared) = (Vec::new(), [f64::NAN; 4]);
    let ops = if lab.quick { 300 } else { 3000 };
    for (at, (name, subject)) in SUBJECTS.into_iter().enumerate() {
        let mut points = Vec::new();
        for threads in COUNTED {
            let counts = lab.count(Loop { case: "call-counter", subject, variant: "", threads, ops })?;
            points.push((threads as f64, counts.modelled_ns));
            shared[at] = counts.write_shared;
        }
        modelled.push(Series { name: name.to_owned(), points });
    }
    let threads = lab.threads();
    let times = lab.bench("call-counter", "", &threads)?;
    let timed = SUBJECTS.map(|(name, subject)| {
        let points = threads.iter().map(|&n| (n as f64, times.ns(subject, n))).collect();
        Series { name: name.to_owned(), points }
    });
    let mut found = make(modelled, shared);
    found.plots.push(Plot {
        name: "ex-k1-process-timed",
        title: "One call of the counter in another process, on this machine",
        x: Axis::linear("clients"),
        y: Axis::log("ns per call"),
        means: Means::Timed,
        series: timed.to_vec(),
    });
    Ok(found)
}

fn shared_by(name: &str) -> String {
    format!("accesses to lines that others write, at 24 processors: {name}")
}

fn make(series: Vec<Series>, shared: [f64; 4]) -> Found {
    let plot = Plot {
        name: "ex-k1-process",
        title: "One call of the counter, by the number of processors, without the kernel",
        x: Axis::linear("processors, each with one client"),
        y: Axis::log("ns per call"),
        means: Means::Modelled,
        series,
    };
    let mut found = Found { plots: vec![plot], ..Found::default() };
    for ((name, _), shared) in SUBJECTS.into_iter().zip(shared) {
        found.figure(shared_by(name), shared, "per call", Means::Counted);
    }
    found
}

fn verdict(found: &Found) -> Verdict {
    let [lock, atomic, array, padded] =
        SUBJECTS.map(|(name, _)| found.series("ex-k1-process", name).growth());
    let shared = SUBJECTS.map(|(name, _)| found.value(&shared_by(name)));
    let why = format!(
        "by the model of a server, a call at 24 processors takes {lock:.1} times as long as at one if the counter is under a lock, \
         {atomic:.1} times if it is atomic, {array:.1} times if it is an array, and {padded:.2} times with padding; \
         each call makes {:.2}, {:.2}, {:.2} and {:.2} accesses to lines that others write",
        shared[0], shared[1], shared[2], shared[3]
    );
    let others = lock > atomic && lock > array && atomic > 1.1 && array > 1.1;
    Verdict::of(others && padded < 1.1 && shared[3] < 0.01, why)
}

fn found(growths: [f64; 4], shared: [f64; 4]) -> Found {
    let series = SUBJECTS.into_iter().zip(growths);
    let series =
        series.map(|((name, _), by)| Series { name: name.to_owned(), points: vec![(1.0, 1.0), (24.0, by)] });
    make(series.collect(), shared)
}
