//! EX-Q2: the cost of attributes of a call (KTK, table 2).

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
    here: "A call of an object with a policy, with 0, 1, 2 and 4 attributes, and a plain call.",
    command: "squall report EX-Q2",
    seconds: (60, 250),
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
    let times = lab.bench("invoke", "call", &[1])?;
    Ok(found(times.ns("squall", 1), COUNTS.map(|(_, subject)| times.ns(subject, 1))))
}

fn verdict(found: &Found) -> Verdict {
    let series = found.series("ex-q2", SERIES);
    let (none, one, four) = (series.at(0.0), series.at(1.0), series.at(4.0));
    let plain = found.value(PLAIN);
    let why = format!(
        "a plain call takes {plain:.1} ns, a call with a policy and no attribute {none:.1} ns, with one {one:.1} ns, \
         with four {four:.1} ns"
    );
    // Gently: three further attributes add at most half of the call with one.
    Verdict::of(plain <= none && four <= 1.5 * one && one >= 0.9 * none, why)
}

fn found(plain: f64, with: [f64; 4]) -> Found {
    let points = COUNTS.iter().zip(with).map(|((count, _), ns)| (*count as f64, ns)).collect();
    let plot = Plot {
        name: "ex-q2",
        title: "One call, by the number of its attributes",
        x: Axis::linear("attributes"),
        y: Axis::linear("ns per call"),
        means: Means::Timed,
        series: vec![Series { name: SERIES.to_owned(), points }],
    };
    let mut found = Found { plots: vec![plot], ..Found::default() };
    found.figure(PLAIN, plain, "ns", Means::Timed);
    found
}
