//! Twins of the protocol without one safeguard each: the simulator must find the violation.

use super::guard::Guard;
use super::sim;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Safeguards, and for each a seed that fails without it. After a change of the protocol or of the simulator,
/// the ignored test `survey_of_twins` finds other ones.
const TWINS: &[(Guard, u64)] = &[
    (Guard::LeaseToRun, 0),
    (Guard::LeaseToAnswer, 0),
    (Guard::Authority, 0),
    (Guard::LeaseFromMessage, 0),
    (Guard::SilenceBeforeRemoval, 0),
    (Guard::SilenceFromElection, 0),
    (Guard::NoLeaseInRemoval, 0),
    (Guard::LeaseByMajority, 0),
    (Guard::VoteByLog, 0),
    (Guard::OneVote, 0),
    (Guard::BothMajorities, 0),
    (Guard::OneChange, 0),
    (Guard::OwnTerm, 0),
    (Guard::KnownBefore, 0),
    (Guard::SessionsTravel, 0),
    (Guard::Remembered, 0),
    (Guard::LowNumbers, 0),
    (Guard::FirstAttempt, 0),
    (Guard::EpochOfMove, 0),
    (Guard::EpochOfBirth, 0),
    (Guard::IdleBeforeExport, 0),
    (Guard::NoRunInHandover, 0),
    (Guard::NoRunOnceAbandoned, 0),
    (Guard::RequestNumbers, 0),
    (Guard::NewNumber, 0),
];

/// Runs a schedule, perhaps without a safeguard. Returns the message of the violation that the simulator finds.
fn violation(removed: Option<Guard>, seed: u64) -> Option<String> {
    let panic = catch_unwind(AssertUnwindSafe(|| Guard::without(removed, || sim::run(seed)))).err()?;
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
}

/// Prints, for each safeguard, the first seeds that fail without it.
#[test]
#[ignore = "a search, run by hand"]
fn survey_of_twins() {
    let count = std::env::var("SQUALL_SCHEDULES").ok().and_then(|count| count.parse().ok()).unwrap_or(1500);
    let only = std::env::var("SQUALL_TWIN").ok();
    std::panic::set_hook(Box::new(|_| {}));
    for (guard, _) in TWINS {
        if only.as_ref().is_some_and(|only| !only.split(',').any(|name| name == format!("{guard:?}"))) {
            continue;
        }
        let fails = |seed| Some((seed, violation(Some(*guard), seed)?));
        let found = (0..count).filter_map(fails).filter(|(seed, _)| violation(None, *seed).is_none()).take(2);
        for (seed, text) in found {
            println!("{guard:?} {seed}: {}", text.chars().take(100).collect::<String>());
        }
        println!("{guard:?} done");
    }
}
