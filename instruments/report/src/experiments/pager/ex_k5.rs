//! EX-K5: the counters of a region (K42, figure 4.11).

use super::{Loops, add_times, planted, shared, shared_found};
use crate::{Experiment, Found, Lab, Missing, Paper, Verdict};

pub(in super::super) static EX_K5: Experiment = Experiment {
    id: "EX-K5-pager",
    title: "One region that all threads touch",
    question: "Does it pay to distribute a region, whose only shared data is a counter of faults?",
    paper: Paper {
        source: "J. Appavoo, Clustered Objects, 2005, figure 4.11.",
        found: "Yes, a little. Threads touch parts of one region. The distributed region is better than the shared one. The \
                gap is smaller than for the process and the page manager, but even a counter matters.",
    },
    here: "All other objects are distributed, and the cache is partitioned. The quiescent region is Squall's third form, \
           which counts first touches as the distributed one does.",
    agrees_if: "at 24 processors a first touch makes at least 1 shared access less in a distributed region than in a shared \
                one.",
    command: "squall report EX-K5-pager",
    seconds: (25, 100),
    run,
    verdict,
    alike: || found([[4.0, 4.5], [0.5, 0.6], [0.5, 0.6]]),
    opposite: || found([[0.5, 0.6], [4.0, 4.5], [4.0, 4.5]]),
};

const LOOPS: Loops<'_> = Loops {
    case: "memclone",
    variant: "one",
    subjects: &[
        ("shared region", "squall-dsdp"),
        ("distributed region", "squall-dddp"),
        ("quiescent region", "squall-dqdp"),
    ],
    ops: (500, 2500),
};

fn run(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    let [series] = LOOPS.count(lab, [shared])?;
    let mut found = shared_found("ex-k5-pager", TITLE, series);
    add_times(lab, &mut found, "ex-k5-pager-timed", &LOOPS, Some("kernel-anon"))?;
    Ok(found)
}

const TITLE: &str = "Shared accesses of a first touch in one region";

fn verdict(found: &Found) -> Verdict {
    let [one, many, quiescent] = [0, 1, 2].map(|at| found.series("ex-k5-pager", LOOPS.subjects[at].0).last());
    let why = format!(
        "at 24 processors a first touch makes {one:.2} shared accesses in a shared region, {many:.2} in a distributed one, \
         and {quiescent:.2} in a quiescent one"
    );
    Verdict::of(many + 1.0 <= one, why)
}

fn found(values: [[f64; 2]; 3]) -> Found {
    shared_found("ex-k5-pager", TITLE, planted(LOOPS.subjects, values))
}
