//! EX-T3: the same tests on a simulator and on a machine (Tornado, figure 7).

use crate::lab::Loop;
use crate::{Axis, Experiment, Found, Lab, Means, Missing, Paper, Plot, Series, Verdict};

pub(super) static EX_T3: Experiment = Experiment {
    id: "EX-T3",
    title: "The model against the machine",
    question: "Do costs that a model computes from counted accesses rank and grow like times on a machine?",
    paper: Paper {
        source: "B. Gamsa et al., Tornado, OSDI 1999, figure 7.",
        found: "The same tests were run on the simulator SimOS and on the machine NUMAchine. The trends agree, although \
                the absolute times differ.",
    },
    here: "The profiler's model of a server computes a time from the counted accesses; `squall bench` times the same loops \
           on this machine. If the padded counter slows down or speeds up, other programs disturbed the times. The \
           emulator lacks restartable sequences, so the allocator runs its fallback there.",
    agrees_if: "with one thread, model and machine rank the operations alike (rank correlation of at least 0.8), and each \
                counter that becomes more than 1.5 times slower on all processors in one does so in the other, too.",
    command: "squall report EX-T3",
    seconds: (60, 200),
    run,
    verdict,
    alike: || {
        found(
            &[1.0, 2.0, 3.0, 4.0],
            &[10.0, 25.0, 22.0, 60.0],
            [4.0, 3.0, 2.0, 1.0, 1.0],
            [9.0, 5.0, 1.7, 1.1, 1.0],
        )
    },
    opposite: || {
        found(
            &[1.0, 2.0, 3.0, 4.0],
            &[60.0, 22.0, 25.0, 10.0],
            [4.0, 3.0, 2.0, 1.0, 1.0],
            [1.0, 1.0, 1.0, 5.0, 9.0],
        )
    },
};

/// Case, variant and subject of the loops with one thread. They do not share.
const ALONE: [(&str, &str, &str); 7] = [
    ("call", "", "squall"),
    ("lock", "free", "squall"),
    ("alloc", "tight-64", "squall"),
    ("miss", "cached", "squall"),
    ("lifecycle", "", "squall"),
    ("invoke", "call", "squall-intercepted"),
    ("invoke", "call", "squall-attributes-2"),
];
/// Subjects of the case `counter`, with one thread and on all processors.
const COUNTERS: [&str; 5] = ["mutex", "atomic", "unpadded", "padded", "squall-distributed"];
/// Growth that counts as a slowdown.
const SLOWER: f64 = 1.5;

const ONE: &str = "1 thread";
const ALL: &str = "counters, all processors";

fn run(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    let threads = lab.threads();
    let all = threads.last().copied().unwrap_or(1);
    let ops = if lab.quick { 1000 } else { 5000 };
    let mut costs = Vec::new();
    for (case, variant, subject) in ALONE {
        let modelled = lab.count(Loop { case, subject, variant, threads: 1, ops })?.modelled_ns;
        costs.push((modelled, lab.bench(case, variant, &[1])?.ns(subject, 1)));
    }
    let counts: &[usize] = if all > 1 { &[1, all] } else { &[1] };
    let times = lab.bench("counter", "", counts)?;
    let (mut crowd, mut growths) = (Vec::new(), Vec::new());
    for subject in COUNTERS {
        let mut modelled = |threads| -> Result<f64, Missing> {
            Ok(lab.count(Loop { case: "counter", subject, variant: "", threads, ops })?.modelled_ns)
        };
        let one = (modelled(1)?, times.ns(subject, 1));
        costs.push(one);
        if all > 1 {
            let many = (modelled(all)?, times.ns(subject, all));
            growths.push([many.0 / one.0, many.1 / one.1]);
            crowd.push(many);
        }
    }
    let mut found = make(costs, crowd, &growths);
    if all == 1 {
        found.missing.push("with one processor nothing slows down by sharing".to_owned());
    } else if let Some(why) = disturbance(&found) {
        found.missing.push(why);
    }
    Ok(found)
}

/// Tells a disturbed machine by the padded counter: its threads use separate lines.
fn disturbance(found: &Found) -> Option<String> {
    let growth = found.value(&growth_of("padded")[1]);
    let why = format!(
        "times without disturbance, since a counter without sharing takes {growth:.1} times as long on all processors"
    );
    (!(1.0 / SLOWER..=SLOWER).contains(&growth)).then_some(why)
}

