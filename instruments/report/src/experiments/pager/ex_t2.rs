//! EX-T2-pager: both sides of the trade, in a process (Tornado, figure 5).

use super::{Loops, modelled, planted, plot, shared};
use crate::{Experiment, Found, Lab, Means, Missing, Paper, Series, Verdict};

pub(in super::super) static EX_T2: Experiment = Experiment {
    id: "EX-T2-pager",
    title: "A process with one representative or many",
    question: "Do representatives of a process pay for faults, and what do they cost when a region ends?",
    paper: Paper {
        source: "B. Gamsa et al., Tornado, OSDI 1999, figure 5.",
        found: "Faults on resident pages scale if the process has a representative on each processor. With one, all \
                wait for the lock of its list. Destroying a region is the reverse: it is dearer with many.",
    },
    here: "A fault pins a resident page through a process. Squall reads the list without a lock, so the one representative \
           gets a lock around each lookup here. All threads have looked up each region that is unmapped. EX-T2 \
           shows the trade for maps.",
    agrees_if: "at 24 processors a fault makes more than 1 shared access with one representative, and less than 0.01 with many. \
                By the model, an unmap takes more than 1.2 times as long with many.",
    command: "squall report EX-T2-pager",
    seconds: (20, 60),
    run,
    verdict,
    alike: || found([[2.0, 3.0], [0.0, 0.0]], [[3000.0, 9000.0], [5000.0, 40_000.0]]),
    opposite: || found([[0.0, 0.0], [2.0, 3.0]], [[5000.0, 40_000.0], [3000.0, 9000.0]]),
};

const ONE: &str = "one representative";
const MANY: &str = "one per processor";
const SUBJECTS: [(&str, &str); 2] = [(ONE, "squall-process-shared"), (MANY, "squall-process-distributed")];
const FAULTS: Loops<'_> = Loops { case: "pin", variant: "10k", subjects: &SUBJECTS, ops: (500, 2500) };
/// The case has 40 regions for each thread.
const UNMAPS: Loops<'_> = Loops { case: "unmap", variant: "", subjects: &SUBJECTS, ops: (40, 40) };

fn run(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    let [faults] = FAULTS.count(lab, [shared])?;
    let [unmaps] = UNMAPS.count(lab, [modelled])?;
    Ok(make(faults, unmaps))
}

fn make(faults: Vec<Series>, unmaps: Vec<Series>) -> Found {
    let title = "Shared accesses of a fault on a resident page";
    let faults = plot("ex-t2-pager", title, "shared accesses per fault", Means::Counted, faults);
    let title = "The end of a region that all processors know";
    let unmaps = plot("ex-t2-pager-unmaps", title, "ns per unmap", Means::Modelled, unmaps);
    Found { plots: vec![faults, unmaps], ..Found::default() }
}

fn verdict(found: &Found) -> Verdict {
    let of = |plot| [ONE, MANY].map(|name| found.series(plot, name).last());
    let ([one, many], [unmap_one, unmap_many]) = (of("ex-t2-pager"), of("ex-t2-pager-unmaps"));
    let why = format!(
        "at 24 processors a fault makes {one:.2} shared accesses with one representative and {many:.4} with one per processor; \
         by the model of a server, an unmap takes {unmap_one:.0} ns and {unmap_many:.0} ns"
    );
    Verdict::of(one > 1.0 && many < 0.01 && unmap_many > 1.2 * unmap_one, why)
}

fn found(faults: [[f64; 2]; 2], unmaps: [[f64; 2]; 2]) -> Found {
    make(planted(&SUBJECTS, faults), planted(&SUBJECTS, unmaps))
}
