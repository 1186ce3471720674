//! EX-T2: one representative or many, and both sides of the trade (Tornado, figure 5).

use crate::lab::Loop;
use crate::{Axis, Experiment, Found, Lab, Means, Missing, Paper, Plot, Series, Verdict};

pub(super) static EX_T2: Experiment = Experiment {
    id: "EX-T2",
    title: "One representative or many: both sides of the trade",
    question: "Do representatives on every processor pay for lookups, and what do they cost for removals?",
    paper: Paper {
        source: "B. Gamsa et al., Tornado, OSDI 1999, figure 5.",
        found: "Page faults look up a region, a range of a process's addresses. They scale if the object for the process has \
                a part (a representative) on each processor; with one, all wait for its list's lock. Destroying a \
                region is the reverse: it is dearer with many representatives.",
    },
    here: "A map in its form with one lock, and in its form with a copy on each processor. Lookups stand for page \
           faults. Inserting and removing entries stands for the destruction of regions.",
    agrees_if: "lookups with one representative slow down more than 3 times, and with many less than 1.2 times. At the end \
                many are faster in lookups and take more than 1.2 times as long in changes.",
    command: "squall report EX-T2",
    seconds: (60, 120),
    run,
    verdict,
    alike: || found([50.0, 300.0, 600.0], [8.0; 3], [50.0, 350.0, 600.0], [120.0, 900.0, 1200.0]),
    opposite: || found([50.0, 300.0, 600.0], [8.0; 3], [120.0, 900.0, 1200.0], [50.0, 350.0, 600.0]),
};

const ONE: &str = "one, under a lock";
const MANY: &str = "one per processor";
const COUNTED: [usize; 3] = [1, 8, 16];

fn run(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    let ops = if lab.quick { 500 } else { 5000 };
    let mut count = |case, variant, subject| -> Result<[f64; 3], Missing> {
        let mut ns = [f64::NAN; 3];
        for (at, threads) in COUNTED.into_iter().enumerate() {
            ns[at] = lab.count(Loop { case, subject, variant, threads, ops })?.modelled_ns;
        }
        Ok(ns)
    };
    Ok(found(
        count("map-get", "10k-u64-uniform", "squall-locked")?,
        count("map-get", "10k-u64-uniform", "squall-replicated")?,
        count("map-churn", "10k-u64", "squall-locked")?,
        count("map-churn", "10k-u64", "squall-replicated")?,
    ))
}

fn verdict(found: &Found) -> Verdict {
    let of = |plot, name| found.series(plot, name);
    let (one, many) = (of("ex-t2-lookups", ONE), of("ex-t2-lookups", MANY));
    let (one_changed, many_changed) = (of("ex-t2-changes", ONE).last(), of("ex-t2-changes", MANY).last());
    let why = format!(
        "by the model of a server, at 16 processors a lookup takes {:.0} ns with one representative and {:.0} ns with one per processor; a change \
         takes {one_changed:.0} ns and {many_changed:.0} ns",
        one.last(),
        many.last()
    );
    let lookups = one.growth() > 3.0 && many.growth() < 1.2 && many.last() < one.last();
    Verdict::of(lookups && many_changed > 1.2 * one_changed, why)
}

fn found(lookups_one: [f64; 3], lookups_many: [f64; 3], one: [f64; 3], many: [f64; 3]) -> Found {
    let series = |name: &str, ns: [f64; 3]| {
        let points = COUNTED.iter().map(|n| *n as f64).zip(ns).collect();
        Series { name: name.to_owned(), points }
    };
    let plot = |name, title, series| Plot {
        name,
        title,
        x: Axis::linear("processors, each with one thread"),
        y: Axis::log("ns per operation"),
        means: Means::Modelled,
        series,
    };
    let lookups = vec![series(ONE, lookups_one), series(MANY, lookups_many)];
    let changes = vec![series(ONE, one), series(MANY, many)];
    Found {
        plots: vec![
            plot("ex-t2-lookups", "A lookup, by the number of processors", lookups),
            plot("ex-t2-changes", "An insertion or a removal, by the number of processors", changes),
        ],
        ..Found::default()
    }
}
