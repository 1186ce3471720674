//! EX-K3: the list of regions of a process (K42, figure 4.3).

use super::{Loops, add_times, planted, shared, shared_found};
use crate::{Experiment, Found, Lab, Missing, Paper, Verdict};

pub(in super::super) static EX_K3: Experiment = Experiment {
    id: "EX-K3",
    title: "A process whose threads touch new memory",
    question: "Does it pay to distribute the list in which a fault finds its region?",
    paper: Paper {
        source: "J. Appavoo, Clustered Objects, 2005, figure 4.3.",
        found: "Yes. Each thread touches 2500 pages of its own memory. With a shared process object the time of a \
                thread grows fast beyond 10 processors. With a distributed one it grows much less.",
    },
    here: "Each thread touches the pages of a region with a file cache of its own, in one process. K42's shared process \
           looks up regions under a lock. Squall's shared list is read without one. So the paper's form is Squall's with a \
           lock around each lookup, and all three are counted.",
    agrees_if: "at 24 processors a fault makes more than 1 shared access with lookups under a lock, and less than a tenth as \
                many with a distributed list.",
    command: "squall report EX-K3",
    seconds: (20, 80),
    run,
    verdict,
    alike: || found([[3.0, 3.5], [0.02, 0.03], [0.02, 0.03]]),
    opposite: || found([[0.02, 0.03], [3.0, 3.5], [3.0, 3.5]]),
};

const LOCKED: &str = "shared list under a lock";
const SHARED: &str = "shared list without a lock";
const DISTRIBUTED: &str = "distributed list";
const LOOPS: Loops<'_> = Loops {
    case: "memclone",
    variant: "own",
    subjects: &[(LOCKED, "squall-lddp"), (SHARED, "squall-sddp"), (DISTRIBUTED, "squall-dddp")],
    ops: (500, 2500),
};

fn run(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    let [series] = LOOPS.count(lab, [shared])?;
    let mut found = shared_found("ex-k3", TITLE, series);
    add_times(lab, &mut found, "ex-k3-timed", &LOOPS, Some("kernel-anon"))?;
    Ok(found)
}

const TITLE: &str = "Shared accesses of a first touch, each thread with memory of its own";

fn verdict(found: &Found) -> Verdict {
    let [one, free, many] = [LOCKED, SHARED, DISTRIBUTED].map(|name| found.series("ex-k3", name).last());
    let why = format!(
        "at 24 processors a first touch makes {one:.2} shared accesses with a shared list of regions under a lock, {free:.2} \
         with one without a lock, and {many:.2} with a distributed one"
    );
    Verdict::of(one > 1.0 && many < one / 10.0, why)
}

fn found(values: [[f64; 2]; 3]) -> Found {
    shared_found("ex-k3", TITLE, planted(LOOPS.subjects, values))
}
