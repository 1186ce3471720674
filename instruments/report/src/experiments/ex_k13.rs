//! EX-K13: what a mediator costs (K42, table 7.1).

use crate::{Experiment, Found, Lab, Means, Missing, Paper, Verdict};

pub(super) static EX_K13: Experiment = Experiment {
    id: "EX-K13",
    title: "The cost of a mediator",
    question: "What does it cost to put a mediator before an object, to call through it, and to remove it?",
    paper: Paper {
        source: "J. Appavoo, Clustered Objects, 2005, table 7.1 and §7.5.1.",
        found: "Attaching takes 17.84 µs, a call through it 1.40 µs, detaching 4.23 µs: attaching is dearest, and it \
                blocks no caller.",
    },
    here: "A mediator stands before an object while it is swapped, and passes its calls on. Attaching changes one table \
           entry per processor. Detaching also waits until no call is left in the mediator, so it may be the dearer one.",
    agrees_if: "attaching takes longer than detaching, and each of them longer than a call.",
    command: "squall report EX-K13",
    seconds: (30, 90),
    run,
    verdict,
    alike: || found(18.0, 1.4, 4.2),
    opposite: || found(1.0, 1.4, 4.2),
};

const ATTACH: &str = "attach";
const CALL: &str = "call through";
const DETACH: &str = "detach";

fn run(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    let times = lab.bench("swap", "null", &[1])?;
    let micros = |metric| times.metric(metric, 1);
    Ok(found(micros("attach_p50_us"), micros("call_through_ns") / 1000.0, micros("complete_p50_us")))
}

fn verdict(found: &Found) -> Verdict {
    let [attach, call, detach] = [ATTACH, CALL, DETACH].map(|name| found.value(name));
    let why =
        format!("attaching takes {attach:.3} µs, a call through {call:.3} µs, detaching {detach:.3} µs");
    Verdict::of(attach > call && detach > call && attach > detach, why)
}

fn found(attach: f64, call: f64, detach: f64) -> Found {
    let mut found = Found::default();
    for (name, value) in [(ATTACH, attach), (CALL, call), (DETACH, detach)] {
        found.figure(name, value, "µs", Means::Timed);
    }
    found
}
