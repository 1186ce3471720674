//! EX-Q6: threads that wait for the queue's lock, over time (KTK, figures 3 and 4).

use squall_tsp::{Costs, Form};

use super::{instance, search};
use crate::{Axis, Experiment, Found, Lab, Means, Missing, Paper, Plot, Series, Verdict};

pub(in crate::experiments) static EX_Q6: Experiment = Experiment {
    id: "EX-Q6",
    title: "Travelling salesman: waits for the queue's lock over time",
    question: "How does the contention of the central queue's lock change during a search?",
    paper: Paper {
        source: "A. Gheith et al., KTK, 1994, figures 3 and 4, §5.2. The plots are lost; the text describes them.",
        found: "Contention is heavy and changes much over time. The pattern of one lock differs between the KSR1 and the \
                Butterfly.",
    },
    here: "The search of EX-Q3 with 10 searchers and the central queue, in modelled time. The model of the KSR1 has remote \
           accesses of four times a local one, and that of the Butterfly of twice. The mean number of waiting searchers is \
           shown for each fiftieth of the search.",
    agrees_if: "on the modelled KSR1 at least two searchers wait on average; on both machines the most and the fewest waiting \
                searchers of a fiftieth differ by at least one; and the means of the two machines differ by at least one.",
    command: "squall report EX-Q6",
    seconds: (1, 1),
    run,
    verdict,
    alike: || planted(|at| 4.0 + 2.0 * (at / 4.0).sin(), |at| 1.5 + (at / 4.0).sin()),
    opposite: || planted(|_| 0.1, |_| 0.1),
};

const SEARCHERS: usize = 10;
const SPANS: usize = 50;
const MACHINES: [(&str, Costs); 2] = [("KSR1", Costs::KSR1), ("BBN Butterfly", Costs::BBN)];
const PLOT: &str = "ex-q6";

fn run(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    let instance = instance()?;
    let mut curves = Vec::new();
    for (_, costs) in MACHINES {
        curves.push(search(lab, &instance, Form::Central, SEARCHERS, costs)?.waiting(SPANS));
    }
    Ok(make(curves))
}

fn verdict(found: &Found) -> Verdict {
    let figures = MACHINES.map(|(name, _)| {
        let points = found.series(PLOT, name).points;
        let values = || points.iter().map(|point| point.1);
        let mean = values().sum::<f64>() / points.len() as f64;
        (mean, values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max))
    });
    let [(ksr, least, most), (bbn, bbn_least, bbn_most)] = figures;
    let why = format!(
        "of {SEARCHERS} searchers {ksr:.1} wait on average on the modelled KSR1, {least:.1} to {most:.1} by time; on the \
         Butterfly {bbn:.1}, {bbn_least:.1} to {bbn_most:.1}"
    );
    let changes = most - least >= 1.0 && bbn_most - bbn_least >= 1.0;
    Verdict::of(ksr >= 2.0 && changes && (ksr - bbn).abs() >= 1.0, why)
}

fn make(curves: Vec<Vec<f64>>) -> Found {
    let points = |curve: Vec<f64>| {
        let percent = |at: usize| (at as f64 + 0.5) * 100.0 / SPANS as f64;
        curve.into_iter().enumerate().map(|(at, waiting)| (percent(at), waiting)).collect()
    };
    let series = MACHINES.into_iter().zip(curves);
    let plot = Plot {
        name: PLOT,
        title: "Searchers that wait for the lock of the central queue",
        x: Axis::linear("time, % of the search"),
        y: Axis::linear("waiting searchers"),
        means: Means::Modelled,
        series: series
            .map(|((name, _), curve)| Series { name: name.to_owned(), points: points(curve) })
            .collect(),
    };
    Found { plots: vec![plot], ..Found::default() }
}

fn planted(ksr: impl Fn(f64) -> f64, bbn: impl Fn(f64) -> f64) -> Found {
    let at = || (0..SPANS).map(|at| at as f64);
    make(vec![at().map(ksr).collect(), at().map(bbn).collect()])
}
