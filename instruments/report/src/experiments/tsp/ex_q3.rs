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
           own heap, a branch 60 times as long, and one heap serves one searcher at a time. Fragments without order are \
           FIFO queues. The paper's fourth row, the ring through KTK's layer of objects, is counted by turns, as is the \
           queue that its policy changes: the mean of 20 searches. The model has no cost of calls. `cargo run -p xtask -- \
           instructions` compares a put and a get through the object with those by hand. The instance was chosen: its \
           places are those of seed 2, picked among the first 30 for its many subproblems.",
    agrees_if: "in modelled time, fragments without order take at least 1.5 times as long as the central queue, and the ring \
                takes less; the ring branches at most a quarter more subproblems than the central queue; and the ring as an object \
                branches as many as the ring by hand.",
    command: "squall report EX-Q3",
    seconds: (2, 4),
    run,
    verdict,
    alike: || {
        planted([1000.0, 5000.0, 1400.0, 1050.0], [3445.0, 6920.0, 2800.0, 2393.0], [1050.0, 1050.0, 1020.0])
    },
    opposite: || {
        planted([1000.0, 1000.0, 1000.0, 3000.0], [3445.0, 2393.0, 3000.0, 6920.0], [1050.0, 1900.0, 1900.0])
    },
};

const FORMS: [Form; 4] = [Form::Central, Form::Naive, Form::Unbalanced, Form::Ring];
/// Searchers of the table.
const SEARCHERS: usize = 15;
const NODES: &str = "branched";
const TIME: &str = "modelled time";
/// Forms that are counted by turns, on a virtual topology with a processor for each searcher.
const TURNS: [Form; 3] = [Form::Ring, Form::Object, Form::Adaptive];
const TOPOLOGY: &str = "cores:16";
const BY_TURNS: &str = "branched by turns";
const BEST: &str = "best form: branched by turns";
/// The most subproblems of the adaptive queue, relative to the best form.
const ADAPTIVE_MAX: f64 = 1.05;

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
    let stepped = lab.bench_on(TOPOLOGY, "tsp", "stepped", &[SEARCHERS])?;
    let expanded = |form: Form| stepped.metric(&format!("{}/expanded", form.name()), SEARCHERS);
    let others = Form::ALL.into_iter().filter(|form| *form != Form::Adaptive);
    let best = others.map(expanded).fold(f64::INFINITY, f64::min);
    Ok(make(nodes, times, TURNS.map(expanded), best))
}

fn verdict(found: &Found) -> Verdict {
    let [nodes, times] = [NODES, TIME].map(|figure| FORMS.map(|form| found.value(&name(form, figure))));
    let [central, naive, _, ring] = times;
    let [by_hand, object, adaptive] = TURNS.map(|form| found.value(&name(form, BY_TURNS)));
    let more = adaptive / found.value(BEST);
    let limit = if more <= ADAPTIVE_MAX { "within" } else { "a miss of" };
    let why = format!(
        "with {SEARCHERS} searchers, time relative to the central queue: fragments without order {:.2}, with order {:.2}, \
         with the ring {:.2}; branched subproblems {:.0}, {:.0}, {:.0} and {:.0}; by turns, the ring branches {by_hand:.0} \
         by hand and {object:.0} as an object, and the adaptive queue {adaptive:.0}, {more:.3} times as many as the best \
         form, {limit} its limit of {ADAPTIVE_MAX}",
        naive / central,
        times[2] / central,
        ring / central,
        nodes[0],
        nodes[1],
        nodes[2],
        nodes[3]
    );
    let agrees = naive >= 1.5 * central && ring < central && nodes[3] <= 1.25 * nodes[0] && object == by_hand;
    Verdict::of(agrees, why)
}

fn name(form: Form, figure: &str) -> String {
    format!("{}: {figure}", form.name())
}

/// Figures from the points of each form, its time at the last one, and the subproblems by turns.
fn make(nodes: Vec<Vec<(f64, f64)>>, times: [f64; 4], turns: [f64; 3], best: f64) -> Found {
    let mut found = Found::default();
    for (form, branched) in TURNS.into_iter().zip(turns) {
        found.figure(name(form, BY_TURNS), branched, "subproblems", Means::Stepped);
    }
    found.figure(BEST, best, "subproblems", Means::Stepped);
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

fn planted(nodes: [f64; 4], times: [f64; 4], turns: [f64; 3]) -> Found {
    let points = |last| vec![(1.0, 1000.0), (SEARCHERS as f64, last)];
    make(nodes.map(points).to_vec(), times, turns, 1000.0)
}
