//! EX-K7-pager: three caches under first touches (K42, figure 4.18).

use super::{Loops, add_times, planted, shared, shared_found};
use crate::{Experiment, Found, Lab, Missing, Paper, Verdict};

pub(in super::super) static EX_K7: Experiment = Experiment {
    id: "EX-K7-pager",
    title: "First touches through three file caches",
    question: "Does the cache that serves resident pages best also serve new memory?",
    paper: Paper {
        source: "J. Appavoo, Clustered Objects, 2005, figure 4.18 and §4.1.4.",
        found: "No. Threads touch parts of one region. DHash scales poorly: each first touch goes to the master table, and \
                its replica is not used again. A partitioned cache scales better.",
    },
    here: "The caches of the library, with all other objects distributed. EX-K7 counts the tables alone.",
    agrees_if: "at 24 processors a first touch makes at least half as many shared accesses with DHash as with one lock, and \
                less than half as many with partitions as with DHash.",
    command: "squall report EX-K7-pager",
    seconds: (25, 100),
    run,
    verdict,
    alike: || found([[5.0, 6.0], [5.0, 6.0], [0.5, 0.6]]),
    opposite: || found([[5.0, 6.0], [0.5, 0.6], [0.5, 0.6]]),
};

const LOOPS: Loops<'_> = Loops {
    case: "memclone",
    variant: "one",
    subjects: &[
        ("shared cache", "squall-ddds"),
        ("distributed cache (DHash)", "squall-dddd"),
        ("partitioned cache", "squall-dddp"),
    ],
    ops: (500, 2500),
};

fn run(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    let [series] = LOOPS.count(lab, [shared])?;
    let mut found = shared_found("ex-k7-pager", TITLE, series);
    add_times(lab, &mut found, "ex-k7-pager-timed", &LOOPS, Some("kernel-anon"))?;
    Ok(found)
}

const TITLE: &str = "Shared accesses of a first touch in one cache";

fn verdict(found: &Found) -> Verdict {
    let [one, dhash, parts] = [0, 1, 2].map(|at| found.series("ex-k7-pager", LOOPS.subjects[at].0).last());
    let why = format!(
        "at 24 processors a first touch makes {one:.2} shared accesses in a cache with one lock, {dhash:.2} in DHash, and \
         {parts:.2} in a partitioned cache"
    );
    Verdict::of(dhash > one / 2.0 && parts < dhash / 2.0, why)
}

fn found(values: [[f64; 2]; 3]) -> Found {
    shared_found("ex-k7-pager", TITLE, planted(LOOPS.subjects, values))
}
