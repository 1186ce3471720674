//! EX-K4: the list of regions and the page manager (K42, figure 4.5).

use super::{Loops, add_times, planted, shared, shared_found};
use crate::{Experiment, Found, Lab, Missing, Paper, Verdict};

pub(in super::super) static EX_K4: Experiment = Experiment {
    id: "EX-K4",
    title: "Two objects on the way of a fault",
    question: "Is it enough to distribute one of the objects that each fault uses?",
    paper: Paper {
        source: "J. Appavoo, Clustered Objects, 2005, figure 4.5.",
        found: "No. Threads touch new memory, with a shared and a distributed process object, and with a shared and a \
                distributed page manager. Either one alone is not enough: the time of a thread stays low only if both \
                are distributed.",
    },
    here: "The threads are those of EX-K3. The shared list has a lock around each lookup, as K42's. K42's process forwards each request for a page to the global page manager. So the \
           caches here get their pages from it directly, and not from the batches of the process.",
    agrees_if: "at 24 processors a fault makes more than 1 shared access if either object is shared, and less than a tenth of \
                the fewest of these if both are distributed.",
    command: "squall report EX-K4",
    seconds: (20, 120),
    run,
    verdict,
    alike: || found([[6.0, 7.0], [3.0, 3.5], [3.0, 4.0], [0.02, 0.03]]),
    opposite: || found([[6.0, 7.0], [0.02, 0.03], [3.0, 3.5], [0.02, 0.03]]),
};

const LOOPS: Loops<'_> = Loops {
    case: "memclone",
    variant: "own",
    subjects: &[
        ("both shared", "squall-ldsp"),
        ("list shared", "squall-lddp"),
        ("page manager shared", "squall-ddsp"),
        ("both distributed", "squall-dddp"),
    ],
    ops: (500, 2500),
};

fn run(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    let [series] = LOOPS.count(lab, [shared])?;
    let mut found = shared_found("ex-k4", TITLE, series);
    add_times(lab, &mut found, "ex-k4-timed", &LOOPS, Some("kernel-anon"))?;
    Ok(found)
}

const TITLE: &str = "Shared accesses of a first touch, by the forms of the process and the page manager";

fn verdict(found: &Found) -> Verdict {
    let [both, list, manager, neither] =
        [0, 1, 2, 3].map(|at| found.series("ex-k4", LOOPS.subjects[at].0).last());
    let why = format!(
        "at 24 processors a first touch makes {both:.2} shared accesses if the list and the page manager are shared, \
         {list:.2} if the list is, {manager:.2} if the page manager is, and {neither:.2} if both are distributed"
    );
    let fewest = both.min(list).min(manager);
    let all = [both, list, manager].iter().all(|shared| *shared > 1.0);
    Verdict::of(all && neither < fewest / 10.0, why)
}

fn found(values: [[f64; 2]; 4]) -> Found {
    shared_found("ex-k4", TITLE, planted(LOOPS.subjects, values))
}
