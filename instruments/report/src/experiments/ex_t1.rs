//! EX-T1: a counter that is never contended, and yet slow (Tornado, figure 1).

use crate::lab::Loop;
use crate::{Axis, Experiment, Found, Lab, Means, Missing, Paper, Plot, Series, Verdict};

pub(super) static EX_T1: Experiment = Experiment {
    id: "EX-T1",
    title: "An uncontended counter",
    question: "Is a shared counter slow even if threads never meet at it?",
    paper: Paper {
        source: "B. Gamsa et al., Tornado, OSDI 1999, figure 1.",
        found: "Yes. With 16 processors a shared counter costs more than a hundred times a local one, and an array \
                without padding is no better; an array with padding and a clustered object cost almost nothing. On \
                hardware ten years older the shared counter was cheap.",
    },
    here: "Threads pause between additions. Squall's counter has one word per processor. An access to a line that another \
           processor has written (write-shared) is counted. The older hardware is not repeated.",
    agrees_if: "an addition makes more than 0.9 such accesses on the shared counter and in the array, and less than 0.05 \
                with padding and with Squall.",
    command: "squall report EX-T1",
    seconds: (25, 100),
    run,
    verdict,
    alike: || found([1.0, 1.0], [1.0, 1.0], [0.0; 2], [0.0; 2]),
    opposite: || found([0.0; 2], [0.0; 2], [1.0, 1.0], [1.0, 1.0]),
};

/// Name in the report, and subject of the case `percpu-paced`.
const SUBJECTS: [(&str, &str); 4] =
    [("shared", "atomic"), ("array", "unpadded"), ("array with padding", "padded"), ("Squall", "squall")];
const COUNTED: [usize; 4] = [2, 4, 8, 16];

fn run(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    let mut series = Vec::new();
    for (name, subject) in SUBJECTS {
        let mut points = Vec::new();
        for n in COUNTED {
            let ops = if lab.quick { 200 } else { 2000 };
            let counts = lab.count(Loop { case: "percpu-paced", subject, variant: "", threads: n, ops })?;
            points.push((n as f64, counts.write_shared));
        }
        series.push(Series { name: name.to_owned(), points });
    }
    Ok(make(series))
}

fn make(series: Vec<Series>) -> Found {
    let plot = Plot {
        name: "ex-t1",
        title: "Accesses to lines that others write, per addition",
        x: Axis::linear("processors, each with one thread"),
        y: Axis::linear("write-shared accesses per addition"),
        means: Means::Counted,
        series,
    };
    Found { plots: vec![plot], ..Found::default() }
}

fn verdict(found: &Found) -> Verdict {
    let [shared, array, padded, squall] = SUBJECTS.map(|(name, _)| found.series("ex-t1", name).last());
    let why = format!(
        "at 16 processors an addition makes {shared:.2} write-shared accesses on the shared counter, {array:.2} in the \
         array, {padded:.2} with padding, and {squall:.2} with Squall"
    );
    Verdict::of(shared > 0.9 && array > 0.9 && padded < 0.05 && squall < 0.05, why)
}

fn found(shared: [f64; 2], array: [f64; 2], padded: [f64; 2], squall: [f64; 2]) -> Found {
    let series = SUBJECTS.iter().zip([shared, array, padded, squall]);
    let points = |ys: [f64; 2]| [2.0, 16.0].into_iter().zip(ys).collect();
    make(series.map(|((name, _), ys)| Series { name: (*name).to_owned(), points: points(ys) }).collect())
}
