//! EX-K8: a probe before the partitioned cache (K42, §4.1.4).

use super::{Loops, add_times, planted, shared, shared_found};
use crate::{Experiment, Found, Lab, Missing, Paper, Verdict};

pub(in super::super) static EX_K8: Experiment = Experiment {
    id: "EX-K8",
    title: "A trivial partitioned cache",
    question: "Does a cache with four methods and pinned pages show that a partitioned one is worth its work?",
    paper: Paper {
        source: "J. Appavoo, Clustered Objects, 2005, §4.1.4.",
        found: "Yes. Threads fault on a dummy region. With the trivial partitioned cache, faults scale better than with the \
                shared one. The paper prints no figures.",
    },
    here: "A distributed region, called without a process. The trivial cache is an implementation of the program's own: a \
           shared cache for each 100 pages, all of them pinned. Each thread pins 100 pages of its own.",
    agrees_if: "at 24 processors a fault makes more than 1 shared access with the shared cache, and less than 0.01 with the \
                trivial one.",
    command: "squall report EX-K8",
    seconds: (15, 60),
    run,
    verdict,
    alike: || found([[2.0, 3.0], [0.0, 0.0]]),
    opposite: || found([[2.0, 3.0], [2.0, 3.0]]),
};

const LOOPS: Loops<'_> = Loops {
    case: "pin",
    variant: "own",
    subjects: &[
        ("shared cache", "squall-probe-shared"),
        ("trivial partitioned cache", "squall-probe-trivial"),
    ],
    ops: (500, 2500),
};

fn run(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    let [series] = LOOPS.count(lab, [shared])?;
    let mut found = shared_found("ex-k8", TITLE, series);
    add_times(lab, &mut found, "ex-k8-timed", &LOOPS, None)?;
    Ok(found)
}

const TITLE: &str = "Shared accesses of a fault on a resident page";

fn verdict(found: &Found) -> Verdict {
    let [one, parts] = [0, 1].map(|at| found.series("ex-k8", LOOPS.subjects[at].0).last());
    let why = format!(
        "at 24 processors a fault makes {one:.2} shared accesses with the shared cache, and {parts:.4} with the trivial \
         partitioned one"
    );
    Verdict::of(one > 1.0 && parts < 0.01, why)
}

fn found(values: [[f64; 2]; 2]) -> Found {
    shared_found("ex-k8", TITLE, planted(LOOPS.subjects, values))
}
