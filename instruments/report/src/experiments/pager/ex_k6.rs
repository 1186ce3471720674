//! EX-K6: a file that each processor reads (K42, figure 4.17).

use super::{Loops, add_times, planted, shared, shared_found};
use crate::{Experiment, Found, Lab, Missing, Paper, Verdict};

pub(in super::super) static EX_K6: Experiment = Experiment {
    id: "EX-K6",
    title: "A resident file that each processor searches",
    question: "Does it pay to distribute the cache of a file that programs map again and again?",
    paper: Paper {
        source: "J. Appavoo, Clustered Objects, 2005, figure 4.17.",
        found: "Yes. One grep runs on each processor, over one common file of 111 MB. The time of a grep rises with a shared \
                file cache, and stays low with DHash: it is made to map resident pages again.",
    },
    here: "Each thread maps a smaller file in a process of its own, and searches it page by page. A replica of the file is on each \
           processor from earlier runs, as in the paper.",
    agrees_if: "at 24 processors a page makes more than 1 shared access in a shared cache, and less than 0.01 in a distributed \
                one.",
    command: "squall report EX-K6",
    seconds: (20, 60),
    run,
    verdict,
    alike: || found([[2.0, 3.0], [0.0, 0.0], [0.0, 0.0]]),
    opposite: || found([[0.0, 0.0], [2.0, 3.0], [0.0, 0.0]]),
};

const LOOPS: Loops<'_> = Loops {
    case: "grep",
    variant: "",
    subjects: &[
        ("shared cache", "squall-cache-shared"),
        ("distributed cache (DHash)", "squall-cache-distributed"),
        ("partitioned cache", "squall-cache-partitioned"),
    ],
    ops: (500, 2500),
};

fn run(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    let [series] = LOOPS.count(lab, [shared])?;
    let mut found = shared_found("ex-k6", TITLE, series);
    add_times(lab, &mut found, "ex-k6-timed", &LOOPS, Some("kernel-read"))?;
    Ok(found)
}

const TITLE: &str = "Shared accesses of a page of a resident file";

fn verdict(found: &Found) -> Verdict {
    let [one, many, parts] = [0, 1, 2].map(|at| found.series("ex-k6", LOOPS.subjects[at].0).last());
    let why = format!(
        "at 24 processors a page makes {one:.2} shared accesses in a shared cache, {many:.4} in a distributed one, and \
         {parts:.4} in a partitioned one"
    );
    Verdict::of(one > 1.0 && many < 0.01, why)
}

fn found(values: [[f64; 2]; 3]) -> Found {
    shared_found("ex-k6", TITLE, planted(LOOPS.subjects, values))
}
