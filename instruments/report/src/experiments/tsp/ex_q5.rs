//! EX-Q5: the lock of the central queue (KTK, table 4).

use crate::{Experiment, Found, Lab, Means, Missing, Paper, Verdict};

pub(in crate::experiments) static EX_Q5: Experiment = Experiment {
    id: "EX-Q5",
    title: "Travelling salesman: the lock of the central queue",
    question: "Does a lock that changes its way of waiting speed a central queue up?",
    paper: Paper {
        source: "A. Gheith et al., KTK, 1994, table 4.",
        found: "Yes. With 10 processors, blocking locks take 3207 ms on the BBN Butterfly and configurable ones 2636; on the \
                KSR1 they take 364 and 335. The text claims 20 and 10 %. The table shows 18 and 8 % (X-16).",
    },
    here: "Two threads search 16 cities over one heap, under a lock that blocks and under one that adapts. The medians of \
           searches in turn are compared. The paper's two tables have different set-ups and are not mixed (X-17).",
    agrees_if: "the adaptive lock takes at most 0.97 times as long as the blocking one.",
    command: "squall report EX-Q5",
    seconds: (1, 15),
    run,
    verdict,
    alike: || found(3207.0, 2636.0),
    opposite: || found(335.0, 364.0),
};

const BLOCKING: &str = "blocking lock";
const ADAPTIVE: &str = "adaptive lock";
const THREADS: usize = 2;

fn run(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    let times = lab.bench("tsp", "timed", &[THREADS])?;
    Ok(found(times.metric("lock-blocking/ms", THREADS), times.metric("lock-adaptive/ms", THREADS)))
}

fn verdict(found: &Found) -> Verdict {
    let [blocking, adaptive] = [BLOCKING, ADAPTIVE].map(|name| found.value(name));
    let why = format!(
        "a proof takes {blocking:.1} ms with the blocking lock and {adaptive:.1} ms with the adaptive one, {:.2} times as long",
        adaptive / blocking
    );
    Verdict::of(adaptive <= 0.97 * blocking, why)
}

fn found(blocking: f64, adaptive: f64) -> Found {
    let mut found = Found::default();
    found.figure(BLOCKING, blocking, "ms", Means::Timed);
    found.figure(ADAPTIVE, adaptive, "ms", Means::Timed);
    found
}
