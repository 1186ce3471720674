//! EX-Q3: four implementations of the work queue (KTK, table 3).

use squall_tsp::{Costs, Form};

use super::{instance, search};
use crate::{Axis, Experiment, Found, Lab, Means, Missing, Paper, Plot, Series, Verdict};

pub(in crate::experiments) static EX_Q3: Experiment = Experiment {
    id: "EX-Q3",
    title: "Travelling salesman: a central and a distributed queue",
    question: "Which queue of open subproblems lets 15 searchers prove the shortest tour soonest?",
    paper: Paper {
        source: "A. Gheith et al., KTK, 1994, table 3.",
        found: "The balanced one. On the BBN Butterfly the central queue takes 3445 ms, fragments without order and \
                balance 6920, fragments with a ring 2393, and the ring through KTK 2725. On the KSR1 these are 724, 1346, \
                579 and 636 ms.",
    },
    here: "A search of 16 cities over the real queue in each form. One thread steps 15 searchers. Branched subproblems \
           are counted. In modelled time, an access of another searcher's heap takes four times as long as one of the \
           own heap, a branch 60 times as long, and one heap serves one searcher at a time. The paper's fourth row, the \
           ring through KTK's layer of objects, is left out, since the model has no cost of calls.",
    agrees_if: "in modelled time, fragments without order take at least 1.5 times as long as the central queue, and the ring \
                takes less; and the ring branches at most a quarter more subproblems than the central queue.",
    command: "squall report EX-Q3",
    seconds: (1, 2),
    run,
    verdict,
    alike: || planted([1000.0, 5000.0, 1400.0, 1050.0], [3445.0, 6920.0, 2800.0, 2393.0]),
    opposite: || planted([1000.0, 1000.0, 1000.0, 3000.0], [3445.0, 2393.0, 3000.0, 6920.0]),
};

const FORMS: [Form; 4] = [Form::Central, Form::Naive, Form::Unbalanced, Form::Ring];
/// Searchers of the table.
const SEARCHERS: usize = 15;
const NODES: &str = "branched";
const TIME: &str = "modelled time";

fn run(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    let instance = instance()?;
    let counts: &[usize] = if lab.quick { &[1, 4, SEARCHERS] } else { &[1, 2, 4, 8, 12, SEARCHERS] };
    let (mut nodes, mut times) = (Vec::new(), [f64::NAN; 4]);
    for (at, form) in FORMS.into_iter().enumerate() {
        let mut points = Vec::new();
        for &searchers in counts {
            let found = search(lab, &instance, form, searchers, Costs::KSR1)?;
            points.push((searchers as f64, found.work.expanded as f64));
            times[at] = found.time as f64;
        }
        nodes.push(points);
    }
    Ok(make(nodes, times))
}

fn verdict(found: &Found) -> Verdict {
    let [nodes, times] = [NODES, TIME].map(|figure| FORMS.map(|form| found.value(&name(form, figure))));
    let [central, naive, _, ring] = times;
    let why = format!(
        "with {SEARCHERS} searchers, time relative to the central queue: fragments without order {:.2}, with order {:.2}, \
         with the ring {:.2}; branched subproblems {:.0}, {:.0}, {:.0} and {:.0}",
        naive / central,
        times[2] / central,
        ring / central,
        nodes[0],
        nodes[1],
        nodes[2],
        nodes[3]
    );
    Verdict::of(naive >= 1.5 * central && ring < central && nodes[3] <= 1.25 * nodes[0], why)
}

fn name(form: Form, figure: &str) -> String {
    format!("{}: {figure}", form.name())
}

/// Figures from the points of each form, and its time at the last one.
fn make(nodes: Vec<Vec<(f64, f64)>>, times: [f64; 4]) -> Found {
    let mut found = Found::default();
    let mut series = Vec::new();
    for ((form, points), time) in FORMS.into_iter().zip(nodes).zip(times) {
        let last = points.last().map_or(f64::NAN, |point| point.1);
        found.figure(name(form, NODES), last, "subproblems", Means::Stepped);
        found.figure(name(form, TIME), time, "local accesses", Means::Modelled);
        series.push(Series { name: form.name().to_owned(), points });
    }
    found.plots.push(Plot {
        name: "ex-q3",
        title: "Branched subproblems of a proof",
        x: Axis::linear("searchers"),
        y: Axis::log("branched subproblems"),
        means: Means::Stepped,
        series,
    });
    found
}

fn planted(nodes: [f64; 4], times: [f64; 4]) -> Found {
    let points = |last| vec![(1.0, 1000.0), (SEARCHERS as f64, last)];
    make(nodes.map(points).to_vec(), times)
}
