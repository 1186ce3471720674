//! EX-Q2: the cost of attributes of a call (KTK, table 2).

use crate::lab::Loop;
use crate::{Axis, Experiment, Found, Lab, Means, Missing, Paper, Plot, Series, Verdict};

pub(super) static EX_Q2: Experiment = Experiment {
    id: "EX-Q2",
    title: "Attributes of a call",
    question: "What does each attribute of a call add to its cost?",
    paper: Paper {
        source: "A. Gheith et al., KTK, 1994, table 2.",
        found: "A call without attributes takes 14 µs, with one 14, with two 17; without the attribute mechanism 13. \
                The cost climbs gently.",
    },
    here: "A plain call, and calls with 0, 1, 2 and 4 attributes. A function of the object (its policy) looks for four. \
           Loads and stores are counted.",
    agrees_if: "attributes never make a call cheaper, and two make it at most 1.4 times as dear as none.",
    command: "squall report EX-Q2",
    seconds: (10, 20),
    run,
    verdict,
    alike: || found(13.0, [14.0, 14.0, 17.0, 20.0]),
    opposite: || found(13.0, [14.0, 40.0, 80.0, 160.0]),
};

const COUNTS: [(usize, &str); 4] = [
    (0, "squall-attributes-0"),
    (1, "squall-attributes-1"),
    (2, "squall-attributes-2"),
    (4, "squall-attributes-4"),
];
const PLAIN: &str = "plain call";
const SERIES: &str = "with attributes";

fn run(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    let mut count = |subject| -> Result<f64, Missing> {
        Ok(lab.count(Loop { case: "invoke", subject, variant: "call", threads: 1, ops: 2000 })?.accesses)
    };
    let plain = count("squall")?;
    let mut with = [f64::NAN; 4];
    for (at, (_, subject)) in COUNTS.into_iter().enumerate() {
        with[at] = count(subject)?;
    }
    Ok(found(plain, with))
}

fn verdict(found: &Found) -> Verdict {
    let series = found.series("ex-q2", SERIES);
    let [none, one, two, four] = [0.0, 1.0, 2.0, 4.0].map(|count| series.at(count));
    let plain = found.value(PLAIN);
    let why = format!(
        "loads and stores: a plain call {plain:.0}, a call with a policy and no attribute {none:.0}, with one {one:.0}, \
         with two {two:.0}, with four {four:.0}"
    );
    // In the paper two attributes add a fifth.
    Verdict::of(plain <= none && none <= one && one <= two && two <= 1.4 * none, why)
}

fn found(plain: f64, with: [f64; 4]) -> Found {
    let points = COUNTS.iter().zip(with).map(|((count, _), ns)| (*count as f64, ns)).collect();
    let plot = Plot {
        name: "ex-q2",
        title: "One call, by the number of its attributes",
        x: Axis::linear("attributes"),
        y: Axis::linear("loads and stores per call"),
        means: Means::Counted,
        series: vec![Series { name: SERIES.to_owned(), points }],
    };
    let mut found = Found { plots: vec![plot], ..Found::default() };
    found.figure(PLAIN, plain, "accesses", Means::Counted);
    found
}