/// Figures from pairs of the model's and the machine's cost or growth.
fn make(costs: Vec<(f64, f64)>, crowd: Vec<(f64, f64)>, growths: &[[f64; 2]]) -> Found {
    let series = [(ONE, costs), (ALL, crowd)].map(|(name, mut points)| {
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        Series { name: name.to_owned(), points }
    });
    let plot = Plot {
        name: "ex-t3",
        title: "Each operation on the machine, by the model's cost",
        x: Axis::log("ns per operation by the model"),
        y: Axis::log("ns per operation, timed"),
        means: Means::Timed,
        series: series.into(),
    };
    let mut found = Found { plots: vec![plot], ..Found::default() };
    for (subject, growth) in COUNTERS.into_iter().zip(growths) {
        let [modelled, timed] = growth_of(subject);
        found.figure(modelled, growth[0], "times", Means::Modelled);
        found.figure(timed, growth[1], "times", Means::Timed);
    }
    found
}

/// Names of a counter's growth from one thread to all processors: by the model, and on the machine.
fn growth_of(subject: &str) -> [String; 2] {
    ["by the model", "on the machine"].map(|by| format!("growth of {subject} {by}"))
}

fn verdict(found: &Found) -> Verdict {
    let correlation = rank_correlation(&found.series("ex-t3", ONE).points);
    let growths = COUNTERS.map(|subject| growth_of(subject).map(|name| found.value(&name)));
    let alike = |it: &&[f64; 2]| it.iter().all(|it| it.is_finite()) && (it[0] > SLOWER) == (it[1] > SLOWER);
    let trends = growths.iter().filter(alike).count();
    let why = format!(
        "the rank correlation of the model's costs and the machine's is {correlation:.2}; {trends} of {} counters slow \
         down in both or in neither",
        COUNTERS.len()
    );
    Verdict::of(correlation >= 0.8 && trends == COUNTERS.len(), why)
}

/// Spearman's rank correlation of pairs, or NaN for fewer than two.
fn rank_correlation(pairs: &[(f64, f64)]) -> f64 {
    // Equal values share the mean of their ranks.
    let rank = |of: &dyn Fn(&(f64, f64)) -> f64, pair: &(f64, f64)| {
        let count = |holds: &dyn Fn(f64) -> bool| pairs.iter().filter(|it| holds(of(it))).count() as f64;
        count(&|value| value < of(pair)) + count(&|value| value == of(pair)) / 2.0
    };
    let ranks = pairs.iter().map(|pair| (rank(&|it| it.0, pair), rank(&|it| it.1, pair)));
    let mean = pairs.len() as f64 / 2.0;
    let (mut product, mut squares) = (0.0, (0.0, 0.0));
    for (one, other) in ranks {
        let (one, other) = (one - mean, other - mean);
        product += one * other;
        squares = (squares.0 + one * one, squares.1 + other * other);
    }
    product / (squares.0 * squares.1).sqrt()
}

fn found(modelled: &[f64], timed: &[f64], model_growth: [f64; 5], machine_growth: [f64; 5]) -> Found {
    let costs = modelled.iter().copied().zip(timed.iter().copied()).collect();
    let growths: Vec<[f64; 2]> =
        model_growth.into_iter().zip(machine_growth).map(|(one, other)| [one, other]).collect();
    make(costs, Vec::new(), &growths)
}

#[cfg(test)]
mod tests {
    use super::{disturbance, found, rank_correlation};

    #[test]
    fn a_counter_without_sharing_tells_a_disturbed_machine() {
        let of = |padded| disturbance(&found(&[], &[], [1.0; 5], [9.0, 5.0, 1.7, padded, 1.0]));
        assert_eq!((of(1.4), of(0.7)), (None, None));
        assert!([0.2, 1.6, f64::NAN].map(of).iter().all(Option::is_some));
    }

    #[test]
    fn ranks_are_compared_and_not_values() {
        let of =
            |ys: [f64; 4]| rank_correlation(&[1.0, 2.0, 3.0, 4.0].into_iter().zip(ys).collect::<Vec<_>>());
        assert!((of([1.0, 5.0, 6.0, 900.0]) - 1.0).abs() < 1e-9);
        assert!((of([4.0, 3.0, 2.0, 1.0]) + 1.0).abs() < 1e-9);
        assert!((of([2.0, 1.0, 3.0, 4.0]) - 0.8).abs() < 1e-9);
        assert!(of([1.0; 4]).is_nan() && rank_correlation(&[]).is_nan());
    }
}
