//! EX-H1: a call within a processor and across processors (Hurricane, §5.1).

use crate::lab::Loop;
use crate::{Axis, Experiment, Found, Lab, Means, Missing, Paper, Plot, Series, Verdict};

pub(super) static EX_H1: Experiment = Experiment {
    id: "EX-H1",
    title: "Calls of a server, within and across",
    question: "Does a call of a server cost more across than within, and does it depend on other callers?",
    paper: Paper {
        source: "R. Unrau et al., Hierarchical Clustering, J. Supercomputing, 1995, §5.1.",
        found: "A protected procedure call of a user's server takes 32.4 us, however many callers there are. A read \
                fault takes 128 us within a cluster and 243 across, a send with its response 328 and 403.",
    },
    here: "A call that is served on the caller's processor stands for one within, and a call to a sleeping server on \
           another processor for one across. The second is the hand-written pair of futexes of the bench, because \
           Squall brings a sleeping server to its caller. With one processor only the first is measured. The part \
           of the callers is counted, without the kernel: 1 to 16 clients of one server, each on its processor.",
    agrees_if: "at 16 callers a call makes at most 1.1 times as many accesses as at one, of which less than 0.01 are to \
                lines that others write, and the call across takes longer than the one within.",
    command: "squall report EX-H1",
    seconds: (30, 60),
    run,
    verdict,
    alike: || found([800.0, 800.0], 0.0, [2400.0, 8600.0]),
    opposite: || found([800.0, 12_000.0], 30.0, [8600.0, 2400.0]),
};

const CALLS: &str = "a call";
const SHARED: &str = "accesses to lines that others write, at 16 callers";
const WITHIN: &str = "a call within";
const ACROSS: &str = "a call across";
const COUNTED: [usize; 3] = [1, 4, 16];

fn run(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    let (mut points, mut shared) = (Vec::new(), f64::NAN);
    let ops = if lab.quick { 300 } else { 3000 };
    for threads in COUNTED {
        let one = Loop { case: "call-process", subject: "squall", variant: "same-core", threads, ops };
        let counts = lab.count(one)?;
        points.push((threads as f64, counts.accesses));
        shared = counts.write_shared;
    }
    let within = lab.bench("call-process", "same-core", &[1])?.ns("squall", 1);
    let across = lab.bench("call-process", "cross-asleep", &[1])?.ns("futex", 1);
    Ok(make(points, shared, [within, across]))
}

fn make(points: Vec<(f64, f64)>, shared: f64, [within, across]: [f64; 2]) -> Found {
    let plot = Plot {
        name: "ex-h1",
        title: "One call of a common server, by the number of callers, without the kernel",
        x: Axis::linear("processors, each with one caller"),
        y: Axis::log("accesses per call"),
        means: Means::Counted,
        series: vec![Series { name: CALLS.to_owned(), points }],
    };
    let mut found = Found { plots: vec![plot], ..Found::default() };
    found.figure(SHARED, shared, "per call", Means::Counted);
    found.figure(WITHIN, within, "ns", Means::Timed);
    found.figure(ACROSS, across, "ns", Means::Timed);
    found
}

fn verdict(found: &Found) -> Verdict {
    let growth = found.series("ex-h1", CALLS).growth();
    let [shared, within, across] = [SHARED, WITHIN, ACROSS].map(|name| found.value(name));
    let why = format!(
        "a call at 16 callers makes {growth:.2} times as many accesses as at one, {shared:.2} of them to lines that others \
         write; it takes {within:.0} ns within and {across:.0} ns across"
    );
    Verdict::of(growth <= 1.1 && shared < 0.01 && across > within, why)
}

fn found([one, many]: [f64; 2], shared: f64, times: [f64; 2]) -> Found {
    make(vec![(1.0, one), (16.0, many)], shared, times)
}
