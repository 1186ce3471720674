//! EX-Q4: speed-up by the number of processors (KTK, figure 2).

use squall_tsp::{Costs, Form};

use super::{instance, search};
use crate::{Axis, Experiment, Found, Lab, Means, Missing, Paper, Plot, Series, Verdict};

pub(in crate::experiments) static EX_Q4: Experiment = Experiment {
    id: "EX-Q4",
    title: "Travelling salesman: speed-up",
    question: "How much faster do more searchers prove the shortest tour?",
    paper: Paper {
        source: "A. Gheith et al., KTK, 1994, figure 2. Its plot is lost; J. Appavoo, PhD thesis 2005, §2.2.1, has figures.",
        found: "The balanced queue speeds up much more than the unbalanced one. On 25 processors a central queue under one \
                lock limits the speed-up to 4, and a distributed one reaches 10.",
    },
    here: "The searches and the model of EX-Q3, with 1 to 25 searchers. Speed-up is against one searcher with the central \
           queue. The cost of a branch is chosen so that the central queue's limit is that of the paper, 4. The other \
           curves follow from the counts. Unbalanced fragments are shown with order and without (naive).",
    agrees_if: "with 25 searchers the central queue's speed-up is from 3 to 5 and the ring's at least 10; and with 16 searchers \
                the ring's is at least 1.2 times that of ordered fragments without balance, and twice that of naive ones.",
    command: "squall report EX-Q4",
    seconds: (2, 6),
    run,
    verdict,
    alike: || planted([4.0, 1.0, 6.0, 9.0], [4.0, 1.5, 8.0, 10.5]),
    opposite: || planted([14.0, 13.0, 12.0, 9.0], [20.0, 18.0, 16.0, 10.5]),
};

const FORMS: [Form; 4] = [Form::Central, Form::Naive, Form::Unbalanced, Form::Ring];
const PLOT: &str = "ex-q4";

fn run(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    let instance = instance()?;
    let counts: Vec<usize> =
        if lab.quick { vec![1, 4, 8, 16, 25] } else { (1..=16).chain([20, 25]).collect() };
    let alone = search(lab, &instance, Form::Central, 1, Costs::KSR1)?.time as f64;
    let mut curves = Vec::new();
    for form in FORMS {
        let mut points = Vec::new();
        for &searchers in &counts {
            let time = search(lab, &instance, form, searchers, Costs::KSR1)?.time as f64;
            points.push((searchers as f64, alone / time));
        }
        curves.push(points);
    }
    Ok(make(curves))
}

fn verdict(found: &Found) -> Verdict {
    let at = |searchers: f64| FORMS.map(|form| found.series(PLOT, form.name()).at(searchers));
    let ([_, naive, unbalanced, ring], last) = (at(16.0), at(25.0));
    let why = format!(
        "with 16 searchers the speed-up is {:.1} with the central queue, {naive:.1} with naive fragments, \
         {unbalanced:.1} with ordered ones and {ring:.1} with the ring; with 25 it is {:.1}, {:.1}, {:.1} and {:.1}",
        at(16.0)[0],
        last[0],
        last[1],
        last[2],
        last[3]
    );
    let limited = (3.0..=5.0).contains(&last[0]) && last[3] >= 10.0;
    Verdict::of(limited && ring >= 1.2 * unbalanced && ring >= 2.0 * naive, why)
}

fn make(curves: Vec<Vec<(f64, f64)>>) -> Found {
    let series = FORMS.into_iter().zip(curves);
    let plot = Plot {
        name: PLOT,
        title: "Speed-up of the proof",
        x: Axis::linear("searchers"),
        y: Axis::linear("speed-up"),
        means: Means::Modelled,
        series: series.map(|(form, points)| Series { name: form.name().to_owned(), points }).collect(),
    };
    Found { plots: vec![plot], ..Found::default() }
}

/// Curves through 1, and these points at 16 and 25 searchers.
fn planted(at_16: [f64; 4], at_25: [f64; 4]) -> Found {
    let curves = at_16.into_iter().zip(at_25).map(|(one, two)| vec![(1.0, 1.0), (16.0, one), (25.0, two)]);
    make(curves.collect())
}
