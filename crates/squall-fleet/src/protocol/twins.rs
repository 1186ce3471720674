//! Twins of the protocol without one safeguard each: the simulator must find the violation.

use super::guard::Guard;
use super::sim::{self, scenes::SCENES};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Safeguards, and for each a seed that fails without it. After a change of the protocol or of the simulator,
/// the ignored test `survey_of_twins` finds other ones.
const TWINS: &[(Guard, u64)] = &[
    (Guard::LeaseToRun, 7),
    (Guard::Authority, 337),
    (Guard::LeaseFromMessage, 16),
    (Guard::SilenceBeforeRemoval, 16),
    (Guard::SilenceFromElection, 29),
    (Guard::VoteByLog, 17),
    (Guard::OneVote, 21),
    (Guard::BothMajorities, 34),
    (Guard::SessionsTravel, 0),
    (Guard::Remembered, 0),
    (Guard::EndedCalls, 35),
    (Guard::EndedStays, 35),
    (Guard::FirstAttempt, 20),
    (Guard::IdleBeforeExport, 40),
    (Guard::NoRunInHandover, 10),
    (Guard::RequestNumbers, 0),
    (Guard::NewNumber, 3),
    (Guard::LeaseToAnswer, 411),
];

/// Runs a schedule, perhaps without a safeguard. Returns the message of the violation that the simulator
/// finds.
fn violation(removed: Option<Guard>, seed: u64) -> Option<String> {
    violation_of(removed, || _ = sim::run(seed))
}

fn violation_of(removed: Option<Guard>, play: impl FnOnce()) -> Option<String> {
    let panic = catch_unwind(AssertUnwindSafe(|| Guard::without(removed, play))).err()?;
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
    let twins = TWINS.iter().map(|(guard, _)| guard);
    for guard in twins.chain(SCENES.iter().map(|scene| &scene.guard)) {
        if only.as_ref().is_some_and(|only| !only.split(',').any(|name| name == format!("{guard:?}"))) {
            continue;
        }
        let fails = |seed| Some((seed, violation(Some(*guard), seed)?));
        let found = (0..count).filter_map(fails).filter(|(seed, _)| violation(None, *seed).is_none()).take(1);
        for (seed, text) in found {
            println!("{guard:?} {seed}: {}", text.chars().take(100).collect::<String>());
        }
        println!("{guard:?} done");
    }
}

/// Each safeguard is needed, and the simulator sees that it is missing.
#[test]
fn each_safeguard_is_missed() {
    for (guard, seed) in TWINS {
        assert_eq!(violation(None, *seed), None, "seed {seed} fails with all safeguards");
        assert!(
            violation(Some(*guard), *seed).is_some(),
            "seed {seed} holds without {guard:?}: run survey_of_twins"
        );
    }
}

/// Rare faults come in scripts, and each safeguard has a seed or a script.
#[test]
fn each_safeguard_is_missed_in_its_scene() {
    for scene in SCENES {
        let guard = scene.guard;
        assert_eq!(violation_of(None, scene.play), None, "the scene of {guard:?} fails with all safeguards");
        let found = violation_of(Some(guard), scene.play).unwrap_or_default();
        assert!(found.contains(scene.violation), "without {guard:?}, its scene ends with {found:?}");
    }
    let missed = TWINS.iter().map(|(guard, _)| *guard).chain(SCENES.iter().map(|scene| scene.guard));
    assert_eq!(missed.collect::<BTreeSet<_>>(), Guard::ALL.iter().copied().collect());
}
