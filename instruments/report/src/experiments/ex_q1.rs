//! EX-Q1: the parts of a call through a policy (KTK, table 1).

use crate::lab::Loop;
use crate::{Axis, Experiment, Found, Lab, Means, Missing, Paper, Plot, Series, Verdict};

pub(super) static EX_Q1: Experiment = Experiment {
    id: "EX-Q1",
    title: "The parts of a call through a policy",
    question: "Which part of a call through a policy costs most: to find the policy, to build the block, or to invoke?",
    paper: Paper {
        source: "A. Gheith et al., KTK, 1994, table 1.",
        found: "A policy is a function that gets each call of an object as a block. In a fast call with local data, finding \
                the policy takes 10 µs, building the block 15, invoking 26. An asynchronous call reserves memory for \
                its parameters, so its block takes 40 µs. With data in another node's memory a call takes about \
                twice as long: 110 µs for 51, and 145 for 76.",
    },
    here: "Loads and stores of each part are counted. An asynchronous call runs at once, on the caller's thread. Its result \
           is then handed over, which the paper does not list; it is counted apart and not compared. Processors now \
           have caches, so data in another node's memory is fetched once and the global columns cannot be repeated. \
           Shown instead is the first call of an object on a processor, whose table does not yet lead to the policy.",
    agrees_if: "of the three parts with local data, finding the policy is at most a third of each call, and building the block \
                is the largest part of an asynchronous call and larger than in a fast one.",
    command: "squall report EX-Q1",
    seconds: (20, 20),
    run,
    verdict,
    alike: || {
        make([[10.0, 15.0, 26.0], [10.0, 40.0, 26.0], [30.0, 25.0, 55.0], [30.0, 60.0, 55.0]], [0.0; 2])
    },
    opposite: || {
        make([[40.0, 15.0, 26.0], [40.0, 10.0, 26.0], [40.0, 15.0, 26.0], [40.0, 10.0, 26.0]], [0.0; 2])
    },
};

/// The kinds of call, as in the paper's columns.
const CALLS: [&str; 4] = ["fast", "asynchronous", "first call, fast", "first call, asynchronous"];
const PARTS: [&str; 3] = ["find the policy", "build the block", "invoke"];
/// Part of an asynchronous call that the paper does not list.
const HAND_OVER: &str = "hand over the result";

fn run(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    let (mut parts, mut handed) = ([[f64::NAN; 3]; 4], [f64::NAN; 2]);
    for (at, variant) in ["again", "first"].into_iter().enumerate() {
        let mut until = |subject| -> Result<f64, Missing> {
            let ops = 2000;
            Ok(lab.count(Loop { case: "invoke-parts", subject, variant, threads: 1, ops })?.accesses)
        };
        let (found, built, fast) = (until("squall-find")?, until("squall-block")?, until("squall-fast")?);
        let (reserved, asynchronous) = (until("squall-reserve")?, until("squall-asynchronous")?);
        // An asynchronous call reserves memory, and then makes the fast call.
        parts[2 * at] = [found, built - found, fast - built];
        parts[2 * at + 1] = [found, reserved + built - found, fast - built];
        handed[at] = asynchronous - reserved - fast;
    }
    let mut found = make(parts, handed);
    found
        .missing
        .push("the paper's columns with data in another node's memory, since caches hide it".to_owned());
    Ok(found)
}

fn verdict(found: &Found) -> Verdict {
    let parts = |call: &str| PARTS.map(|part| found.value(&name(call, part)));
    let (fast, slow) = (parts(CALLS[0]), parts(CALLS[1]));
    let small = [fast, slow].iter().all(|it| it[0] <= it.iter().sum::<f64>() / 3.0);
    let dominates = slow[1] >= slow[0] && slow[1] >= slow[2] && slow[1] > fast[1];
    let why = format!(
        "loads and stores to find the policy, to build the block and to invoke: in a fast call {:.0}, {:.0} and {:.0}, in \
         an asynchronous one {:.0}, {:.0} and {:.0}, and {:.0} more to hand over its result",
        fast[0],
        fast[1],
        fast[2],
        slow[0],
        slow[1],
        slow[2],
        found.value(&name(CALLS[1], HAND_OVER))
    );
    Verdict::of(small && dominates, why)
}

fn name(call: &str, part: &str) -> String {
    format!("{call}: {part}")
}

/// Figures from the parts of each kind of call, and the hand-over of the two asynchronous ones.
fn make(parts: [[f64; 3]; 4], handed: [f64; 2]) -> Found {
    let mut found = Found::default();
    let mut series = Vec::new();
    for (call, parts) in CALLS.into_iter().zip(parts) {
        let (mut so_far, mut points) = (0.0, vec![(0.0, 0.0)]);
        for (at, (part, accesses)) in PARTS.into_iter().zip(parts).enumerate() {
            found.figure(name(call, part), accesses, "accesses", Means::Counted);
            so_far += accesses;
            points.push((at as f64 + 1.0, so_far));
        }
        series.push(Series { name: call.to_owned(), points });
    }
    for (call, accesses) in [CALLS[1], CALLS[3]].into_iter().zip(handed) {
        found.figure(name(call, HAND_OVER), accesses, "accesses", Means::Counted);
    }
    found.plots.push(Plot {
        name: "ex-q1",
        title: "A call through a policy, part by part",
        x: Axis::linear("parts done: 1 policy found, 2 block built, 3 invoked"),
        y: Axis::linear("loads and stores so far"),
        means: Means::Counted,
        series,
    });
    found
}
